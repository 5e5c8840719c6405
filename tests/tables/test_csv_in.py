from __future__ import annotations

import csv
import gzip
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix.executor.tables import csv_in, open_rows
from helix.executor.tables.csv_in import dissect
from helix.schema import Column
from helix.types import BOOL, FLOAT, INT, JSON, TABLE, TEXT, Choice, ListOf, Optional, Record

T = Column("t", TEXT)
A, B = Column("a", TEXT), Column("b", TEXT)
MAYBE = Column("t", Optional(TEXT))


def test_cells_are_kept_byte_for_byte(tables) -> None:
    cells = [
        "one\r\ntwo",
        "one\ntwo",
        "one\rtwo",
        'say "so"',
        "a,b",
        "  spaces  ",
        "007",
        "\t",
        "ไทย 😀",
        "1e5",
        "NULL",
    ]
    content = "\ufefft,n\r\n" + "".join('"' + cell.replace('"', '""') + '",x\r\n' for cell in cells)
    path = tables.file("in.csv", content)
    # White space alone is a blank for a required text, so the column allows null here.
    assert [row["t"] for row in tables.values(path, MAYBE)] == cells


def test_the_header_says_which_cell_is_whose(tables) -> None:
    path = tables.file("in.csv", "x,b,,a\n1,2,3,4\n5,6,7,8")
    assert tables.values(path, A, B) == [{"a": "4", "b": "2"}, {"a": "8", "b": "6"}]


def test_tabs_divide_tsv(tables) -> None:
    path = tables.file("in.tsv", 'a\tb\r\n1,5\t"x\ty"\r\n')
    assert tables.values(path, A, B) == [{"a": "1,5", "b": "x\ty"}]


def test_cells_become_values_of_the_declared_types(tables) -> None:
    columns = [
        Column("i", INT),
        Column("f", FLOAT),
        Column("b", BOOL),
        Column("c", Choice(("x", "y z"))),
        Column("l", ListOf(INT)),
        Column("r", Record((("k", TEXT),))),
        Column("j", JSON),
        Column("tb", TABLE),
    ]
    path = tables.file(
        "in.csv",
        "i,f,b,c,l,r,j,tb\n"
        '007,1e3,TRUE,y z,"[1, 2]","{""k"": ""v""}",plain words,[]\n'
        '-5,5,0,x,[],"{""k"": """"}","""quoted""","[{""q"": 1}]"\n'
        '123456789012345678901234567890,-0.0,1,x,[],"{""k"": "" ""}",,[]\n',
    )
    assert tables.values(path, *columns) == [
        {"i": 7, "f": 1000.0, "b": True, "c": "y z", "l": [1, 2], "r": {"k": "v"}, "j": "plain words", "tb": []},
        {"i": -5, "f": 5.0, "b": False, "c": "x", "l": [], "r": {"k": ""}, "j": "quoted", "tb": [{"q": 1}]},
        {"i": 123456789012345678901234567890, "f": 0.0, "b": True, "c": "x", "l": [], "r": {"k": " "}}
        | {"j": None, "tb": []},
    ]


BAD_CELLS = [
    (TEXT, "", "input.empty", "column `x` is blank; text is needed"),
    (TEXT, " \u3000 ", "input.empty", "column `x` is blank; text is needed"),
    (INT, "", "input.empty", "column `x` is blank; int is needed"),
    (ListOf(INT), " ", "input.empty", "column `x` is blank; list[int] is needed"),
    (INT, "4.0", "input.type", 'column `x` does not fit: expected int, found text "4.0"'),
    (INT, "9" * 5000, "input.type", "expected int, found text"),
    (FLOAT, "nan", "input.type", 'column `x` does not fit: expected float, found text "nan"'),
    (FLOAT, "1e999", "input.type", 'column `x` does not fit: expected float, found text "1e999"'),
    (BOOL, "yes", "input.type", 'column `x` does not fit: expected bool, found text "yes"'),
    (Choice(("a", "b")), "c", "input.type", 'expected choice["a", "b"], found text "c"'),
    (ListOf(INT), "[1, true]", "input.type", "column `x` does not fit at /1: expected int, found bool true"),
    (ListOf(INT), "1, 2", "input.type", 'expected list[int], found text "1, 2"'),
    (Record((("k", INT),)), "{}", "input.type", "column `x` does not fit at /k: field `k` is missing"),
    (JSON, "[NaN]", "input.type", "column `x` does not fit: NaN is not a JSON number"),
    (JSON, '{"a":1,"a":2}', "input.type", "column `x` does not fit: an object has the same key twice"),
    (Optional(INT), " ", "input.type", 'column `x` does not fit: expected int, found text " "'),
]


