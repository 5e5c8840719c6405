from __future__ import annotations

import json

import pytest

from helix.executor.tables import bytes_in, json_in
from helix.schema import Column
from helix.types import JSON, TEXT

A = Column("a", JSON)


@pytest.fixture(params=[1, 7, 64, 1 << 20])
def block_bytes(request, monkeypatch) -> int:
    """Every cut between two blocks of the file must come to the same."""
    monkeypatch.setattr(bytes_in, "BLOCK_BYTES", request.param)
    return request.param


ROWS = [
    {"a": 'ไทย "quoted" \\ 😀 }],{[', "b": 1},
    {"a": [1, 2.5, {"x": None}], "b": {"c": []}},
    {"a": True},
    {"a": -12345678901234567890},
    {},
]


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_an_array_is_read_element_by_element(tables, block_bytes, indent, ascii_only) -> None:
    text = json.dumps(ROWS, indent=indent, ensure_ascii=ascii_only)
    path = tables.file("in.json", f"\ufeff \r\n{text}\n ")
    column = Column("a", JSON, default="none")
    assert tables.values(path, column) == [{"a": row.get("a", "none")} for row in ROWS]


def test_one_object_is_one_row(tables, block_bytes) -> None:
    assert tables.values(tables.file("in.json", json.dumps(ROWS[1])), A) == [{"a": ROWS[1]["a"]}]


@pytest.mark.parametrize("content", ["", " \n", "[]", " [ \n ] ", "\ufeff[]"])
def test_nothing_is_no_rows(tables, block_bytes, content) -> None:
    assert tables.rows(tables.file("in.json", content), A) == []


BROKEN = [
    ('[{"a": 1},\n {"a": 2,}]', 2, 10, "not valid JSON"),
    ('[{"a": 1},\n {"a": "open}]', 2, 8, "unterminated string"),
    ('[{"a": 1}\n {"a": 2}]', 2, 2, "expected `,` or `]`"),
    ('[{"a": 1},\n', 2, 1, "the array is not closed"),
    ('[{"a": 1}\n', 2, 1, "the array is not closed"),
    ('[{"a": 1}]\n x', 2, 2, "expected the end of the file"),
    ('"text"', 1, 1, "expected a JSON array of objects, or one object"),
    ('[{"a": tru}]', 1, 8, "expecting value"),
    ('[{"a": ' + "1" * 5000 + "}]", 1, 2, "too many digits"),
    ("[" * 100_000, 1, 2, "nested too deeply"),
]


@pytest.mark.parametrize("on_bad_row", ["stop", "keep"])
@pytest.mark.parametrize(("content", "line", "column", "message"), BROKEN, ids=[m for *_, m in BROKEN])
def test_text_that_is_not_json_stops_at_its_place(tables, on_bad_row, content, line, column, message) -> None:
    path = tables.file("in.json", content)
    error = tables.refused(path, A, on_bad_row=on_bad_row)
    assert message in error.message
    assert (error.path, error.line, error.kind) == (path, line, "input.record")
    # The standard library's versions point at the comma or at what follows it.
    assert abs(error.column - column) <= 1


def test_places_are_the_same_however_the_file_is_cut(tables, block_bytes) -> None:
    path = tables.file("in.json", '[\n{"a": 1},\n  {"a": "ไทย"},\n  {"a": "ไทย" oops}]')
    error = tables.refused(path, A)
    assert (error.line, error.column) == (4, 15)


def test_bad_bytes_stop_at_their_place(tables, block_bytes) -> None:
    path = tables.file("in.json", '[{"a": "x"},\n {"a": "ไทย'.encode() + b'\xff"}]')
    error = tables.refused(path, A)
    assert (error.message, error.line, error.column) == ("byte 0xff is not UTF-8", 2, 12)
    path = tables.file("in.json", '[{"a": "ไ'.encode()[:-1])
    assert tables.refused(path, A).message == "byte 0xe0 is not UTF-8"


SKIPPED = [
    ("17", 1, "expected a JSON object, found int 17"),
    ('["x"]', 1, "expected a JSON object, found list"),
    ('{"a": 1, "a": 2}', 10, "twice"),
    ('{"a": [NaN]}', 8, "NaN"),
    ('{"a": "\\ud800"}', 7, "surrogate"),
    ('{"a": 1e400}', 7, "too large"),
]


@pytest.mark.parametrize(("element", "offset", "message"), SKIPPED, ids=[m for *_, m in SKIPPED])
def test_an_element_that_is_no_row_is_a_malformed_record(tables, block_bytes, element, offset, message) -> None:
    path = tables.file("in.json", '[{"a": 1},\n ' + element + ', {"a": 2}]')
    error = tables.refused(path, A)
    assert message in error.message
    assert (error.row, error.line, error.column) == (1, 2, 1 + offset)
    rows = tables.rows(path, A, on_bad_row="keep")
    assert [row.values["a"] for row in rows] == [1, None, 2]
    assert rows[1].error.kind == "input.record"


def test_json_lines_under_the_wrong_name_are_recognised(tables) -> None:
    error = tables.refused(tables.file("in.json", '{"a": 1}\n{"a": 2}\n'), A)
    assert (error.line, error.column) == (2, 1)
    assert "jsonl" in error.help


def test_an_element_without_end_is_not_read_into_memory(tables, monkeypatch) -> None:
    monkeypatch.setattr(json_in, "MAX_RECORD_CHARS", 1 << 20)
    monkeypatch.setattr(bytes_in, "BLOCK_BYTES", 1 << 16)
    error = tables.refused(tables.file("in.json", '[{"a": 1}, {"a": "' + "x" * (5 << 20)), Column("a", TEXT))
    assert (error.message, error.line, error.column) == ("an element is longer than 1 MiB", 1, 12)
