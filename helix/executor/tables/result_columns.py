"""The columns of a result: `_row`, those of the workflow's output, `_error`; and their values as Arrow keeps them.

| type | Arrow |
|---|---|
| text, choice | string |
| int, float, bool | int64, double, bool |
| list[T], record | list, struct |
| json, table, a record without fields | string that holds JSON |

Every field may be null. The metadata key `helix.type` of a column holds its type as the language writes it; it is also
on json and table fields inside lists and records, so that reading turns their text into values again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from helix.canonical import to_json_text
from helix.errors import InputError
from helix.executor.tables.arrow_values import TYPE_KEY
from helix.types import (
    BOOL,
    FLOAT,
    INT,
    JSON,
    TEXT,
    ListOf,
    Optional,
    Record,
    Table,
    Type,
    found,
    is_textual,
    mismatch,
    required,
)

Columns = tuple[tuple[str, Type], ...]

ROW = "_row"
ERROR = "_error"
ERROR_TYPE = Record(
    (
        ("step", Optional(TEXT)),
        ("kind", TEXT),
        ("message", TEXT),
        ("attempts", INT),
        ("skipped", ListOf(TEXT)),
        ("raw", Optional(TEXT)),
    )
)

_SURROGATE = re.compile("[\ud800-\udfff]")
_LEAST_INT, _GREATEST_INT = -(2**63), 2**63 - 1


class ColumnError(Exception):
    """A value that cannot be written: the column, and what is wrong."""

    def __init__(self, column: str, message: str) -> None:
        super().__init__(message)
        self.column = column
        self.message = message

    def located(self, name: str, row: Any) -> InputError:
        """The error for people: with the name of the result and the row's `_row`."""
        return InputError(
            f"row {row}, column `{self.column}` cannot be written: {self.message}",
            path=name,
            row=row if isinstance(row, int) else None,
            column=self.column,
            kind="input.type",
        )


def result_columns(columns: Columns) -> Columns:
    """All columns of the result of a workflow with these output columns."""
    return ((ROW, INT), *columns, (ERROR, Optional(ERROR_TYPE)))


def result_row(row: Mapping[str, Any], columns: Columns) -> dict[str, Any]:
    """A row with exactly the result's columns in their order; what is not given is null."""
    values = {name: row.get(name) for name, _ in columns}
    error = values[ERROR]
    if error is not None:
        values[ERROR] = {
            "step": error.get("step"),
            "kind": error["kind"],
            "message": error["message"],
            "attempts": error.get("attempts", 0),
            "skipped": list(error.get("skipped", ())),
            "raw": error.get("raw"),
        }
    return values


def encodable(text: str) -> str:
    """The text with each lone surrogate, which UTF-8 has no form for, as six characters such as `\\ud83d`."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def json_text(value: Any) -> str:
    """The JSON text of a value, with lone surrogates in its texts as `encodable` writes them."""
    text = to_json_text(value)
    if text.isascii():
        return text
    # The backslash is doubled, so that what is read back is the six characters.
    return _SURROGATE.sub(lambda found: f"\\\\u{ord(found.group()):04x}", text)


def arrow_schema(columns: Columns) -> Any:
    """The Arrow schema of a result."""
    import pyarrow as pa

    return pa.schema(
        [pa.field(name, _arrow_type(kind), metadata={TYPE_KEY: str(kind).encode()}) for name, kind in columns]
    )


def _is_json_text(kind: Type) -> bool:
    return kind == JSON or isinstance(kind, Table) or (isinstance(kind, Record) and not kind.fields)


def _arrow_type(kind: Type) -> Any:
    import pyarrow as pa

    kind = required(kind)
    if kind in (INT, FLOAT, BOOL):
        return {INT: pa.int64(), FLOAT: pa.float64(), BOOL: pa.bool_()}[kind]
    if isinstance(kind, ListOf):
        return pa.list_(_part("item", kind.item))
    if isinstance(kind, Record) and kind.fields:
        return pa.struct([_part(name, field) for name, field in kind.fields])
    return pa.string()


def _part(name: str, kind: Type) -> Any:
    """The field of an item of a list or of a part of a record."""
    import pyarrow as pa

    inner = required(kind)
    metadata = {TYPE_KEY: str(inner).encode()} if _is_json_text(inner) else None
    return pa.field(name, _arrow_type(kind), metadata=metadata)


def arrow_value(kind: Type) -> Callable[[Any], Any]:
    """The function that turns a value of a type, or null, into what Arrow takes for it.

    It raises ValueError with what was found for a value that does not fit.
    """
    inner = required(kind)
    convert = _present_value(inner)
    return lambda value: None if value is None else convert(value)


def _present_value(kind: Type) -> Callable[[Any], Any]:
    if _is_json_text(kind):
        return lambda value: json_text(_fitting(value, kind))
    if is_textual(kind):
        return lambda value: encodable(value) if isinstance(value, str) else _fitting(value, kind)
    if kind == INT:
        return _int64
    if kind == FLOAT:
        return _double
    if isinstance(kind, ListOf):
        item = arrow_value(kind.item)
        return lambda value: [item(part) for part in _instance(value, list, kind)]
    if isinstance(kind, Record):
        parts = [(name, arrow_value(field)) for name, field in kind.fields]
        return lambda value: {name: part(_instance(value, dict, kind).get(name)) for name, part in parts}
    return lambda value: _fitting(value, kind)


def _fitting(value: Any, kind: Type) -> Any:
    if bad := mismatch(value, kind):
        raise ValueError(bad[1])
    return value


def _instance(value: Any, kind: type, declared: Type) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"expected {declared}, found {found(value)}")
    return value


def _int64(value: Any) -> int:
    number: int = _fitting(value, INT)
    if not _LEAST_INT <= number <= _GREATEST_INT:
        raise ValueError(f"{found(number)} does not fit into 64 bits; JSON Lines and CSV have no such bound")
    return number


def _double(value: Any) -> float:
    try:
        number = float(_fitting(value, FLOAT))
    except OverflowError:
        number = float("inf")
    if number - number != 0:
        raise ValueError("the number is not finite as a double")
    return number
