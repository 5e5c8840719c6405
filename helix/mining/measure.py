"""How good predictions are: recorded sessions are replayed against patterns that were mined from others.

Groups are split five ways as 80/20, all five test folds are pooled. Before each decision the next call is predicted;
right is a tool, or a tool with all its arguments, that the recording then calls. The gate launches what is probable
enough and counts what was of use, under 2 s a decision and 1 s a call.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Protocol

from helix.mining.history import History, call_key
from helix.mining.miner import decisions_of, outcomes_of
from helix.traces.events import Session

FOLDS = 5
SEED = 7
LLM_SECONDS, TOOL_SECONDS = 2.0, 1.0
# What one decision may launch.
MOST_LAUNCHES = 3
RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Guess:
    """A predicted call: its probability with SAY among the outcomes, and the lower bound of that."""

    tool: str
    key: str
    p: float
    p_low: float = 0.0


class Predictor(Protocol):
    """What has learned from the sessions of the other folds."""

    def tools(self, history: History) -> list[str]:
        """Next tools, the likeliest first, without SAY."""

    def calls(self, history: History) -> list[Guess]:
        """Next calls, the likeliest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """Which tools only read, by patterns of their names; `ignored` ones neither count nor end what is kept."""

    read_only: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    declared: frozenset[str] = frozenset()

    def reads(self, tool: str) -> bool:
        """Whether calls of a tool may be launched ahead."""
        if self.ignores(tool):
            return False
        return tool in self.declared or any(fnmatchcase(tool, pattern) for pattern in self.read_only)

    def ignores(self, tool: str) -> bool:
        """Whether a tool is left out of the gate."""
        return any(fnmatchcase(tool, pattern) for pattern in self.ignored)


@dataclass(slots=True)
class Replayed:
    """One decision of the replay: what was called (None: SAY), and what was predicted."""

    group: str
    session: str
    tool: str | None
    key: str | None
    reads: bool
    tools: list[str]
    guesses: list[Guess]

    def tool_within(self, most: int) -> bool:
        """Whether the tool is among the first predicted ones."""
        return self.tool in self.tools[:most]

    def call_within(self, most: int) -> bool:
        """Whether the call is among the first predicted ones."""
        return any(guess.key == self.key for guess in self.guesses[:most])


def split(groups: Collection[str]) -> list[list[str]]:
    """The test folds: groups sorted as texts, shuffled with a fixed seed, dealt out."""
    ids = sorted(set(groups))
    random.Random(SEED).shuffle(ids)  # a seeded draw  # nosec B311
    return [ids[fold::FOLDS] for fold in range(FOLDS)]


def replay(
    sessions: Sequence[Session], labels: Labels, learned: Callable[[list[Session]], Predictor], share: float = 1.0
) -> list[Replayed]:
    """Predicts each decision of all sessions by what was learned from the other folds' sessions.

    `share` is how much of those is learned from, by groups.
    """
    found: dict[str, list[Replayed]] = {}
    for test in split({session.group for session in sessions}):
        held = set(test)
        groups = sorted({session.group for session in sessions} - held)
        random.Random(SEED).shuffle(groups)  # a seeded draw  # nosec B311
        kept = set(groups[: max(1, round(share * len(groups)))])
        predictor = learned([session for session in sessions if session.group in kept])
        for session in sessions:
            if session.group in held:
                found[session.id] = list(_replayed(session, labels, predictor))
    return [each for session in sessions for each in found[session.id]]


def _replayed(session: Session, labels: Labels, predictor: Predictor) -> list[Replayed]:
    rows: list[Replayed] = []
    for history, calls in decisions_of(session):
        tools, guesses = predictor.tools(history), predictor.calls(history)
        for call in outcomes_of(calls):
            tool = None if call is None else call.tool
            rows.append(
                Replayed(
                    group=session.group,
                    session=session.id,
                    tool=tool,
                    key=None if call is None else call_key(call.tool, call.args),
                    reads=tool is not None and labels.reads(tool),
                    tools=tools,
                    guesses=guesses,
                )
            )
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Gated:
    """What a threshold would have launched over all sessions."""

    threshold: float
    launched: int
    hits: int
    used: int
    reads: int
    seconds: float

    @property
    def hit_share(self) -> float:
        """Of the read-only calls, the share whose result was there."""
        return self.hits / self.reads if self.reads else 0.0

    @property
    def wasted(self) -> float:
        """Launches of no use for each read-only call."""
        return (self.launched - self.used) / self.reads if self.reads else 0.0

    @property
    def hidden(self) -> float:
        """The share of the total time that is hidden."""
        return self.hits * TOOL_SECONDS / self.seconds if self.seconds else 0.0

    @property
    def limit(self) -> float:
        """The share that would be hidden if each read-only call were a hit."""
        return self.reads * TOOL_SECONDS / self.seconds if self.seconds else 0.0


