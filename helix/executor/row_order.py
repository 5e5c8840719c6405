"""The rows of the input, grouped by some of their columns: rows that agree in them are worked on one after another.

The whole table is read before the first row is given, in pieces so that the loop stays alive; many rows lie on disk.
Where a schedule gives groups to several ranks, the ranks' rows come side by side, so that none of them waits for rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from helix.canonical import canonical_text
from helix.executor.spool import IN_MEMORY, Spool
from helix.executor.tables import Row
from helix.executor.tables.rows import RowError
from helix.physical import RowGroup

# How many rows are read at a time.
PIECE = 1000


class GroupedRows:
    """The rows of a table ordered by the values of columns; rows that agree in all of them stay in their order.

    `groups` are those of a schedule with several ranks: then the order is theirs, and `rank` is that of the row that
    was given last (None: it is in no group).
    """

    def __init__(
        self,
        rows: Iterable[Row],
        columns: tuple[str, ...],
        groups: Sequence[RowGroup] = (),
        in_memory: int = IN_MEMORY,
    ) -> None:
        self.rank: int | None = None
        self._rows = iter(rows)
        self._columns = columns
        self._places = _Places(groups) if groups else None
        keys = len(columns) + (1 if groups else 0)
        self._spool = Spool((False,) * keys, in_memory)
        self._ordered: Iterator[Any] | None = None

    def ready(self) -> bool:
        """Reads on; whether the table has been read to its end, so that rows can be given."""
        for _ in range(PIECE):
            if self._ordered is not None:
                return True
            row = next(self._rows, None)
            if row is None:
                self._ordered = self._spool.drain()
            else:
                error = row.error
                told = None if error is None else [error.kind, error.message, error.column]
                key = tuple(row.values.get(column) for column in self._columns)
                rank = None
                if self._places is not None:
                    place, rank = self._places.next(key)
                    key = (place, *key)
                self._spool.add(key, [row.index, row.values, told, rank])
        return False

    def __iter__(self) -> Iterator[Row]:
        return self

    def __next__(self) -> Row:
        while not self.ready():
            continue
        assert self._ordered is not None
        index, values, told, self.rank = next(self._ordered)
        return Row(index, values, None if told is None else RowError(*told))

    def close(self) -> None:
        """Drops what was read."""
        self._spool.close()


def _text(value: Any) -> str:
    """A value as the keys of groups have it."""
    try:
        return canonical_text(value)
    except ValueError:
        # JSON has no infinities; a column of a table may.
        return repr(value)


class _Places:
    """Where the next row of a group stands among the rows of its rank."""

    def __init__(self, groups: Sequence[RowGroup]) -> None:
        self._known: dict[tuple[str, ...], list[Any]] = {}
        filled: dict[int, int] = {}
        for group in groups:
            # A group's ranks take turns, each row by row.
            starts = [filled.get(rank, 0) for rank in group.ranks]
            self._known[group.key] = [group.ranks, starts, 0]
            for number, rank in enumerate(group.ranks):
                filled[rank] = starts[number] + -(-(group.rows - number) // len(group.ranks))

    def next(self, key: tuple[Any, ...]) -> tuple[int | None, int | None]:
        """The place of the next row with these values, and its rank; None for rows in no group, which come last."""
        found = self._known.get(tuple(_text(value) for value in key))
        if found is None:
            return None, None
        ranks, starts, count = found
        found[2] = count + 1
        turn = count % len(ranks)
        return starts[turn] + count // len(ranks), ranks[turn]
