"""Measures the passes of a live SGLang server: how long prefills and passes of decoding take, by their sizes.

Prompts are drawn tokens, so that nothing is found in the cache but what was put there. A prefill is the time from a
request for one token to its reply, the least of some repeats. A pass of decoding is what replies of two lengths differ
by, over the passes between them, in a batch whose prompts are all cached. Nothing else should use the server meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from time import perf_counter
from typing import Any

from helix.errors import EngineError, OptionError
from helix.executor.engines.openai_errors import Place
from helix.executor.engines.sglang.address import parse_address
from helix.executor.engines.sglang.facts import Facts, read_facts
from helix.executor.engines.sglang.http import Transport
from helix.simulation.sweep import Sweep
from helix.simulation.table import DecodePoint, PrefillPoint

NEW = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
CACHED = (0, 512, 2048, 8192)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONTEXTS = (128, 512, 2048, 8192)
# Tokens of the shorter reply, and how many more the longer one has.
SHORT, MORE = 4, 24
# Seconds that one size may take before larger ones are left out; with a smaller cache, or a slower engine, fewer fit.
PATIENCE = 8.0
_FIRST, _LAST = 1000, 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """What is measured: new tokens behind cached ones, batches of contexts, and how often each."""

    new: Sequence[int] = NEW
    cached: Sequence[int] = CACHED
    batches: Sequence[int] = BATCHES
    contexts: Sequence[int] = CONTEXTS
    repeats: int = 3
    patience: float = PATIENCE


async def measure(
    address: str,
    *,
    key: str | None = None,
    plan: SweepPlan | None = None,
    tell: Callable[[str], None] = lambda text: None,
    clock: Callable[[], float] = perf_counter,
) -> Sweep:
    """The sweep of the server at `sglang://HOST:PORT`; `tell` hears of each point. `clock` gives seconds: on a machine
    that does other things too the CPU time of the server may tell more. Raises OptionError, EngineError.
    """
    found = parse_address(address)
    if len(found.bases) > 1:
        raise OptionError(f"one server is measured at a time, found {len(found.bases)} in {found.name}")
    place = Place(address=found.bases[0], secrets=() if key is None else (key,), keyed=key is not None)
    transport = Transport(key=key, proxies=not found.local)
    try:
        facts = await read_facts(transport, place)
        info = await transport.ask(place, "/server_info")
        return await _Bench(transport, place, facts, info, plan or SweepPlan(), tell, clock).sweep(found.name)
    finally:
        await transport.close()


class _Bench:
    """One sweep of one server."""

    def __init__(
        self,
        transport: Transport,
        place: Place,
        facts: Facts,
        info: dict[str, Any],
        plan: SweepPlan,
        tell: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._transport = transport
        self._place = place
        self._facts = facts
        self._info = info
        self._plan = plan
        self._tell = tell
        self._clock = clock
        self._dice = Random("helix sweep")  # a seeded draw  # nosec B311
        self._held = facts.kv_tokens or 1 << 20
        chunk = info.get("chunked_prefill_size")
        self._chunk = chunk if isinstance(chunk, int) and chunk > 0 else None

    async def sweep(self, name: str) -> Sweep:
        await self._generate(self._drawn(16), 2)  # the first request of a server may compile
        prefill = await self._prefills()
        decode = await self._decodes()
        return Sweep(
            engine=f"SGLang {self._info.get('version') or ''} on {self._facts.device or 'an unknown device'}, {name}",
            model=self._facts.model,
            prefill=tuple(prefill),
            decode=tuple(decode),
            server=self._server(),
        )

    def _server(self) -> dict[str, Any]:
        facts = self._facts
        told: dict[str, Any] = {
            "kv_tokens": facts.kv_tokens,
            "page": facts.page,
            "max_running": facts.max_running,
            "max_context": facts.max_context,
            "ranks": facts.ranks,
            "policy": facts.policy or None,
            "max_prefill": self._info.get("max_prefill_tokens"),
            "overlap": self._overlap(),
            "mixed_chunk": facts.mixes,
        }
        # Prompts that are not cut are told from those of which nothing is known.
        return {**{name: value for name, value in told.items() if value}, "chunk": self._chunk}

    def _overlap(self) -> str | None:
        """How the server overlaps passes with looking at their results; None where it does not say."""
        disabled = self._info.get("disable_overlap_schedule")
        if disabled is None:
            return None
        if disabled:
            return "off"
        return "host" if self._facts.device == "cpu" else "device"

    async def _prefills(self) -> list[PrefillPoint]:
        points: list[PrefillPoint] = []
        longest = min(self._facts.max_context or self._held, self._held) - 8
        for cached in self._plan.cached:
            for new in self._plan.new:
                # A prompt that is cut into chunks is several passes.
                if cached + new > longest or (self._chunk is not None and new > self._chunk):
                    continue
                times: list[float] = []
                for _ in range(self._plan.repeats):
                    before = self._drawn(cached)
                    if cached:
                        await self._prefill(before, cached)
                    seconds, told = await self._generate(before + self._drawn(new), 1)
                    if abs(told - cached) <= self._facts.page:
                        times.append(seconds)
                    if seconds > self._plan.patience:
                        break
                if times:
                    points.append(PrefillPoint(new=new, cached=cached, ms=min(times) * 1000))
                    self._tell(f"prefill of {new:,} tokens behind {cached:,}: {points[-1].ms:.1f} ms")
                if times and min(times) > self._plan.patience:
                    break
        if not points:
            raise EngineError(
                f"{self._place.address} has no room for a sweep: its KV cache holds {self._held:,} tokens"
            )
        return points

    async def _decodes(self) -> list[DecodePoint]:
        points: list[DecodePoint] = []
        most = self._facts.max_running or max(self._plan.batches)
        for context in self._plan.contexts:
            for batch in self._plan.batches:
                if batch > most or batch * (context + SHORT + MORE + 8) > 0.9 * self._held:
                    continue
                if context + SHORT + MORE + 8 > (self._facts.max_context or self._held):
                    continue
                point = await self._decode(batch, context)
                if point is None:
                    continue
                points.append(point)
                self._tell(f"decoding {batch} of {context:,} tokens each: {point.ms:.2f} ms")
                if point.ms / 1000 * (SHORT + MORE) > self._plan.patience:
                    break
        return points

    async def _decode(self, batch: int, context: int) -> DecodePoint | None:
        """One size; None where noise drowns it."""
        prompts = [self._drawn(context) for _ in range(batch)]
        for prompt in prompts:
            await self._prefill(prompt, context)
        times: list[float] = []
        for _ in range(self._plan.repeats):
            short = await self._batch(prompts, SHORT)
            long = await self._batch(prompts, SHORT + MORE)
            times.append((long - short) / MORE)
        # Of a difference neither the least nor the most is the best, so the middle one.
        found = sorted(times)[len(times) // 2]
        if found <= 0:
            return None
        return DecodePoint(batch=batch, context=context + SHORT + MORE // 2, ms=found * 1000)

    async def _batch(self, prompts: Sequence[list[int]], tokens: int) -> float:
        """The seconds that a batch takes from its first request to its last reply."""
        began = self._clock()
        body = {"input_ids": list(prompts), "sampling_params": _sampling(tokens)}
        await self._transport.send(self._place, "/generate", body)
        return self._clock() - began

    async def _generate(self, prompt: list[int], tokens: int) -> tuple[float, int]:
        """The seconds of one request, and the tokens of it that were cached."""
        began = self._clock()
        body = {"input_ids": prompt, "sampling_params": _sampling(tokens)}
        reply = await self._transport.ask(self._place, "/generate", body)
        seconds = self._clock() - began
        meta = reply.get("meta_info") if isinstance(reply, dict) else None
        told = meta.get("cached_tokens") if isinstance(meta, dict) else None
        return seconds, told if isinstance(told, int) else 0

    async def _prefill(self, prompt: list[int], length: int) -> None:
        """Puts a prompt into the cache."""
        if length:
            await self._generate(prompt, 1)

    def _drawn(self, count: int) -> list[int]:
        """Tokens of which no two draws share a beginning, but by chance."""
        vocabulary = self._info.get("vocab_size")
        last = vocabulary - 1 if isinstance(vocabulary, int) and vocabulary > _FIRST else _LAST
        return [self._dice.randrange(_FIRST, min(last, _LAST)) for _ in range(count)]


def _sampling(tokens: int) -> dict[str, Any]:
    return {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}
