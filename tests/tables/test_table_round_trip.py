"""What is written in a format and read again under the same types is the same."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helix.executor.tables import open_rows, open_sink, to_dicts
from helix.schema import Column
from helix.types import (
    BOOL,
    FLOAT,
    INT,
    JSON,
    TABLE,
    TEXT,
    Choice,
    ListOf,
    Optional,
    Record,
    Table,
    Type,
    optional,
    parse_cell,
)

SAMPLES = [
    "ไทย น้ำ",
    "👩‍👩‍👧",
    "a\r\nb",
    'say "so", then',
    "\ufeff",
    "007",
    "\r",
    "\u2028",
    "e\u0301",
    "null",
    "[]",
    "\t",
]
# NUL is no text in CSV; lone surrogates have no UTF-8.
TEXTS = st.sampled_from(SAMPLES) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8
)
INT64 = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
TYPES = st.recursive(
    st.sampled_from([TEXT, INT, FLOAT, BOOL, JSON, Optional(JSON), TABLE, Choice(("x", 'y"', "ไทย, ,")), Record(())]),
    lambda inner: (
        st.builds(ListOf, inner | st.builds(optional, inner))
        | st.lists(inner | st.builds(optional, inner), min_size=1, max_size=3).map(
            lambda kinds: Record(tuple((f"f{place}", kind) for place, kind in enumerate(kinds)))
        )
    ),
    max_leaves=4,
)


def values_of(kind: Type) -> st.SearchStrategy[Any]:
    match kind:
        case Optional(inner):
            return st.none() | values_of(inner)
        case ListOf(item):
            return st.lists(values_of(item), max_size=3)
        case Record(fields):
            return st.fixed_dictionaries({name: values_of(field) for name, field in fields})
        case Choice(labels):
            return st.sampled_from(labels)
        case Table():
            return st.lists(st.dictionaries(TEXTS, JSON_VALUES, max_size=2), max_size=2)
    return {TEXT: TEXTS, INT: INT64, FLOAT: FLOATS, BOOL: st.booleans(), JSON: JSON_VALUES}[kind]


@st.composite
def results(draw: st.DrawFn) -> tuple[tuple[tuple[str, Type], ...], list[dict[str, Any]]]:
    kinds = draw(st.lists(TYPES, min_size=1, max_size=3))
    columns = tuple((f"c{place}", kind) for place, kind in enumerate(kinds))
    row = st.fixed_dictionaries({name: values_of(optional(kind)) for name, kind in columns})
    rows = draw(st.lists(row, max_size=4))
    # Keys are drawn in any order; read rows have them in declared order.
    names = [name for name, _ in columns]
    return columns, [{"_row": place, **{name: row[name] for name in names}} for place, row in enumerate(rows)]


FORMATS = ["jsonl", "csv", "tsv", "parquet", "arrow"]


@pytest.mark.parametrize("format", FORMATS)
@given(results())
@settings(max_examples=150, deadline=None)
def test_results_read_back_as_they_were_written(tmp_path_factory, format, result) -> None:
    columns, rows = result
    path = tmp_path_factory.getbasetemp() / f"round.{format}"
    with open_sink(path, columns) as sink:
        for row in rows:
            sink.write(row)
    schema = (Column("_row", INT), *(Column(name, optional(kind)) for name, kind in columns))
    with open_rows(path, schema) as source:
        report = source.scan()
        read = [row.values for row in source]
    assert (report.rows, report.errors) == (len(rows), {})
    if format in ("csv", "tsv"):
        # In CSV an empty text and null are one for a column that allows null.
        texts = [name for name, kind in columns if kind == TEXT]
        rows = [{**row, **{name: row[name] or None for name in texts}} for row in rows]
    assert read == rows
    # 1 == 1.0 == True in Python; the kinds must be the same too (double is what Arrow has for a float column).
    if format not in ("parquet", "arrow"):
        assert repr(read) == repr(rows)


@given(results())
@settings(max_examples=100, deadline=None)
def test_csv_is_what_the_csv_module_and_parse_cell_read(tmp_path_factory, result) -> None:
    columns, rows = result
    path = tmp_path_factory.getbasetemp() / "cells.csv"
    with open_sink(path, columns) as sink:
        for row in rows:
            sink.write(row)
    header, *cells = csv.reader(io.StringIO(path.read_bytes().decode(), newline=""), strict=True)
    assert header == ["_row", *(name for name, _ in columns), "_error"]
    for row, record in zip(rows, cells, strict=True):
        for (name, kind), cell in zip(columns, record[1:-1], strict=True):
            if cell:
                assert parse_cell(cell, kind) == row[name]
            else:
                assert row[name] in (None, "")


@given(results())
@settings(max_examples=50, deadline=None)
def test_rows_in_memory_are_those_of_the_file(tmp_path_factory, result) -> None:
    columns, rows = result
    path = tmp_path_factory.getbasetemp() / "memory.jsonl"
    with open_sink(path, columns) as sink:
        for row in rows:
            sink.write(row)
    schema = tuple(Column(name, JSON) for name in ["_row", *(name for name, _ in columns), "_error"])
    with open_rows(path, schema) as source:
        assert [row.values for row in source] == to_dicts(rows, columns)


CELLS = [
    "",
    " ",
    "x",
    "7",
    "007",
    "-1.5",
    "1e3",
    "nan",
    "inf",
    "true",
    "1",
    "[]",
    "[1]",
    '{"k": 1}',
    '"q"',
    "null",
    "1_0",
]


@given(st.sampled_from(CELLS) | TEXTS, TYPES)
@settings(max_examples=300, deadline=None)
def test_cells_fit_where_parse_cell_says_so(tmp_path_factory, cell, kind) -> None:
    path = tmp_path_factory.getbasetemp() / "cell.csv"
    path.write_bytes(('c,d\n"' + cell.replace('"', '""') + '",\n').encode())
    with open_rows(path, (Column("c", kind),)) as source:
        (row,) = source
    try:
        value: Any = parse_cell(cell, kind)
    except ValueError:
        assert row.error is not None
        return
    if row.error is None:
        assert row.values["c"] == (None if kind == JSON and not cell.strip() else value)
    else:
        # Stricter in two ways: a blank is no value, and JSON is read strictly.
        strict = any(name in cell for name in ("NaN", "Infinity"))
        assert row.error.kind == "input.empty" or strict or len(set(cell)) < len(cell)
