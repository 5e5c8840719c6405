"""The simulated engine: SGLang's scheduler and cache, with a cost model in place of a GPU.

On a virtual loop (`run_virtual`) it takes no time but what it takes to compute; on an ordinary one it takes the time
that it simulates. `close` ends a simulation: what it came to stays readable, and a second `open` starts anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from helix.errors import EngineError
from helix.executor.engines.base import Capabilities, FinishReason, Hint, Load, Reply, Request, above
from helix.executor.engines.failures import status_error
from helix.executor.engines.sim.call import SimCall
from helix.executor.engines.sim.eviction import steps
from helix.executor.engines.sim.log import EventLog, Figures
from helix.executor.engines.sim.loop import VirtualLoop
from helix.executor.engines.sim.overlap import OverlapWorker
from helix.executor.engines.sim.pd import DecodeWorker, PrefillWorker
from helix.executor.engines.sim.prompts import FOUR_BYTES, WIDTH, Spelling
from helix.executor.engines.sim.replies import Responder, reply_to
from helix.executor.engines.sim.router import Router
from helix.executor.engines.sim.settings import SimSettings
from helix.executor.engines.sim.timeline import ABORT, ARRIVAL, SECOND, Timeline
from helix.executor.engines.sim.vllm import VllmWorker
from helix.executor.engines.sim.watch import Watcher
from helix.executor.engines.sim.worker import TOGETHER, Worker
from helix.simulation.cost import CostModel


class SimEngine:
    """An engine of `settings.ranks` workers. `answer` gives replies instead of drawing them. `keep_events` keeps the
    log's lines, else only their digest. `spelling` says what the tokens of texts are.
    """

    # Who runs it and can choose the loop takes this one.
    loop_factory = VirtualLoop

    def __init__(
        self,
        settings: SimSettings,
        cost: CostModel,
        *,
        model: str = "simulated",
        name: str | None = None,
        answer: Responder | None = None,
        keep_events: bool = False,
        together: int = TOGETHER,
        watcher: Watcher | None = None,
        spelling: Spelling = FOUR_BYTES,
    ) -> None:
        self.settings = settings
        self.cost = cost
        self._model = model
        self._name = name or f"sim:{cost.name}"
        self._answer = answer
        self._keep_events = keep_events
        self._together = together
        self._watcher = watcher
        self._spelling = spelling
        self.log = EventLog(keep=keep_events)
        self.workers: tuple[Worker, ...] = ()
        self._timeline: Timeline | None = None
        self._router: Router | None = None
        self._calls = 0
        self._pending: dict[int, asyncio.Future[None]] = {}

    def __repr__(self) -> str:
        return f"SimEngine({self._name!r}, ranks={self.settings.ranks}, kv_tokens={self.settings.kv_tokens})"

    @property
    def name(self) -> str:
        return self._name

    @property
    def figures(self) -> Figures:
        """What all workers did, summed up."""
        total = Figures()
        for worker in self.workers:
            total.add(worker.figures)
        return total

    @property
    def evicted_tokens(self) -> int:
        """Tokens that were evicted, on all workers."""
        return sum(worker.pool.tree.evicted * worker.pool.page for worker in self.workers)

    async def open(self, *, concurrency: int) -> Capabilities:
        """Starts the simulation at its time 0, with empty caches."""
        settings = self.settings
        if self._timeline is not None:
            self._timeline.close()
        self._timeline = timeline = Timeline(asyncio.get_running_loop(), self._broke)
        self.log = EventLog(keep=self._keep_events)
        self.workers = self._made(timeline)
        self._router = Router(settings, self.workers[: settings.prefill_ranks], WIDTH)
        self._calls = 0
        return Capabilities(
            max_context=settings.longest,
            schema_decoding=True,
            reports_cached_tokens=True,
            counts_tokens=True,
            models=(self._model,),
            model=self._model,
            revision=f"simulated {self._revision()}",
            ranks=settings.prefill_ranks,
            decode_ranks=settings.decode_ranks,
            kv_tokens=settings.kv_tokens,
            page=settings.page,
            max_running=self._at_once(),
            prefix_cache=settings.prefix_cache,
            warms=settings.prefix_cache,
            keeps=settings.keeps,
            pass_tokens=self.cost.pass_tokens,
            mixes=settings.mixes,
        )

    def _made(self, timeline: Timeline) -> tuple[Worker, ...]:
        """The workers; those that only decode are the last ones."""
        settings = self.settings
        given: tuple[Any, ...] = settings, self.cost, timeline, self.log, WIDTH
        more: dict[str, Any] = {"together": self._together, "watcher": self._watcher}
        if settings.dialect == "vllm":
            return tuple(VllmWorker(number, *given, **more) for number in range(settings.ranks))
        if not settings.decode_ranks:
            kind = Worker if settings.overlap == "off" else OverlapWorker
            return tuple(kind(number, *given, **more) for number in range(settings.ranks))
        first = settings.prefill_ranks
        decoders = tuple(DecodeWorker(number, *given, **more) for number in range(first, settings.ranks))
        more["decoders"] = decoders
        return (*(PrefillWorker(number, *given, **more) for number in range(first)), *decoders)

    def _at_once(self) -> int:
        """The requests that run at once, for each rank that requests are sent to."""
        settings = self.settings
        decoding = settings.decode_ranks or settings.ranks
        return max(1, settings.max_running * decoding // settings.prefill_ranks)

    def _revision(self) -> str:
        """A digest of what decides replies."""
        settings = self.settings
        lengths = settings.reply_tokens, sorted(settings.step_tokens.items()), settings.longest
        return blake2b(repr((settings.seed, lengths)).encode(), digest_size=8).hexdigest()

    async def generate(self, request: Request) -> Reply:
        """One call. Cancelled, it is aborted at the end of the pass that is under way."""
        prompt = self._spelling.prompt(request.messages)
        tokens = len(prompt) // WIDTH
        longest = self.settings.longest
        if tokens >= longest:
            raise status_error(
                400, f"prompt too long: needs {tokens} tokens, has {longest - 1}", kind="prompt.too_long"
            )
        most = min(longest - tokens, request.max_tokens or longest)
        model = request.model or self._model
        text, reply, count, finish = reply_to(request, model, prompt, self.settings, most, self._answer, self._spelling)
        call = self._call(request, prompt + reply, tokens, count, most)
        await self._done(call, request.rank)
        return self._reply(call, text, finish)

    async def warm(self, request: Request) -> Reply:
        """Computes the beginning of prompts; nothing is generated."""
        text = self._spelling.beginning(request.messages)
        tokens = len(text) // WIDTH
        if not tokens:
            raise EngineError("a warm-up of no token")
        if tokens >= self.settings.longest:
            raise status_error(400, f"prompt too long: needs {tokens} tokens", kind="prompt.too_long")
        if self.settings.keeps:
            request = replace(request, priority=above(request.priority))
        call = self._call(request, text, tokens, 0, 0)
        await self._done(call, request.rank)
        return self._reply(call, "", "length")

    async def load(self) -> tuple[Load, ...]:
        """What each worker is doing now."""
        if self._timeline is not None:
            for worker in self.workers:
                worker.catch_up(self._timeline.now())
        return tuple(
            Load(
                rank=worker.number,
                running=worker.load - len(worker.waiting),
                waiting=len(worker.waiting),
                held=1 - worker.pool.available / worker.pool.capacity,
            )
            for worker in self.workers[: self.settings.prefill_ranks]
        )

    async def prefetch(self, request: Request) -> int:
        """Has a rank load what its host tier holds of the beginning of prompts; gives the tokens that are on their way.

        Without a host tier, without room, or where it is on the GPU already, that is none.
        """
        if self._timeline is None:
            raise EngineError(f"{self._name} is not open", retryable=True)
        rank = self._known(request.rank)
        text = self._spelling.beginning(request.messages)
        return self.workers[rank or 0].prefetch(text, request.model or self._model, self._timeline.now())

    def take_hints(self) -> None:
        """Has the caches evict what is used again last, as hints tell it; right after `open`."""
        for worker in self.workers:
            worker.pool.tree.evict_by(steps)

    def hint(self, hints: Iterable[Hint]) -> None:
        """Tells in how many steps beginnings of prompts are used next. Takes the place of the hints before.

        What a host tier holds of those that come now or in the next step is loaded ahead, those that come first first.
        """
        if self._timeline is None:
            return
        told = [(self._spelling.beginning(each.messages), each.model or self._model, each.steps) for each in hints]
        soon = sorted((each for each in told if each[2] <= 1), key=lambda each: each[2])
        now = self._timeline.now()
        for worker in self.workers:
            worker.catch_up(now)
            worker.pool.tree.hint(told)
            for text, space, _ in soon:
                worker.prefetch(text, space, now)

    async def count_tokens(self, request: Request) -> int:
        """The prompt's tokens, its headers included."""
        return len(self._spelling.prompt(request.messages)) // WIDTH

    async def close(self) -> None:
        """Ends the simulation."""
        if self._timeline is not None:
            self._timeline.close()
            self._timeline = None

    # --- a call on its way ---

    def _call(self, request: Request, text: str, prompt: int, target: int, most: int) -> SimCall:
        self._calls += 1
        routing = next((str(value) for name, value in request.extra if name == "routing_key"), None)
        return SimCall(
            self._calls,
            text=text,
            width=WIDTH,
            space=request.model or self._model,
            prompt=prompt,
            target=target,
            most_new=most,
            priority=request.priority,
            routing=routing,
            on_end=self._ended,
        )

    def _known(self, rank: int | None) -> int | None:
        """A rank that requests can be sent to. Raises EngineError."""
        ranks = self.settings.prefill_ranks
        if rank is not None and not 0 <= rank < ranks:
            raise EngineError(f"{self._name} has {ranks} ranks, from 0; found rank {rank}")
        return rank

    async def _done(self, call: SimCall, rank: int | None) -> None:
        """Sends a call to its worker and waits for its end."""
        timeline, router = self._timeline, self._router
        if timeline is None or router is None:
            raise EngineError(f"{self._name} is not open", retryable=True)
        self._known(rank)
        future = self._pending[call.serial] = asyncio.get_running_loop().create_future()
        worker: Worker | None = None

        def arrive(now: int) -> None:
            nonlocal worker
            if not call.aborted:
                worker = router.pick(call) if rank is None else self.workers[rank]
                worker.arrive(call, now)

        def abort(now: int) -> None:
            if worker is not None and call.ended is None:
                worker.abort(call, now)

        timeline.at(timeline.now() + round(self.settings.request_ms * SECOND / 1000), ARRIVAL, arrive)
        try:
            await future
        except asyncio.CancelledError:
            if self._timeline is timeline:
                if worker is None:
                    call.aborted = True
                else:
                    timeline.at(timeline.now(), ABORT, abort)
            raise
        finally:
            self._pending.pop(call.serial, None)

    def _ended(self, call: SimCall) -> None:
        future = self._pending.get(call.serial)
        if future is not None and not future.done():
            future.set_result(None)

    def _broke(self, error: Exception) -> None:
        """An error of the simulation itself ends every call."""
        for future in self._pending.values():
            if not future.done():
                future.set_exception(error)

    def _reply(self, call: SimCall, text: str, finish: FinishReason) -> Reply:
        return Reply(
            text=text,
            finish=finish,
            prompt_tokens=call.prompt,
            completion_tokens=call.target,
            cached_tokens=call.cached or 0,
            rank=call.rank,
            queue_seconds=max(0, (call.admitted or call.arrived) - call.arrived) / SECOND,
        )
