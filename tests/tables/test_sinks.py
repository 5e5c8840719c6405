from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helix.errors import HelixError, InputError, OptionError
from helix.executor.tables import MemorySink, open_sink, to_arrow, to_dicts
from helix.types import BOOL, FLOAT, INT, JSON, TABLE, TEXT, Choice, ListOf, Optional, Record

COLUMNS = (
    ("t", TEXT),
    ("i", INT),
    ("f", FLOAT),
    ("b", BOOL),
    ("c", Choice(("x", "y"))),
    ("l", ListOf(TEXT)),
    ("r", Record((("k", TEXT), ("n", Optional(INT))))),
    ("j", JSON),
    ("tb", TABLE),
)
ERROR = {"step": "s", "kind": "engine", "message": "no\nanswer", "attempts": 3, "skipped": ["a", "b"], "raw": "x"}
ROWS = [
    {
        "_row": 0,
        "t": 'ไทย "q", 😀\r\n',
        "i": -5,
        "f": 0.1,
        "b": False,
        "c": "x",
        "l": ["a", "b"],
        "r": {"k": "v", "n": None},
    }
    | {"j": {"z": 1, "a": [None, 1.0]}, "tb": [{"q": 1}], "_error": None},
    {"_row": 2, "_error": ERROR},
    {"_row": 3, "t": "", "i": 0, "f": 3, "b": True, "c": "y", "l": [], "r": {"k": ""}, "j": None, "tb": []},
]


def write(path: Path, rows=ROWS, columns=COLUMNS) -> bytes:
    with open_sink(path, columns) as sink:
        for row in rows:
            sink.write(row)
    assert sink.written == len(rows)
    return path.read_bytes()


def test_json_lines(tmp_path) -> None:
    lines = write(tmp_path / "out.jsonl").decode().split("\n")
    assert lines[0] == (
        '{"_row": 0, "t": "ไทย \\"q\\", 😀\\r\\n", "i": -5, "f": 0.1, "b": false, "c": "x", "l": ["a", "b"], '
        '"r": {"k": "v", "n": null}, "j": {"z": 1, "a": [null, 1.0]}, "tb": [{"q": 1}], "_error": null}'
    )
    nothing = dict.fromkeys((name for name, _ in COLUMNS), None)
    assert json.loads(lines[1]) == {"_row": 2, **nothing, "_error": ERROR}
    assert list(json.loads(lines[1])) == ["_row", *nothing, "_error"]
    assert lines[3:] == [""]


@pytest.mark.parametrize(("name", "delimiter"), [("out.csv", ","), ("out.tsv", "\t")])
def test_delimited_text(tmp_path, name, delimiter) -> None:
    text = write(tmp_path / name).decode()
    header, *rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    assert header == ["_row", *(column for column, _ in COLUMNS), "_error"]
    assert rows[0] == [
        "0", 'ไทย "q", 😀\r\n', "-5", "0.1", "false", "x", '["a", "b"]', '{"k": "v", "n": null}',
        '{"z": 1, "a": [null, 1.0]}', '[{"q": 1}]', "",
    ]  # fmt: skip
    assert rows[1] == ["2", *[""] * len(COLUMNS), json.dumps(ERROR)]
    assert rows[2] == ["3", "", "0", "3", "true", "y", "[]", '{"k": ""}', "", "[]", ""]
    # Quotes only where they are needed, and for an empty text, which is not null.
    assert text.endswith(
        f'\n3{delimiter}""{delimiter}0{delimiter}3{delimiter}true{delimiter}y{delimiter}[]{delimiter}'
        + ('"{""k"": """"}"' + delimiter * 2 + "[]" + delimiter + "\n")
    )


def test_parquet_and_arrow_have_one_schema(tmp_path) -> None:
    write(tmp_path / "out.parquet")
    write(tmp_path / "out.arrow")
    parquet = pq.read_table(tmp_path / "out.parquet")
    with pa.ipc.open_file(tmp_path / "out.arrow") as reader:
        arrow = reader.read_all()
    texts = {name: pa.string() for name in ("step", "kind", "message")}
    error = pa.struct({**texts, "attempts": pa.int64(), "skipped": pa.list_(pa.string()), "raw": pa.string()})
    kinds = [pa.int64(), pa.string(), pa.int64(), pa.float64(), pa.bool_(), pa.string(), pa.list_(pa.string())]
    kinds += [pa.struct([("k", pa.string()), ("n", pa.int64())]), pa.string(), pa.string(), error]
    for table in (parquet, arrow):
        assert table.schema.names == ["_row", *(name for name, _ in COLUMNS), "_error"]
        assert [field.type for field in table.schema] == kinds
        assert all(field.nullable for field in table.schema)
        declared = [table.schema.field(name).metadata[b"helix.type"].decode() for name, _ in COLUMNS]
        assert declared == [str(kind) for _, kind in COLUMNS]
        rows = table.to_pylist()
        assert rows[0]["j"] == '{"z": 1, "a": [null, 1.0]}'
        assert rows[0]["tb"] == '[{"q": 1}]'
        assert rows[1]["_error"] == ERROR
        assert rows[2]["f"] == 3.0
        assert rows[2]["j"] is None
        assert rows[2]["r"] == {"k": "", "n": None}
    assert to_arrow(ROWS, COLUMNS).equals(arrow, check_metadata=True)


