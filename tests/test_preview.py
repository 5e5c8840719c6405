"""`helix show`: a table file of any format as a table in the terminal."""

from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path

import pytest

from helix.cli import main
from helix.errors import InputError
from helix.executor.tables import open_sink
from helix.executor.tables.preview import read_preview
from helix.types import INT, JSON, TEXT

COLUMNS = (("n", INT), ("text", TEXT), ("found", JSON))
ROWS = [
    {"_row": 0, "n": 1, "text": "plain", "found": {"b": 1, "a": [True]}, "_error": None},
    {"_row": 1, "n": None, "text": "two\nlines", "found": None, "_error": None},
    {"_row": 2, "n": 30, "text": "", "found": "x", "_error": None},
]


def show(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    """Runs `helix show` and gives its exit code, standard output and standard error."""
    monkeypatch.setattr(sys, "argv", ["helix", "show", *map(str, args)])
    with pytest.raises(SystemExit) as ended:
        main()
    code = ended.value.code
    assert isinstance(code, int)
    return code, *capsys.readouterr()


def lines_of(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


@pytest.fixture(params=["jsonl", "csv", "tsv", "parquet", "arrow"])
def result(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A result file of each format."""
    path = tmp_path / f"result.{request.param}"
    sink = open_sink(str(path), COLUMNS)
    for row in ROWS:
        sink.write(row)
    sink.commit()
    return path


def test_a_result_of_any_format_is_the_same_table(result, monkeypatch, capsys):
    code, out, err = show(monkeypatch, capsys, result, "--width", 60)
    assert (code, err) == (0, "")
    shown = lines_of(out)
    assert [" ".join(line.split()) for line in shown if "─" not in line][:4] == [
        "_row n text found",
        '0 1 plain {"b": 1, "a": [true]}',
        "1 two",
        "lines",
    ]
    assert "_error" not in out


def test_errors_have_a_column_where_a_row_failed(tmp_path, monkeypatch, capsys):
    path = tmp_path / "result.jsonl"
    path.write_text('{"_row": 0, "a": 1, "_error": null}\n{"_row": 1, "a": null, "_error": {"kind": "timeout"}}\n')
    _, out, _ = show(monkeypatch, capsys, path)
    assert [" ".join(line.split()) for line in lines_of(out)][2:] == ["0 1", "1 timeout"]


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_an_error_is_a_line(suffix, tmp_path, monkeypatch, capsys):
    path = tmp_path / f"result.{suffix}"
    sink = open_sink(str(path), (("a", TEXT),))
    error = {"step": None, "kind": "input.null", "message": "column `a` is null"}
    error |= {"attempts": 0, "skipped": [], "raw": None}
    sink.write({"_row": 0, "a": "x", "_error": None})
    sink.write({"_row": 1, "a": None, "_error": error})
    sink.write({"_row": 2, "a": None, "_error": {**error, "step": "s", "kind": "tool", "message": "it broke"}})
    sink.commit()
    _, out, _ = show(monkeypatch, capsys, path, "--width", 80)
    shown = [" ".join(line.split()) for line in lines_of(out)]
    assert shown[2:] == ["0 x", "1 input.null: column `a` is null", "2 s: tool: it broke"]


def test_a_column_of_that_name_in_another_table_stays_as_it_is(tmp_path, monkeypatch, capsys):
    path = tmp_path / "other.csv"
    path.write_text('_error\n"[1, 2]"\nnone of ours\n')
    _, out, _ = show(monkeypatch, capsys, path)
    assert lines_of(out)[2:] == ["[1, 2]", "none of ours"]


def test_only_the_first_rows_and_the_named_columns_are_shown(tmp_path, monkeypatch, capsys):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"a": number, "b": "x"}) + "\n" for number in range(9)))
    _, out, _ = show(monkeypatch, capsys, path, "-n", 2, "--columns", "b,a")
    header, _, first, second, more = lines_of(out)
    assert [header.split(), first.split(), second.split()] == [["b", "a"], ["x", "0"], ["x", "1"]]
    assert more == "the first 2 rows; --rows shows more"
    _, out, _ = show(monkeypatch, capsys, path, "-n", 9)
    assert "--rows" not in out
    assert out.count("x") == 9


def test_a_long_value_is_cut_and_long_lines_are_folded(tmp_path, monkeypatch, capsys):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"a": "word " * 100}) + "\n")
    _, out, _ = show(monkeypatch, capsys, path, "--cell", 60, "--width", 40)
    assert out.count("word") == 12
    assert out.rstrip().endswith("…")
    assert max(map(len, lines_of(out))) <= 40


def test_control_characters_of_a_table_do_not_reach_the_terminal(tmp_path, monkeypatch, capsys):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"a\u001b[2J": "red \u001b[31m\ttab [bold]x[/bold] :smile: \u0000"}) + "\n")
    _, out, _ = show(monkeypatch, capsys, path)
    assert "\u001b" not in out
    assert "\u0000" not in out
    assert "red ?[31m tab [bold]x[/bold] :smile: ?" in out


def test_a_terminal_that_lacks_a_character_shows_a_mark(tmp_path, monkeypatch):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"a": "ไทย grün"}) + "\n")
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    monkeypatch.setattr(sys, "argv", ["helix", "show", str(path)])
    with pytest.raises(SystemExit) as ended:
        main()
    sys.stdout.flush()
    assert ended.value.code == 0
    assert b"??? gr?n" in written.getvalue()


def test_csv_with_a_mark_and_packed_files_are_read(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(b'\xef\xbb\xbfa,b\r\n1,"x\r\ny"\r\n')
    assert read_preview(str(path), rows=5).rows == ({"a": "1", "b": "x\r\ny"},)
    packed = tmp_path / "rows.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read_preview(str(packed), rows=5).rows == read_preview(str(path), rows=5).rows


@pytest.mark.parametrize("name", ["empty.jsonl", "empty.csv"])
def test_an_empty_file_has_no_rows(name, tmp_path, monkeypatch, capsys):
    path = tmp_path / name
    path.write_bytes(b"")
    assert show(monkeypatch, capsys, path) == (0, "no rows\n", "")


def test_a_table_without_rows_shows_its_columns(tmp_path, monkeypatch, capsys):
    path = tmp_path / "none.parquet"
    open_sink(str(path), COLUMNS).commit()
    code, out, _ = show(monkeypatch, capsys, path)
    assert code == 0
    assert lines_of(out)[0].split() == ["_row", "n", "text", "found"]
    assert lines_of(out)[-1] == "no rows"


def test_standard_input_is_read_by_its_first_bytes(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"a": "from a pipe"}\n')))
    code, out, _ = show(monkeypatch, capsys, "-")
    assert code == 0
    assert "from a pipe" in out


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (b'{"a": 1}\n{"a":\n', "rows.jsonl", "not valid JSON"),
        (b"a,b\n1\n", "rows.csv", "cell"),
        (b"no parquet", "rows.parquet", "cannot be read"),
        (b"", "rows.parquet", "cannot be read"),
        (b"", "rows.arrow", "empty"),
    ],
)
def test_a_broken_file_is_one_message(content, name, message, tmp_path, monkeypatch, capsys):
    path = tmp_path / name
    path.write_bytes(content)
    code, out, err = show(monkeypatch, capsys, path)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err


def test_what_is_not_there_is_said(tmp_path, monkeypatch, capsys):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"answer": 1}\n')
    code, _, err = show(monkeypatch, capsys, path, "--columns", "anwser")
    assert code == 2
    assert "did you mean `answer`?" in err
    code, _, err = show(monkeypatch, capsys, tmp_path / "row.jsonl")
    assert code == 2
    assert "rows.jsonl" in err
    code, _, err = show(monkeypatch, capsys, tmp_path)
    assert code == 2
    assert "found a folder" in err


def test_a_malformed_row_after_the_shown_ones_does_no_harm(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n{"a": 2}\n{"a":\n')
    assert len(read_preview(str(path), rows=1).rows) == 1
    with pytest.raises(InputError):
        read_preview(str(path), rows=2)
