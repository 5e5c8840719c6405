"""Contract 17: tools that hang, flood, lie, die or give what is no JSON.

Each is bounded, says in one row what is wrong, leaves the other rows alone, and the command ends with the right code.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import Folder
from tool_servers import WebServer, web_server

SERVER = Path(__file__).parents[1] / "mcp_server.py"
TEXT = """workflow w(what: text)
tool odd(what: text) -> json from python "odd:odd" effects read, timeout 2s, max_bytes 1000000
x = odd(what)
y = llm {{ user "{{{{ x }}}}" }}
output what, x, y"""
ODD = """import asyncio, threading, time

class Unshown(Exception):
    def __str__(self):
        raise RuntimeError("no")

def odd(what):
    if what == "hangs":
        threading.Event().wait(4)
    if what == "floods":
        return "x" * (100 * 1024 * 1024)
    if what == "floods in pieces":
        return [0] * 2_000_000
    if what == "nan":
        return {"a": [1, float("nan")]}
    if what == "set":
        return {"a": {1, 2}}
    if what == "bytes":
        return [b"a"]
    if what == "itself":
        a = {}
        a["a"] = a
        return a
    if what == "surrogate":
        raise ValueError("bad \\udce9\\ud800 \\x1b[31mred \\u202e")
    if what == "unshown":
        raise Unshown
    if what == "long":
        raise ValueError("x" * 10_000_000)
    if what == "interrupt":
        raise KeyboardInterrupt
    if what == "exit":
        raise SystemExit(9)
    return what
"""
KINDS = {
    "fine": None,
    "hangs": ("timeout", "no result within 2 s"),
    "floods": ("tool", "odd gave a result of more than the 1,000,000 bytes that `max_bytes` allows"),
    "floods in pieces": (
        "tool",
        "odd gave a result of more than the 1,000,000 bytes that `max_bytes` allows",
    ),
    "nan": ("tool", "odd gave a result that is not JSON: found nan at `/a/1`, which JSON has no form for"),
    "set": ("tool", "odd gave a result that is not JSON: found a set at `/a`, which has no order"),
    "bytes": ("tool", "odd gave a result that is not JSON: found bytes at `/0`; return a text"),
    "itself": ("tool", "odd gave a result that is not JSON: nested too deeply, or in itself"),
    "surrogate": ("tool", "odd raised ValueError: bad "),
    "unshown": ("tool", "odd raised Unshown: (its text cannot be shown)"),
    "long": ("tool", "odd raised ValueError: xxx"),
    "interrupt": ("tool", "odd raised KeyboardInterrupt"),
    "exit": ("tool", "odd raised SystemExit: 9"),
    "fine too": None,
}


def check(rows: list[dict[str, Any]]) -> None:
    """Each row has its own error, and the others their values."""
    assert [row["what"] for row in rows] == list(KINDS)
    for row in rows:
        expected = KINDS[row["what"]]
        if expected is None:
            assert (row["x"], row["_error"]) == (row["what"], None)
            assert row["y"] is not None
        else:
            assert (row["x"], row["y"]) == (None, None)
            assert row["_error"]["kind"] == expected[0]
            assert row["_error"]["message"].startswith(expected[1])
            assert len(row["_error"]["message"]) < 3000


def test_17_odd_python_tools(folder: Folder, quick: Any) -> None:
    folder.workflow(TEXT.format())
    folder.write("odd.py", ODD)
    folder.rows(*[{"what": what} for what in KINDS])
    began = time.monotonic()
    done = quick("-o", "out.jsonl")
    assert done.returncode == 3
    assert time.monotonic() - began < 10
    check(folder.read())
    assert "\x1b" not in done.stderr
    assert len(done.stderr) < 30_000


@pytest.mark.parametrize("encoding", ["cp1252", pytest.param("ascii", marks=pytest.mark.slow)])
def test_17_odd_texts_on_a_console_of_a_codepage(folder: Folder, encoding: str) -> None:
    folder.workflow(TEXT.format())
    folder.write("odd.py", ODD)
    folder.rows({"what": "surrogate"}, {"what": "grüße \U0001f600"})
    done = folder.run("-o", "out.jsonl", env={"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0", "LC_ALL": "C"})
    assert done.returncode == 3, done.stderr
    assert "odd raised ValueError: bad " in done.stderr
    assert "Traceback (most recent" not in done.stderr.split("traceback of step")[0]
    rows = folder.read()
    assert [row["x"] for row in rows] == [None, "grüße \U0001f600"]
    on_console = folder.run(env={"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0", "LC_ALL": "C"})
    assert on_console.returncode == 3
    assert [json.loads(line)["_row"] for line in on_console.stdout.splitlines()] == [0, 1]


@pytest.fixture(scope="module")
def server() -> Iterator[WebServer]:
    with web_server() as made:
        yield made


WEB = """workflow w(path: text)
tool web(path: text) -> json from http "GET http://127.0.0.1:{port}/{{path}}?to=http%3A%2F%2F{to}%2F&code=503"
  header "Authorization: Bearer ${{SHOP_TOKEN}}", timeout 2s, max_bytes 100000