@pytest.mark.parametrize("name", ["out.jsonl", "out.csv", "out.parquet", "out.arrow"])
def test_equal_rows_give_equal_bytes_however_they_are_spread(tmp_path, name) -> None:
    rows = [{"_row": i, "t": f"row {i} " * (i % 7), "j": {"b": i, "a": [i]}} for i in range(40_000)]
    columns = (("t", TEXT), ("j", JSON))
    first = write(tmp_path / name, rows, columns)
    os.utime(tmp_path / name, (0, 0))
    second = write(tmp_path / f"b{name}", [dict(reversed(row.items())) for row in rows], columns)
    assert first == second


@pytest.mark.parametrize(
    ("name", "size"), [("out.jsonl", 0), ("out.csv", 31), ("out.tsv", 31), ("out.parquet", None), ("out.arrow", None)]
)
def test_no_rows_give_an_empty_table(tmp_path, name, size) -> None:
    data = write(tmp_path / name, [])
    assert size is None or len(data) == size
    if name.endswith("parquet"):
        assert pq.read_table(tmp_path / name).num_rows == 0
        assert len(pq.read_schema(tmp_path / name)) == len(COLUMNS) + 2


def test_the_names_of_columns_are_quoted_in_csv(tmp_path) -> None:
    assert write(tmp_path / "x.csv", [], (("a,b", TEXT), ('"', INT))) == b'_row,"a,b","""",_error\n'


def test_a_lone_surrogate_is_written_as_six_characters(tmp_path) -> None:
    rows = [{"_row": 0, "t": "a\ud83db", "j": {"\udc00": "\ud83d\\"}}]
    columns = (("t", TEXT), ("j", JSON))
    line = json.loads(write(tmp_path / "x.jsonl", rows, columns))
    assert (line["t"], line["j"]) == ("a\\ud83db", {"\\udc00": "\\ud83d\\"})
    (_, row) = csv.reader(io.StringIO(write(tmp_path / "x.csv", rows, columns).decode()))
    assert (row[1], json.loads(row[2])) == ("a\\ud83db", {"\\udc00": "\\ud83d\\"})
    write(tmp_path / "x.parquet", rows, columns)
    (row,) = pq.read_table(tmp_path / "x.parquet").to_pylist()
    assert (row["t"], json.loads(row["j"])) == ("a\\ud83db", {"\\udc00": "\\ud83d\\"})


UNWRITABLE = [
    ("x.parquet", INT, 2**63, "int 9223372036854775808 does not fit into 64 bits"),
    ("x.arrow", INT, -(2**63) - 1, "does not fit into 64 bits"),
    ("x.parquet", ListOf(INT), [1, 2**64], "does not fit into 64 bits"),
    ("x.parquet", INT, "x", 'expected int, found text "x"'),
    ("x.parquet", INT, True, "expected int, found bool true"),
    ("x.parquet", TEXT, 5, "expected text, found int 5"),
    ("x.parquet", BOOL, 1, "expected bool, found int 1"),
    ("x.parquet", ListOf(TEXT), "abc", 'expected list[text], found text "abc"'),
    ("x.parquet", Record((("k", TEXT),)), [1], "expected { k: text }, found list [1]"),
    ("x.parquet", FLOAT, float("nan"), "the number is not finite as a double"),
    ("x.parquet", FLOAT, 10**400, "the number is not finite as a double"),
    ("x.parquet", JSON, float("inf"), "not JSON compliant"),
    ("x.parquet", TABLE, [1], "expected a record, found int 1"),
    ("x.jsonl", FLOAT, float("nan"), "the value has no JSON form: out of range float values"),
    ("x.jsonl", JSON, {"a": {1, 2}}, "the value has no JSON form: object of type set"),
    ("x.csv", JSON, [float("nan")], "the value has no JSON form: out of range float values"),
    ("x.csv", TEXT, 5, "expected text, found int 5"),
    ("x.csv", INT, 10**5000, "the value has no JSON form: exceeds the limit"),
]


