"""`helix tools`: effects and where the claim comes from, as a table and as JSON; what a server offers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from running import Folder, inside

SERVER = Path(__file__).parents[1] / "mcp_server.py"
TEXT = """workflow w(a: text)
tool stock(product: text, most: int = 3) -> int from python "shop:stock" effects read, cost 300ms, reads "stock"
tool plain(product: text) -> int from python "shop:plain" concurrency 2
tool orders(who: text) -> table from sql "sqlite:shop.db" query "SELECT id FROM orders WHERE who = :who"
tool odd(who: text) -> table from sql "sqlite:shop.db" query "SELECT mine(id) AS id FROM orders WHERE who = :who"
tool any(query: text) -> table from sql "sqlite:shop.db" lane db
tool web(city: text) -> json from http "GET https://api.example.org/{city}" effects read, speculate true, freshness 10m
tool gone() -> text from mcp "shop:delete-all"
x = stock(a)
y = plain(a)
z = orders(a)
o = odd(a)
q = any("SELECT 1 AS a")
w = web(a)
g = gone()
output x, y, z, o, q, w, g"""


@pytest.fixture
def helix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs the command in a folder with the workflow and a server."""
    folder = Folder(tmp_path)
    folder.workflow(TEXT)
    server = {"command": sys.executable, "args": [str(SERVER)]}
    folder.write("mcp.json", json.dumps({"mcpServers": {"shop": server}}))
    return lambda *args: inside(*args, cwd=tmp_path, monkeypatch=monkeypatch, capfd=capfd)


def claims(done: Any) -> dict[str, tuple[str, str, bool]]:
    """The effects of each tool, who says so, and whether it may be guessed."""
    assert done.returncode == 0, done.stderr
    return {each["tool"]: (each["effects"], each["claim"], each["may_be_guessed"]) for each in json.loads(done.stdout)}


def test_effects_and_who_says_so(helix: Callable[..., Any]) -> None:
    pytest.importorskip("mcp_types")
    found = claims(helix("tools", "w.helix", "--json"))
    assert found == {
        "stock": ("read", "declared", True),
        "plain": ("unknown", "default", False),
        "orders": ("read", "SQL classification", True),
        "odd": (
            "read",
            "SQL, run read-only; classification: it calls `mine`, which is not known to be harmless",
            False,
        ),
        "any": ("read", "SQL: each statement is checked when it is called", True),
        "web": ("read", "declared", True),
        "gone": ("unknown", "default (server shop says read, untrusted)", False),
    }
    # The server lies, and is believed only where a person says so; its arguments leave, so it is not guessed.
    trusted = claims(helix("tools", "w.helix", "--json", "--trust-server", "shop"))
    hint = "hint of server shop (trusted, for guesses only)"
    assert trusted["gone"] == ("read", hint, False)
    unasked = claims(helix("tools", "w.helix", "--json", "--no-servers"))
    assert unasked["gone"] == ("unknown", "default (the server was not asked)", False)


def test_what_else_is_told(helix: Callable[..., Any]) -> None:
    done = helix("tools", "w.helix", "--json", "--no-servers")
    found = {each["tool"]: each for each in json.loads(done.stdout)}
    stock = found["stock"]
    assert stock["parameters"] == {
        "type": "object",
        "properties": {"product": {"type": "string"}, "most": {"type": "integer", "default": 3}},
        "required": ["product"],
        "additionalProperties": False,
    }
    assert (stock["result"], stock["cost"], stock["timeout"], stock["reads"]) == (
        {"type": "integer"},
        0.3,
        None,
        ["stock"],
    )
    assert (found["plain"]["lane"], found["plain"]["concurrency"]) == ("plain", 2)
    assert (found["any"]["lane"], found["any"]["timeout"]) == ("db", 30)
    assert found["orders"]["reads"] == ["orders"]
    assert (found["web"]["freshness"], found["web"]["open_world"]) == ("10m", True)


