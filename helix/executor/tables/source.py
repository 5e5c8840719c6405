"""Opens tables: finds out what a source is, and gives its rows checked against the declared columns.

How a run reads its input: `open_rows`, then `scan` once, which finds malformed records and counts the rows that cannot
be used before anything is called, then a second pass over the same source. What can be read once only (standard input,
a pipe, a generator) is copied to a temporary file at the first pass.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from helix.errors import InputError, OptionError
from helix.executor.tables.bytes_in import ByteSource, FileBytes, SpooledBytes, unreadable
from helix.executor.tables.checks import compile_check, missing_column
from helix.executor.tables.formats import input_format, missing_file, sniff
from helix.executor.tables.rows import ERROR_KINDS, BadRecord, OnBadRow, Reader, Record, Row, RowError, ScanReport
from helix.schema import InputSchema, is_required


class RowSource:
    """A table opened for reading. Each iteration is a pass of its own over all rows; close it when done."""

    def __init__(self, reader: Reader, schema: InputSchema, on_bad_row: OnBadRow, limit: int | None) -> None:
        self.schema = schema
        self._reader = reader
        self._keep = on_bad_row == "keep"
        self._limit = limit
        self._check = compile_check(schema, cells=reader.cells)
        self._rows: int | None = None

    @property
    def name(self) -> str:
        """What messages call the table: its path, or a few words."""
        return self._reader.name

    def __iter__(self) -> Iterator[Row]:
        """The rows in order. A malformed record raises InputError, or is a row with an error where rows are kept."""
        check = self._check
        for index, record in enumerate(self._records()):
            if isinstance(record, BadRecord):
                yield Row(index, self._nothing(record, index), record.row_error())
            else:
                yield Row(index, *check(record))

    def scan(self, seen: Callable[[Row], None] | None = None) -> ScanReport:
        """Read all rows once and say what is wrong with them. `seen` hears of each of them.

        Raises InputError for the first malformed record (unless such rows are kept), and for a required column that
        no row has.
        """
        check = self._check
        unseen = {column.name for column in self.schema}
        names: dict[str, None] = {}
        failures: dict[str, int] = {}
        first: dict[str, tuple[int, RowError]] = {}
        places: dict[str, str] = {}
        records = malformed = 0
        for index, record in enumerate(self._records()):
            records += 1
            if isinstance(record, BadRecord):
                values = self._nothing(record, index)
                malformed += 1
                error: RowError | None = record.row_error()
            else:
                if unseen:
                    unseen.difference_update(record)
                    if index < _NAMED_ROWS:
                        names.update(dict.fromkeys(record))
                values, error = check(record)
            if seen is not None:
                seen(Row(index, values, error))
            if error is not None:
                failures[error.kind] = failures.get(error.kind, 0) + 1
                if error.kind not in first:
                    first[error.kind] = index, error
                    if line := getattr(self._reader, "line", None):
                        places[error.kind] = f"{self.name}:{line}"
        self._rows = records
        if records > malformed and any(is_required(column) for column in self.schema if column.name in unseen):
            present = [*names, *(column.name for column in self.schema if column.name not in unseen)]
            if missing := missing_column(self.schema, present, self.name):
                raise missing
        return ScanReport(
            rows=records,
            errors={kind: failures[kind] for kind in ERROR_KINDS if kind in failures},
            first={kind: first[kind] for kind in ERROR_KINDS if kind in first},
            places=places,
            absent=tuple(column.name for column in self.schema if column.name in unseen and records > malformed),
        )

    def count(self) -> int | None:
        """The number of rows, malformed ones too, where it is known: from the format, or after `scan`."""
        if self._rows is None:
            counted = self._reader.count()
            self._rows = counted if counted is None or self._limit is None else min(counted, self._limit)
        return self._rows

    def close(self) -> None:
        """Give back files and temporary files."""
        self._reader.close()

    def __enter__(self) -> RowSource:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _records(self) -> Iterator[Record | BadRecord]:
        return itertools.islice(self._reader.records(), self._limit)

    def _nothing(self, record: BadRecord, index: int) -> Record:
        """The values of a malformed record that is kept; raises where it is not."""
        if not self._keep:
            raise record.error(self.name, index)
        return {column.name: None for column in self.schema}


# The first rows name what is there, for the message about a column that is not.
_NAMED_ROWS = 1000


def open_rows(
    source: Any,
    schema: InputSchema,
    *,
    format: str | None = None,
    on_bad_row: OnBadRow = "stop",
    limit: int | None = None,
) -> RowSource:
    """Open a table.

    `source` is a path (JSONL, JSON, CSV, TSV, Parquet or Arrow by its suffix or `format`, text formats also packed
    with gzip), `-` for standard input, an iterable of mappings, an Arrow table or reader, or a DataFrame of pandas
    or polars.
    `limit` reads the first rows only; what follows is not looked at. Raises InputError where the source cannot be
    opened or its header lacks a required column, OptionError for settings that do not fit.
    """
    if on_bad_row not in ("stop", "keep"):
        raise OptionError(f"on_bad_row is `{on_bad_row}`; it is `stop` or `keep`")
    if limit is not None and limit < 0:
        raise OptionError(f"the limit of rows is {limit}; it is 0 or more")
    if isinstance(source, str | os.PathLike):
        reader = _file_reader(os.fspath(source), schema, format)
    elif format is not None:
        raise OptionError(f"the format `{format}` is for files; the rows are a Python {type(source).__name__}")
    else:
        reader = _object_reader(source, schema)
    return RowSource(reader, schema, on_bad_row, limit)


def scan(
    source: Any,
    schema: InputSchema,
    *,
    format: str | None = None,
    on_bad_row: OnBadRow = "stop",
    limit: int | None = None,
) -> ScanReport:
    """Check a table that can be read again later; as `RowSource.scan`, which also serves what can be read once."""
    if source == "-" or isinstance(source, Iterator):
        raise OptionError("this source can be read once only; open it with open_rows, scan that, then read its rows")
    with open_rows(source, schema, format=format, on_bad_row=on_bad_row, limit=limit) as rows:
        return rows.scan()


def _file_reader(path: str, schema: InputSchema, format: str | None) -> Reader:
    if path == "-":
        if sys.stdin is None:
            raise OptionError("there is no standard input to read")
        return _Late(SpooledBytes("standard input", sys.stdin.buffer, owned=False), schema, input_format(None, format))
    place = Path(path)
    try:
        if place.is_dir():
            raise InputError("expected a file, found a folder", path=path)
        if not place.exists():
            raise missing_file(place)
        if not place.is_file():
            # A named pipe or a process substitution.
            known = input_format(None, format)
            return _Late(SpooledBytes(path, place.open("rb"), owned=True), schema, known)
    except OSError as error:
        raise unreadable(path, error) from None
    reader = _reader(FileBytes(place), schema, input_format(place, format) or "jsonl")
    reader.prepare()
    return reader


def _reader(source: ByteSource, schema: InputSchema, format: str, *, help: str | None = None) -> Reader:
    """The reader of a format."""
    if format in ("csv", "tsv"):
        from helix.executor.tables.csv_in import DelimitedText

        return DelimitedText(source, schema, "," if format == "csv" else "\t")
    if format == "json":
        from helix.executor.tables.json_in import JsonArray

        return JsonArray(source)
    if format in ("parquet", "arrow"):
        from helix.executor.tables.arrow_in import ipc_rows, parquet_rows

        return (parquet_rows if format == "parquet" else ipc_rows)(source, schema)
    from helix.executor.tables.jsonl_in import JsonLines

    return JsonLines(source, help=help)


class _Late:
    """The reader of a stream, made at the first pass: opening a table must not wait for a pipe to end."""

    def __init__(self, source: SpooledBytes, schema: InputSchema, format: str | None) -> None:
        self.name = source.name
        self.cells = format in ("csv", "tsv")
        self._source = source
        self._schema = schema
        self._format = format
        self._reader: Reader | None = None

    def prepare(self) -> None:
        """Nothing is known before the stream is read."""

    def count(self) -> int | None:
        return None if self._reader is None else self._reader.count()

    def close(self) -> None:
        self._source.close()

    @property
    def line(self) -> int | None:
        """The physical line where the row read last begins."""
        return getattr(self._reader, "line", None)

    def records(self) -> Iterator[Record | BadRecord]:
        if self._reader is None:
            format, help = self._format, None
            if format is None:
                format = sniff(self._source)
                help = f"no format was given, so it was read as {format}; for CSV give the format csv"
            self._reader = _reader(self._source, self._schema, format, help=help)
        return self._reader.records()


def _object_reader(source: Any, schema: InputSchema) -> Reader:
    """The reader of Python objects. Heavy packages are recognised by name, never imported to look."""
    package = type(source).__module__.partition(".")[0]
    kind = type(source).__name__
    if package == "pandas" and kind == "DataFrame":
        from helix.executor.tables.frames_in import PandasRows

        frame = PandasRows(source, schema)
        frame.prepare()
        return frame
    if package == "polars" and kind == "DataFrame":
        source, package, kind = source.to_arrow(), "pyarrow", "Table"
    if package == "pyarrow" and kind in ("Table", "RecordBatch"):
        from helix.executor.tables.arrow_in import memory_rows

        table = memory_rows(source, schema)
        table.prepare()
        return table
    if hasattr(source, "__arrow_c_stream__"):
        from helix.executor.tables.arrow_in import stream_rows

        return stream_rows(source, schema)
    from helix.executor.tables.objects_in import IterableRows, ObjectRows

    if isinstance(source, list | tuple):
        return ObjectRows(source, schema)
    if isinstance(source, Iterable) and not isinstance(source, Mapping | bytes | bytearray):
        return IterableRows(source, schema)
    help = "; put one row into a list" if isinstance(source, Mapping) else ""
    raise OptionError(f"rows are a path, a list or iterable of mappings, or a table; found {package}.{kind}{help}")