@pytest.mark.parametrize(("name", "kind", "value", "message"), UNWRITABLE, ids=range(len(UNWRITABLE)))
def test_a_value_that_cannot_be_written_names_row_and_column_and_takes_nothing(
    tmp_path, name, kind, value, message
) -> None:
    columns = (("before", TEXT), ("v", kind), ("after", TEXT))
    row = {"_row": 7, "before": "b", "v": value, "after": "a"}
    with open_sink(tmp_path / name, columns) as sink:
        with pytest.raises(InputError) as error:
            sink.write(row)
        assert sink.written == 0
        sink.write({**row, "v": None, "_error": {"kind": "limit", "message": "m"}})
    assert (error.value.row, error.value.column) == (7, "v")
    assert error.value.message.startswith("row 7, column `v` cannot be written: ")
    assert message in error.value.message
    if name.endswith("parquet"):
        (kept,) = pq.read_table(tmp_path / name).to_pylist()
        assert kept["v"] is None
        assert kept["_error"] == {
            "step": None,
            "kind": "limit",
            "message": "m",
            "attempts": 0,
            "skipped": [],
            "raw": None,
        }


@pytest.mark.parametrize("name", ["x.jsonl", "x.csv", "x.parquet"])
def test_a_value_that_is_nested_without_end(tmp_path, name) -> None:
    endless: list = []
    endless.append(endless)
    with open_sink(tmp_path / name, (("j", JSON),)) as sink, pytest.raises(InputError) as error:
        sink.write({"_row": 0, "j": endless})
    assert "row 0, column `j` cannot be written: " in error.value.message
    deep: list = []
    for _ in range(200_000):
        deep = [deep]
    with open_sink(tmp_path / name, (("j", JSON),)) as sink, pytest.raises(InputError, match="nested too deeply"):
        sink.write({"_row": 0, "j": deep})


@pytest.mark.parametrize("name", ["x.jsonl", "x.csv", "x.parquet", "x.arrow"])
def test_the_target_is_untouched_until_the_commit(tmp_path, name) -> None:
    target = tmp_path / name
    target.write_bytes(b"before")
    sink = open_sink(target, (("t", TEXT),))
    for i in range(20_000):
        sink.write({"_row": i, "t": "x" * 100})
    assert target.read_bytes() == b"before"
    sink.abort()
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert target.read_bytes() == b"before"
    sink.abort()
    sink.commit()
    assert target.read_bytes() == b"before"


def test_an_exception_drops_the_result(tmp_path) -> None:
    def fail() -> None:
        with open_sink(tmp_path / "x.parquet", (("t", TEXT),)) as sink:
            sink.write({"_row": 0, "t": "a"})
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["x.jsonl", "x.csv", "x.parquet", "x.arrow"])
def test_what_was_taken_can_be_kept_under_another_name(tmp_path, name) -> None:
    rows = [{"_row": i, "t": str(i)} for i in range(10)]
    sink = open_sink(tmp_path / name, (("t", TEXT),))
    for row in rows:
        sink.write(row)
    sink.keep_partial(tmp_path / f"part-{name}")
    sink.commit()
    sink.abort()
    assert [path.name for path in tmp_path.iterdir()] == [f"part-{name}"]
    assert (tmp_path / f"part-{name}").read_bytes() == write(tmp_path / name, rows, (("t", TEXT),))
    with pytest.raises(OptionError, match="is finished"):
        sink.write(rows[0])


def test_rows_in_memory() -> None:
    sink = MemorySink(COLUMNS)
    for row in ROWS:
        sink.write({**row, "other": object()})
    sink.commit()
    rows = sink.to_dicts()
    assert rows == to_dicts(ROWS, COLUMNS)
    assert [list(row) for row in rows] == [["_row", *(name for name, _ in COLUMNS), "_error"]] * 3
    assert rows[2]["f"] == 3
    assert rows[1]["_error"] == ERROR
    assert sink.to_arrow().equals(to_arrow(iter(ROWS), COLUMNS), check_metadata=True)
    assert to_arrow([], COLUMNS).num_rows == 0
    with pytest.raises(InputError, match=r"row 4, column `i` cannot be written: .* 64 bits"):
        to_arrow([{"_row": 4, "i": 2**63}], COLUMNS)
    sink.abort()
    assert sink.to_dicts() == []


