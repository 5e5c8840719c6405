"""Lanes of tools: whose places a call takes, and how many calls of a lane are made at once."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from running import Folder, inside, run

from helix.errors import OptionError
from helix.executor.tools.lanes import lane_of, lane_sizes
from helix.services import Tool
from helix.types import JSON

CODE = """import threading, time
lock, now = threading.Lock(), {}
def busy(name):
    with lock:
        now[name] = seen = now.get(name, 0) + 1
    time.sleep(0.02)
    with lock:
        now[name] -= 1
    return seen
def a(x): return busy("a")
def b(x): return busy("b")
"""


def most_at_once(tmp_path: Path, traits: dict[str, str], **options: Any) -> dict[str, int]:
    """The most calls of each tool that were made at the same time, over 30 rows."""
    (tmp_path / "busy.py").write_text(CODE)
    tools = "\n".join(f'tool {name}(x: int) -> int from python "busy:{name}"   {more}' for name, more in traits.items())
    tools = re.sub(r" +$", "", tools, flags=re.MULTILINE)
    steps = "\n".join(f"s{name} = {name}(n)" for name in traits)
    text = f"workflow w(n: int)\n{tools}\n{steps}\noutput {', '.join(f's{name}' for name in traits)}"
    ran = run(text, [{"n": n} for n in range(30)], folder=tmp_path, **options)
    assert ran.errors == [None] * 30
    return {name: max(ran.column(f"s{name}")) for name in traits}


def test_eight_at_once_where_nothing_is_said(tmp_path: Path) -> None:
    found = most_at_once(tmp_path, {"a": ""})
    assert found == {"a": 8}


def test_a_cap_in_the_tool_and_one_on_the_command_line(tmp_path: Path) -> None:
    found = most_at_once(tmp_path, {"a": "concurrency 2", "b": "lane slow"}, lanes={"slow": 3})
    assert found == {"a": 2, "b": 3}
    assert most_at_once(tmp_path, {"a": "concurrency 2"}, lanes={"a": 5}) == {"a": 5}
    assert most_at_once(tmp_path, {"a": ""}, lanes={"tools": 1}) == {"a": 1}


def tool(name: str, lane: str | None = None, concurrency: int | None = None) -> Tool:
    return Tool(name=name, origin="python", target="m:f", params=(), returns=JSON, lane=lane, concurrency=concurrency)


def test_sizes() -> None:
    tools = [tool("a"), tool("b", "db"), tool("c", "db", 4), tool("d", "db", 3), tool("e", None, 2)]
    assert [lane_of(each) for each in tools] == ["tools", "tools db", "tools db", "tools db", "tools e"]
    assert lane_sizes(tools, {}) == {"tools": 8, "tools db": 3, "tools e": 2}
    assert lane_sizes(tools, {"db": 16, "tools": 1}) == {"tools": 1, "tools db": 16, "tools e": 2}
    with pytest.raises(OptionError, match="no tool has the lane `dbb`; did you mean `db`"):
        lane_sizes(tools, {"dbb": 2})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("slow", "--lane takes a name and a number of at least 1, such as db=4, found `slow`"),
        ("slow=0", "--lane takes a name and a number of at least 1"),
        ("slow=x", "--lane takes a name and a number of at least 1"),
        ("slo=2", "no tool has the lane `slo`; did you mean `slow`?"),
    ],
)
def test_a_wrong_lane_on_the_command_line(
    tmp_path: Path, given: str, message: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = Folder(tmp_path)
    folder.workflow('workflow w(a: text)\ntool t(a: text) -> text from python "m:t" lane slow\nx = t(a)\noutput x')
    folder.write("m.py", "def t(a):\n    return a\n")
    folder.rows({"a": "v"})
    where = {"cwd": tmp_path, "monkeypatch": monkeypatch, "capfd": capfd}
    done = inside(*folder.arguments("--lane", given), **where)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    done = inside(*folder.arguments("--lane", "slow=2"), **where)
    assert done.returncode == 0
    assert json.loads(done.stdout)["x"] == "v"
