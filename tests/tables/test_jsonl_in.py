from __future__ import annotations

import gzip
import json

import pytest

from helix.executor.tables import RowError, open_rows
from helix.executor.tables import jsonl_in as module
from helix.schema import Column
from helix.types import FLOAT, INT, JSON, TEXT

TEXT_COLUMN = Column("text", TEXT)
ANY = Column("a", JSON)


def test_rows_come_in_order_with_declared_columns_only(tables) -> None:
    path = tables.file("in.jsonl", '{"text": "one", "x": 1}\n{"x": 2, "text": "two"}\n')
    assert tables.values(path, TEXT_COLUMN) == [{"text": "one"}, {"text": "two"}]


def test_byte_order_mark_crlf_blank_lines_and_a_missing_last_line_end(tables) -> None:
    path = tables.file("in.jsonl", '\ufeff{"text": "a"}\r\n\r\n   \n  {"text": "b"} \t\r\n{"text": "c"}')
    assert [row["text"] for row in tables.values(path, TEXT_COLUMN)] == ["a", "b", "c"]


def test_line_breaks_of_unicode_do_not_end_a_record(tables) -> None:
    text = "a\u2028b\u0085c\x0bd\u2029e"
    path = tables.file("in.jsonl", '{"text": "a\u2028b\u0085c\\u000bd\u2029e"}\n')
    assert tables.values(path, TEXT_COLUMN) == [{"text": text}]


def test_numbers_stay_exact(tables) -> None:
    path = tables.file("in.ndjson", '{"a": 123456789012345678901234567890, "b": 0.1}\n{"a": -0, "b": 3}\n')
    values = tables.values(path, Column("a", INT), Column("b", FLOAT))
    assert values == [{"a": 123456789012345678901234567890, "b": 0.1}, {"a": 0, "b": 3}]
    assert type(values[1]["b"]) is int


def test_text_passes_unnormalised(tables) -> None:
    text = "e\u0301 \ufeffน้ำ 👩‍👩‍👧 \x00\x1f"
    path = tables.file("in.jsonl", json.dumps({"text": text}) + "\n" + json.dumps({"text": text}, ensure_ascii=False))
    assert tables.values(path, TEXT_COLUMN) == [{"text": text}] * 2


def test_an_empty_file_has_no_rows(tables) -> None:
    for content in ("", "\n\r\n", "\ufeff"):
        path = tables.file("in.jsonl", content)
        assert tables.rows(path, TEXT_COLUMN) == []
        with open_rows(path, (TEXT_COLUMN,)) as rows:
            assert rows.scan().rows == 0


MALFORMED = [
    (b'{"text": "a"', 13, "not valid JSON"),
    (b'{"text": "a"} {"text": "b"}', 15, "extra data"),
    (b"[1, 2]", 1, "expected a JSON object, found list"),
    (b"  7", 3, "expected a JSON object, found int"),
    (b'{"text": NaN}', 10, "NaN is not a JSON number"),
    (b'{"text": "a", "text": "b"}', 15, "twice"),
    (b'{"text": "\\ud83d"}', 10, "surrogate"),
    ('{"text": "ไทย'.encode() + b"\xff" + b'"}', 14, "byte 0xff is not UTF-8"),
    ('{"text": "ไ'.encode()[:-1], 11, "byte 0xe0 is not UTF-8"),
    (b'{"text": "a\x00"}', 12, "NUL"),
    (b"[" * 200_000, 1, "nested too deeply"),
]


@pytest.mark.parametrize(("line", "column", "message"), MALFORMED, ids=[m for _, _, m in MALFORMED])
def test_a_malformed_line_names_file_line_and_column(tables, line, column, message) -> None:
    path = tables.file("in.jsonl", b'\xef\xbb\xbf{"text": "a"}\n\n' + line + b'\n{"text": "z"}\n')
    error = tables.refused(path, TEXT_COLUMN)
    assert (error.path, error.row, error.line, error.column, error.kind) == (path, 1, 3, column, "input.record")
    assert message in error.message
    assert f"--> {path}:3:{column}" in error.render()


@pytest.mark.parametrize(("line", "column", "message"), MALFORMED, ids=[m for _, _, m in MALFORMED])
def test_a_malformed_line_can_be_kept_in_place(tables, line, column, message) -> None:
    path = tables.file("in.jsonl", b'{"text": "a"}\n' + line + b'\n{"text": "z"}\n')
    rows = tables.rows(path, TEXT_COLUMN, on_bad_row="keep")
    assert [(row.index, row.values) for row in rows] == [(0, {"text": "a"}), (1, {"text": None}), (2, {"text": "z"})]
    error = rows[1].error
    assert isinstance(error, RowError)
    assert (error.kind, error.column) == ("input.record", None)
    assert error.message.startswith(f"line 2, column {column}: ")
    assert message in error.message
    with open_rows(path, (TEXT_COLUMN,), on_bad_row="keep") as source:
        report = source.scan()
    assert (report.rows, report.malformed, report.failed, report.errors) == (3, 1, 1, {"input.record": 1})
    assert report.first["input.record"] == (1, error)


def test_the_place_in_the_first_line_does_not_count_the_byte_order_mark(tables) -> None:
    error = tables.refused(tables.file("in.jsonl", "\ufeff{x"), ANY)
    assert (error.line, error.column) == (1, 2)


def test_a_line_without_end_is_not_read_into_memory(tables, monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_RECORD_CHARS", 1 << 20)
    path = tables.file("in.jsonl", b'{"a": "' + b"x" * (3 << 20) + b'"}\n{"a": 1}\n')
    first, second = tables.rows(path, ANY, on_bad_row="keep")
    assert first.error is not None
    assert first.error.message == "line 1, column 1: the line is longer than 1 MiB"
    assert second.values == {"a": 1}


def test_gzip_is_read_by_its_first_bytes(tables) -> None:
    packed = gzip.compress('\ufeff{"text": "a"}\n'.encode() * 1)
    for name in ("in.jsonl.gz", "in.jsonl"):
        assert tables.values(tables.file(name, packed), TEXT_COLUMN) == [{"text": "a"}]


def test_cut_off_gzip_is_an_error_with_the_file(tables) -> None:
    packed = gzip.compress(b"".join(b'{"text": "%d"}\n' % i for i in range(10_000)))
    error = tables.refused(tables.file("in.jsonl.gz", packed[: len(packed) // 2]), TEXT_COLUMN)
    assert error.message == "the gzip data cannot be unpacked: it ends too early"
    error = tables.refused(tables.file("in.jsonl.gz", packed[:500] + b"\xff" * 100 + packed[600:]), TEXT_COLUMN)
    assert error.message.startswith("the gzip data cannot be unpacked: ")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_named(tables, encoding) -> None:
    path = tables.file("in.jsonl", '\ufeff{"text": "a"}\n'.encode(encoding))
    error = tables.refused(path, TEXT_COLUMN)
    assert error.message == "the file is in UTF-16; save it as UTF-8"
