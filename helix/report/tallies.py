"""Sums over the records of a run: tokens, phases, ranks, times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from helix.records import CallRecord
from helix.report.measures import Phase, RankFigures, TokenFigures

PHASES: tuple[Literal["warm-up", "middle", "drain"], ...] = ("warm-up", "middle", "drain")


class Tokens:
    """Tokens added up. A call that was not made, or has no reply, adds nothing."""

    def __init__(self) -> None:
        self.calls = 0
        self._prompt = self._cached = self._generated = self._untold = 0

    def add(self, record: CallRecord) -> None:
        """Adds a call."""
        self.calls += 1
        if record.prompt_tokens is None and record.completion_tokens is None:
            # It has no reply, or one that tells nothing.
            self._untold += record.outcome == "made"
            return
        self._prompt += record.prompt_tokens or 0
        self._generated += record.completion_tokens or 0
        if record.cached_tokens is None:
            self._untold += 1
        else:
            self._cached += record.cached_tokens

    def figures(self) -> TokenFigures:
        """The sums."""
        told = not self._untold
        return TokenFigures(
            prompt=self._prompt,
            cached=self._cached if told else None,
            prefilled=self._prompt - self._cached if told else None,
            generated=self._generated,
            untold=self._untold,
        )


def tokens_of(records: Iterable[CallRecord]) -> TokenFigures:
    """The tokens of some calls together."""
    tally = Tokens()
    for record in records:
        tally.add(record)
    return tally.figures()


def phases_of(calls: Sequence[CallRecord], full: tuple[float, float] | None = None) -> tuple[Phase, ...]:
    """The llm calls by the part of the run that they began in; none where there are fewer than three.

    `full` is the first and the last time that the KV cache was locked to .8 of its size, on the clock of the records.
    Without it the parts are the thirds of the time from the first call's beginning to the last one's end.
    """
    if len(calls) < len(PHASES):
        return ()
    first, last = min(call.started for call in calls), max(call.ended for call in calls)
    by: Literal["kv", "time"] = "time"
    edges = [first + (last - first) * number / 3 for number in range(4)]
    if full is not None and first <= full[0] < full[1] <= last:
        by, edges = "kv", [first, *full, last]
    tallies = [Tokens() for _ in PHASES]
    for call in calls:
        tallies[(call.started >= edges[1]) + (call.started > edges[2])].add(call)
    return tuple(
        Phase(
            name=name,
            by=by,
            begins=edges[number] - first,
            ends=edges[number + 1] - first,
            calls=tally.calls,
            tokens=tally.figures(),
        )
        for number, (name, tally) in enumerate(zip(PHASES, tallies, strict=True))
    )


def ranks_of(calls: Iterable[CallRecord]) -> tuple[RankFigures, ...]:
    """What each worker did, as far as it is told which one took a call."""
    found: dict[int, list[CallRecord]] = {}
    for call in calls:
        if call.rank is not None:
            found.setdefault(call.rank, []).append(call)
    return tuple(
        RankFigures(
            rank=rank, calls=len(own), tokens=tokens_of(own), busy=covered((call.started, call.ended) for call in own)
        )
        for rank, own in sorted(found.items())
    )


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """The length of the union of time spans."""
    return sum(end - begin for begin, end in union(spans))


def union(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Time spans as spans that do not touch, in order."""
    made: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if made and begin <= made[-1][1]:
            made[-1] = made[-1][0], max(made[-1][1], end)
        else:
            made.append((begin, end))
    return made


def covered_alone(spans: Iterable[tuple[float, float]], others: Iterable[tuple[float, float]]) -> float:
    """The length of the union of time spans, less what the others cover too."""
    own, rest = union(spans), union(others)
    common, at = 0.0, 0
    for begin, end in own:
        while at < len(rest) and rest[at][1] <= begin:
            at += 1
        number = at
        while number < len(rest) and rest[number][0] < end:
            common += min(end, rest[number][1]) - max(begin, rest[number][0])
            number += 1
    return sum(end - begin for begin, end in own) - common


def percentile(values: Sequence[float], share: float) -> float:
    """The least of the values that at least this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * round(share * 100) // 100) - 1)]
