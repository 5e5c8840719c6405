"""One agent by hand in virtual time, with tools that the test behaves as it likes: single guesses and their fate."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from speculation_world import Predicted, Remembered

from helix.executor.engines.sim.loop import run_virtual
from helix.executor.speculation.settings import Mode, SpeculationSettings
from helix.executor.speculation.speculator import Speculator
from helix.executor.speculation.stages import Stage
from helix.executor.speculation.state import SpeculationState
from helix.executor.tool_calls import Deciding, Decision, ToolCall, ToolCalls
from helix.schema import Column
from helix.services import Tool
from helix.types import INT, JSON

THINKS = 2.0
TAKES = 1.0
SERVED = SpeculationSettings(chances=1, audit_every=0, patience=0.0)


def made_tool(name: str, **traits: Any) -> Tool:
    held: dict[str, Any] = {"effects": "read", "reads": ("shop",), "timeout": 5.0, "cost": TAKES, **traits}
    if held["effects"] in ("write", "unknown"):
        held["reads"] = None
    return Tool(name=name, origin="python", target="t:t", params=(Column("n", INT),), returns=JSON, **held)


@dataclass
class Bench:
    """One agent by hand. `value` is the state that reads see; `behave` may replace what a tool does."""

    tools: tuple[Tool, ...]
    mode: Mode = "on"
    stage: Stage = "serve"
    settings: SpeculationSettings = SERVED
    size: int = 8
    tenant: str | None = None
    hidden: str = "\0"

    def __post_init__(self) -> None:
        self.value = 0
        self.started: list[tuple[str, int, bool, float]] = []
        self.guesses: list[tuple[str, Mapping[str, Any], float]] = []
        self.behave: dict[str, Callable[[bool], Coroutine[Any, Any, Any]]] = {}
        state = SpeculationState()
        for tool in self.tools:
            state.stage(tool).stage = self.stage
        # What a decision takes is known from before.
        for _ in range(5):
            state.decision_times("agent").add(THINKS)
        self.speculator = Speculator(
            self.settings, self.mode, state=state, lanes=lambda tool: ("lane", self.size),
            run=lambda tool, args: self.do(tool, args, True), predictor=self, history=Remembered, tools=self.tools,
            tenant=self.tenant, hidden_from=lambda text: self.hidden in text,
        )  # fmt: skip

        async def limited(tool: Tool, work: Any) -> str:
            async with asyncio.timeout(tool.timeout):
                text: str = await work
                return text

        self.calls = ToolCalls(limited)
        self.calls.around = self.speculator
        self.calls.watchers.append(self.speculator)
        bench = self

        class Opened:
            def __init__(self, tool: Tool) -> None:
                self.tool = tool

            async def __call__(self, args: list[Any]) -> str:
                return await bench.do(self.tool, args, False)

            def close(self) -> None:
                """Nothing is held."""

        for tool in self.tools:
            self.calls.add(tool, Opened(tool))

    def predict(self, history: Remembered, *, most: int) -> list[Predicted]:
        return [Predicted(name, args, p, p, 1000) for name, args, p in self.guesses]

    async def do(self, tool: Tool, args: list[Any], guessed: bool) -> str:
        self.started.append((tool.name, args[0], guessed, asyncio.get_running_loop().time()))
        if tool.name in self.behave:
            return str(await self.behave[tool.name](guessed))
        if tool.effects in ("pure", "read"):
            seen = self.value
            await asyncio.sleep(TAKES)
            return f"[{args[0]}, {seen}]"
        await asyncio.sleep(TAKES)
        self.value += 1
        return "true"

    def deciding(self, session: str, turn: int) -> None:
        self.calls.deciding(
            Deciding(session=session, row=0, step="agent", turn=turn, told=("hello",), tools=self.tools)
        )  # fmt: skip

    def asks(self, session: str, turn: int, *wanted: tuple[Tool, int]) -> list[ToolCall]:
        calls = [
            ToolCall(tool=tool, args={"n": n}, row=0, step="agent", session=session, turn=turn, position=place)
            for place, (tool, n) in enumerate(wanted)
        ]
        self.calls.decided(
            Decision(session=session, row=0, step="agent", turn=turn, told=(), text="", calls=tuple(calls))
        )  # fmt: skip
        return calls

    async def turn(self, *wanted: tuple[Tool, int], session: str = "s", turn: int = 0, thinks: float = THINKS) -> Any:
        """A whole turn; gives the results of its calls and the seconds that they took."""
        self.deciding(session, turn)
        await asyncio.sleep(thinks)
        loop = asyncio.get_running_loop()
        began = loop.time()
        results = await asyncio.gather(*(self.calls.call(call) for call in self.asks(session, turn, *wanted)))
        return list(results), loop.time() - began

    def run(self, scenario: Coroutine[Any, Any, Any]) -> Any:
        async def whole() -> Any:
            try:
                return await scenario
            finally:
                await self.speculator.close()

        return run_virtual(whole())

    @property
    def guessed(self) -> list[tuple[str, int]]:
        return [(name, n) for name, n, guessed, _ in self.started if guessed]

    @property
    def real(self) -> list[tuple[str, int]]:
        return [(name, n) for name, n, guessed, _ in self.started if not guessed]


LOOK = made_tool("look")
KEEP = made_tool("keep", freshness=Tool.UNTIL_WRITE)
WRITE = made_tool("change", effects="write", writes=("shop",))
