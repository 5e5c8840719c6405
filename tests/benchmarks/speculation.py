"""How well mined patterns predict calls, on public traces, beside the baseline.

    python tests/benchmarks/speculation.py [--data FOLDER] [--set tau,bfcl,api-bank] [--ablate] [--share 0.1]

Groups are split five ways; see helix.mining.measure. Nothing is tuned on test folds: the threshold of the gate is
chosen on the predictions that mining made while it learned each training part.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from helix.aligned import aligned
from helix.mining import Candidate, Miner, MinerSettings
from helix.mining.history import call_key
from helix.mining.measure import Guess, Labels, Replayed, gate, interval, overall, replay, shares, split
from helix.mining.miner import outcomes_of
from helix.mining.report import MinedPredictor, based, line, measured, mined, report_text
from helix.traces import Session, ToolEvent, sessions_of
from helix.traces.importers import import_trace

# By group, how many were right, of how many.
ByGroup = dict[str, tuple[int, int]]
DATA = Path(__file__).parents[3] / "shared" / "data" / "traces"


@dataclass(frozen=True, kw_only=True)
class Bar:
    """What is to be beaten, in %: next tool, tool and arguments, and those of read-only calls, among 1 and 3; and the
    gate's hit % at so many wasted launches, which the baseline has from a probability of `threshold` on."""

    tool: tuple[float, float]
    call: tuple[float, float]
    read: tuple[float, float]
    hit: float
    wasted: float
    threshold: float


@dataclass(frozen=True, kw_only=True)
class Set:
    """One public set: how it is read, which tools only read, and the bar."""

    form: str
    path: str
    labels: Labels
    bar: Bar
    counts: tuple[int, int, int, int]
    answers: str | None = None
    results: str | None = None

    def sessions(self, data: Path) -> list[Session]:
        """Its sessions."""
        answers, results = (None if each is None else data / each for each in (self.answers, self.results))
        return sessions_of(import_trace(data / self.path, self.form, answers=answers, results=results))


_BFCL = (
    "get_* estimate_* find* check_* verify_* view_* retrieve* compute* list_* display* *liter* *deviation cat wc ls "
    "diff grep tail sort du mean log*"
)
_API_BANK = "Query* *Search* GetToday Dictionary Translate Wiki Calculator Image* Speech* Doc* Emergency*"
SETS = {
    "tau": Set(
        form="openai",
        path="taubench_airline_gpt4o.json",
        labels=Labels(read_only=("get_*", "search_*", "list_*", "calculate"), ignored=("think",)),
        bar=Bar(tool=(57.1, 79.7), call=(36.9, 46.6), read=(50.3, 62.9), hit=55.2, wasted=0.36, threshold=0.2),
        counts=(200, 2454, 1164, 774),
    ),
    "bfcl": Set(
        form="bfcl",
        path="bfcl/BFCL_v4_multi_turn_base.json",
        answers="bfcl/possible_answer/BFCL_v4_multi_turn_base.json",
        results="bfcl/derived_bfcl_base.sessions.json",
        labels=Labels(read_only=tuple(_BFCL.split())),
        bar=Bar(tool=(44.6, 63.4), call=(31.0, 39.4), read=(33.1, 43.9), hit=34.9, wasted=0.54, threshold=0.2),
        counts=(200, 1876, 1142, 481),
    ),
    "api-bank": Set(
        form="api-bank",
        path="api-bank/lv1-lv2-samples",
        labels=Labels(read_only=tuple(_API_BANK.split())),
        bar=Bar(tool=(33.5, 48.4), call=(19.7, 25.4), read=(8.6, 11.2), hit=4.1, wasted=0.22, threshold=0.1),
        counts=(264, 1718, 508, 197),
    ),
}


