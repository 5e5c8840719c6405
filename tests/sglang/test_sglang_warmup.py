"""The beginning of an agent's next prompt, computed on an idle SGLang while the agent waits for its tools."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sglang_cpu import Server

import helix
from helix.executor.engines.base import Reply, Request
from helix.executor.engines.sglang import SGLangEngine

pytestmark = [pytest.mark.sglang, pytest.mark.xdist_group("lpm")]

WORKFLOW = """workflow w(ticket: text)
tool look(key: choice["shed", "hall", "yard"]) -> text from python "shop:look" effects read
answer = agent(temperature: 0, max_tokens: 32) {
  tools [look]
  max_turns 3
  system "You look things up before you answer."
  user "{{ ticket }}"
}
output answer
"""
# Where `wait` names a file, a call takes until it holds a line for each call so far: a warm-up has ended. Where none
# comes it gives up, and the test fails.
SHOP = """
import asyncio, pathlib, time

wait, made = WAIT, 0

async def look(key):
    global made
    made += 1
    ends = time.monotonic() + 300
    while wait and len(pathlib.Path(wait).read_text().splitlines()) < made and time.monotonic() < ends:
        await asyncio.sleep(0.01)
    return f"The {key} holds " + "boxes and " * 20
"""


class Watched(SGLangEngine):
    """Has the model call a tool in each turn but the last, and notes what was cached of each prompt, and warm-ups.

    Each turn asks for another key: a call that repeats has its result at once, and there is nothing to wait for.
    """

    def __init__(self, *args: Any, notes: Path, **options: Any) -> None:
        super().__init__(*args, **options)
        self.told = notes
        self.turns: list[tuple[int, int]] = []
        self.warmed: list[tuple[int, int]] = []

    async def generate(self, request: Request) -> Reply:
        assert request.schema is not None
        forms = request.schema.get("anyOf")
        if forms is not None:
            schema = copy.deepcopy(forms[0])
            keys = schema["properties"]["args"]["properties"]["key"]
            keys["enum"] = [keys["enum"][len(self.turns)]]
            request = replace(request, schema=schema)
        reply = await super().generate(request)
        self.turns.append(_tokens(reply))
        return reply

    async def warm(self, request: Request) -> Reply:
        reply = await super().warm(request)
        self.warmed.append(_tokens(reply))
        with self.told.open("a") as file:
            file.write("warmed\n")
        return reply


def _tokens(reply: Reply) -> tuple[int, int]:
    assert reply.prompt_tokens is not None
    assert reply.cached_tokens is not None
    return reply.prompt_tokens, reply.cached_tokens


def turns(server: Server, folder: Path, mode: str) -> Watched:
    """Runs one agent on a server that holds nothing."""
    folder.mkdir()
    notes = folder / "notes.txt"
    notes.write_text("")
    (folder / "shop.py").write_text(SHOP.replace("WAIT", repr(str(notes) if mode == "on" else "")))
    server.flush()
    address = "sglang://" + server.address.partition("://")[2]
    engine = Watched(address, notes=notes, open_timeout=120.0)
    rows = [{"ticket": "Where are the ladders?"}]
    ran = helix.loads(WORKFLOW, folder=folder).run(rows, engine=engine, speculate=mode)
    assert len(engine.turns) == 3
    found = ran.report.speculation
    assert (found["prefix_warmups"] if mode == "on" else found) == (2 if mode == "on" else None)
    return engine


def test_a_warm_up_raises_what_is_cached_of_the_next_prompt(sglang_server: Server, tmp_path: Path) -> None:
    cold = turns(sglang_server, tmp_path / "cold", "off")
    warm = turns(sglang_server, tmp_path / "warm", "on")
    assert [prompt for prompt, _ in cold.turns] == [prompt for prompt, _ in warm.turns]
    for (_, before), (_, after), (_, known) in zip(cold.turns[1:], warm.turns[1:], warm.warmed, strict=True):
        # What a warm-up computed, beyond what the turn before had left, the next turn finds.
        assert after > before
        assert known <= after
