"""Rows through the segments of a plan: admitted in order, run out of order, handed on in order.

A segment takes rows from its source, starts a frame for each, and hands the finished rows on in the order of the
source. It admits no more rows than keep the engine busy, so memory is bounded by what is in flight, not by the batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from helix.canonical import canonical_text
from helix.executor.frame import Dataflow, Frame, Scope
from helix.executor.program import Level, Segment
from helix.executor.values import DROPPED, Failure
from helix.logical import GroupReduce, Limit, Sort

# Finished rows that wait for a slower one before them; beyond it no row is admitted.
_REORDER = 4096


class Entry:
    """A row on its way into a segment: the index of its input row, whether it has failed, and its values.

    `inputs` are by the name of the source's outputs, `imports` by node id. `given` are the raw columns of an input row
    that failed before it began.
    """

    __slots__ = ("control", "given", "imports", "inputs", "row")

    def __init__(
        self,
        row: int,
        control: Any,
        inputs: dict[str, Any],
        imports: dict[str, Any],
        given: dict[str, Any] | None = None,
    ) -> None:
        self.row = row
        self.control = control
        self.inputs = inputs
        self.imports = imports
        self.given = given


class Leaving:
    """A row that leaves a segment: the values that cross the boundary by slot, and the failures that are the row's."""

    __slots__ = ("failures", "frames", "given", "row", "values")

    def __init__(
        self, row: int, values: list[Any], failures: list[Failure], frames: tuple[Any, ...], given: Any
    ) -> None:
        self.row = row
        self.values = values
        self.failures = failures
        self.frames = frames
        self.given = given


class Source(Protocol):
    """Where a stage gets its rows. `take` gives None where there is none now; `over` says that none will come."""

    over: bool

    def take(self) -> Entry | None: ...


class Stage:
    """One segment at work: rows from `source`, `hand_on` receives them in order, `moved` hears that there is room."""

    def __init__(
        self,
        segment: Segment,
        flow: Dataflow,
        source: Source,
        window: int,
        hand_on: Callable[[Leaving], None],
        moved: Callable[[], None],
    ) -> None:
        self.segment = segment
        self.scope = Scope()
        self._flow = flow
        self._source = source
        self._window = window
        self._hand_on = hand_on
        self._moved = moved
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
    def released(self) -> int:
        """How many rows have gone through."""
        return self._due

    def close(self) -> None:
        """Nobody wants the rows any more."""
        self.scope.closed = True

    def admit(self) -> None:
        """Admits rows while there is room."""
        while (
            not self.scope.closed
            and self._active < self._window
            and self._next - self._due < self._window + _REORDER
            and (entry := self._source.take()) is not None
        ):
            self._begin(entry)

    def _begin(self, entry: Entry) -> None:
        sequence = self._next
        self._next += 1
        self._active += 1

        def finished(frame: Frame) -> None:
            self._active -= 1
            self._finished[sequence] = (frame, entry)
            self._release()

        program = self._program
        frame = Frame(program, entry.row, sequence, (), self.scope, finished)
        given: dict[int, Any] = {0: entry.control}
        failed = entry.control.__class__ is Failure and entry.given is not None
        for name, slot in program.inputs.items():
            given[slot] = entry.control if failed else entry.inputs[name]
        for node, slot in program.imports.items():
            given[slot] = entry.imports[node]
        self._flow.start(frame, given)

    def _release(self) -> None:
        while self._due in self._finished:
            frame, entry = self._finished.pop(self._due)
            self._due += 1
            for leaving in self._leaving(frame, entry, 0, (), []):
                if not self.scope.closed:
                    self._hand_on(leaving)
        self._moved()

    def _leaving(
        self, frame: Frame, entry: Entry, depth: int, frames: tuple[Any, ...], failures: list[Failure]
    ) -> Iterator[Leaving]:
        level: Level = self.segment.levels[depth]
        values = frame.values
        if values[level.alive] is DROPPED:
            return
        failures = failures + [values[slot] for slot in (level.alive, *level.also) if values[slot].__class__ is Failure]
        frames = (*frames, (level.program, frame))
        if depth + 1 < len(self.segment.levels):
            for child in frame.children or ():
                yield from self._leaving(child, entry, depth + 1, frames, failures)
            return
        yield Leaving(entry.row, values, failures, frames, entry.given)


class Boundary:
    """Rows between two segments: those of one that left, on their way into the next.

    `full` says that no more rows are wanted, `backlog` how many wait. `finish` tells that the last row has been added.
    """

    full = False

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._waiting: deque[Entry] = deque()
        self._finished = False

    @property
    def over(self) -> bool:
        """Whether the next segment has all its rows."""
        return self._finished and not self._waiting

    @property
    def backlog(self) -> int:
        """How many rows wait for the next segment."""
        return len(self._waiting)

    def add(self, leaving: Leaving) -> None:
        """Takes a row that left the segment before."""
        raise TypeError(type(self).__name__)

    def finish(self) -> None:
        """All rows have been added."""
        self._finished = True

    def take(self) -> Entry | None:
        """The next row for the next segment, if one is known."""
        return self._waiting.popleft() if self._waiting else None

    def _entry(self, leaving: Leaving) -> Entry:
        failures = leaving.failures
        control = min(failures, key=lambda failure: failure.order) if failures else True
        imports = {node: leaving.values[slot] for node, slot in self._segment.exports.items()}
        return Entry(leaving.row, control, {}, imports, leaving.given)


