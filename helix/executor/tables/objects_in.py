"""Reads rows given as Python mappings, in a list or from any iterable.

A list is read in place, twice if need be. Any other iterable may give its rows only once, so it is copied to a
temporary file at first use.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from helix.errors import InputError
from helix.executor.tables.bytes_in import new_spool, reopen, spooling
from helix.executor.tables.json_values import json_value
from helix.executor.tables.rows import BadRecord, Record, Unfit
from helix.schema import InputSchema

_LINE = json.JSONEncoder(separators=(",", ":"))


def _record(row: Any, wanted: frozenset[str]) -> Record | BadRecord:
    """A row as a record: declared columns as JSON values, others by name only."""
    if not isinstance(row, Mapping):
        return BadRecord(f"expected a mapping of column names to values, found {type(row).__name__}")
    return {
        name: value_or_unfit(value) if name in wanted else None for name, value in row.items() if isinstance(name, str)
    }


def value_or_unfit(value: Any) -> Any:
    """The JSON value of a Python object, or `Unfit` with the reason why it has none."""
    try:
        return json_value(value)
    except ValueError as error:
        return Unfit(str(error))
    except RecursionError:
        return Unfit("the value is nested too deeply")


class ObjectRows:
    """The rows of a list or tuple of mappings."""

    name = "the rows"
    cells = False

    def __init__(self, rows: Sequence[Any], schema: InputSchema) -> None:
        self._rows = rows
        self._wanted = frozenset(column.name for column in schema)

    def prepare(self) -> None:
        """Nothing is known before the rows are read."""

    def count(self) -> int:
        return len(self._rows)

    def close(self) -> None:
        """Nothing is held."""

    def records(self) -> Iterator[Record | BadRecord]:
        return (_record(row, self._wanted) for row in self._rows)


class IterableRows:
    """The rows of an iterable of mappings, spooled as JSON lines.

    A line is the list of a record's values that have a JSON form and the reasons for those that have none, or the
    message of a row that is not a mapping.
    """

    name = "the rows"
    cells = False

    def __init__(self, rows: Iterable[Any], schema: InputSchema) -> None:
        self._rows: Iterable[Any] | None = rows
        self._wanted = frozenset(column.name for column in schema)
        self._spool: BinaryIO | None = None

    def prepare(self) -> None:
        """Nothing is known before the rows are read."""

    def count(self) -> None:
        return None

    def close(self) -> None:
        if self._spool is not None:
            self._spool.close()

    def records(self) -> Iterator[Record | BadRecord]:
        if self._rows is not None:
            rows, self._rows = self._rows, None
            spool = new_spool(self.name)
            try:
                for row in rows:
                    line = _spool_line(_record(row, self._wanted))
                    with spooling(self.name):
                        spool.write(line)
                spool.flush()
            except BaseException:
                # Only a whole copy counts: a second pass must not read half of the rows.
                spool.close()
                raise
            self._spool = spool
        if self._spool is None:
            raise InputError("the rows could not all be read the first time and are gone", path=self.name)
        with reopen(self._spool) as stream:
            for line in stream:
                yield _unspool(json.loads(line))


def _spool_line(record: Record | BadRecord) -> bytes:
    if isinstance(record, BadRecord):
        parts: Any = record.message
    else:
        fit = {name: value for name, value in record.items() if type(value) is not Unfit}
        parts = [fit, {name: value.why for name, value in record.items() if type(value) is Unfit}]
    return _LINE.encode(parts).encode("ascii") + b"\n"


def _unspool(parts: Any) -> Record | BadRecord:
    if isinstance(parts, str):
        return BadRecord(parts)
    record: Record
    record, unfit = parts
    for name, why in unfit.items():
        record[name] = Unfit(why)
    return record
