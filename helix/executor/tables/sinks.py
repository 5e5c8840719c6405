"""Takes the rows of a result: into a file or a stream in one of the formats, or into memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from helix.errors import OptionError
from helix.executor.tables.formats import output_format
from helix.executor.tables.places import Place, open_place, writing
from helix.executor.tables.result_columns import ROW, ColumnError, Columns, result_columns, result_row
from helix.executor.tables.text_out import DelimitedEncoder, JsonLinesEncoder


class RowSink(Protocol):
    """Takes rows in output order. One of `commit`, `abort` and `keep_partial` ends it; later ones do nothing.

    `written` counts the rows taken. `broken` says that the reader of a pipe is gone: rows are dropped, the run may end.
    """

    name: str
    written: int

    @property
    def broken(self) -> bool: ...

    def write(self, row: Mapping[str, Any]) -> None:
        """Take a row: `_row`, the output's columns, `_error` (null, or kind, message, step, attempts, skipped, raw).

        Columns that are not given are null, others are not looked at. Raises InputError, naming row and column, for a
        value that the format cannot hold; nothing of the row is written then, and it may be written otherwise.
        """

    def commit(self) -> None:
        """Finish, and show the result whole under the target's name."""

    def abort(self) -> None:
        """Drop everything; the target stays as it was."""

    def keep_partial(self, path: str | os.PathLike[str]) -> None:
        """Finish with the rows taken so far under another name; the target stays as it was."""


class _Encoder(Protocol):
    def add(self, row: dict[str, Any]) -> None: ...

    def finish(self) -> None: ...


def open_sink(target: str | os.PathLike[str], columns: Columns, *, format: str | None = None) -> FileSink:
    """Open a result for writing: JSONL, CSV, TSV, Parquet or Arrow by the suffix or `format`, `-` for standard output.

    `columns` are those of the workflow's output. Raises OptionError where the target cannot be written.
    """
    name = os.fspath(target)
    path = None if name == "-" else Path(name)
    known = output_format(path, format)
    return FileSink(open_place(name), result_columns(tuple(columns)), known)


class FileSink:
    """A result that goes into a file or a stream."""

    def __init__(self, place: Place, columns: Columns, format: str) -> None:
        self.name = place.name
        self.written = 0
        self._place = place
        self._columns = columns
        self._open = True
        try:
            with writing(self.name):
                self._encoder = _encoder(place, columns, format)
        except BaseException:
            place.abort()
            raise

    @property
    def broken(self) -> bool:
        """Whether the reader of a pipe is gone."""
        return self._place.broken

    def write(self, row: Mapping[str, Any]) -> None:
        """As `RowSink.write`."""
        if not self._open:
            raise OptionError(f"{self.name} is finished; no row can follow")
        values = result_row(row, self._columns)
        try:
            with writing(self.name):
                self._encoder.add(values)
        except ColumnError as error:
            raise error.located(self.name, values[ROW]) from None
        self.written += 1

    def commit(self) -> None:
        """As `RowSink.commit`."""
        if self._finish():
            self._place.commit()

    def abort(self) -> None:
        """As `RowSink.abort`."""
        if self._open:
            self._open = False
            drop = getattr(self._encoder, "drop", None)
            if drop is not None:
                drop()
            self._place.abort()

    def keep_partial(self, path: str | os.PathLike[str]) -> None:
        """As `RowSink.keep_partial`."""
        if self._finish():
            self._place.keep(Path(path))

    def _finish(self) -> bool:
        """Write the end of the format; False where that was done before."""
        if not self._open:
            return False
        try:
            with writing(self.name):
                self._encoder.finish()
        except BaseException:
            self.abort()
            raise
        self._open = False
        return True

    def __enter__(self) -> FileSink:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.commit()
        else:
            self.abort()


def _encoder(place: Place, columns: Columns, format: str) -> _Encoder:
    if format in ("csv", "tsv"):
        delimiter = "," if format == "csv" else "\t"
        return DelimitedEncoder(place.stream, columns, live=place.live, delimiter=delimiter)
    if format in ("parquet", "arrow"):
        from helix.executor.tables.arrow_out import ArrowEncoder

        return ArrowEncoder(place.stream, columns, live=place.live, parquet=format == "parquet")
    return JsonLinesEncoder(place.stream, columns, live=place.live)


class MemorySink:
    """A result in memory."""

    name = "the result"
    broken = False

    def __init__(self, columns: Columns) -> None:
        self.written = 0
        self._columns = result_columns(tuple(columns))
        self._rows: list[dict[str, Any]] = []

    def write(self, row: Mapping[str, Any]) -> None:
        """Take a row; any values will do, as `to_arrow` checks those that Arrow cannot hold."""
        self._rows.append(result_row(row, self._columns))
        self.written += 1

    def commit(self) -> None:
        """Nothing is left to do."""

    def abort(self) -> None:
        """Drop the rows."""
        self._rows.clear()
        self.written = 0

    def keep_partial(self, path: str | os.PathLike[str]) -> None:
        """The rows taken so far stay in memory; no file is written."""

    def to_dicts(self) -> list[dict[str, Any]]:
        """The rows, each a dict of `_row`, the output's columns and `_error`, in this order."""
        return list(self._rows)

    def to_arrow(self) -> Any:
        """The rows as a `pyarrow.Table`, typed as in Parquet. Raises InputError for a value that does not fit."""
        from helix.executor.tables.arrow_out import to_table

        return to_table(self._rows, self._columns, self.name)


def to_dicts(rows: Iterable[Mapping[str, Any]], columns: Columns) -> list[dict[str, Any]]:
    """Rows as `RowSink.write` takes them as a list of dicts with exactly the result's columns."""
    return _in_memory(rows, columns).to_dicts()


def to_arrow(rows: Iterable[Mapping[str, Any]], columns: Columns) -> Any:
    """Rows as `RowSink.write` takes them as a `pyarrow.Table`."""
    return _in_memory(rows, columns).to_arrow()


def _in_memory(rows: Iterable[Mapping[str, Any]], columns: Columns) -> MemorySink:
    sink = MemorySink(columns)
    for row in rows:
        sink.write(row)
    return sink
