"""Reads Parquet, Arrow IPC (file and stream format, by their first bytes) and Arrow data in memory.

Only declared columns are read. Rows come in slices of `SLICE_ROWS`, so that a file of one huge batch is never a list
of Python objects as a whole.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from helix.errors import InputError
from helix.executor.tables.arrow_values import column_values
from helix.executor.tables.bytes_in import ByteSource, new_spool, reopen, spooling
from helix.executor.tables.checks import missing_column
from helix.executor.tables.rows import BadRecord, Record
from helix.schema import InputSchema

SLICE_ROWS = 2048
# What the texts of a slice may take, but for one row.
SLICE_BYTES = 64 * 1024 * 1024
_FILE_MARK = b"ARROW1"
_OLD_FEATHER_MARK = b"FEA1"


class ArrowRows:
    """A table of Arrow record batches. `open` gives its Arrow schema and, afresh for each pass, its batches."""

    cells = False

    def __init__(
        self,
        name: str,
        schema: InputSchema,
        open: Callable[[list[str]], contextlib.AbstractContextManager[tuple[Any, Iterator[Any]]]],
        count: Callable[[], int | None] = lambda: None,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self.count = count
        self.close = close
        self._schema = schema
        self._open = open

    def prepare(self) -> None:
        """Check that every required column is there."""
        with self._opened() as (schema, _):
            self._check(schema)

    def records(self) -> Iterator[Record | BadRecord]:
        with self._opened() as (schema, batches):
            names = self._check(schema)
            fields = [schema.field(name) for name in names]
            for batch in batches:
                rows = _rows_of(batch)
                for start in range(0, batch.num_rows, rows):
                    piece = batch.slice(start, rows)
                    columns = [_values(piece.column(field.name), field) for field in fields]
                    if not columns:
                        yield from ({} for _ in range(piece.num_rows))
                    for values in zip(*columns, strict=True):
                        yield dict(zip(names, values, strict=True))

    @contextlib.contextmanager
    def _opened(self) -> Iterator[tuple[Any, Iterator[Any]]]:
        import pyarrow as pa

        try:
            with self._open([column.name for column in self._schema]) as opened:
                yield opened
        except pa.ArrowException as error:
            raise InputError(f"the table cannot be read: {_first_line(error)}", path=self.name) from None
        except OSError as error:
            raise InputError(f"the table cannot be read: {_first_line(error)}", path=self.name) from None

    def _check(self, schema: Any) -> list[str]:
        """The declared columns that the table has, in declared order."""
        if missing := missing_column(self._schema, schema.names, self.name):
            raise missing
        names = [column.name for column in self._schema if column.name in set(schema.names)]
        for name in names:
            if schema.names.count(name) > 1:
                raise InputError(f"two columns of the table are called `{name}`", path=self.name, column=name)
        return names


def _values(column: Any, field: Any) -> list[Any]:
    """The values of a column; its type may be that of a dictionary of the field's."""
    return column_values(column, field if column.type == field.type else field.with_type(column.type))


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0] or type(error).__name__


def parquet_rows(source: ByteSource, schema: InputSchema) -> ArrowRows:
    """A Parquet file, read batch by batch."""

    @contextlib.contextmanager
    def open_file(names: list[str]) -> Iterator[tuple[Any, Iterator[Any]]]:
        import pyarrow.parquet as pq

        with source.open() as stream, pq.ParquetFile(stream, pre_buffer=False) as file:
            found = file.schema_arrow
            paths = _leaf_paths(file, names)
        texts = [path for path in paths if path in found.names and _is_text(found.field(path).type)]
        # A text that a dictionary holds once is not to be in memory for each of its rows.
        with source.open() as stream, pq.ParquetFile(stream, pre_buffer=False, read_dictionary=texts) as file:
            size = _rows_at_once(file.metadata)
            yield found, file.iter_batches(batch_size=size, columns=paths) if file.num_row_groups else iter(())

    def count() -> int:
        import pyarrow.parquet as pq

        with source.open() as stream, pq.ParquetFile(stream) as file:
            rows: int = file.metadata.num_rows
            return rows

    return ArrowRows(source.name, schema, open_file, count, source.close)


