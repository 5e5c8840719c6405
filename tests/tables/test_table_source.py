from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helix.errors import HelixError, InputError, OptionError
from helix.executor.tables import RowError, open_rows, scan
from helix.schema import NO_DEFAULT, Column, has_default, is_required
from helix.types import INT, JSON, TEXT, Choice, ListOf, Optional

T = Column("t", TEXT)


def stdin_of(monkeypatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="ascii"))


def test_required_columns() -> None:
    assert is_required(Column("a", TEXT))
    assert is_required(Column("a", JSON))
    assert not is_required(Column("a", Optional(TEXT)))
    assert not is_required(Column("a", TEXT, default=None))
    assert has_default(Column("a", TEXT, None))
    assert not has_default(Column("a", TEXT))
    assert repr(NO_DEFAULT) == "NO_DEFAULT"
    assert hash(Column("a", ListOf(TEXT), default=["x"])) == hash(Column("a", ListOf(TEXT), default=["x"]))


ROW_ERRORS = [
    ("{}", "input.missing", "column `t` is missing"),
    ('{"t": null}', "input.null", "column `t` is null; text is needed"),
    ('{"t": ""}', "input.empty", "column `t` is blank; text is needed"),
    ('{"t": " \\u3000\\n"}', "input.empty", "column `t` is blank; text is needed"),
    ('{"t": 7}', "input.type", "column `t` does not fit: expected text, found int 7"),
    ('{"t": ["x"]}', "input.type", 'column `t` does not fit: expected text, found list ["x"]'),
]


@pytest.mark.parametrize(("line", "kind", "message"), ROW_ERRORS)
def test_a_value_that_does_not_fit_is_an_error_of_its_row(tables, line, kind, message) -> None:
    path = tables.file("in.jsonl", f'{{"t": "x"}}\n{line}\n{{"t": "y"}}\n')
    rows = tables.rows(path, T)
    assert [row.error for row in rows] == [None, RowError(kind, message, "t"), None]
    assert rows[1].values == {"t": None}


def test_other_values_of_a_row_with_an_error_are_kept_and_the_first_error_is_shown(tables) -> None:
    columns = (Column("a", INT), Column("b", TEXT), Column("c", TEXT, default="d"), Column("e", INT))
    path = tables.file("in.jsonl", '{"b": "x", "c": 5, "e": null}\n')
    (row,) = tables.rows(path, *columns)
    assert row.values == {"a": None, "b": "x", "c": None, "e": None}
    assert list(row.values) == ["a", "b", "c", "e"]
    assert row.error == RowError("input.missing", "column `a` is missing", "a")


def test_optional_columns_take_their_default_on_null_or_absent(tables) -> None:
    columns = (
        Column("a", Optional(TEXT)),
        Column("b", Optional(TEXT), default="B"),
        Column("c", INT, default=0),
        Column("d", JSON, default={"k": []}),
        Column("e", Choice(("x", "y")), default="y"),
    )
    path = tables.file(
        "in.jsonl", '{}\n{"a": null, "b": null, "c": null, "d": null, "e": null}\n{"a": "", "b": "", "c": 1}'
    )
    default = {"a": None, "b": "B", "c": 0, "d": {"k": []}, "e": "y"}
    assert tables.values(path, *columns) == [default, default, default | {"a": "", "b": "", "c": 1}]


def test_json_takes_null_but_must_be_there(tables) -> None:
    rows = tables.rows(tables.file("in.jsonl", '{"j": null}\n{}\n{"j": ""}\n'), Column("j", JSON))
    assert [row.error and row.error.kind for row in rows] == [None, "input.missing", None]


def test_choices(tables) -> None:
    column = Column("c", Choice(("x", "y")))
    rows = tables.rows([{"c": "x"}, {"c": ""}, {"c": "X"}, {"c": 1}], column)
    assert [row.error and row.error.kind for row in rows] == [None, "input.empty", "input.type", "input.type"]
    blank_is_a_label = Column("c", Choice(("", "y")))
    assert tables.values([{"c": ""}], blank_is_a_label) == [{"c": ""}]
    assert tables.values(tables.file("in.csv", 'c,d\n"",1\n'), blank_is_a_label) == [{"c": ""}]


def test_a_scan_counts_rows_by_their_first_error(tables) -> None:
    lines = ['{"t": "x", "n": 1}', '{"n": 1}', '{"t": " "}', '{"t": null, "n": "x"}', '{"t": "x", "n": "x"}', "oops"]
    path = tables.file("in.jsonl", "\n".join([*lines, *lines]))
    report = scan(path, (T, Column("n", INT, default=0), Column("never", Optional(INT))), on_bad_row="keep")
    assert report.rows == 12
    assert report.errors == {
        "input.record": 2,
        "input.missing": 2,
        "input.null": 2,
        "input.empty": 2,
        "input.type": 2,
    }
    assert list(report.errors) == list(report.first)
    assert report.first["input.null"] == (3, RowError("input.null", "column `t` is null; text is needed", "t"))
    assert (report.malformed, report.failed, report.absent) == (2, 10, ("never",))


