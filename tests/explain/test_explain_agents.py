"""Agents in what `helix explain` shows: the plan, graphs, prompts, cost, and what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import helix
from helix.executor.engines.scripted import ScriptedEngine

TEXT = """workflow w(a: text)
tool find(key: text) -> json from python "shop:find" effects read, cost 300ms
x = agent { tools [find] max_turns 4 system "Be kind." user "{{ a }}" }
y = agent -> { n: int } { tools [find] user "Count: {{ x }}" }
output x, y.n as n
"""


def test_every_form_shows_agents(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("def find(key):\n    return key\n")
    made = helix.loads(TEXT, folder=tmp_path).explain()
    text = str(made)
    assert "Agent x max_turns=4\n    tool find(key: text) from=python:shop:find effects=read cost=0.3s -> json" in text
    assert "You can call tools" in text
    assert text.count("You can call tools") == 1
    assert "longest chain of calls: 22: x, y" in text
    assert "tool: find (read): x, y" in text
    assert "agents take 3 turns" in " ".join(text.split())
    assert '"Agent"' in json.dumps(made.to_json())
    assert "with find, up to 4 turns" in made.to_mermaid()
    assert "with find, up to 8 turns" in made.to_dot()
    assert "find(key: text) from=python:shop:find" in made.to_html()


def test_measured_beside_estimated_counts_calls_of_tools_with_turns(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("def find(key):\n    return key\n")
    engine = ScriptedEngine(
        [
            {"turn": 1, "calls": [{"tool": "find", "args": {"key": "k"}}]},
            {"step": "x", "turn": 2, "answer": "fine"},
            {"step": "y", "turn": 2, "answer": {"n": 1}},
        ]
    )
    made = helix.loads(TEXT, folder=tmp_path).explain([{"a": "p"}], engine=engine, analyze=True)
    lines = str(made).splitlines()
    at = next(number for number, line in enumerate(lines) if line.split()[:2] == ["x", "estimated"])
    assert lines[at].split()[2] == "5"
    assert lines[at + 1].split()[:2] == ["measured", "3"]
