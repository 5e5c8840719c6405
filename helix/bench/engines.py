"""The engines of the benchmark: the simulated one that keeps what its calls took, and one that answers at once."""

from __future__ import annotations

import asyncio
from array import array
from dataclasses import dataclass
from typing import Any

from helix.bench.replies import Replies, prompt_digest
from helix.executor.engines.base import Capabilities, Reply, Request
from helix.executor.engines.sim import SimEngine, SimSettings
from helix.executor.engines.sim.loop import VirtualLoop
from helix.executor.engines.sim.prompts import padded, prompt_text
from helix.simulation.cost import CostModel

MODEL = "llama-3.1-8b"


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A call that was made. Times are in simulated seconds since the engine was opened."""

    row: int
    step: str
    prompt: bytes
    prompt_tokens: int
    cached: int
    output: int
    began: float
    ended: float
    rank: int


class MeasuredEngine(SimEngine):
    """The simulated engine, which keeps its calls, and stays open between runs with what its cache holds."""

    def __init__(self, settings: SimSettings, cost: CostModel, replies: Replies) -> None:
        super().__init__(settings, cost, model=MODEL, name="sim:bench", answer=replies)
        self.made: list[Made] = []
        self._told: Capabilities | None = None
        self._hinted = False

    async def open(self, *, concurrency: int) -> Capabilities:
        if self._told is None:
            self._told = await super().open(concurrency=concurrency)
        return self._told

    def take_hints(self) -> None:
        if not self._hinted:
            self._hinted = True
            super().take_hints()

    async def generate(self, request: Request) -> Reply:
        loop = asyncio.get_running_loop()
        began = loop.time()
        reply = await super().generate(request)
        self.made.append(
            Made(
                row=request.row,
                step=request.step,
                prompt=prompt_digest(request),
                prompt_tokens=reply.prompt_tokens or 0,
                cached=reply.cached_tokens or 0,
                output=reply.completion_tokens or 0,
                began=began,
                ended=loop.time(),
                rank=reply.rank or 0,
            )
        )
        return reply

    async def close(self) -> None:
        """Nothing: `finish` ends the simulation."""

    async def finish(self) -> None:
        """Ends the simulation."""
        await super().close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A call of a reference run: its prompt and reply as tokens."""

    row: int
    step: str
    prompt: array[int]
    output: array[int]


class InstantEngine:
    """Answers at once, and keeps the distinct prompts with their replies."""

    loop_factory = VirtualLoop
    name = "instant"

    def __init__(self, replies: Replies) -> None:
        self._replies = replies
        self.asked: dict[bytes, Asked] = {}
        self.calls = 0

    async def open(self, *, concurrency: int) -> Capabilities:
        return Capabilities(max_context=1 << 30, schema_decoding=True, models=(MODEL,), model=MODEL, revision="1")

    async def generate(self, request: Request) -> Reply:
        self.calls += 1
        text = self._replies(request)
        key = prompt_digest(request)
        if key not in self.asked:
            prompt = tokens_of(prompt_text(request.messages))
            self.asked[key] = Asked(row=request.row, step=request.name, prompt=prompt, output=tokens_of(padded(text)))
        known = self.asked[key]
        return Reply(text=text, prompt_tokens=len(known.prompt), completion_tokens=len(known.output))

    async def count_tokens(self, request: Request) -> int:
        return len(prompt_text(request.messages)) // 4

    async def close(self) -> None:
        """Nothing is held."""


def tokens_of(text: str) -> array[int]:
    """The tokens of a text as the simulated engine has them: four bytes each, as numbers."""
    made: array[Any] = array("I")
    made.frombytes(text.encode("latin-1"))
    return made