def test_a_scan_finds_a_column_that_no_row_has(tables) -> None:
    path = tables.file("in.jsonl", '{"text": "a", "n": 1}\n{"texts": "a"}\n')
    with open_rows(path, (Column("n", INT), T)) as rows, pytest.raises(InputError) as error:
        rows.scan()
    assert error.value.message == "column `t`, which the workflow needs, is not in the table"
    assert (error.value.kind, error.value.path) == ("input.missing", path)
    assert error.value.help == "columns: n, text, texts"
    # One row that has it, even as null, makes it an error of the others.
    path = tables.file("in.jsonl", '{"text": "a"}\n{"t": null}\n')
    assert scan(path, (T,)).errors == {"input.missing": 1, "input.null": 1}
    # Malformed rows do not say what the columns are.
    assert scan(tables.file("in.jsonl", "oops\n"), (T,), on_bad_row="keep").errors == {"input.record": 1}


def test_counts(tables) -> None:
    path = tables.file("in.jsonl", '{"t": "a"}\n' * 5)
    with open_rows(path, (T,)) as rows:
        assert rows.count() is None
        rows.scan()
        assert rows.count() == 5
    with open_rows([{"t": "a"}] * 5, (T,), limit=3) as rows:
        assert rows.count() == 3


def test_a_limit_reads_the_first_rows_only(tables) -> None:
    path = tables.file("in.jsonl", '{"t": "a"}\n{"t": "b"}\noops\n')
    assert [row["t"] for row in tables.values(path, T, limit=2)] == ["a", "b"]
    assert scan(path, (T,), limit=2).rows == 2
    assert scan(path, (T,), limit=0).rows == 0
    with pytest.raises(InputError):
        scan(path, (T,), limit=3)
    with pytest.raises(OptionError, match="the limit of rows is -1; it is 0 or more"):
        open_rows(path, (T,), limit=-1)


def test_settings_that_do_not_fit(tables) -> None:
    path = tables.file("in.jsonl", "")
    with pytest.raises(OptionError, match="on_bad_row is `skip`; it is `stop` or `keep`"):
        open_rows(path, (T,), on_bad_row="skip")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="there is no input format `jsonlines`; did you mean `json"):
        open_rows(path, (T,), format="jsonlines")
    with pytest.raises(OptionError, match="the format `csv` is for files; the rows are a Python list"):
        open_rows([], (T,), format="csv")


def test_the_given_format_wins_over_the_suffix(tables) -> None:
    path = tables.file("in.txt", "t\n007\n")
    assert tables.values(path, T, format="csv") == [{"t": "007"}]
    assert tables.values(Path(path), T, format="csv") == [{"t": "007"}]


SUFFIXES = [
    ("in.txt", "in.txt has the suffix `.txt`, which names no input format; "),
    ("in", "in has no suffix, which names no input format; "),
    ("in.josnl", "did you mean `.jsonl`?"),
    ("in.xlsx", "known suffixes: .jsonl, .ndjson, .json, .csv, .tsv, .parquet, .arrow, .feather, .ipc"),
    ("in.parquet.gz", "has the suffix `.gz`, which names no input format"),
]


@pytest.mark.parametrize(("name", "message"), SUFFIXES)
def test_an_unknown_suffix_names_the_known_ones(tables, name, message) -> None:
    with pytest.raises(OptionError) as error:
        open_rows(tables.file(name, ""), (T,))
    assert message in str(error.value)


def test_suffixes_may_be_in_capitals(tables) -> None:
    assert tables.values(tables.file("IN.CSV", "t\nx\n"), T) == [{"t": "x"}]


def test_a_missing_file_names_one_that_is_like_it(tables) -> None:
    tables.file("tickets.jsonl", "")
    tables.file("other.csv", "")
    wanted = str(tables.folder / "tikets.jsonl")
    error = tables.refused(wanted, T)
    assert (error.message, error.path) == ("there is no such file", wanted)
    assert error.help == f"did you mean `{tables.folder / 'tickets.jsonl'}`?"
    assert tables.refused(str(tables.folder / "zzz.parquet"), T).help is None
    assert (
        tables.refused(str(tables.folder / "no" / "x.csv"), T).message == f"there is no folder {tables.folder / 'no'}"
    )


def test_a_folder_is_no_table(tables) -> None:
    assert tables.refused(str(tables.folder), T).message == "expected a file, found a folder"


def test_an_unreadable_file(tables, monkeypatch) -> None:
    path = tables.file("in.jsonl", "")

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    # A file without permissions would not do: root may read it.
    monkeypatch.setattr(Path, "open", denied)
    assert tables.refused(path, T).message == "cannot read the file: Permission denied"