@pytest.mark.parametrize(("kind", "cell", "error_kind", "message"), BAD_CELLS)
def test_a_cell_that_does_not_fit_is_an_error_of_its_row(tables, kind, cell, error_kind, message) -> None:
    quoted = cell.replace('"', '""')
    path = tables.file("in.csv", f'y,x\nkept,"{quoted}"\n')
    (row,) = tables.rows(path, Column("x", kind), Column("y", TEXT))
    assert row.values == {"x": None, "y": "kept"}
    assert row.error is not None
    assert (row.error.kind, row.error.column) == (error_kind, "x")
    assert message in row.error.message


def test_an_empty_cell_is_null_where_null_or_a_default_is_allowed(tables) -> None:
    path = tables.file("in.csv", 't,n,d,l,j\n"",,,,\nx,1,y,[1],{}\n')
    columns = [
        Column("t", Optional(TEXT)),
        Column("n", Optional(INT)),
        Column("d", TEXT, default="plain"),
        Column("l", ListOf(INT), default=[]),
        Column("j", JSON),
        Column("absent", BOOL, default=False),
    ]
    assert tables.values(path, *columns) == [
        {"t": None, "n": None, "d": "plain", "l": [], "j": None, "absent": False},
        {"t": "x", "n": 1, "d": "y", "l": [1], "j": {}, "absent": False},
    ]


@pytest.mark.parametrize("content", ["", "\ufeff", "\n\r\n", "a,b\n", "\n\na,b", "\ufeffa,b\r\n\r\n"])
def test_an_empty_file_has_no_rows(tables, content) -> None:
    assert tables.rows(tables.file("in.csv", content), A, B) == []


def test_blank_lines_are_skipped_and_counted(tables) -> None:
    path = tables.file("in.csv", '\na,b\n\n1,2\n\r\n3,"4\n\n5"\n\n\nx\n')
    rows = tables.rows(path, A, B, on_bad_row="keep")
    assert [row.values["b"] for row in rows] == ["2", "4\n\n5", None]
    assert tables.refused(path, A, B).line == 11


def test_in_a_table_of_one_column_a_blank_line_is_an_empty_cell(tables) -> None:
    path = tables.file("in.csv", "t\nx\n\n\ny\n\n\n")
    assert [row["t"] for row in tables.values(path, MAYBE)] == ["x", None, None, "y"]
    kinds = [row.error and row.error.kind for row in tables.rows(path, T)]
    assert kinds == [None, "input.empty", "input.empty", None]
    assert tables.rows(path) == tables.rows(path, on_bad_row="keep")
    assert len(tables.rows(path)) == 4


MALFORMED = [
    ("1", 0, 2, "expected 2 cells as in the header, found 1"),
    ("1,2,3", 0, 5, "expected 2 cells as in the header, found 3"),
    ('"x\ny",2,3', 1, 6, "expected 2 cells as in the header, found 3"),
    ('"x\ny"', 1, 3, "expected 2 cells as in the header, found 1"),
    ('5" pipe,"a,""b",c', 0, 17, "expected 2 cells as in the header, found 3"),
    ('1,"2"3', 0, 6, "expected `,` after the closing quote, found `3`"),
    ('"ไ\n""ท" ,2', 1, 5, "expected `,` after the closing quote, found ` `"),
    ("1,2\r3", 0, 4, "a bare CR is outside quotes"),
    ('"1"\r2,3', 0, 4, "a bare CR is outside quotes"),
    ("ไ,2\0", 0, 4, "a NUL character is not text"),
    (b"1,\xe0\xb9", 0, 3, "byte 0xe0 is not UTF-8"),
    (b'1,"\n\xff"', 1, 1, "byte 0xff is not UTF-8"),
]


@pytest.mark.parametrize(("record", "line", "column", "message"), MALFORMED)
def test_a_malformed_record_names_file_line_and_column(tables, record, line, column, message) -> None:
    data = record if isinstance(record, bytes) else record.encode()
    path = tables.file("in.csv", b'a,b\r\n"p\r\nq",r\r\n' + data + b"\r\nlast,row\r\n")
    error = tables.refused(path, A, B)
    assert message in error.message
    assert (error.path, error.row, error.line, error.column, error.kind) == (path, 1, 4 + line, column, "input.record")
    rows = tables.rows(path, A, B, on_bad_row="keep")
    assert [row.values["a"] for row in rows] == ["p\r\nq", None, "last"]
    assert rows[1].error.kind == "input.record"
    assert rows[1].error.message.startswith(f"line {4 + line}, column {column}: ")


def test_a_quote_that_is_never_closed_is_named_where_it_was_opened(tables) -> None:
    path = tables.file("in.csv", 'a,b\n1,2\n3,"4\n5,6\n7,8\n')
    error = tables.refused(path, A, B)
    assert (error.message, error.line, error.column) == ("the quote opened here is never closed", 3, 3)
    rows = tables.rows(path, A, B, on_bad_row="keep")
    assert [row.error is None for row in rows] == [True, False]


