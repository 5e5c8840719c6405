"""Lower bounds of a simulated run, for any engine, from the calls that it made.

Tokens are those of the simulated engine, so they are exact. Of a run of very many calls the prompts of the first ones
are kept only: the bounds then count no shared beginning of the others, and are lower than they could be.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from helix.executor.engines.base import Reply, Request
from helix.executor.engines.sim import SimEngine
from helix.executor.engines.sim.prompts import WIDTH, padded, prompt_text
from helix.executor.tool_calls import Decision, ToolCall, ToolResult
from helix.executor.tools.lanes import lane_of
from helix.logical import LogicalPlan
from helix.optimizer.bounds import Bounds, Work, held_together, lines_of
from helix.optimizer.chains import Chains
from helix.optimizer.engine_time import EngineTime
from helix.optimizer.tree.resolve import resolve_plan
from helix.optimizer.tree.trie import TokenTrie

MOST_CALLS = 100_000
MOST_BYTES = 256_000_000


class KeepingEngine(SimEngine):
    """A simulated engine that keeps the first prompts and replies that it was asked for, as its tokens."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self.kept: list[KeptCall] = []
        self.untold = 0
        self.keep = True
        self._room = MOST_BYTES

    async def generate(self, request: Request) -> Reply:
        reply = await super().generate(request)
        if not self.keep:
            return reply
        if len(self.kept) < MOST_CALLS and self._room > 0:
            prompt = prompt_text(request.messages)
            self._room -= len(prompt)
            self.kept.append(
                KeptCall(
                    row=request.row, step=request.name, prompt=prompt, reply=reply.text,
                    output=reply.completion_tokens or 0,
                )
            )  # fmt: skip
        else:
            self.untold += 1
        return reply


@dataclass(frozen=True, slots=True)
class KeptCall:
    """A call that was answered; `prompt` is text of whole tokens, `output` are the tokens of its reply."""

    row: int
    step: str
    prompt: str
    reply: str
    output: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTime:
    """A call of a tool, and how long it took in seconds. `turn` is that of the agent that asked for it."""

    row: int
    step: str
    seconds: float
    lane: str
    turn: int | None = None


class ToolTimes:
    """A watcher of tools that keeps how long their calls took."""

    def __init__(self) -> None:
        self.made: list[ToolTime] = []

    def decided(self, decision: Decision) -> None:
        """Nothing is kept of it."""

    def returned(self, call: ToolCall, result: ToolResult) -> None:
        """Keeps a call that was made."""
        if result.began is not None and result.ended is not None:
            seconds = result.ended - result.began
            lane = lane_of(call.tool)
            self.made.append(ToolTime(row=call.row, step=call.step, seconds=seconds, lane=lane, turn=call.turn))

    def closed(self, session: str) -> None:
        """Nothing is kept of it."""


class BoundsOf:
    """The bounds of the calls of a plan; what does not hang on the engine is found once."""

    def __init__(
        self, plan: LogicalPlan, engine: KeepingEngine, tools: Sequence[ToolTime], slots: Mapping[str, int]
    ) -> None:
        self._tools = tuple(tools)
        self._slots = dict(slots)
        self.untold = engine.untold
        trie = TokenTrie()
        handles, outputs = [], []
        for call in engine.kept:
            handles.append(trie.insert(_ids(call.prompt), _ids(padded(call.reply))))
            outputs.append(float(call.output))
        self._chains = Chains(resolve_plan(plan))
        decoded = [
            (call.row, call.step, EngineTime.steps(output)) for call, output in zip(engine.kept, outputs, strict=True)
        ]
        self._work = Work(
            p_min=trie.distinct_tokens,
            pairs=trie.distinct_pairs,
            shared_area=held_together(trie, handles, decoded, self._chains),
            chain=self._chains.longest(decoded),
            lines=lines_of(self._chains, decoded, [len(call.prompt) // WIDTH for call in engine.kept]),
        )
        # Of each call its row, step, prompt, private and reply tokens.
        self._calls: list[tuple[int, str, int, int, float]] = []
        for call, handle, output in zip(engine.kept, handles, outputs, strict=True):
            prompt, private = len(call.prompt) // WIDTH, trie.private_tokens(handle)
            self._calls.append((call.row, call.step, prompt, private, output))
            self._work.call(prompt, private, output)
        for tool in self._tools:
            self._work.tools[tool.lane] = self._work.tools.get(tool.lane, 0.0) + tool.seconds

    def on(self, engine: EngineTime) -> Bounds | None:
        """The bounds on an engine; None where no call was made."""
        if not self._calls and not self._tools:
            return None
        times = [(tool.row, tool.step, tool.seconds * 1000) for tool in _one_by_one(self._tools)]
        for row, step, prompt, private, output in self._calls:
            alone = engine.prefill(private, prompt - private) + engine.decode(prompt, output)
            times.append((row, step, alone))
        self._work.longest = self._chains.longest(times)
        return self._work.bounds(engine, self._slots, estimated=False)


def _one_by_one(tools: Sequence[ToolTime]) -> list[ToolTime]:
    """Of the tools that an agent calls in one turn, which run beside one another, the longest."""
    made = [tool for tool in tools if tool.turn is None]
    turns: dict[tuple[int, str, int | None], ToolTime] = {}
    for tool in tools:
        if tool.turn is not None:
            known = turns.setdefault((tool.row, tool.step, tool.turn), tool)
            if known.seconds < tool.seconds:
                turns[tool.row, tool.step, tool.turn] = tool
    return [*made, *turns.values()]


def _ids(text: str) -> array[int]:
    """Tokens as numbers of 32 bits: their four bytes."""
    ids = array("I")
    ids.frombytes(text.encode("latin-1"))
    return ids
