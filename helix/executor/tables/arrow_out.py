"""Writes results as Parquet, Arrow IPC, or an Arrow table in memory.

The bytes depend on the rows and the version of pyarrow only: pieces are cut by the number and length of rows, and no
time or host is stored.
"""

from __future__ import annotations

import contextlib
import io
from typing import Any, BinaryIO

from helix.executor.tables.result_columns import ROW, ColumnError, Columns, arrow_schema, arrow_value

# A piece is a row group of Parquet, a record batch of Arrow.
_PIECE_ROWS = 16_384
_PIECE_CHARS = 32 * 1024 * 1024


class Pieces:
    """Collects rows as columns and hands them out as Arrow record batches."""

    def __init__(self, columns: Columns) -> None:
        self.schema = arrow_schema(columns)
        self._columns = [(name, arrow_value(kind), list[Any]()) for name, kind in columns]
        self._rows = 0
        self._chars = 0

    def add(self, row: dict[str, Any]) -> None:
        """Take a row. Raises ColumnError, and takes nothing, where a value does not fit its column."""
        values: list[Any] = []
        for name, convert, _ in self._columns:
            try:
                values.append(convert(row[name]))
            except (ValueError, TypeError) as error:
                raise ColumnError(name, str(error)) from None
            except RecursionError:
                raise ColumnError(name, "the value is nested too deeply") from None
        for value, (_, _, held) in zip(values, self._columns, strict=True):
            held.append(value)
            self._chars += _weight(value)
        self._rows += 1

    def full(self) -> bool:
        """Whether the piece is long enough to be written."""
        return self._rows >= _PIECE_ROWS or self._chars >= _PIECE_CHARS

    def take(self) -> Any:
        """The rows held as a record batch; nothing is held then."""
        import pyarrow as pa

        arrays = [pa.array(held, field.type) for field, (_, _, held) in zip(self.schema, self._columns, strict=True)]
        for _, _, held in self._columns:
            held.clear()
        self._rows = self._chars = 0
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def __len__(self) -> int:
        return self._rows


def _weight(value: Any) -> int:
    """Roughly how much memory a value takes, in characters."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list):
        return sum(map(_weight, value))
    if isinstance(value, dict):
        return sum(map(_weight, value.values()))
    return 8


class ArrowEncoder:
    """Rows as Parquet, as an Arrow IPC file, or, where somebody may be reading along, as an Arrow IPC stream."""

    def __init__(self, stream: BinaryIO, columns: Columns, *, live: bool, parquet: bool) -> None:
        self._pieces = Pieces(columns)
        self._tap = _Tap(stream)
        self._writer = _writer(self._tap, self._pieces.schema, live=live, parquet=parquet)

    def add(self, row: dict[str, Any]) -> None:
        """Take a row. Raises ColumnError, and takes nothing, where a value does not fit its column."""
        self._pieces.add(row)
        if self._pieces.full():
            self._writer.write_batch(self._pieces.take())

    def finish(self) -> None:
        """Write what is still held, and the end of the file."""
        if len(self._pieces):
            self._writer.write_batch(self._pieces.take())
        self._writer.close()
        self._tap.closed_off = True

    def drop(self) -> None:
        """Close the writer without letting it write an end: what was cut off must not look whole."""
        self._tap.closed_off = True
        with contextlib.suppress(Exception):
            self._writer.close()


class _Tap(io.RawIOBase):
    """Passes bytes on until it is closed off."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.closed_off = False

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        if not self.closed_off:
            self._stream.write(data)
        return len(data)

    def flush(self) -> None:
        if not self.closed_off:
            self._stream.flush()


def _writer(stream: io.RawIOBase, schema: Any, *, live: bool, parquet: bool) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if parquet:
        return pq.ParquetWriter(stream, schema, compression="snappy")
    return pa.ipc.new_stream(stream, schema) if live else pa.ipc.new_file(stream, schema)


def to_table(rows: list[dict[str, Any]], columns: Columns, name: str) -> Any:
    """Rows of a result, with exactly its columns, as an Arrow table. Raises InputError for what does not fit."""
    import pyarrow as pa

    pieces = Pieces(columns)
    batches = []
    for row in rows:
        try:
            pieces.add(row)
        except ColumnError as error:
            raise error.located(name, row[ROW]) from None
        if pieces.full():
            batches.append(pieces.take())
    if len(pieces):
        batches.append(pieces.take())
    return pa.Table.from_batches(batches, schema=pieces.schema)
