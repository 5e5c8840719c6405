"""Agents on a real SGLang: a transcript that only grows is computed once, turn by turn, on the real radix cache."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sglang_cpu import Server

import helix
from helix.executor.engines.base import Reply, Request
from helix.executor.engines.openai import OpenAIEngine
from helix.executor.engines.sglang import SGLangEngine
from helix.results import RunResult

pytestmark = [pytest.mark.sglang, pytest.mark.xdist_group("lpm")]

WORKFLOW = """workflow w(ticket: text)
tool look(key: choice["shed", "hall", "yard"]) -> text from python "shop:look" effects read,
  description "What a place holds."
answer = agent(temperature: 0, max_tokens: 24) {
  tools [look]
  max_turns 3
  system "You look things up before you answer."
  user "{{ ticket }}"
}
output answer
"""
ROWS = [{"ticket": f"Where are the {things}?"} for things in ("ladders", "pumps", "kettles")]


class Calling(SGLangEngine):
    """Has the model call a tool in each turn but the last: left to itself, one this small answers what it likes.

    `turns` are by row the tokens of each turn's prompt, and those of them that were cached.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.turns: dict[int, list[tuple[int, int]]] = {}

    async def generate(self, request: Request) -> Reply:
        assert request.schema is not None
        forms = request.schema.get("anyOf")
        reply = await super().generate(request if forms is None else replace(request, schema=forms[0]))
        assert reply.prompt_tokens is not None
        assert reply.cached_tokens is not None
        self.turns.setdefault(request.row, []).append((reply.prompt_tokens, reply.cached_tokens))
        return reply


def kinds(ran: RunResult) -> set[str]:
    """The kinds of the errors: of what a model this small writes some is cut off at max_tokens."""
    return {row["_error"]["kind"] for row in ran.rows if row["_error"] is not None}


def test_each_turn_prefills_only_what_is_new(sglang_server: Server, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("def look(key):\n    return f'The {key} holds ' + 'boxes and ' * 20\n")
    engine = Calling("sglang://" + sglang_server.address.partition("://")[2], open_timeout=120.0)
    ran = helix.loads(WORKFLOW, folder=tmp_path).run(ROWS, engine=engine)
    assert kinds(ran) <= {"truncated"}
    assert len(engine.turns) == len(ROWS)
    for turns in engine.turns.values():
        assert len(turns) == 3
        for (before, _), (prompt, cached) in pairwise(turns):
            assert cached / prompt >= (before - 1) / prompt
    step = ran.report.steps["answer"]
    assert (step.turns, step.tool_errors) == (3 * len(ROWS), 0)
    assert step.at_limit == len(ROWS)


def test_agents_on_the_openai_endpoint_of_a_server_without_a_parser(sglang_server: Server, tmp_path: Path) -> None:
    """The server takes tools and writes calls as text, so agents reply in JSON there."""
    (tmp_path / "shop.py").write_text("def look(key):\n    return f'The {key} holds boxes.'\n")
    engine = OpenAIEngine(sglang_server.address + "/v1")
    ran = helix.loads(WORKFLOW, folder=tmp_path).run(ROWS[:2], engine=engine)
    assert kinds(ran) <= {"truncated"}
    assert ran.report.steps["answer"].turns >= 2