class LimitBoundary(Boundary):
    """Passes on the first rows, as they come."""

    def __init__(self, segment: Segment, limit: Limit) -> None:
        super().__init__(segment)
        self._left = limit.count
        self.full = self._left == 0

    def add(self, leaving: Leaving) -> None:
        if self._left > 0:
            self._left -= 1
            self._waiting.append(self._entry(leaving))
            self.full = self._left == 0


class SortBoundary(Boundary):
    """Holds all rows back and passes them on in order: failed rows last, null after values, equal ones as they came."""

    def __init__(self, segment: Segment, sort: Sort) -> None:
        super().__init__(segment)
        self._descending = [descending for _, descending in sort.keys]
        self._rows: list[tuple[list[Any], Entry]] = []

    def add(self, leaving: Leaving) -> None:
        keys = [leaving.values[slot] for slot in self._segment.keys]
        failed = next((key for key in keys if key.__class__ is Failure), None)
        entry = self._entry(leaving)
        if failed is not None and entry.control is True:
            entry.control = failed
        self._rows.append((keys, entry))

    def finish(self) -> None:
        rows, self._rows = self._rows, []
        for position in reversed(range(len(self._descending))):
            # A stable sort by the last key first; null stays last whichever way the key runs.
            held = [row for row in rows if _sortable(row[0][position])]
            rest = [row for row in rows if not _sortable(row[0][position])]
            held.sort(key=lambda row: _sort_key(row[0][position]), reverse=self._descending[position])
            rows = held + rest
        self._waiting.extend(entry for _, entry in rows if entry.control is True)
        self._waiting.extend(entry for _, entry in rows if entry.control is not True)
        super().finish()


class GroupBoundary(Boundary):
    """Gathers rows into groups by their keys; a group with a failed row has failed, none is left out silently."""

    def __init__(self, segment: Segment, group: GroupReduce) -> None:
        super().__init__(segment)
        self._names = [name for name, _ in group.columns]
        self._keys = [name for name, _ in group.keys]
        self._groups: dict[str, _Group] = {}

    def add(self, leaving: Leaving) -> None:
        keys = [leaving.values[slot] for slot in self._segment.keys]
        columns = [leaving.values[slot] for slot in self._segment.columns]
        failures = leaving.failures + [value for value in (*keys, *columns) if value.__class__ is Failure]
        unplaced = any(key.__class__ is Failure for key in keys)
        name = f"row {leaving.row}" if unplaced else canonical_text(keys)
        group = self._groups.setdefault(name, _Group(leaving.row, keys))
        if not failures:
            group.rows.append(dict(zip(self._names, columns, strict=True)))
        elif group.failure is None:
            first = min(failures, key=lambda failure: failure.order)
            group.failure = first if unplaced else _of_row(first, leaving.row)

    def finish(self) -> None:
        groups, self._groups = self._groups, {}
        for group in groups.values():
            failed = group.failure is not None
            inputs: dict[str, Any] = dict(zip(self._keys, group.keys, strict=True))
            inputs["rows"] = group.failure if failed else group.rows
            self._waiting.append(Entry(group.row, group.failure if failed else True, inputs, {}))
        super().finish()


class _Group:
    __slots__ = ("failure", "keys", "row", "rows")

    def __init__(self, row: int, keys: list[Any]) -> None:
        self.row = row
        self.keys = keys
        self.rows: list[dict[str, Any]] = []
        self.failure: Failure | None = None


def boundary_after(segment: Segment) -> Boundary:
    """What stands between a segment and the next."""
    match segment.boundary:
        case Limit() as limit:
            return LimitBoundary(segment, limit)
        case Sort() as sort:
            return SortBoundary(segment, sort)
        case GroupReduce() as group:
            return GroupBoundary(segment, group)
    raise TypeError("the last segment ends in the sink")


def _of_row(failure: Failure, row: int) -> Failure:
    placed = failure.at(failure.step)
    placed.message = f"row {row} of the group failed: {failure.message}"
    return placed


def _sortable(value: Any) -> bool:
    return value is not None and value.__class__ is not Failure


def _sort_key(value: Any) -> tuple[int, Any]:
    """Numbers before texts before bools before the rest, so that json values of several kinds have an order."""
    if isinstance(value, bool):
        return (2, value)
    if isinstance(value, int | float):
        return (0, value)
    return (1, value) if isinstance(value, str) else (3, canonical_text(value))
