"""Twelve families of bad input (contract 3, 12, 14): one message with its place and exit 2, or an error of the row.

Never a traceback, never an output that is half of one, and no call for what cannot be used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from running import Folder, said_calls

TEXT = 'workflow t(a: text, n: int = 3)\nx = llm { user "{{ a }}" }\noutput a, n, x\n'
GOOD = '{"a": "v", "n": 1}\n'
CYCLE = 'workflow t(a: text)\nx = llm { user "{{ y }}" }\ny = llm { user "{{ x }}" }\noutput x\n'
ITSELF = 'workflow t(a: text)\nx = llm { user "{{ x }}" }\noutput x\n'
DEEP = "".join(f"{'  ' * depth}for v{depth} in [1] {{\n" for depth in range(300))

Case = tuple[str | bytes, str, str | bytes, tuple[str, ...]]

# The workflow, the name of the input, its content, and words of the message, the place among them.
REFUSED: Mapping[str, Case] = {
    "wrong file: a picture": (b"\x89PNG\r\n\x1a\n", "in.jsonl", GOOD, ("not UTF-8: byte 0x89", "w.helix:1:1")),
    "wrong file: a table": (GOOD, "in.jsonl", GOOD, ("expected `workflow`, found `{`", "w.helix:1:1")),
    "wrong file: nothing": ("", "in.jsonl", GOOD, ("holds no workflow", "w.helix:1:1")),
    "wrong file: a workflow as input": (TEXT, "in.helix", TEXT, ("suffix `.helix`, which names no input format",)),
    "wrong file: CSV as JSON Lines": (TEXT, "in.jsonl", "a,n\nv,1\n", ("not valid JSON", "in.jsonl:1:1")),
    "wrong file: JSON Lines as CSV": (TEXT, "in.csv", GOOD, ("in.csv:1:",)),
    "wrong file: JSON Lines as Parquet": (TEXT, "in.parquet", GOOD, ("not a parquet file", "in.parquet")),
    "wrong file: JSON Lines as Arrow": (TEXT, "in.arrow", GOOD, ("the table cannot be read", "in.arrow")),
    "encoding: UTF-16 workflow": (TEXT.encode("utf-16"), "in.jsonl", GOOD, ("not UTF-8", "w.helix:1:1")),
    "encoding: Latin-1 workflow": ("# é\n".encode("latin-1") + TEXT.encode(), "in.jsonl", GOOD, ("w.helix:1:3",)),
    "encoding: Latin-1 JSON Lines": (TEXT, "in.jsonl", '{"a": "v"}\n{"a": "é"}\n'.encode("latin-1"), ("in.jsonl:2:8",)),
    "encoding: Latin-1 CSV": (TEXT, "in.csv", "a,n\nv,1\né,2\n".encode("latin-1"), ("not UTF-8", "in.csv:3:1")),
    "encoding: Latin-1 JSON": (TEXT, "in.json", '[{"a": "v"},\n{"a": "é"}]'.encode("latin-1"), ("in.json:2:8",)),
    "encoding: UTF-16 CSV": (TEXT, "in.csv", "a,n\nv,1\n".encode("utf-16"), ("in UTF-16", "in.csv:1:1")),
    "record: JSON Lines": (TEXT, "in.jsonl", GOOD + '{"a": "w"\n', ("not valid JSON", "in.jsonl:2:10")),
    "record: JSON": (TEXT, "in.json", '[{"a": "v"},\n{"a":', ("not valid JSON", "in.json:2:6")),
    "record: CSV with a cell too many": (TEXT, "in.csv", "a,n\nv,1\nw,2,3\n", ("found 3", "in.csv:3:5")),
    "record: CSV with an open quote": (TEXT, "in.csv", 'a,n\nv,1\n"w,2\n', ("never closed", "in.csv:3:1")),
    "record: TSV with a cell too few": (TEXT, "in.tsv", "a\tn\nv\n", ("found 1", "in.tsv:2:2")),
    "record: a number": (TEXT, "in.jsonl", GOOD + "42\n", ("expected a JSON object, found int 42", "in.jsonl:2:1")),
    "missing column: JSON Lines": (TEXT, "in.jsonl", '{"A": "v"}\n', ("column `a`", "did you mean `A`?", "in.jsonl")),
    "missing column: CSV": (TEXT, "in.csv", "b,n\nv,1\n", ("column `a`", "columns: b, n", "in.csv:1")),
    "unknown names": (TEXT.replace("{{ a }}", "{{ aa }}"), "in.jsonl", GOOD, ("unknown name `aa`", "w.helix:2:20")),
    "unknown options": (TEXT.replace("llm {", "llm(heat: 1) {"), "in.jsonl", GOOD, ("`heat`", "w.helix:2:9")),
    "wrong types: a text for a number": (
        TEXT.replace("llm {", 'llm(temperature: "hot") {'), "in.jsonl", GOOD, ("temperature", "w.helix:2:"),
    ),
    "wrong types: a condition": (TEXT.replace("\noutput", ' when n > "x"\noutput'), "in.jsonl", GOOD, ("w.helix:2:",)),
    "cyclic: two steps": (CYCLE, "in.jsonl", GOOD, ("w.helix:2:", "`y`")),
    "cyclic: one step": (ITSELF, "in.jsonl", GOOD, ("w.helix:2:", "`x`")),
    "huge: nested without end": (f"workflow t(a: text)\n{DEEP}", "in.jsonl", GOOD, ("w.helix:",)),
    "huge: more than is read": (TEXT + "#" * 5_000_000, "in.jsonl", GOOD, ("at most 4194304 are read", "w.helix:1:1")),
    "huge: one line without end": (TEXT + "y = " + "(" * 100_000, "in.jsonl", GOOD, ("w.helix:4:",)),
    "huge: a record without end": (TEXT, "in.jsonl", '{"a": ' + "[" * 200_000, ("in.jsonl:1:",)),
    "control characters: NUL": (TEXT.replace("{{ a }}", "\0"), "in.jsonl", GOOD, ("U+0000", "w.helix:2:17")),
    "control characters: CSV": (TEXT, "in.csv", "a,n\nv\0,1\n", ("NUL", "in.csv:2:2")),
    "control characters: JSON": (TEXT, "in.jsonl", '{"a": "v\x01"}\n', ("in.jsonl:1:",)),
    "duplicate keys: JSON Lines": (TEXT, "in.jsonl", GOOD + '{"a": 1, "a": 2}\n', ("twice", "in.jsonl:2:10")),
    "duplicate keys: CSV": (TEXT, "in.csv", "a,a\nv,w\n", ("two columns of the header are called `a`", "in.csv:1")),
    "duplicate keys: steps": (TEXT + 'x = llm { user "b" }\n', "in.jsonl", GOOD, ("already set on line 2",)),
    "duplicate keys: options": (
        TEXT.replace("llm {", "llm(seed: 1, seed: 2) {"), "in.jsonl", GOOD, ("stands twice", "w.helix:2:18"),
    ),
}  # fmt: skip

# The content, the kind of the row's error and its place; the other rows are good.
FAILED: Mapping[str, tuple[str, str, str, str]] = {
    "wrong types: JSON Lines": ("in.jsonl", GOOD + '{"a": "v", "n": "five"}\n', "input.type", "in.jsonl:2"),
    "wrong types: CSV": ("in.csv", 'a,n\n"v\nw",1\nv,one\n', "input.type", "in.csv:4"),
    "wrong types: JSON": ("in.json", '[{"a": "v", "n": 1},\n {"a": ["v"]}]', "input.type", "in.json:2"),
    "missing: a key": ("in.jsonl", GOOD + '\n{"n": 1}\n', "input.missing", "in.jsonl:3"),
    "missing: null": ("in.jsonl", GOOD + '{"a": null}\n', "input.null", "in.jsonl:2"),
    "missing: blank": ("in.csv", "a,n\nv,1\n ,2\n", "input.empty", "in.csv:3"),
}


def held(done: Any, code: int) -> None:
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr
    assert len(done.stderr) < 4000


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_used_is_one_message_with_its_place(folder: Folder, quick: Any, case: str) -> None:
    text, name, content, words = REFUSED[case]
    folder.write("w.helix", text)
    folder.write(name, content)
    done = quick("-o", "out.jsonl", source=name)
    held(done, 2)
    assert done.stderr.startswith("error: ")
    for word in words:
        assert word in done.stderr
    assert folder.names == sorted({"w.helix", name})


@pytest.mark.parametrize("case", FAILED)
def test_a_row_that_cannot_be_used_is_told_with_file_and_line(folder: Folder, quick: Any, case: str) -> None:
    name, content, kind, place = FAILED[case]
    folder.workflow(TEXT)
    folder.write(name, content)
    done = quick("-o", "out.jsonl", source=name)
    held(done, 3)
    assert f"{kind}: 1 row, the first is row 1 ({place}): " in done.stderr
    assert said_calls(done.stderr) == 1
    assert [row["_error"] and row["_error"]["kind"] for row in folder.read()] == [None, kind]


def test_columns_that_nobody_asked_for_do_no_harm(folder: Folder, quick: Any) -> None:
    folder.workflow(TEXT)
    folder.write("rows.jsonl", '{"a": "v", "zz": {"deep": [1, null]}, "_row": 7, "_error": "x", "": 0}\n')
    held(quick("-o", "out.jsonl"), 0)
    assert set(folder.read()[0]) == {"_row", "a", "n", "x", "_error"}


def test_control_characters_in_cells_are_content(folder: Folder, quick: Any) -> None:
    cell = "".join(map(chr, range(1, 32))) + "\x7f\x85\u2028\u202e\ufeff"
    folder.workflow(TEXT)
    folder.rows({"a": cell})
    folder.rules({"match": "(?s)(.*)", "reply": "<\\1>"})
    done = quick("-o", "out.jsonl")
    held(done, 0)
    row = json.loads((folder.path / "out.jsonl").read_text("utf-8"))
    assert (row["a"], row["x"]) == (cell, f"<{cell}>")
    assert not any(mark in done.stderr for mark in ("\x1b", "\x07"))


def test_a_prompt_of_ten_megabytes_is_sent_or_refused_by_its_own_row(folder: Folder, quick: Any) -> None:
    folder.workflow(TEXT)
    folder.rows({"a": "x" * 10_000_000}, {"a": "short"})
    held(quick("-o", "out.jsonl"), 0)
    assert [len(row["a"]) for row in folder.read()] == [10_000_000, 5]
    folder.rules(max_context=4096)
    done = quick("-o", "out.jsonl", "--fresh")
    held(done, 3)
    assert "prompt.too_long: " in done.stderr
    assert [row["_error"] and row["_error"]["kind"] for row in folder.read()] == ["prompt.too_long", None]


def test_a_workflow_of_a_thousand_steps_is_run(folder: Folder, quick: Any) -> None:
    steps = "".join(f's{number} = llm {{ user "{number} of {{{{ a }}}}" }}\n' for number in range(1000))
    folder.workflow(f"workflow t(a: text)\n{steps}output a, s0, s999\n")
    folder.rows({"a": "v"})
    held(quick("-o", "out.jsonl"), 0)
    assert set(folder.read()[0]) == {"_row", "a", "s0", "s999", "_error"}


@pytest.mark.parametrize(
    "options",
    [("--limit", "-1"), ("-c", "many"), ("--set", "tone"), ("--max-failed", "x%"), ("--lane", "sql=none"), ("-e", "http://")],
)  # fmt: skip
def test_options_that_do_not_fit_are_told(folder: Folder, quick: Any, options: tuple[str, str]) -> None:
    folder.workflow(TEXT)
    folder.write("rows.jsonl", GOOD)
    done = quick("-o", "out.jsonl", *options)
    held(done, 2)
    assert folder.names == ["rows.jsonl", "w.helix"]


def test_a_bad_row_in_each_of_many_is_counted_and_not_listed(folder: Folder, quick: Any) -> None:
    folder.workflow(TEXT)
    rows = [json.dumps({"a": None if number % 2 else "v", "n": number}) for number in range(400)]
    folder.write("rows.jsonl", "\n".join(rows))
    done = quick("-o", "out.jsonl", "--no-merge")
    held(done, 3)
    assert "input.null: 200 rows, the first is row 1 (rows.jsonl:2): " in done.stderr
    assert [row["_row"] for row in folder.read()] == list(range(400))
