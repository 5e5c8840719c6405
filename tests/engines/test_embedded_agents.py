"""Agents on the embedded model, which has no tool calls of its own: they are held to a schema while it decodes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from running import run

from helix.executor.engines.base import Reply, Request
from helix.executor.engines.embedded import EmbeddedEngine

pytestmark = pytest.mark.embedded

WORKFLOW = """workflow w(ticket: text)
tool look(place: choice["shed", "hall", "yard"]) -> text from python "shop:look" effects read,
  description "What a place holds."
answer = agent(max_tokens: 60) -> { place: choice["shed", "hall", "yard"], sure: bool } {
  tools [look]
  max_turns 3
  trace on
  system "You look things up before you answer."
  user "{{ ticket }}"
}
output answer.answer as answer, answer.trace as trace
"""


class Calling(EmbeddedEngine):
    """Has the model call a tool in each turn but the last, whatever one this small would rather do; notes tokens."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.tokens: list[tuple[int, int]] = []

    async def generate(self, request: Request) -> Reply:
        assert request.schema is not None
        forms = request.schema.get("anyOf")
        reply = await super().generate(request if forms is None else replace(request, schema=forms[0]))
        self.tokens.append((reply.prompt_tokens or 0, reply.cached_tokens or 0))
        return reply


def test_an_agent_calls_tools_and_gives_an_answer_of_its_type(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("def look(place):\n    return f'The {place} holds ladders and pumps.'\n")
    engine = Calling(None, quiet=True)
    ran = run(WORKFLOW, [{"ticket": "Where are the ladders?"}], engine=engine, folder=tmp_path, concurrency=1)
    assert ran.errors == [None]
    (answer,), (trace,) = ran.column("answer"), ran.column("trace")
    assert answer["place"] in ("shed", "hall", "yard")
    assert isinstance(answer["sure"], bool)
    assert [len(turn["calls"]) for turn in trace] == [1, 1, 0]
    for turn in trace[:2]:
        (call,) = turn["calls"]
        assert call["result"] == f"The {call['args']['place']} holds ladders and pumps."
    for (before, _), (_, cached) in pairwise(engine.tokens):
        assert cached >= before - 1


def test_an_agent_left_to_itself_ends_within_its_limits(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("def look(place):\n    return 'nothing'\n")
    engine = EmbeddedEngine(None, quiet=True)
    rows = [{"ticket": ticket} for ticket in ("Where are the ladders?", "Look into the yard and the hall.")]
    ran = run(WORKFLOW, rows, engine=engine, folder=tmp_path)
    assert ran.errors == [None, None]
    assert 2 <= ran.report.steps["answer"].turns <= 6
