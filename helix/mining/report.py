"""The tables of `helix traces mine --report`: how good predictions are on a set of traces, beside the baseline."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from helix.aligned import aligned
from helix.mining.baseline import Baseline
from helix.mining.candidates import MinerSettings
from helix.mining.history import History
from helix.mining.measure import (
    CalibrationBin,
    Gated,
    Guess,
    Labels,
    Replayed,
    calibration,
    gate,
    interval,
    overall,
    replay,
    shares,
)
from helix.mining.miner import Miner, in_words
from helix.traces.events import Session

TOP = (1, 3)
ORDERS = (1, 2, 3)


class MinedPredictor:
    """A miner in a replay."""

    def __init__(self, miner: Miner) -> None:
        self.miner = miner

    def tools(self, history: History) -> list[str]:
        """Next tools, the likeliest first, without SAY."""
        return [name for name, _ in self.miner.next_tools(history) if name != "SAY"]

    def calls(self, history: History) -> list[Guess]:
        """Next calls, the likeliest first."""
        found = self.miner.predict(history)
        return [Guess(each.tool, each.key, each.p, each.p_low) for each in found]


class BaselinePredictor:
    """The baseline in a replay. With `say` its probabilities are of all outcomes, as the gate needs them."""

    def __init__(self, baseline: Baseline, *, say: bool) -> None:
        self.baseline, self.say = baseline, say

    def tools(self, history: History) -> list[str]:
        """Next tools, the likeliest first, without SAY."""
        return self.baseline.tools(history)

    def calls(self, history: History) -> list[Guess]:
        """Next calls, the likeliest first."""
        return [Guess(tool, key, p) for tool, key, p in self.baseline.calls(history, say=self.say)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One row of the table, in shares: ours and the baseline's among the first 1 and 3, and what lies between them with
    its 95 % interval over groups."""

    name: str
    of: int
    ours: tuple[float, float]
    baseline: tuple[float, float]
    gains: tuple[tuple[float, float], tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """All that a report shows."""

    sessions: int
    decisions: int
    calls: int
    reads: int
    orders: tuple[tuple[int, float, float], ...]
    lines: tuple[Line, ...]
    gates: tuple[tuple[Gated, Gated], ...]
    bins: tuple[CalibrationBin, ...]


def mined(settings: MinerSettings) -> Callable[[list[Session]], MinedPredictor]:
    """Mines patterns for a replay."""

    def learned(sessions: list[Session]) -> MinedPredictor:
        miner = Miner(settings)
        miner.mine(sessions)
        return MinedPredictor(miner)

    return learned


def based(order: int = 3, *, say: bool = False, arguments: bool = True) -> Callable[[list[Session]], BaselinePredictor]:
    """Learns the baseline for a replay."""

    def learned(sessions: list[Session]) -> BaselinePredictor:
        baseline = Baseline(order)
        baseline.mine(sessions, arguments=arguments)
        return BaselinePredictor(baseline, say=say)

    return learned


def measured(
    sessions: Sequence[Session],
    labels: Labels,
    thresholds: Sequence[float],
    settings: MinerSettings | None = None,
    ours: Sequence[Replayed] | None = None,
    base: Sequence[Replayed] | None = None,
    said: Sequence[Replayed] | None = None,
) -> Measured:
    """Replays sessions five ways against the miner and the baseline, without SAY and with it. `ours`, `base` and `said`
    are these replays, where they were made.
    """
    if ours is None:
        ours = replay(sessions, labels, mined(settings or MinerSettings(half_life=None)))
    if base is None:
        base = replay(sessions, labels, based())
    if said is None:
        said = replay(sessions, labels, based(say=True))
    orders = []
    for order in ORDERS:
        rows = base if order == ORDERS[-1] else replay(sessions, labels, based(order, arguments=False))
        orders.append((order, overall(shares(rows, _tool(1))), overall(shares(rows, _tool(3)))))
    calls = [row for row in ours if row.tool is not None]
    return Measured(
        sessions=len(sessions),
        decisions=sum(session.decisions for session in sessions),
        calls=len(calls),
        reads=sum(row.reads for row in calls),
        orders=tuple(orders),
        lines=(
            line("next tool", ours, base, _tool),
            line("tool and arguments", ours, base, _call),
            line("tool and arguments, read-only", ours, base, _read_call),
        ),
        gates=tuple((gate(ours, labels, at), gate(said, labels, at)) for at in thresholds),
        bins=tuple(calibration(ours, labels)),
    )


Right = Callable[[Replayed], bool | None]


def line(name: str, ours: Sequence[Replayed], base: Sequence[Replayed], right: Callable[[int], Right]) -> Line:
    """A row of the table."""
    mine = [shares(ours, right(most)) for most in TOP]
    other = [shares(base, right(most)) for most in TOP]
    gains = [interval(first, second) for first, second in zip(mine, other, strict=True)]
    return Line(
        name=name,
        of=sum(each[1] for each in mine[0].values()),
        ours=(overall(mine[0]), overall(mine[1])),
        baseline=(overall(other[0]), overall(other[1])),
        gains=(gains[0], gains[1]),
    )


def _tool(most: int) -> Right:
    return lambda row: None if row.tool is None else row.tool_within(most)


def _call(most: int) -> Right:
    return lambda row: None if row.tool is None else row.call_within(most)


def _read_call(most: int) -> Right:
    return lambda row: row.call_within(most) if row.reads else None


def report_text(found: Measured) -> str:
    """The tables for people."""
    lines = [
        f"{found.sessions:,} sessions, {found.decisions:,} decisions, {found.calls:,} calls, "
        f"{found.reads:,} of them read-only; five folds of groups",
        "",
        "right among the first 1 and 3, in %; the gain over the baseline with its 95 % interval over groups",
        "",
    ]
    rows = [
        [f"baseline of order {order}, next tool", "", "", f"{first:.1%}", f"{third:.1%}", "", ""]
        for order, first, third in found.orders
    ]
    rows += [
        [
            each.name,
            f"{each.ours[0]:.1%}",
            f"{each.ours[1]:.1%}",
            f"{each.baseline[0]:.1%}",
            f"{each.baseline[1]:.1%}",
            _gain(each, 0),
            _gain(each, 1),
        ]
        for each in found.lines
    ]
    head = ["", "ours 1", "ours 3", "base 1", "base 3", "gain 1", "gain 3"]
    lines += [each.replace("%", "") for each in aligned(head, rows, left=1)]
    if found.reads and found.gates:
        gates = [
            [
                name,
                f"{each.threshold:g}",
                f"{each.hits}/{each.launched}",
                f"{100 * each.hit_share:.1f}",
                f"{each.wasted:.2f}",
                f"{100 * each.hidden:.1f} ({100 * each.limit:.1f})",
            ]
            for pair in found.gates
            for name, each in zip(("ours", "baseline"), pair, strict=True)
        ]
        lines += ["", "launched ahead: a decision of 2 s, a call of 1 s, at most 3 at once", ""]
        lines += aligned(["", "p >=", "hits/launched", "hit %", "wasted", "hidden % (limit)"], gates, left=1)
    if found.bins:
        rows = [[f"{each.mean:.2f}", f"{each.observed:.2f}", f"{each.count}"] for each in found.bins]
        lines += ["", "lower bounds, and how often the predictions were right", ""]
        lines += aligned(["p_low", "right", "predictions"], rows, left=0)
    return "\n".join(lines)


def _gain(each: Line, place: int) -> str:
    low, high = each.gains[place]
    return f"{100 * (each.ours[place] - each.baseline[place]):+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


def report_json(found: Measured) -> str:
    """The tables as JSON."""
    held: dict[str, Any] = asdict(found)
    held["gates"] = [
        {name: _gated(each) for name, each in zip(("ours", "baseline"), pair, strict=True)} for pair in found.gates
    ]
    held["bins"] = [{"p_low": each.mean, "right": each.observed, "count": each.count} for each in found.bins]
    return json.dumps(held, ensure_ascii=False, indent=2)


def _gated(each: Gated) -> dict[str, float]:
    return {
        "threshold": each.threshold,
        "hits": each.hits,
        "launched": each.launched,
        "hit_share": each.hit_share,
        "wasted": each.wasted,
        "hidden": each.hidden,
        "limit": each.limit,
    }


def patterns_shown(miner: Miner, most: int) -> str:
    """The patterns with the most hits, of those that were mined here: how often each was right, and how people read
    it."""
    texts = {name: in_words(*way) for name, way in miner.ways.items()}
    held = sorted(
        ((name, miner.chances_of(name)) for name in texts), key=lambda each: (-each[1][1], -each[1][2], texts[each[0]])
    )
    rows = [
        [f"{hits:.0f}/{chances:.0f}", f"{low:.2f}", texts[name]]
        for name, (chances, hits, low) in held[:most]
        if hits >= 1
    ]
    return "\n".join(aligned(["right", "p_low", "pattern"], rows, left=3))