x = web(path)
output path, x"""


@pytest.mark.parametrize("to", ["169.254.169.254", "localhost"])
def test_17_odd_http_servers(
    folder: Folder, quick: Any, server: WebServer, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "s3cret-value")
    folder.workflow(WEB.format(port=server.port, to=to))
    paths = ["fine", "drip", "flood", "hang", "redirect", "status", "drop", "echo"]
    folder.rows(*[{"path": path} for path in paths])
    server.sent = 0
    done = quick("-o", "out.jsonl", "--allow-private", "127.0.0.1")
    assert done.returncode == 3
    rows = {row["path"]: row for row in folder.read()}
    assert rows["fine"]["x"]["path"] == "/fine"
    kinds = {path: row["_error"] and row["_error"]["kind"] for path, row in rows.items()}
    assert kinds == dict.fromkeys(paths, "tool") | {"fine": None, "echo": None, "drip": "timeout", "hang": "timeout"}
    assert rows["redirect"]["_error"]["message"].startswith(f"web: redirected to {to}")
    # The secret was sent, and is in no result, error or file.
    assert server.asked[-1]["headers"]["Authorization"] == "Bearer s3cret-value"
    assert "s3cret" not in done.stdout + done.stderr
    for file in folder.path.rglob("*"):
        assert not file.is_file() or b"s3cret" not in file.read_bytes(), file


def test_17_private_addresses_need_a_word_from_the_command_line(
    folder: Folder, quick: Any, server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "s3cret-value")
    folder.workflow(WEB.format(port=server.port, to="x"))
    folder.rows({"path": "fine"})
    before = len(server.asked)
    done = quick("-o", "out.jsonl")
    assert done.returncode == 2
    assert "127.0.0.1 is no public address; --allow-private 127.0.0.1 allows it" in done.stderr
    done = quick("-o", "out.jsonl", "--allow-private", "127.0.0.1", "--allow-host", "example.org")
    assert done.returncode == 2
    assert "127.0.0.1 is not among the hosts that --allow-host names" in done.stderr
    monkeypatch.delenv("SHOP_TOKEN")
    done = quick("-o", "out.jsonl", "--allow-private", "127.0.0.1")
    assert done.returncode == 2
    assert "http tool `web` wants ${SHOP_TOKEN}: the environment has no SHOP_TOKEN" in done.stderr
    assert len(server.asked) == before


SHOP = """workflow w(what: text)
tool echo(text: text) -> text from mcp "shop:echo" lane shop
tool die() -> text from mcp "shop:die" lane shop
tool never() -> text from mcp "shop:never" lane shop, timeout 300ms
tool flood() -> text from mcp "shop:flood" lane shop, max_bytes 100000
tool noise() -> text from mcp "shop:noise" lane shop, concurrency 1
a = echo(what)
b = die() when what == "die"
c = never() when what == "never"
d = flood() when what == "flood"
e = noise() when what == "noise"
output what, a, b, c, d, e"""


def test_17_odd_mcp_servers(folder: Folder, quick: Any) -> None:
    pytest.importorskip("mcp_types")
    folder.workflow(SHOP)
    folder.write("mcp.json", json.dumps({"mcpServers": {"shop": {"command": sys.executable, "args": [str(SERVER)]}}}))
    whats = ["fine", "never", "flood", "noise", "die", "fine too"]
    folder.rows(*[{"what": what} for what in whats])
    done = quick("-o", "out.jsonl", "--no-merge")
    assert done.returncode == 3, done.stderr
    rows = {row["what"]: row for row in folder.read()}
    assert [row["a"] for row in rows.values()] == whats
    kinds = {what: row["_error"] and (row["_error"]["step"], row["_error"]["kind"]) for what, row in rows.items()}
    assert kinds == {
        "fine": None, "never": ("c", "timeout"), "flood": ("d", "tool"), "noise": None, "die": ("b", "tool"),
        "fine too": None,
    }  # fmt: skip
    assert rows["noise"]["e"] == "heard"
    assert (
        rows["die"]["_error"]["message"] == "die: the server `shop` is gone: it ended with exit code 3 (cannot go on)"
    )


def test_17_an_mcp_server_that_is_wrong_is_found_before_any_call(folder: Folder, quick: Any) -> None:
    pytest.importorskip("mcp_types")
    folder.workflow('workflow w(a: text)\ntool t(text: text) -> text from mcp "shop:echo"\nx = t(a)\noutput x')
    folder.rows({"a": "v"})
    done = quick("-o", "out.jsonl")
    assert done.returncode == 2
    assert "mcp.json names no MCP server `shop`" in done.stderr
    folder.write("mcp.json", json.dumps({"mcpServers": {"shop": {"command": sys.executable, "args": ["-c", "1"]}}}))
    done = quick("-o", "out.jsonl")
    assert done.returncode == 2
    assert "the server `shop` cannot be spoken to: it ended with exit code 0" in done.stderr
    assert "Traceback" not in done.stderr
