"""What a run's speculation makes of its tools: hints of servers, secrets of the environment, patterns of a tenant."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from speculation_world import Predicted, Remembered

from helix.errors import InputError
from helix.executor.engines.sim.loop import run_virtual
from helix.executor.limits import Limits
from helix.executor.settings import RunSettings
from helix.executor.speculation import SpeculationSettings
from helix.executor.speculation.wiring import Speculation, patterns_of
from helix.executor.tool_calls import Deciding, Decision, ToolCall, ToolCalls
from helix.mining import Miner
from helix.schema import Column
from helix.services import Tool
from helix.tools.effects import effects_of_hints
from helix.types import INT, JSON

LIES = {"readOnlyHint": True, "openWorldHint": False}


def mcp_tool(**traits: Any) -> Tool:
    held: dict[str, Any] = {"effects": "unknown", "hinted": True, "freshness": Tool.UNTIL_WRITE, **traits}
    return Tool(name="look", origin="mcp", target="shop:look", params=(Column("n", INT),), returns=JSON, **held)


class Opener:
    """The tools of a run, with the hints of their server, which is trusted or not."""

    def __init__(self, tools: tuple[Tool, ...], hints: dict[str, Any], *, trusted: bool) -> None:
        self.tools = tools
        self._hints = hints
        self._trusted = trusted

    def effects(self, tool: Tool) -> Any:
        return effects_of_hints(self._hints, allowed=self._trusted) if tool.hinted else tool.effects

    def secrets(self) -> frozenset[str]:
        return frozenset()

    def servers(self) -> Opener:
        return self

    def annotations(self, tool: Tool) -> dict[str, Any]:
        return self._hints


class Patterns:
    """Sure of one call."""

    history = Remembered

    def predict(self, history: Remembered, *, most: int) -> list[Predicted]:
        return [Predicted("look", {"n": 1}, 1.0, 1.0, 1000)]


def guessed(tool: Tool, hints: dict[str, Any], *, trusted: bool) -> tuple[list[str], dict[str, Any]]:
    """What was started before the model asked, and the figures."""
    started: list[str] = []

    class Opened:
        async def __call__(self, args: list[Any]) -> str:
            started.append("call")
            await asyncio.sleep(1.0)
            return "1"

        def close(self) -> None:
            """Nothing is held."""

    async def scenario() -> dict[str, Any]:
        calls = ToolCalls()
        calls.add(tool, Opened())
        settings = RunSettings(
            speculate="on", patterns=Patterns(), speculation=SpeculationSettings(chances=1, audit_every=0)
        )
        opener: Any = Opener((tool,), hints, trusted=trusted)
        made = Speculation(
            settings,
            calls,
            opener,
            engines=(),
            limits=Limits(settings, lambda reason, **more: None),
            slots=lambda lane: 8,
            timeout=lambda tool: None,
            folder=None,
        )
        state = made.speculator.state
        state.stage(made.speculator.known(tool)).stage = "serve"
        state.decision_times("s").add(2.0)
        calls.deciding(Deciding(session="s", row=0, step="s", turn=0, told=(), tools=(tool,)))
        await asyncio.sleep(2.0)
        before = list(started)
        call = ToolCall(tool=tool, args={"n": 1}, row=0, step="s", session="s", turn=0)
        calls.decided(Decision(session="s", row=0, step="s", turn=0, told=(), text="", calls=(call,)))
        assert await calls.call(call) == "1"
        await made.close()
        assert len(started) == 1
        return {"before": before, **made.figures()}

    found = run_virtual(scenario())
    return found["before"], found


def test_hints_of_a_trusted_server_count() -> None:
    before, figures = guessed(mcp_tool(), LIES, trusted=True)
    assert before == ["call"]
    assert figures["hits"] == 1


@pytest.mark.parametrize(
    ("hints", "trusted"),
    [
        (LIES, False),
        ({}, True),
        ({"readOnlyHint": False, "openWorldHint": False}, True),
        ({"readOnlyHint": True, "destructiveHint": True, "openWorldHint": False}, True),
        ({"readOnlyHint": "true", "openWorldHint": False}, True),
        ({"idempotentHint": True, "destructiveHint": False, "openWorldHint": False}, True),
        # It only reads, but who knows where: that needs a word of the author's.
        ({"readOnlyHint": True}, True),
        ({"readOnlyHint": True, "openWorldHint": True}, True),
    ],
)
def test_all_other_hints_do_not(hints: dict[str, Any], trusted: bool) -> None:
    before, figures = guessed(mcp_tool(), hints, trusted=trusted)
    assert before == []
    assert figures["hits"] == figures["launched"] == 0


def test_an_open_world_with_a_word_of_the_author() -> None:
    before, _ = guessed(mcp_tool(speculate=True), {"readOnlyHint": True}, trusted=True)
    assert before == ["call"]


def test_patterns_belong_to_a_tenant(tmp_path: Any) -> None:
    path = tmp_path / "patterns.json"
    Miner().save(path, tenant="acme")
    assert isinstance(patterns_of(path, "acme", ()), Miner)
    for other in (None, "other"):
        with pytest.raises(InputError, match="tenant"):
            patterns_of(path, other, ())
    assert patterns_of(None, None, ()) is None
