"""Rows through the segments of a plan: admitted in order, run out of order, handed on in order.

A segment takes rows from its source, starts a frame for each, and hands the finished rows on in the order of the
source. It admits no more rows than keep the engine busy, so memory is bounded by what is in flight, not by the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from helix.executor.frame import Dataflow, Frame, Scope
from helix.executor.program import Program, Segment
from helix.executor.values import DROPPED, Failure

# Finished rows that wait for a slower one before them; beyond it no row is admitted.
_REORDER = 4096


class Entry:
    """A row on its way into a segment: the index of its input row, whether it has failed, and its values.

    `inputs` are by the name of the source's outputs, `imports` by node id. `given` are the raw columns of an input row
    that failed before it began. `known` says that its failure has been counted. `turns` tell it apart from other rows
    that came from the same input row. `rank` is the worker that the schedule has for it, if any.
    """

    __slots__ = ("control", "given", "imports", "inputs", "known", "rank", "row", "skipped", "turns")

    def __init__(
        self,
        row: int,
        control: Any,
        inputs: dict[str, Any],
        imports: dict[str, Any],
        given: dict[str, Any] | None = None,
        turns: tuple[int, ...] = (),
    ) -> None:
        self.row = row
        self.turns = turns
        self.control = control
        self.inputs = inputs
        self.imports = imports
        self.given = given
        self.known = False
        self.rank: int | None = None
        self.skipped: list[str] = []


class Leaving:
    """A row that leaves a segment: the values that cross the boundary by slot, and the failures that are the row's.

    `known` says that the row had failed before it came into the segment, `before` names the steps skipped until then.
    """

    __slots__ = ("before", "failures", "frames", "given", "known", "row", "values")

    @property
    def turns(self) -> tuple[int, ...]:
        """What tells the row apart from others that came from the same input row."""
        return self.frames[-1][1].turns if self.frames else ()

    def __init__(
        self,
        row: int,
        values: list[Any],
        failures: list[Failure],
        *,
        frames: tuple[tuple[Program, Frame], ...] = (),
        given: dict[str, Any] | None = None,
        known: bool = False,
        before: list[str] | None = None,
    ) -> None:
        self.row = row
        self.before = before or []
        self.values = values
        self.failures = failures
        self.frames = frames
        self.given = given
        self.known = known


class Source(Protocol):
    """Where a stage gets its rows. `take` gives None where there is none now; `over` says that none will come."""

    over: bool

    def take(self) -> Entry | None: ...


class Stage:
    """One segment at work: rows from `source`, `hand_on` receives them in order, `moved` hears that there is room,
    `row_began` that a row is to go to a rank, `row_ended` that no call of a row will come any more.
    `fetched` counts the calls that were known from before the run.

    `first` says that its rows come from the input table; `told` are the values whose failure was counted as the row's
    before it came in.
    """

    def __init__(
        self,
        segment: Segment,
        flow: Dataflow,
        source: Source,
        *,
        first: bool,
        told: tuple[str, ...] = (),
        window: int,
        hand_on: Callable[[Leaving], None],
        moved: Callable[[], None],
        row_began: Callable[[object, int], None] = lambda instance, rank: None,
        row_ended: Callable[[object], None] = lambda instance: None,
        fetched: Callable[[], int] = lambda: 0,
    ) -> None:
        self.segment = segment
        self.scope = Scope()
        self._flow = flow
        self._source = source
        self._first = first
        self._told = told
        self._window = window
        self._hand_on = hand_on
        self._moved = moved
        self._row_began = row_began
        self._row_ended = row_ended
        self._fetched = fetched
        # Rows that went through at once, on results from before the run.
        self.known = 0
        self._program = segment.levels[0].program
        self._next = 0
        self._due = 0
        self._active = 0
        self._finished: dict[int, tuple[Frame, Entry]] = {}

    @property
    def over(self) -> bool:
        """Whether no row is in the stage and none will come."""
        return self.scope.closed or (self._source.over and self._active == 0 and not self._finished)

    @property
    def admitted(self) -> int:
        """How many rows have begun."""
        return self._next

    @property
    def through(self) -> int:
        """How many rows are through, those among them that wait for a slower one before them."""
        return self._due + len(self._finished)

    def close(self) -> None:
        """Nobody wants the rows any more."""
        self.scope.closed = True
        self._finished.clear()

    def admit(self) -> bool:
        """Admits rows while there is room, a window's worth at most: rows that take no call must not hold up the loop.

        Gives whether there may be more to admit at once.
        """
        for _ in range(self._window):
            if (
                self.scope.closed
                or self._active >= self._window
                or self._next - self._due >= self._window + _REORDER
                or (entry := self._source.take()) is None
            ):
                return False
            self._begin(entry)
        return True

    def flush(self) -> None:
        """Hands on the finished rows though rows before them are not finished: the run ends here."""
        for sequence in sorted(self._finished):
            self._leave(*self._finished.pop(sequence))

    def _begin(self, entry: Entry) -> None:
        sequence = self._next
        self._next += 1
        self._active += 1
        fetched, beginning = self._fetched(), True

        def finished(frame: Frame) -> None:
            self._active -= 1
            if beginning and self._fetched() > fetched:
                self.known += 1
            self._row_ended((self.scope, sequence))
            entry.known = not self._first and self._has_failed(entry)
            if sequence != self._due:
                frame.shed(self.segment.levels[0].kept)
                entry.inputs = entry.imports = {}
            if not self.scope.closed:
                self._finished[sequence] = (frame, entry)
                self._release()
            self._moved()

        if entry.rank is not None:
            self._row_began((self.scope, sequence), entry.rank)
        program = self._program
        frame = Frame(program, entry.row, sequence, (), self.scope, finished, turns=entry.turns)
        given: dict[int, Any] = {0: entry.control}
        failed = entry.control.__class__ is Failure and entry.given is not None
        for name, slot in program.inputs.items():
            given[slot] = entry.control if failed else entry.inputs[name]
        for node, slot in program.imports.items():
            given[slot] = entry.imports[node]
        self._flow.start(frame, given)
        beginning = False

    def _has_failed(self, entry: Entry) -> bool:
        failed = any(entry.imports[node].__class__ is Failure for node in self._told)
        return failed or entry.control.__class__ is Failure

    def _release(self) -> None:
        while (finished := self._finished.pop(self._due, None)) is not None:
            self._due += 1
            self._leave(*finished)

    def _leave(self, frame: Frame, entry: Entry) -> None:
        for leaving in self._leaving(frame, entry, 0, (), []):
            if self.scope.closed:
                return
            self._hand_on(leaving)

    def _leaving(
        self,
        frame: Frame,
        entry: Entry,
        depth: int,
        frames: tuple[tuple[Program, Frame], ...],
        failures: list[Failure],
    ) -> Iterator[Leaving]:
        level = self.segment.levels[depth]
        values = frame.values
        if values[level.alive] is DROPPED:
            return
        decisive = (level.alive, *level.program.also)
        failures = failures + [values[slot] for slot in decisive if values[slot].__class__ is Failure]
        frames = (*frames, (level.program, frame))
        if depth + 1 < len(self.segment.levels):
            for child in frame.children or ():
                yield from self._leaving(child, entry, depth + 1, frames, failures)
            return
        yield Leaving(
            entry.row,
            values,
            failures,
            frames=frames,
            given=entry.given,
            known=entry.known,
            before=entry.skipped,
        )


def skipped_steps(leaving: Leaving) -> list[str]:
    """The steps of a row that were not done since others had failed."""
    skipped: dict[str, None] = dict.fromkeys(leaving.before)
    for program, frame in leaving.frames:
        if frame.tainted:
            for step, slot in program.steps:
                value = frame.values[slot]
                # The copies of an unrolled loop go by the name of the loop, as its items do where it is not unrolled.
                name = step.partition("[")[0]
                if value.__class__ is Failure and not _is_own(value.step, name):
                    skipped[name] = None
    return list(skipped)


def _is_own(failed: str, step: str) -> bool:
    """Whether a failure with this step's name began in the step itself, or in an item of it."""
    return failed == step or failed.startswith((f"{step}[", f"{step}."))