class Chooser:
    """Mines sessions, and finds the threshold whose waste on the predictions made meanwhile is within a bound."""

    def __init__(self, labels: Labels, most_wasted: float, settings: MinerSettings) -> None:
        self.labels, self.most, self.settings = labels, most_wasted, settings
        self.thresholds: list[float] = []

    def __call__(self, sessions: list[Session]) -> MinedPredictor:
        rows: list[Replayed] = []
        miner = Miner(self.settings)
        miner.mine(sessions, heard=lambda *heard: rows.extend(_rows(*heard, self.labels)))
        # Predictions from little data come first, and are not like those that are made later.
        names = list(dict.fromkeys(row.session for row in rows))
        late = set(names[len(names) // 2 :])
        held = [row for row in rows if row.session in late]
        found = 1.0
        for step in range(99, 0, -1):
            if gate(held, self.labels, step / 100).wasted > self.most:
                break
            found = step / 100
        self.thresholds.append(found)
        return MinedPredictor(miner)


def _rows(session: Session, calls: list[ToolEvent], found: list[Candidate], labels: Labels) -> list[Replayed]:
    guesses = [Guess(each.tool, each.key, each.p, each.p_low) for each in found]
    return [
        Replayed(
            group=session.group,
            session=session.id,
            tool=None if call is None else call.tool,
            key=None if call is None else call_key(call.tool, call.args),
            reads=call is not None and labels.reads(call.tool),
            tools=[],
            guesses=guesses,
        )
        for call in outcomes_of(calls)
    ]


def passed(sessions: Sequence[Session], rows: Sequence[Replayed], thresholds: Sequence[float]) -> list[Replayed]:
    """Rows whose guesses have the probability 1 where they are probable enough in their fold, and else 0."""
    folds = split({session.group for session in sessions})
    of_group = {group: thresholds[place] for place, fold in enumerate(folds) for group in fold}
    return [
        replace(
            row,
            guesses=[
                Guess(each.tool, each.key, 1.0 if each.p >= of_group[row.group] else 0.0, each.p_low)
                for each in row.guesses
            ],
        )
        for row in rows
    ]


ABLATIONS: dict[str, dict[str, bool | int]] = {
    "whole": {},
    "no dates": {"dates": False},
    "no joint arguments": {"joint": False},
    "no words": {"words": False},
    "order 2": {"order": 2},
}


def ablated(held: Set, sessions: Sequence[Session], share: float) -> list[str]:
    """The table of what each part brings."""
    whole = replay(sessions, held.labels, mined(MinerSettings(half_life=None)), share)
    rows = []
    for name, changes in ABLATIONS.items():
        settings = MinerSettings(half_life=None, **changes)  # type: ignore[arg-type]
        found = whole if not changes else replay(sessions, held.labels, mined(settings), share)
        tools = line(name, found, whole, lambda most: lambda row: None if row.tool is None else row.tool_within(most))
        reads = line(name, found, whole, lambda most: lambda row: row.call_within(most) if row.reads else None)
        low, high = reads.gains[0]
        rows.append(
            [
                name,
                *(f"{100 * each:.1f}" for each in (*tools.ours, *reads.ours)),
                f"{100 * (reads.ours[0] - reads.baseline[0]):+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]",
            ]
        )
    return aligned(["", "tool 1", "tool 3", "read 1", "read 3", "read 1 against whole"], rows, left=1)


def against_bar(held: Set, ours: Sequence[Replayed], base: Sequence[Replayed]) -> list[str]:
    """Ours beside the figures to beat. What lies between them has the 95 % interval of the paired bootstrap over groups
    against the baseline, moved by what lies between the baseline and the figure."""
    kinds = {
        "next tool": (held.bar.tool, lambda most: lambda row: None if row.tool is None else row.tool_within(most)),
        "tool+args": (held.bar.call, lambda most: lambda row: None if row.tool is None else row.call_within(most)),
        "tool+args, read-only": (held.bar.read, lambda most: lambda row: row.call_within(most) if row.reads else None),
    }
    rows = []
    for name, (bar, right) in kinds.items():
        for most, goal in zip((1, 3), bar, strict=True):
            rows.append(_against(f"{name}, top {most}", shares(ours, right(most)), shares(base, right(most)), goal))
    return aligned(_HEAD, rows, left=1)


_HEAD = ["", "ours, %", "to beat", "more", "95 %", ""]


def _against(name: str, ours: ByGroup, base: ByGroup, goal: float) -> list[str]:
    share, other = 100 * overall(ours), 100 * overall(base)
    low, high = (100 * each + other - goal for each in interval(ours, base))
    verdict = "beaten" if low > 0 else "above, within chance" if share > goal else "not beaten"
    return [name, f"{share:.1f}", f"{goal}", f"{share - goal:+.1f}", f"[{low:+.1f}, {high:+.1f}]", verdict]


def gated_by_group(rows: Sequence[Replayed], labels: Labels, threshold: float) -> ByGroup:
    """By group, the hits of the gate and the read-only calls."""
    of_group: dict[str, list[Replayed]] = {}
    for row in rows:
        of_group.setdefault(row.group, []).append(row)
    found = {group: gate(held, labels, threshold) for group, held in of_group.items()}
    return {group: (each.hits, each.reads) for group, each in found.items()}


def main() -> int:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--set", dest="names", default=",".join(SETS))
    parser.add_argument("--ablate", action="store_true")
    parser.add_argument("--share", type=float, default=1.0, help="of the training groups")
    given = parser.parse_args()
    settings = MinerSettings(half_life=None)
    for name in given.names.split(","):
        held = SETS[name]
        sessions = held.sessions(given.data)
        counts = (
            len(sessions),
            sum(session.decisions for session in sessions),
            sum(len(session.calls) for session in sessions),
            sum(held.labels.reads(call.tool) for session in sessions for call in session.calls),
        )
        print(f"== {name}: sessions, decisions, calls, read-only calls {counts}, expected {held.counts}\n")
        if given.ablate:
            print("\n".join(ablated(held, sessions, given.share)), end="\n\n", flush=True)
            continue
        began = time.process_time()
        mined(settings)(list(sessions))
        print(f"mined in {time.process_time() - began:.1f} s of one core\n", flush=True)
        chooser = Chooser(held.labels, held.bar.wasted, settings)
        rows = replay(sessions, held.labels, chooser, given.share)
        base, said = (replay(sessions, held.labels, based(say=say)) for say in (False, True))
        found = measured(sessions, held.labels, [0.0, 0.1, 0.2, 0.3, 0.5], settings, rows, base, said)
        print(report_text(found), flush=True)
        print("\n" + "\n".join(against_bar(held, rows, base)))
        chosen = passed(sessions, rows, chooser.thresholds)
        gated = gate(chosen, held.labels, 0.5)
        print(
            f"\ngate with thresholds chosen in training folds {chooser.thresholds}: {gated.hits}/{gated.launched}, "
            f"hit {100 * gated.hit_share:.1f} % (to beat {held.bar.hit}), wasted {gated.wasted:.2f} "
            f"(at most {held.bar.wasted}), hidden {100 * gated.hidden:.1f} % of {100 * gated.limit:.1f} %"
        )
        mine = gated_by_group(chosen, held.labels, 0.5)
        other = gated_by_group(said, held.labels, held.bar.threshold)
        print("\n".join(aligned(_HEAD, [_against("gated hits", mine, other, held.bar.hit)], left=1)), "\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
