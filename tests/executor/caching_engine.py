"""An engine with a prefix cache of its own, written down plainly: for policies, which must not be tested by themselves.

A token is four characters. A prompt is prefilled in one go, which takes some turns of the loop; what it shares with
prompts whose prefill is over is found, what is being prefilled just then is not. The least recently used goes first.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from hashlib import blake2b

from helix.executor.engines.base import Capabilities, Load, Reply, Request

PREFILL_TURNS, DECODE_TURNS = 3, 6


class CachingEngine:
    """`kv_tokens` are those of each rank. All other counts are of characters, warm-ups included in `prefilled`."""

    def __init__(self, *, kv_tokens: int | None = None, ranks: int = 1, warms: bool = True, running: int = 8) -> None:
        self.kv_tokens = kv_tokens
        self.ranks = ranks
        self.warms = warms
        self.running = running
        self.prefilled = self.asked = self.cached = self.warmups = 0
        self.peak = Counter[int]()
        # The calls in their order, and how many ran on the rank then.
        self.log: list[tuple[str, int]] = []
        self.at_once: list[int] = []
        self.broken = False
        self._texts: list[str] = []
        # By rank: what was computed, each time with what had been there before it.
        self._computed: list[list[tuple[str, int]]] = [[] for _ in range(ranks)]
        self._rows: dict[int, set[int]] = {}
        self._calls: Counter[int] = Counter()
        self._active: Counter[int] = Counter()
        self._held: list[list[str]] = [[] for _ in range(ranks)]

    @property
    def least(self) -> int:
        """The characters on distinct beginnings of all prompts: no order computes fewer on one rank."""
        return distinct(self._texts)

    def computed_once(self, text: str) -> bool:
        """Whether no rank has computed the end of this beginning twice."""
        whole = "\nuser:" + text
        return all(
            sum(each.startswith(whole) and found < len(whole) for each, found in computed) <= 1
            for computed in self._computed
        )

    def calls_of(self, rank: int) -> int:
        """How many calls a rank has had."""
        return self._calls[rank]

    def ranks_of_rows(self) -> dict[int, set[int]]:
        """The ranks that each row's calls went to."""
        return self._rows

    @property
    def name(self) -> str:
        return "caching"

    async def open(self, *, concurrency: int) -> Capabilities:
        return Capabilities(
            schema_decoding=True,
            reports_cached_tokens=True,
            ranks=self.ranks,
            kv_tokens=self.kv_tokens,
            max_running=self.running,
            prefix_cache=True,
            warms=self.warms,
        )

    async def generate(self, request: Request) -> Reply:
        text = shown(request)
        rank = self._rank(request)
        self._active[rank] += 1
        self.peak[rank] = max(self.peak[rank], self._active[rank])
        self.log.append((request.step, request.row))
        self.at_once.append(self._active[rank])
        self._calls[rank] += 1
        self._rows.setdefault(request.row, set()).add(rank)
        self._texts.append(text + "\nassistant:")
        try:
            cached = await self._prefill(text + "\nassistant:", rank)
            for _ in range(DECODE_TURNS):
                await asyncio.sleep(0)
            reply = f"reply {blake2b(text.encode(), digest_size=8).hexdigest()}"
            self._keep(text + "\nassistant:" + reply, rank)
        finally:
            self._active[rank] -= 1
        self.asked += len(text)
        self.cached += cached
        return Reply(
            text=reply,
            prompt_tokens=len(text) // 4,
            completion_tokens=len(reply) // 4,
            cached_tokens=cached // 4,
            rank=rank,
        )

    async def warm(self, request: Request) -> Reply:
        if self.broken:
            from helix.errors import EngineError

            raise EngineError("cannot warm")
        text = shown(request)
        self.warmups += 1
        cached = await self._prefill(text, self._rank(request))
        return Reply(text="", prompt_tokens=len(text) // 4, completion_tokens=0, cached_tokens=cached // 4)

    async def load(self) -> tuple[Load, ...]:
        return tuple(Load(rank=rank, running=self._active[rank], waiting=0) for rank in range(self.ranks))

    async def count_tokens(self, request: Request) -> int:
        return len(shown(request)) // 4

    async def close(self) -> None:
        """Nothing."""

    def _rank(self, request: Request) -> int:
        if self.ranks == 1:
            return 0
        assert request.rank is not None
        return request.rank

    async def _prefill(self, text: str, rank: int) -> int:
        found = max((common(text, held) for held in self._held[rank]), default=0)
        found = min(found, len(text) - 1)
        self.prefilled += len(text) - found
        self._computed[rank].append((text, found))
        for _ in range(PREFILL_TURNS):
            await asyncio.sleep(0)
        self._keep(text, rank)
        return found

    def _keep(self, text: str, rank: int) -> None:
        """The text becomes the most recently used one; the oldest go until all fit."""
        held = self._held[rank]
        held[:] = [each for each in held if not text.startswith(each)]
        held.append(text)
        while self.kv_tokens is not None and distinct(held) > 4 * self.kv_tokens and len(held) > 1:
            held.pop(0)


def shown(request: Request) -> str:
    """A prompt as the engine sees it."""
    return "".join(f"\n{message.role}:{message.content}" for message in request.messages)


def common(one: str, other: str) -> int:
    """The length of the beginning that two texts share."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def distinct(texts: list[str]) -> int:
    """The characters on distinct beginnings of some texts."""
    ordered = sorted(texts)
    total = 0
    for number, text in enumerate(ordered):
        total += len(text) - (common(text, ordered[number - 1]) if number else 0)
    return total
