"""Reads pandas DataFrames, column by column, without importing pandas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from helix.errors import InputError
from helix.executor.tables.arrow_in import SLICE_ROWS
from helix.executor.tables.arrow_values import column_values
from helix.executor.tables.checks import missing_column
from helix.executor.tables.objects_in import value_or_unfit
from helix.executor.tables.rows import BadRecord, Record
from helix.schema import Column, InputSchema
from helix.types import INT, required


class PandasRows:
    """The rows of a pandas DataFrame; its index is no column. Missing values of any kind are null.

    pandas turns a column of ints with missing values into floats; where int is declared, whole floats of such a
    column are ints again.
    """

    name = "the DataFrame"
    cells = False

    def __init__(self, frame: Any, schema: InputSchema) -> None:
        self._frame = frame
        self._schema = schema

    def prepare(self) -> None:
        """Check that every required column is there, once."""
        names = [name for name in self._frame.columns if isinstance(name, str)]
        if missing := missing_column(self._schema, names, self.name):
            raise missing
        for column in self._schema:
            if names.count(column.name) > 1:
                message = f"two columns of the DataFrame are called `{column.name}`"
                raise InputError(message, path=self.name, column=column.name)

    def count(self) -> int:
        return len(self._frame)

    def close(self) -> None:
        """Nothing is held."""

    def records(self) -> Iterator[Record | BadRecord]:
        import pyarrow as pa

        self.prepare()
        wanted = [column for column in self._schema if column.name in self._frame.columns]
        columns = {column.name: _column(self._frame[column.name], column) for column in wanted}
        rows = len(self._frame)
        for start in range(0, rows, SLICE_ROWS):
            pieces = [
                [value_or_unfit(value) for value in values[start : start + SLICE_ROWS]]
                if isinstance(values, list)
                else column_values(values.slice(start, SLICE_ROWS), pa.field(name, values.type))
                for name, values in columns.items()
            ]
            if not pieces:
                yield from ({} for _ in range(start, min(start + SLICE_ROWS, rows)))
            for row in zip(*pieces, strict=True):
                yield dict(zip(columns, row, strict=True))


def _column(series: Any, column: Column) -> Any:
    """A column as an Arrow array, or as a list where its values are of several types."""
    import pyarrow as pa

    try:
        values = pa.array(series, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return series.tolist()
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if required(column.type) == INT and pa.types.is_floating(values.type) and values.null_count:
        return [int(value) if value is not None and value.is_integer() else value for value in values.to_pylist()]
    return values
