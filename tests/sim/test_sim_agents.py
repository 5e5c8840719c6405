"""Agents on the simulated engine: each turn goes on from the last one, also where many rows press on the cache."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import helix
from helix.executor.engines.base import Reply, Request
from helix.executor.engines.sim import SimEngine, SimSettings
from helix.simulation.cost import published_cost

TURNS = 6
WORKFLOW = """workflow w(ticket: text)
tool look(key: text) -> text from python "shop:look" effects read
answer = agent { tools [look] max_turns 9 system "You look things up." user "{{ ticket }}" }
output answer
"""


class Noted(SimEngine):
    """Keeps what each row's prompts were and what of them was cached."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.turns: dict[int, list[tuple[int, int]]] = {}

    async def generate(self, request: Request) -> Reply:
        reply = await super().generate(request)
        assert reply.prompt_tokens is not None
        assert reply.cached_tokens is not None
        self.turns.setdefault(request.row, []).append((reply.prompt_tokens, reply.cached_tokens))
        return replace(reply)


def said(request: Request) -> str:
    turn = sum(message.role == "assistant" for message in request.messages)
    if turn == TURNS - 1:
        return json.dumps({"answer": "done"})
    return json.dumps({"tool": "look", "args": {"key": f"shelf {request.row} {turn}"}})


def ran(tmp_path: Path, *, rows: int, kv_tokens: int, policy: str = "helix") -> Noted:
    (tmp_path / "shop.py").write_text("def look(key):\n    return f'{key} holds ' + 'boxes ' * 40\n")
    settings = SimSettings(kv_tokens=kv_tokens, max_running=16, policy="lpm")
    engine = Noted(settings, published_cost("h100"), answer=said)
    workflow = helix.loads(WORKFLOW, folder=tmp_path)
    made = workflow.run([{"ticket": f"ticket {n} " * 30} for n in range(rows)], engine=engine, policy=policy)
    assert [row["answer"] for row in made.rows] == ["done"] * rows
    assert all(len(turns) == TURNS for turns in engine.turns.values())
    return engine


@pytest.mark.parametrize("policy", ["helix", "fcfs", "query-wise:2"])
def test_a_turn_finds_the_whole_prompt_of_the_turn_before(tmp_path: Path, policy: str) -> None:
    engine = ran(tmp_path, rows=12, kv_tokens=100_000, policy=policy)
    for turns in engine.turns.values():
        for (before, _), (prompt, cached) in pairwise(turns):
            assert cached / prompt >= (before - 1) / prompt


def test_agents_that_wait_for_tools_keep_their_place_in_a_small_cache(tmp_path: Path) -> None:
    """The prompts of all rows together are several times what the cache holds."""
    engine = ran(tmp_path, rows=48, kv_tokens=9_000)
    needed = sum(turns[-1][0] for turns in engine.turns.values())
    assert needed > 3 * 9_000
    lost = sum(
        before - 1 - cached
        for turns in engine.turns.values()
        for (before, _), (_, cached) in pairwise(turns)
        if cached < before - 1
    )
    asked = sum(prompt for turns in engine.turns.values() for prompt, _ in turns)
    assert lost / asked < 0.02
