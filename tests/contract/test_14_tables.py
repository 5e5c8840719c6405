"""Contract 14 from the command line: formats in and out, hard cells, bad rows, rows that cannot be used."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as parquet
import pytest
from running import Folder, jsonl, lines, said_calls

ECHO = 'workflow t(id: text, n: int, note: text? = "none")\nx = llm { user "{{ id }}|{{ n }}|{{ note }}" }\n'
TEXT = ECHO + "output id, n, note, x"
RULES: dict[str, Any] = {"match": "(?s)(.*)", "reply": "<\\1>"}
ROWS = [
    {"id": "007", "n": 1, "note": "plain"},
    {"id": 'a "quote", and\r\na line', "n": -2, "note": None},
    {"id": "ไทย 👩‍🚀 é", "n": 3},
]
EXPECTED = [
    ("007", 1, "plain", "<007|1|plain>"),
    ('a "quote", and\r\na line', -2, "none", '<a "quote", and\r\na line|-2|none>'),
    ("ไทย 👩‍🚀 é", 3, "none", "<ไทย 👩‍🚀 é|3|none>"),
]


def write(folder: Folder, name: str) -> str:
    """The rows in the format of the name."""
    path = folder.path / name
    full = [{"note": None, **row} for row in ROWS]
    if name.endswith(".csv"):
        text = io.StringIO(newline="")
        table = csv.DictWriter(text, ["id", "n", "note"])
        table.writeheader()
        table.writerows(full)
        path.write_bytes(text.getvalue().encode())
    elif name.endswith(".jsonl"):
        path.write_text(jsonl(ROWS), "utf-8")
    elif name.endswith(".json"):
        path.write_text(json.dumps(ROWS), "utf-8")
    elif name.endswith(".parquet"):
        parquet.write_table(pa.Table.from_pylist(full), path)
    else:
        feather.write_feather(pa.Table.from_pylist(full), path, compression="uncompressed")
    return name


def read(folder: Folder, name: str) -> list[tuple[Any, ...]]:
    path = folder.path / name
    if name.endswith(".csv"):
        rows: list[dict[str, Any]] = [
            row | {"n": int(row["n"])} for row in csv.DictReader(io.StringIO(path.read_bytes().decode(), newline=""))
        ]
    elif name.endswith(".parquet"):
        rows = parquet.read_table(path).to_pylist()
    elif name.endswith(".arrow"):
        rows = feather.read_table(path).to_pylist()
    else:
        rows = lines(path.read_text("utf-8"))
    return [(row["id"], row["n"], row["note"], row["x"]) for row in rows]


@pytest.mark.parametrize(
    ("source", "target"),
    [("in.jsonl", "out.csv"), ("in.csv", "out.parquet"), ("in.parquet", "out.arrow"), ("in.arrow", "out.jsonl")],
)
def test_14_every_format_in_and_out_with_hard_cells(folder: Folder, source: str, target: str) -> None:
    folder.workflow(TEXT)
    folder.rules(RULES)
    done = folder.run("-o", target, source=write(folder, source), env={"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0"})
    assert done.returncode == 0, done.stderr
    assert read(folder, target) == EXPECTED


def test_14_a_byte_order_mark_is_dropped_and_crlf_kept_where_it_belongs(folder: Folder, quick: Any) -> None:
    folder.workflow(TEXT)
    folder.rules(RULES)
    folder.write("in.csv", '\ufeffid,n,note\r\n007,1,"a\r\nb"\r\n010,2,\r\n'.encode())
    done = quick("-o", "out.jsonl", source="in.csv")
    assert done.returncode == 0, done.stderr
    assert [(row["id"], row["note"]) for row in folder.read()] == [("007", "a\r\nb"), ("010", "none")]


def test_14_a_malformed_record_stops_before_any_call_and_says_where(folder: Folder) -> None:
    folder.workflow(TEXT)
    folder.rules(RULES)
    folder.write("rows.jsonl", '{"id": "a", "n": 1}\n{"id": "b", "n": \n{"id": "c", "n": 3}\n')
    done = folder.run("-o", "out.jsonl")
    assert (done.returncode, done.stdout) == (2, "")
    assert "rows.jsonl:2:" in done.stderr
    assert "out.jsonl" not in folder.names
    done = folder.run("-o", "out.jsonl", "--on-bad-row", "keep")
    assert done.returncode == 3
    assert said_calls(done.stderr) == 2
    rows = folder.read()
    assert [(row["_row"], row["id"], row["_error"] and row["_error"]["kind"]) for row in rows] == [
        (0, "a", None),
        (1, None, "input.record"),
        (2, "c", None),
    ]
    assert "line 2, column" in rows[1]["_error"]["message"]


def test_14_rows_that_cannot_be_used_are_counted_before_the_first_call(folder: Folder, quick: Any) -> None:
    folder.workflow(TEXT)
    folder.rules(RULES)
    folder.write(
        "rows.jsonl",
        jsonl([{"id": "a", "n": 1}, {"n": 2}, {"id": None, "n": 3}, {"id": " ", "n": 4}, {"id": "e", "n": "five"}]),
    )
    done = quick("-o", "out.jsonl", "--max-calls", "0")
    assert done.returncode == 3
    counted = done.stderr.split("row 0", 1)[0]
    assert "4 of 5 rows cannot be used and will not be called:" in counted
    for kind in ("input.missing", "input.null", "input.empty", "input.type"):
        assert f"  {kind}: 1 row, the first is row" in counted
    assert [row["_error"]["kind"] for row in folder.read()] == [
        "limit",
        "input.missing",
        "input.null",
        "input.empty",
        "input.type",
    ]


def test_14_a_column_that_no_row_has_is_told_before_any_call(folder: Folder, quick: Any) -> None:
    folder.workflow(TEXT)
    folder.write("rows.jsonl", jsonl([{"ident": "a", "n": 1}]))
    done = quick("-o", "out.jsonl")
    assert done.returncode == 2
    assert "column `id`, which the workflow needs, is not in the table" in done.stderr
    assert "out.jsonl" not in folder.names


@pytest.mark.parametrize(
    ("name", "content"), [("in.jsonl", b""), ("in.csv", b"id,n,note\n"), ("in.csv", b""), ("in.json", b"[]")]
)
def test_14_an_empty_file_gives_an_empty_output_and_exit_0(
    folder: Folder, quick: Any, name: str, content: bytes
) -> None:
    folder.workflow(TEXT)
    folder.write(name, content)
    done = quick("-o", "out.jsonl", source=name)
    assert done.returncode == 0, done.stderr
    assert folder.read() == []
    assert said_calls(done.stderr) == 0


def test_14_an_empty_table_of_each_format_can_be_read_back(folder: Folder) -> None:
    import asyncio

    import helix

    async def main() -> None:
        for name in ("out.csv", "out.parquet", "out.arrow", "out.jsonl"):
            await helix.loads(TEXT + "\n").arun([], output=folder.path / name, engine="scripted")

    asyncio.run(main())
    assert parquet.read_table(folder.path / "out.parquet").column_names == ["_row", "id", "n", "note", "x", "_error"]
    assert (folder.path / "out.csv").read_text() == "_row,id,n,note,x,_error\n"
    assert read(folder, "out.arrow") == read(folder, "out.jsonl") == []


def test_14_limit_reads_the_first_rows_only(folder: Folder, quick: Any) -> None:
    folder.workflow(TEXT)
    folder.write("rows.jsonl", '{"id": "a", "n": 1}\n{"id": "b", "n": 2}\nbroken\n')
    done = quick("-o", "out.jsonl", "--limit", "2")
    assert done.returncode == 0
    assert len(folder.read()) == 2
