"""Which waiting requests a pass of prefill takes: SGLang's budgets of tokens, of a chunk and of the KV cache."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from helix.executor.engines.sim.call import SimCall
from helix.executor.engines.sim.pool import Pool
from helix.executor.engines.sim.settings import SimSettings

# Taken; no room in the cache; no room in this pass.
Verdict = Literal["taken", "full", "later"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a pass computes of a prompt: `new` tokens behind `before` ones; `last`: the prompt is whole then."""

    call: SimCall
    before: int
    new: int
    last: bool


def left(call: SimCall, settings: SimSettings) -> int:
    """The tokens that a request is expected to generate yet, at most."""
    return min(max(call.most_new - call.done, 0), settings.clip)


class Admission:
    """One pass. `ratio` is the share of what running requests may generate that is kept free for them; `decoding` are
    the requests that the pass decodes beside (mixed chunks).
    """

    def __init__(
        self, pool: Pool, settings: SimSettings, running: Iterable[SimCall], ratio: float, decoding: int
    ) -> None:
        self._pool = pool
        self._settings = settings
        # Tokens of the cache that are spoken for: what running ones may take, and what this pass has taken.
        self._running = 0.0
        self._taken = decoding
        self._decoding = decoding
        self._input = settings.max_prefill - decoding
        self._chunk = None if settings.chunk is None else settings.chunk - decoding
        self.parts: list[Part] = []
        self.recount(running, ratio)

    def recount(self, running: Iterable[SimCall], ratio: float) -> None:
        """Counts again what running requests may take, after some of them have gone."""
        clip = self._settings.clip
        expected = 0
        for call in running:
            more = call.most_new - call.done
            expected += more if more < clip else clip
        self._running = expected * ratio

    def resume(self, call: SimCall) -> bool:
        """Goes on with the prompt that the last pass left in the middle; whether it is whole after this one."""
        new = call.fill - call.kv
        most = self._room(new)
        if most > 0:
            self._take(call, min(new, most), new <= most)
        return new <= most

    def add(self, call: SimCall) -> Verdict:
        """Takes a waiting request, or says why not."""
        settings, pool = self._settings, self._pool
        pool.attach(call)
        new = call.fill - call.kv
        needed = new + left(call, settings) + settings.page
        verdict: Verdict = "taken"
        most = new if self._chunk is None else self._chunk
        if needed >= self.total():
            verdict = "full"
        elif self.parts and self._ceil(new) >= self._input:
            verdict = "later"
        elif new > most:
            most = most // settings.page * settings.page
            if most <= 0:
                verdict = "later"
        if verdict != "taken":
            pool.release(call)
            return verdict
        self._take(call, min(new, most), new <= most)
        return "taken"

    def open(self) -> bool:
        """Whether the pass may take more."""
        return self._input > 0 and (self._chunk is None or self._chunk > 0)

    def _take(self, call: SimCall, new: int, last: bool) -> None:
        before = call.kv
        self._pool.grow(call, before + new)
        self._taken += (left(call, self._settings) if last else 0) + self._settings.page
        self._input -= self._ceil(new)
        if self._chunk is not None:
            self._chunk -= self._ceil(new)
        self.parts.append(Part(call=call, before=before, new=new, last=last))

    def _room(self, new: int) -> int:
        """The tokens of a prompt that is under way that this pass can compute: by chunk, and by the cache."""
        page = self._settings.page
        most = new if self._chunk is None else self._chunk
        most = min(most, (self._pool.available * page - self._decoding))
        return new if most >= new else most // page * page

    def total(self) -> float:
        """The tokens of the cache that nobody has and nobody is expected to need."""
        return self._pool.available * self._settings.page - self._running - self._taken

    def _ceil(self, tokens: int) -> int:
        return self._pool.pages(tokens) * self._settings.page