def _is_text(kind: Any) -> bool:
    import pyarrow.types as is_

    return bool(is_.is_string(kind) or is_.is_large_string(kind))


def _rows_at_once(metadata: Any) -> int:
    """The rows of a slice: few where they are long, as far as the file tells."""
    groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
    longest = max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=0)
    return max(1, min(SLICE_ROWS, SLICE_BYTES // max(1, longest)))


def _rows_of(batch: Any) -> int:
    """The rows of a batch that become Python objects at once: few where a text of a dictionary may be long."""
    import pyarrow.compute as pc
    import pyarrow.types as is_

    longest = 0
    for column in batch.columns:
        if is_.is_dictionary(column.type) and _is_text(column.type.value_type) and len(column.dictionary):
            longest += pc.max(pc.binary_length(column.dictionary)).as_py() or 0
    return max(1, min(SLICE_ROWS, SLICE_BYTES // max(1, longest)))


def _leaf_paths(file: Any, names: list[str]) -> list[str]:
    """The paths of the Parquet leaves under top-level columns of these names."""
    paths = (file.schema.column(place).path for place in range(len(file.schema)))
    return [path for path in paths if any(path == name or path.startswith(f"{name}.") for name in names)]


def ipc_rows(source: ByteSource, schema: InputSchema) -> ArrowRows:
    """An Arrow IPC file or stream (also Feather version 2)."""

    @contextlib.contextmanager
    def open_file(names: list[str]) -> Iterator[tuple[Any, Iterator[Any]]]:
        import pyarrow as pa

        with source.open() as stream:
            mark = stream.read(len(_FILE_MARK))
            stream.seek(0)
            if mark.startswith(_OLD_FEATHER_MARK):
                raise InputError("Feather version 1 is not read; write the file as version 2", path=source.name)
            if not mark:
                raise InputError("the file is empty; an Arrow file has a schema at least", path=source.name)
            if mark == _FILE_MARK:
                with pa.ipc.open_file(stream) as reader:
                    yield reader.schema, (reader.get_batch(place) for place in range(reader.num_record_batches))
            else:
                with pa.ipc.open_stream(stream) as reader:
                    yield reader.schema, iter(reader)

    return ArrowRows(source.name, schema, open_file, close=source.close)


def memory_rows(table: Any, schema: InputSchema) -> ArrowRows:
    """An Arrow table or record batch in memory."""

    @contextlib.contextmanager
    def open_table(names: list[str]) -> Iterator[tuple[Any, Iterator[Any]]]:
        import pyarrow as pa

        yield table.schema, iter([table] if isinstance(table, pa.RecordBatch) else table.to_batches())

    return ArrowRows("the Arrow table", schema, open_table, lambda: int(table.num_rows))


def stream_rows(stream: Any, schema: InputSchema) -> ArrowRows:
    """What hands out Arrow batches once: copied to a temporary file at first use, so that it can be read twice."""
    return ipc_rows(_SpooledBatches(stream), schema)


class _SpooledBatches:
    """A stream of Arrow batches as the bytes of an Arrow IPC stream."""

    name = "the Arrow stream"

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._spool: Any = None

    def open(self) -> Any:
        import pyarrow as pa

        if self._spool is None:
            self._spool = new_spool(self.name)
            reader = self._stream
            if not isinstance(reader, pa.RecordBatchReader):
                reader = pa.RecordBatchReader.from_stream(reader)
            with spooling(self.name), pa.ipc.new_stream(self._spool, reader.schema) as writer:
                for batch in reader:
                    writer.write_batch(batch)
            self._spool.flush()
        return reopen(self._spool)

    def close(self) -> None:
        if self._spool is not None:
            self._spool.close()