def test_as_a_table(helix: Callable[..., Any]) -> None:
    done = helix("tools", "w.helix", "--no-servers")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["tool", "from", "effects", "says", "lane", "cost", "timeout", "freshness", "guess"]
    assert [line.split()[0] for line in lines[1:]] == ["stock", "plain", "orders", "odd", "any", "web", "gone"]
    assert [line.partition("  no: ")[2] for line in lines[2:]] == [
        "its effects are unknown",
        "",
        "its statement may do more, or give another result each time",
        "",
        "",
        "its effects are unknown",
    ]
    assert lines[1].split() == ["stock", "python", "shop:stock", "read", "declared", "tools", "0.3s", "-", "-", "yes"]


def test_why_a_tool_is_not_guessed_at(tmp_path: Path, monkeypatch: Any, capfd: Any) -> None:
    head = "workflow w(a: text)\n"
    tools = {
        "said": "effects read, speculate false",
        "aging": "effects read, freshness 0",
        "acts": "effects write",
        "leaves": "effects read, open_world true",
        "may": "effects read, open_world true, speculate true",
    }
    Folder(tmp_path).workflow(
        head + "".join(f'tool {name}(a: text) -> text from python "m:f" {traits}\n' for name, traits in tools.items())
        + "".join(f"{name}_ = {name}(a)\n" for name in tools) + f"output {', '.join(f'{name}_' for name in tools)}"
    )  # fmt: skip
    (tmp_path / "m.py").write_text("def f(a):\n    return a\n")
    done = inside("tools", "w.helix", "--json", cwd=tmp_path, monkeypatch=monkeypatch, capfd=capfd)
    assert {each["tool"]: each["not_guessed_since"] for each in json.loads(done.stdout)} == {
        "said": "it says so",
        "aging": "each call may give another result",
        "acts": "it acts",
        "leaves": "its arguments leave; `speculate true` allows that",
        "may": None,
    }


def test_what_a_server_offers(helix: Callable[..., Any]) -> None:
    pytest.importorskip("mcp_types")
    done = helix("tools", "--server", "shop")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    echo = 'tool echo(text: text, times: int = 1) -> json from mcp "shop:echo" description "Says it again."'
    assert lines[0] == echo
    assert lines[1] == "# the server says `read`; --trust-server shop takes its word"
    assert lines[2] == 'tool find_orders(customer_id: text) -> json from mcp "shop:find-orders"'
    trusted = helix("tools", "--server", "shop", "--trust-server", "shop").stdout.splitlines()
    assert 'tool delete_all() -> json from mcp "shop:delete-all" effects read' in trusted
    assert 'tool save() -> json from mcp "shop:save" effects idempotent_write' in trusted
    (listed, *_) = json.loads(helix("tools", "--server", "shop", "--json").stdout)
    assert (listed["tool"], listed["effects"], listed["trusted"]) == ("echo", "unknown", False)


def test_declarations_that_are_printed_can_be_used(helix: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("mcp_types")
    printed = helix("tools", "--server", "shop").stdout
    Folder(tmp_path).workflow(f"workflow w(a: text)\n{printed}x = echo(a)\noutput x")
    assert helix("check", "w.helix").returncode == 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "helix tools takes a workflow FILE, or --server NAME"),
        (("--server", "shap"), "mcp.json names no MCP server `shap`; did you mean `shop`?"),
        (("none.helix",), "the workflow none.helix does not exist"),
        (("w.helix", "--mcp-config", "none.json"), "none.json cannot be read"),
    ],
)
def test_mistakes(helix: Callable[..., Any], args: tuple[str, ...], message: str) -> None:
    done = helix("tools", *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_a_workflow_without_tools(helix: Callable[..., Any], tmp_path: Path) -> None:
    Folder(tmp_path).workflow('workflow w(a: text)\nx = llm { user "{{ a }}" }\noutput x')
    assert helix("tools", "w.helix").stdout == "w declares no tools\n"
