"""Contract 17 and 18, as far as tools go, from the command line: errors in rows, tracebacks, files, secrets."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

import pytest
from running import Folder, inside

TOOLS = """def find(customer):
    if customer == "none":
        raise LookupError("no \\x1b[31mcustomer")
    return {"customer": customer}
"""
TEXT = """workflow t(a: text)
tool find(customer: text) -> json from python "shop:find"   effects read
found = find(a)
x = llm { user "{{ found }}" }
output a, found, x"""


def test_17_a_raising_tool_is_a_row_error_with_its_traceback_in_the_report(folder: Folder) -> None:
    folder.workflow(TEXT)
    folder.write("shop.py", TOOLS)
    folder.rows({"a": "one"}, {"a": "none"}, {"a": "two"})
    done = folder.run("-o", "out.jsonl")
    assert done.returncode == 3
    rows = folder.read()
    assert [row["found"] for row in rows] == [{"customer": "one"}, None, {"customer": "two"}]
    assert (rows[1]["_error"]["kind"], rows[1]["_error"]["skipped"]) == ("tool", ["x"])
    assert "traceback of step found:" in done.stderr
    assert 'shop.py", line 3, in find' in done.stderr
    assert "\x1b" not in done.stderr


def test_17_tools_load_only_from_beside_the_workflow(folder: Folder) -> None:
    folder.workflow(TEXT)
    folder.rows({"a": "one"})
    done = folder.run("-o", "out.jsonl")
    assert (done.returncode, done.stdout) == (2, "")
    assert "python module `shop` was not found in" in done.stderr
    elsewhere = folder.path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "shop.py").write_text(TOOLS)
    done = folder.run("-o", "out.jsonl", env={"PYTHONPATH": f"{elsewhere}:{_root()}"})
    assert done.returncode == 2
    (folder.path / "shop.py").write_text(TOOLS)
    assert folder.run("-o", "out.jsonl").returncode == 0


def test_17_sql_is_read_only(folder: Folder, quick: Any) -> None:
    connection = sqlite3.connect(folder.path / "shop.db")
    connection.executescript("CREATE TABLE t (a); INSERT INTO t VALUES (1);")
    connection.close()
    before = (folder.path / "shop.db").read_bytes()
    folder.workflow(
        'workflow t(q: text)\ntool ask(query: text) -> table from sql "sqlite:shop.db"\nr = ask(q)\noutput r'
    )
    folder.rows({"q": "SELECT a FROM t"}, {"q": "DELETE FROM t"}, {"q": "SELECT 1; DROP TABLE t"})
    done = quick("-o", "out.jsonl")
    assert done.returncode == 3
    rows = folder.read()
    assert rows[0]["r"] == [{"a": 1}]
    assert [row["_error"]["message"] for row in rows[1:]] == [
        "only queries are run, found DELETE",
        "one query is run at a time, found 2 statements",
    ]
    assert (folder.path / "shop.db").read_bytes() == before


def test_18_a_secret_in_a_workflow_is_refused_and_one_in_an_address_is_not_shown(folder: Folder, quick: Any) -> None:
    folder.workflow('workflow t(a: text)\nmodel m { api_key: "s3cret" }\nx = llm m { user "{{ a }}" }\noutput x')
    folder.rows({"a": "v"})
    done = quick("-o", "out.jsonl")
    assert done.returncode == 2
    assert "a secret does not belong" in done.stderr
    folder.workflow('workflow t(a: text)\nx = llm { user "{{ a }}" }\noutput x')
    done = quick("-o", "out.jsonl", engine="http://user:s3cret@127.0.0.1:9/v1")
    assert done.returncode == 2
    assert "s3cret" not in done.stdout + done.stderr


def test_18_looking_at_a_workflow_starts_no_server_and_asks_no_host(
    folder: Folder, quick: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    trap = {"command": "touch", "args": [str(folder.path / "started")]}
    folder.write("mcp.json", json.dumps({"mcpServers": {"trap": trap}}))
    folder.workflow(
        'workflow t(a: text)\ntool m(a: text) -> text from mcp "trap:m"\n'
        'tool h(a: text) -> text from http "GET http://127.0.0.1:9/{a}" header "Authorization: Bearer ${NOT_THERE}"\n'
        "x = m(a)\ny = h(a)\noutput x, y"
    )
    for command in (("check",), ("fmt", "--check"), ("explain",), ("tools", "--no-servers")):
        done = inside(command[0], "w.helix", *command[1:], cwd=folder.path, monkeypatch=monkeypatch, capfd=capfd)
        assert done.returncode in (0, 3), done.stderr
    assert not (folder.path / "started").exists()


def _root() -> str:
    from running import ROOT

    return str(ROOT)