TARGETS = [
    ("out.xlsx", "has the suffix `.xlsx`, which names no output format; "),
    ("out.json", "did you mean `.jsonl`?"),
    ("out.csv.gz", "has the suffix `.gz`, which names no output format"),
    ("out", "has no suffix, which names no output format"),
    ("no/out.csv", "there is no folder"),
]


@pytest.mark.parametrize(("name", "message"), TARGETS)
def test_targets_that_do_not_fit(tmp_path, name, message) -> None:
    with pytest.raises(OptionError) as error:
        open_sink(tmp_path / name, COLUMNS)
    assert message in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_other_targets_that_do_not_fit(tmp_path) -> None:
    with pytest.raises(OptionError, match="it is a folder"):
        open_sink(tmp_path, COLUMNS, format="csv")
    with pytest.raises(OptionError, match="there is no output format `json`; did you mean `jsonl`"):
        open_sink(tmp_path / "x", COLUMNS, format="json")
    with pytest.raises(OptionError, match="File name too long"):
        open_sink(tmp_path / ("x" * 300 + ".csv"), COLUMNS)
    (tmp_path / "file").write_text("")
    with pytest.raises(OptionError, match="there is no folder"):
        open_sink(tmp_path / "file" / "x.csv", COLUMNS)


class Captured(io.TextIOWrapper):
    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="ascii")

    def bytes(self) -> bytes:
        self.flush()
        return self.buffer.getvalue()  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("format", [None, "jsonl", "csv", "tsv"])
def test_standard_output_shows_each_row_at_once(monkeypatch, tmp_path, format) -> None:
    out = Captured()
    monkeypatch.setattr(sys, "stdout", out)
    sink = open_sink("-", (("t", TEXT),), format=format)
    sink.write({"_row": 0, "t": "ไทย"})
    early = out.bytes()
    sink.write({"_row": 1, "t": "b"})
    sink.commit()
    assert early.count(b"\n") == (2 if format in ("csv", "tsv") else 1)
    name = f"x.{format or 'jsonl'}"
    assert out.bytes() == write(tmp_path / name, [{"_row": 0, "t": "ไทย"}, {"_row": 1, "t": "b"}], (("t", TEXT),))


def test_binary_formats_on_standard_output(monkeypatch) -> None:
    rows = [{"_row": 0, "t": "a"}]
    for format, read in (("parquet", pq.read_table), ("arrow", lambda data: pa.ipc.open_stream(data).read_all())):
        out = Captured()
        monkeypatch.setattr(sys, "stdout", out)
        with open_sink("-", (("t", TEXT),), format=format) as sink:
            sink.write(rows[0])
        assert read(io.BytesIO(out.bytes())).to_pylist() == [{"_row": 0, "t": "a", "_error": None}]


def test_an_aborted_binary_result_on_standard_output_has_no_end(monkeypatch) -> None:
    out = Captured()
    monkeypatch.setattr(sys, "stdout", out)
    sink = open_sink("-", (("t", TEXT),), format="parquet")
    sink.write({"_row": 0, "t": "a"})
    sink.abort()
    assert out.bytes() == b"PAR1"


def test_a_process_without_standard_output(monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(OptionError, match="there is no standard output to write to"):
        open_sink("-", COLUMNS)


@pytest.mark.parametrize("format", ["jsonl", "csv", "parquet"])
def test_a_reader_that_goes_away_is_no_error(format) -> None:
    script = (
        "import sys\n"
        "from helix.executor.tables import open_sink\n"
        "from helix.types import TEXT\n"
        f"with open_sink('-', (('t', TEXT),), format='{format}') as sink:\n"
        "    for i in range(1_000_000):\n"
        "        sink.write({'_row': i, 't': 'x' * 1000})\n"
        "        if sink.broken:\n"
        "            break\n"
        "    assert sink.broken and i < 900_000\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    with process.stderr:
        assert process.stderr.read() == b""
    assert process.wait(timeout=60) == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
@pytest.mark.parametrize("format", ["jsonl", "csv", "parquet", "arrow"])
def test_a_full_disk_is_one_message(format) -> None:
    def fill() -> None:
        with open_sink("/dev/full", (("t", TEXT),), format=format) as sink:
            for i in range(50_000):
                sink.write({"_row": i, "t": "x" * 100})

    with pytest.raises(HelixError, match="cannot write /dev/full: No space left on device"):
        fill()


def test_devices_are_written_directly() -> None:
    with open_sink(os.devnull, (("t", TEXT),), format="jsonl") as sink:
        sink.write({"_row": 0, "t": "a"})
    assert not os.path.isfile(os.devnull)