def test_a_quote_that_is_never_closed_does_not_fill_the_memory(tables, monkeypatch) -> None:
    monkeypatch.setattr(csv_in, "MAX_RECORD_CHARS", 1 << 20)
    before = csv.field_size_limit(1 << 20)
    try:
        path = tables.file("in.csv", 'a,b\n1,"' + "x,y\n" * (1 << 19))
        error = tables.refused(path, A, B)
        assert (error.line, error.column) == (2, 3)
        assert error.message == "the cell is longer than 1 MiB, or its quote is never closed"
        path = tables.file("in.csv", "a,b\n" + "x" * (3 << 20) + ",1\n2,3\n")
        rows = tables.rows(path, A, B, on_bad_row="keep")
        assert rows[0].error.message == "line 2, column 1: the line is longer than 1 MiB"
        assert rows[1].values == {"a": "2", "b": "3"}
    finally:
        csv.field_size_limit(before)


def test_a_cell_longer_than_the_csv_module_allows_is_read(tables) -> None:
    before = csv.field_size_limit(1000)
    try:
        long = "word " * 100_000
        assert tables.values(tables.file("in.csv", f"t\n{long}\n"), T) == [{"t": long}]
    finally:
        csv.field_size_limit(before)


BAD_HEADERS = [
    ("a,b,a\n", 1, "two columns of the header are called `a`"),
    ('\n\na,b"\n1,2,3\n', 4, "expected 2 cells"),
    ('"a"x,b\n', 1, "expected `,` after the closing quote"),
    ('a,"b\n1,2\n', 1, "the quote opened here is never closed"),
    (b"a,b\xff\n", 1, "byte 0xff is not UTF-8"),
]


@pytest.mark.parametrize(("content", "line", "message"), BAD_HEADERS)
def test_a_bad_header_is_an_error(tables, content, line, message) -> None:
    path = tables.file("in.csv", content)
    error = tables.refused(path, A)
    assert message in error.message
    assert error.line == line


@pytest.mark.parametrize("content", ["A ,b\n", "A ,b\n1,2\n"])
def test_a_missing_column_is_found_when_the_file_is_opened(tables, content) -> None:
    error = tables.refused(tables.file("in.csv", content), Column("b", TEXT), Column("maybe", Optional(TEXT)), A)
    assert error.message == "column `a`, which the workflow needs, is not in the table"
    assert (error.kind, error.column, error.line) == ("input.missing", "a", 1)
    assert error.help == "did you mean `A `? columns: A , b"


def test_two_missing_columns_are_one_error(tables) -> None:
    error = tables.refused(tables.file("in.csv", "x\n"), A, B)
    assert "column `a` (and 1 more)" in error.message


def test_an_optional_column_may_be_absent(tables) -> None:
    path = tables.file("in.csv", "a\n1\n")
    assert tables.values(path, A, Column("b", Optional(TEXT))) == [{"a": "1", "b": None}]
    with open_rows(path, (A, Column("b", Optional(TEXT)))) as rows:
        assert rows.scan().absent == ("b",)


def test_gzip(tables) -> None:
    assert tables.values(tables.file("in.csv.gz", gzip.compress(b"a\n007\n")), A) == [{"a": "007"}]


CELLS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)


@given(st.lists(st.lists(CELLS, min_size=2, max_size=2), max_size=8), st.sampled_from(["\n", "\r\n"]))
def test_what_the_csv_module_writes_is_read_back(tmp_path_factory, rows, line_end) -> None:
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator=line_end, quoting=csv.QUOTE_ALL).writerows([["a", "b"], *rows])
    path = tmp_path_factory.getbasetemp() / "drawn.csv"
    path.write_bytes(buffer.getvalue().encode())
    columns = (Column("a", Optional(TEXT)), Column("b", TEXT, default=None))
    with open_rows(path, columns) as source:
        read = [[value or "" for value in row.values.values()] for row in source]
    assert read == rows


@given(st.lists(CELLS, min_size=1, max_size=5), st.lists(st.booleans(), min_size=5, max_size=5))
def test_cells_are_found_again_where_they_begin(cells, quoted) -> None:
    def shown(cell: str, quote: bool) -> str:
        must = quote or any(mark in cell for mark in ',\r\n"')
        return '"' + cell.replace('"', '""') + '"' if must else cell

    parts = [shown(cell, quote) for cell, quote in zip(cells, quoted, strict=False)]
    text = ",".join(parts)
    record = [line + "\n" for line in text.split("\n")]
    starts, fault = dissect(record, ",")
    assert fault is None
    assert len(starts) == len(cells) + 1
    for (row, column), part in zip(starts, parts, strict=False):
        rest = "".join([record[row][column - 1 :], *record[row + 1 :]])
        assert rest.startswith(part)
