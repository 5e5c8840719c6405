"""What stands between two segments: rows that left one, on their way into the next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from helix.canonical import canonical_text
from helix.executor.program import Segment
from helix.executor.segments import Entry, Leaving, skipped_steps
from helix.executor.spool import Spool
from helix.executor.values import Failure
from helix.logical import GroupReduce, Limit, Sort


class Boundary:
    """The rows between two segments.

    `full` says that no more rows are wanted, `over` that the next segment has had all, `backlog` how many wait while
    more come. `finish` tells that the last row has been added. `failed` counts the failed rows that it passes on.
    """

    full = False
    over = False
    backlog = 0
    failed = 0

    def __init__(self, segment: Segment) -> None:
        self._segment = segment

    def add(self, leaving: Leaving) -> None:
        """Takes a row that left the segment before."""
        raise TypeError(type(self).__name__)

    def finish(self) -> None:
        """All rows have been added; heard more than once."""
        raise TypeError(type(self).__name__)

    def take(self) -> Entry | None:
        """The next row for the next segment, if one is known."""
        raise TypeError(type(self).__name__)

    @property
    def rest(self) -> int | None:
        """How many rows the next segment is still to have; None while that is not known."""
        return None

    def close(self) -> None:
        """Drops what is held."""

    def _exports(self, leaving: Leaving) -> dict[str, Any]:
        return {node: leaving.values[slot] for node, slot in self._segment.exports.items()}


class LimitBoundary(Boundary):
    """Passes on the first rows, as they come."""

    def __init__(self, segment: Segment, limit: Limit) -> None:
        super().__init__(segment)
        self._waiting: deque[Entry] = deque()
        self._left = limit.count
        self._finished = False
        self.full = self._left == 0

    def add(self, leaving: Leaving) -> None:
        if self._left > 0:
            self._left -= 1
            control = first_failure(leaving.failures) or True
            self.failed += control is not True
            entry = Entry(leaving.row, control, {}, self._exports(leaving), leaving.given, leaving.turns)
            entry.skipped = skipped_steps(leaving)
            self._waiting.append(entry)
            self.backlog = len(self._waiting)
            self.full = self._left == 0

    def finish(self) -> None:
        self._finished = True
        self.over = not self._waiting

    def take(self) -> Entry | None:
        entry = self._waiting.popleft() if self._waiting else None
        self.backlog = len(self._waiting)
        self.over = self._finished and not self._waiting
        return entry

    @property
    def rest(self) -> int | None:
        return len(self._waiting) if self._finished else None


class SortBoundary(Boundary):
    """Holds all rows back and passes them on in order: failed rows last, null after values, equal ones as they came."""

    def __init__(self, segment: Segment, sort: Sort) -> None:
        super().__init__(segment)
        # The first key keeps failed rows apart.
        self._spool = Spool((False, *(descending for _, descending in sort.keys)))
        self._sorted: Iterator[Any] | None = None
        self._left = 0

    def add(self, leaving: Leaving) -> None:
        keys = [leaving.values[slot] for slot in self._segment.keys]
        failed = first_failure([*leaving.failures, *(key for key in keys if key.__class__ is Failure)])
        skipped = skipped_steps(leaving)
        item = [leaving.row, failed or True, self._exports(leaving), leaving.given, skipped, list(leaving.turns)]
        self.failed += failed is not None
        self._spool.add((0, *keys) if failed is None else (1, *(None for _ in keys)), item)

    def finish(self) -> None:
        if self._sorted is None:
            self._left = len(self._spool)
            self._sorted = self._spool.drain()
            self.over = self._left == 0

    def take(self) -> Entry | None:
        if self._sorted is None or self._left == 0:
            return None
        self._left -= 1
        self.over = self._left == 0
        row, control, imports, given, skipped, turns = next(self._sorted)
        entry = Entry(row, control, {}, imports, given, tuple(turns))
        entry.skipped = skipped
        return entry

    @property
    def rest(self) -> int | None:
        return None if self._sorted is None else self._left

    def close(self) -> None:
        self._spool.close()


class GroupBoundary(Boundary):
    """Gathers rows into groups by their keys; a group with a failed row has failed, none is left out silently."""

    def __init__(self, segment: Segment, group: GroupReduce) -> None:
        super().__init__(segment)
        self._names = [name for name, _ in group.columns]
        self._keys = [name for name, _ in group.keys]
        self._groups: dict[str, _Group] = {}
        self._spool = Spool((False,))
        self._rows: Iterator[Any] | None = None
        self._order: Iterator[_Group] = iter(())
        self._left = 0

    def add(self, leaving: Leaving) -> None:
        keys = [leaving.values[slot] for slot in self._segment.keys]
        columns = [leaving.values[slot] for slot in self._segment.columns]
        failure = first_failure([*leaving.failures, *(each for each in (*keys, *columns) if each.__class__ is Failure)])
        unplaced = any(key.__class__ is Failure for key in keys)
        name = f"row {leaving.row}" if unplaced else canonical_text(keys)
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = _Group(len(self._groups), leaving.row, keys, leaving.turns)
        if failure is None:
            group.count += 1
            self._spool.add((group.number,), dict(zip(self._names, columns, strict=True)))
        elif group.failure is None:
            group.failure = failure if unplaced else _of_row(failure, leaving.row)

    def finish(self) -> None:
        if self._rows is None:
            self._left = len(self._groups)
            self._order = iter(self._groups.values())
            self._rows = self._spool.drain()
            self.over = self._left == 0

    def take(self) -> Entry | None:
        if self._rows is None or self._left == 0:
            return None
        self._left -= 1
        self.over = self._left == 0
        group = next(self._order)
        rows = [next(self._rows) for _ in range(group.count)]
        inputs: dict[str, Any] = dict(zip(self._keys, group.keys, strict=True))
        inputs["rows"] = rows if group.failure is None else group.failure
        return Entry(group.row, True if group.failure is None else group.failure, inputs, {}, turns=group.turns)

    @property
    def rest(self) -> int | None:
        return None if self._rows is None else self._left

    def close(self) -> None:
        self._spool.close()
        self._groups.clear()


class _Group:
    __slots__ = ("count", "failure", "keys", "number", "row", "turns")

    def __init__(self, number: int, row: int, keys: list[Any], turns: tuple[int, ...]) -> None:
        self.number = number
        self.row = row
        self.turns = turns
        self.keys = keys
        self.count = 0
        self.failure: Failure | None = None


def cut_failures(boundaries: list[Boundary]) -> int:
    """How many failed rows sorts have put last and limits have then cut."""
    held = cut = 0
    for boundary in boundaries:
        if isinstance(boundary, SortBoundary):
            held = boundary.failed
        elif isinstance(boundary, LimitBoundary):
            cut += max(0, held - boundary.failed)
            held = min(held, boundary.failed)
        else:
            held = 0
    return cut


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


def first_failure(failures: list[Failure]) -> Failure | None:
    """The failure that comes first in the plan."""
    return min(failures, key=lambda failure: failure.order) if failures else None


def _of_row(failure: Failure, row: int) -> Failure:
    placed = failure.at(failure.step, failure.order)
    placed.message = f"row {row} of the group failed: {failure.message}"
    return placed
