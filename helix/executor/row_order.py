"""The rows of the input, grouped by some of their columns: rows that agree in them are worked on one after another.

The whole table is read before the first row is given, in pieces so that the loop stays alive; many rows lie on disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from helix.executor.spool import IN_MEMORY, Spool
from helix.executor.tables import Row
from helix.executor.tables.rows import RowError

# How many rows are read at a time.
PIECE = 1000


class GroupedRows:
    """The rows of a table ordered by the values of columns; rows that agree in all of them stay in their order."""

    def __init__(self, rows: Iterable[Row], columns: tuple[str, ...], in_memory: int = IN_MEMORY) -> None:
        self._rows = iter(rows)
        self._columns = columns
        self._spool = Spool((False,) * len(columns), in_memory)
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
                self._spool.add(key, [row.index, row.values, told])
        return False

    def __iter__(self) -> Iterator[Row]:
        return self

    def __next__(self) -> Row:
        while not self.ready():
            continue
        assert self._ordered is not None
        index, values, told = next(self._ordered)
        return Row(index, values, None if told is None else RowError(*told))

    def close(self) -> None:
        """Drops what was read."""
        self._spool.close()