def test_a_name_that_no_file_can_have(tables) -> None:
    assert tables.refused("x" * 5000 + ".csv", T).message == "cannot read the file: File name too long"


def test_a_file_that_changes_after_the_scan_is_refused(tables) -> None:
    path = tables.file("in.jsonl", '{"t": "a"}\n')
    with open_rows(path, (T,)) as rows:
        rows.scan()
        tables.file("in.jsonl", '{"t": "a"}\n{"t": "b"}\n')
        with pytest.raises(InputError, match="the file changed after it was checked; start the run again"):
            list(rows)


STREAMS = [
    (b'{"t": "a"}\n', None),
    (b'\n [{"t": "a"}]', None),
    (gzip.compress(b'{"t": "a"}\n', mtime=0), None),
    (b"t\r\na\r\n", "csv"),
    (b"t\tu\na\tb\n", "tsv"),
    (b'{"t": "a"}', "json"),
]


@pytest.mark.parametrize(("data", "format"), STREAMS)
def test_standard_input_is_read_twice(monkeypatch, data, format) -> None:
    stdin_of(monkeypatch, data)
    with open_rows("-", (T,), format=format) as rows:
        assert rows.name == "standard input"
        assert rows.scan().rows == 1
        assert [row.values for row in rows] == [{"t": "a"}]
        assert rows.count() == 1


def test_binary_tables_on_standard_input_are_recognised(monkeypatch) -> None:
    table = pa.table({"t": ["a", "b"]})
    for write in (pq.write_table, write_ipc_file, write_ipc_stream):
        buffer = io.BytesIO()
        write(table, buffer)
        stdin_of(monkeypatch, buffer.getvalue())
        with open_rows("-", (T,)) as rows:
            assert rows.scan().rows == 2
            assert [row.values["t"] for row in rows] == ["a", "b"]


def write_ipc_file(table: pa.Table, sink: io.BytesIO) -> None:
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def write_ipc_stream(table: pa.Table, sink: io.BytesIO) -> None:
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def test_an_error_in_standard_input_says_what_format_was_assumed(monkeypatch) -> None:
    stdin_of(monkeypatch, b"t,u\n1,2\n")
    with open_rows("-", (T,)) as rows, pytest.raises(InputError) as error:
        rows.scan()
    assert (error.value.path, error.value.line, error.value.column) == ("standard input", 1, 1)
    assert error.value.help == "no format was given, so it was read as jsonl; for CSV give the format csv"


def test_an_empty_standard_input_has_no_rows(monkeypatch) -> None:
    for format in (None, "jsonl", "csv", "json"):
        stdin_of(monkeypatch, b"")
        with open_rows("-", (T,), format=format) as rows:
            assert rows.scan().rows == 0


def test_a_process_without_standard_input(monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(OptionError, match="there is no standard input to read"):
        open_rows("-", (T,))


def test_a_scan_alone_does_not_use_up_standard_input() -> None:
    with pytest.raises(OptionError, match="can be read once only"):
        scan("-", (T,))


def test_a_named_pipe_is_read_like_standard_input(tables) -> None:
    path = str(tables.folder / "pipe")
    os.mkfifo(path)
    writer = threading.Thread(target=Path(path).write_bytes, args=(b'{"t": "a"}\n' * 3,))
    writer.start()
    try:
        with open_rows(path, (T,)) as rows:
            assert rows.scan().rows == 3
            assert len(list(rows)) == 3
    finally:
        writer.join()


def test_a_full_disk_for_the_temporary_file_is_named(monkeypatch) -> None:
    stdin_of(monkeypatch, b'{"t": "a"}\n')

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("helix.executor.tables.bytes_in.tempfile.TemporaryFile", full)
    with open_rows("-", (T,)) as rows, pytest.raises(HelixError, match=r"cannot copy standard input .* No space left"):
        rows.scan()


def test_text_is_utf_8_whatever_the_locale_and_pyarrow_stays_out(tables) -> None:
    jsonl = tables.file("in.jsonl", '{"t": "ไทย"}\n')
    csv = tables.file("in.csv", "t\nไทย\n")
    script = (
        "import sys\n"
        "from helix.executor.tables import open_rows, open_sink\n"
        "from helix.schema import Column\n"
        "from helix.types import TEXT\n"
        "for path in sys.argv[1:]:\n"
        "    with open_rows(path, (Column('t', TEXT),)) as rows, open_sink('-', (('t', TEXT),)) as sink:\n"
        "        assert rows.scan().rows == 1\n"
        "        for row in rows:\n"
        "            sink.write({'_row': row.index, **row.values})\n"
        "assert not {'pyarrow', 'pandas', 'numpy'} & set(sys.modules)\n"
    )
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-c", script, jsonl, csv], env=environment, capture_output=True, check=False, timeout=60
    )
    assert done.stderr == b""
    assert done.stdout.decode() == '{"_row": 0, "t": "ไทย", "_error": null}\n' * 2
