"""Prefill and decoding on workers of their own, as SGLang's PD disaggregation has it.

A request waits until a worker that decodes has pages for its prompt; then a worker that prefills computes it, and the
KV goes over, part by part as it is computed. The tree is on the prefill side; there the pages stay locked until all of
them are over. What is generated is in no tree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from helix.executor.engines.sim.admission import Part
from helix.executor.engines.sim.call import SimCall
from helix.executor.engines.sim.channel import Channel
from helix.executor.engines.sim.settings import SimSettings
from helix.executor.engines.sim.timeline import TRANSFER_END
from helix.executor.engines.sim.worker import Worker


class DecodeWorker(Worker):
    """Keeps pages for requests in the order in which they ask, and decodes. When pages run out, requests leave the GPU
    with all they have, and come back when there is room.
    """

    def __init__(self, number: int, settings: SimSettings, *given: Any, **more: Any) -> None:
        super().__init__(number, replace(settings, host=0, prefix_cache=False), *given, **more)
        # Who asks for pages, with the worker that is told; and who has them and is not here yet.
        self._asking: deque[tuple[SimCall, PrefillWorker]] = deque()
        self._coming: dict[int, SimCall] = {}
        self._here: dict[int, SimCall] = {}
        # Those that came during a pass: the next one takes them in.
        self._joining: list[SimCall] = []
        # Retracted requests on their way back, and what they hold there.
        self._to_gpu = Channel(settings.host_latency_us, settings.host_load_gbs)
        self._from_gpu = Channel(settings.host_latency_us, settings.host_write_gbs)
        self._away: dict[int, int] = {}
        self._free_at = 0

    @property
    def load(self) -> int:
        """Requests that run, wait, or have pages here."""
        return super().load + len(self._asking) + len(self._coming) + len(self._joining)

    @property
    def transfers(self) -> int:
        return len(self._coming)

    def ask(self, call: SimCall, source: PrefillWorker, now: int) -> None:
        """Takes a request that wants pages; its worker hears when it has them."""
        self._asking.append((call, source))
        if len(self._asking) == 1:
            self._cut(now)
            self._give(now)

    def _give(self, now: int) -> None:
        """Keeps pages for those that ask, first come first, while there is room; retracted ones go before."""
        settings, pool = self.settings, self.pool
        while self.waiting or self._asking:
            call = self.waiting[0] if self.waiting else self._asking[0][0]
            here = len(self.running) + len(self._coming) + len(self._joining)
            tokens = self._away[call.serial] if self.waiting else call.prompt
            # Passes under way take their pages at their end.
            growth = sum(pool.growth(each, each.kv + len(self._ends)) for each in self.running) if self._ends else 0
            free = (pool.available - growth) * pool.page - settings.pd_reserve * here
            if here and (here >= settings.max_running or free < pool.pages(tokens) * pool.page + settings.pd_reserve):
                return
            pool.reserve(call, tokens)
            self._coming[call.serial] = call
            if self.waiting:
                self.waiting.pop(0)
                self._come_back(call, tokens, now)
            else:
                call.seat = self.number
                source = self._asking.popleft()[1]
                self._log.add(now, self.number, "reserve", call.serial, call.reserved)
                source.reserved(call, now)

    def take(self, call: SimCall, tokens: int, now: int) -> None:
        """A request has come, with the KV of so many tokens."""
        del self._coming[call.serial]
        self._here[call.serial] = call
        self.pool.seat(call, tokens)
        self._log.add(now, self.number, "moved", call.serial, tokens)
        self._joining.append(call)
        if not self._busy:
            self._start_later(now)
        else:
            self._cut(now)

    def has(self, call: SimCall) -> bool:
        """Whether a request has come here, and has not ended."""
        return call.serial in self._here

    def cancel(self, call: SimCall, now: int) -> None:
        """Forgets a request that has not come."""
        if self._coming.pop(call.serial, None) is not None:
            self.pool.cancel(call)
        else:
            self._asking = deque(each for each in self._asking if each[0] is not call)
        self._cut(now)
        self._give(now)
        if not self._busy and self.running:
            self._start_later(now)

    def abort(self, call: SimCall, now: int) -> None:
        call.aborted = True
        if call in self.waiting:
            self.waiting.remove(call)
            del self._away[call.serial]
            self._end(call, now)
            self._cut(now)
            self._give(now)
        else:
            self._aborting = True
            self._cut(now)

    # --- passes ---

    def _step(self, now: int) -> None:
        self._started = now
        self._ends = []
        joining, self._joining = self._joining, []
        for call in joining:
            if call.aborted:
                self._leave(call, now)
            else:
                self.running.append(call)
        self._give(now)
        if self.running:
            self._decode(now)
        else:
            self._rest()

    def _begin(self, now: int) -> int:
        return max(now, self._free_at)

    def _retract(self, call: SimCall, now: int, why: str) -> None:
        """Takes a request with its KV off the GPU; the next pass waits for that."""
        self._away[call.serial] = call.kv
        self._free_at = self._from_gpu.send(now, call.kv * self.settings.kv_bytes)
        super()._retract(call, now, why)

    def _come_back(self, call: SimCall, tokens: int, now: int) -> None:
        self._log.add(now, self.number, "load", tokens)
        self.figures.loaded += tokens

        def back(time: int) -> None:
            del self._away[call.serial]
            self.take(call, tokens, time)

        self._timeline.at(
            self._to_gpu.send(max(now, self._free_at), tokens * self.settings.kv_bytes), TRANSFER_END, back, self.number
        )

    def _finish(self, now: int) -> None:
        super()._finish(now)
        self._give(now)

    def _end(self, call: SimCall, now: int) -> None:
        del self._here[call.serial]
        super()._end(call, now)


class PrefillWorker(Worker):
    """Computes prompts and sends them on. Requests that want one token at most end here."""

    def __init__(
        self, number: int, settings: SimSettings, *given: Any, decoders: Sequence[DecodeWorker], **more: Any
    ) -> None:
        # Nothing is generated here but the first token.
        super().__init__(number, replace(settings, clip=1), *given, **more)
        self._decoders = decoders
        self._link = Channel(settings.pd_latency_us, settings.pd_gbs)
        # By the serials of requests: which worker they wait for to have pages, and which of them are on their way.
        self._unreserved: dict[int, int] = {}
        self._moving: set[int] = set()

    @property
    def load(self) -> int:
        """Requests that wait, are computed, or are on their way from here."""
        return super().load + len(self._unreserved) + len(self._moving)

    @property
    def transfers(self) -> int:
        return super().transfers + len(self._moving)

    def arrive(self, call: SimCall, now: int) -> None:
        if call.target < 2:
            super().arrive(call, now)
            return
        call.rank, call.arrived = self.number, now
        self._log.add(now, self.number, "arrive", call.serial, call.prompt, call.target)
        decoder = min(self._decoders, key=lambda each: (each.load, each.number))
        self._unreserved[call.serial] = decoder.number
        decoder.ask(call, self, now)

    def reserved(self, call: SimCall, now: int) -> None:
        """A request has its pages on a worker that decodes: its prompt can be computed."""
        del self._unreserved[call.serial]
        self.waiting.append(call)
        if not self._busy:
            self._start_later(now)

    def abort(self, call: SimCall, now: int) -> None:
        decoder = None if call.seat is None else self._decoder(call)
        if call.serial in self._unreserved:
            call.aborted = True
            call.seat = self._unreserved.pop(call.serial)
            self._end(call, now)
        elif decoder is not None and decoder.has(call):
            decoder.abort(call, now)
        else:
            # One that is on its way ends where it arrives.
            super().abort(call, now)

    def _computed(self, part: Part, now: int) -> None:
        call = part.call
        if call.target < 2 or call.aborted:
            super()._computed(part, now)
            return
        tokens = call.kv - call.sent
        call.sent = call.kv
        self.figures.moved += tokens
        done = self._link.send(now, tokens * self.settings.kv_bytes)
        self._log.add(now, self.number, "move", call.serial, tokens)
        if part.last:
            self._moving.add(call.serial)
            self._timeline.at(done, TRANSFER_END, lambda time: self._moved(call, time), self.number)

    def _moved(self, call: SimCall, now: int) -> None:
        """All of a prompt is on the worker that decodes."""
        self._moving.discard(call.serial)
        self.pool.release(call)
        if call.aborted:
            self._end(call, now)
        else:
            self._decoder(call).take(call, call.prompt, now)
        self._again(now)

    def _end(self, call: SimCall, now: int) -> None:
        if call.seat is not None:
            self._decoder(call).cancel(call, now)
        super()._end(call, now)

    def _decoder(self, call: SimCall) -> DecodeWorker:
        return next(each for each in self._decoders if each.number == call.seat)