def gate(rows: Sequence[Replayed], labels: Labels, threshold: float, *, by_bound: bool = False) -> Gated:
    """Launches the read-only calls of at least this probability, at most three for each decision.

    A result is kept until a call that does not only read. With `by_bound` the lower bound is what must be high enough.
    """
    launched = hits = used = reads = calls = 0
    session: str | None = None
    kept: dict[str, bool] = {}
    for row in rows:
        if row.session != session:
            session, kept = row.session, {}
        room = MOST_LAUNCHES
        for guess in row.guesses:
            if room == 0:
                break
            p = guess.p_low if by_bound else guess.p
            if p < threshold or not labels.reads(guess.tool):
                continue
            room -= 1
            if guess.key not in kept:
                kept[guess.key] = False
                launched += 1
        if row.tool is None or row.key is None:
            continue
        calls += 1
        if row.reads:
            reads += 1
            if row.key in kept:
                hits += 1
                used += not kept[row.key]
                kept[row.key] = True
        elif not labels.ignores(row.tool):
            kept = {}
    seconds = LLM_SECONDS * len(rows) + TOOL_SECONDS * calls
    return Gated(threshold=threshold, launched=launched, hits=hits, used=used, reads=reads, seconds=seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A share of right predictions with its 95 % interval over groups."""

    share: float
    low: float
    high: float
    of: int


def shares(rows: Sequence[Replayed], right: Callable[[Replayed], bool | None]) -> dict[str, tuple[int, int]]:
    """By group, how many were right and how many there were; None does not count."""
    found: dict[str, tuple[int, int]] = {}
    for row in rows:
        held = right(row)
        if held is not None:
            hits, of = found.get(row.group, (0, 0))
            found[row.group] = hits + held, of + 1
    return found


def overall(by_group: dict[str, tuple[int, int]]) -> float:
    """The share of right ones over all groups."""
    of = sum(each[1] for each in by_group.values())
    return sum(each[0] for each in by_group.values()) / of if of else 0.0


def interval(
    first: dict[str, tuple[int, int]], second: dict[str, tuple[int, int]] | None = None, *, resamples: int = RESAMPLES
) -> tuple[float, float]:
    """The 95 % interval of a share, or of the difference of two over the same groups, by a bootstrap over groups."""
    groups = sorted(first)
    if not groups:
        return 0.0, 0.0
    pairs = [(*first[group], *(second or {}).get(group, (0, 0))) for group in groups]
    draw = random.Random(SEED)  # a seeded draw  # nosec B311
    found: list[float] = []
    for _ in range(resamples):
        drawn = draw.choices(pairs, k=len(pairs))
        hits, of = sum(each[0] for each in drawn), sum(each[1] for each in drawn)
        value = hits / of if of else 0.0
        if second is not None:
            others = sum(each[3] for each in drawn)
            value -= sum(each[2] for each in drawn) / others if others else 0.0
        found.append(value)
    found.sort()
    return found[int(0.025 * resamples)], found[int(0.975 * resamples) - 1]


@dataclass(slots=True)
class CalibrationBin:
    """Predictions of about one lower bound: how many, their mean bound, and how many were right."""

    count: int = 0
    bound: float = 0.0
    right: int = 0
    bounds: list[float] = field(default_factory=list)

    @property
    def mean(self) -> float:
        """The mean lower bound."""
        return self.bound / self.count if self.count else 0.0

    @property
    def observed(self) -> float:
        """The share of right ones."""
        return self.right / self.count if self.count else 0.0


def calibration(rows: Sequence[Replayed], labels: Labels, *, least: int = 50, bins: int = 10) -> list[CalibrationBin]:
    """Read-only predictions by their lower bounds, in bins of at least `least` where there are so many.

    A decision without a call counts too: then no prediction was right.
    """
    held = sorted(
        (guess.p_low, guess.key == row.key)
        for row in rows
        for guess in row.guesses[: 2 * MOST_LAUNCHES]
        if labels.reads(guess.tool) and guess.p_low > 0.01
    )
    size = max(least, -(-len(held) // bins))
    found: list[CalibrationBin] = []
    for start in range(0, len(held), size):
        part = held[start : start + size]
        if len(part) < least and found:
            break
        found.append(
            CalibrationBin(count=len(part), bound=sum(p for p, _ in part), right=sum(right for _, right in part))
        )
    return found
