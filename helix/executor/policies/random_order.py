"""Ready calls in no order: what a graph runner without a plan comes to. The seed makes it repeat.

`ready-random` is how LangGraph's runs are stood in for (as in arXiv 2603.16104): its nodes run as soon as they can, and
a router sends each call to the rank with the fewest calls. `random` leaves the rank to the engine.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from helix.executor.policies.base import BLOCK, CallQueue, EnginePlace, PolicyBase, Warmup
from helix.executor.policies.ordered import OrderedQueue

if TYPE_CHECKING:
    from helix.executor.calls import Call, Outcome


class Random(PolicyBase):
    """Ready calls in an order that the seed decides."""

    _base = "random"

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    @property
    def name(self) -> str:
        return f"{self._base}:{self._seed}"

    def rows(self, window: int) -> int:
        return max(window, BLOCK)

    def queue(self, place: EnginePlace) -> CallQueue:
        return OrderedQueue(self._key, gates=False)

    def _key(self, call: Call) -> Any:
        return blake2b(repr((self._seed, call.priority)).encode(), digest_size=8).digest()

    def describe(self) -> str:
        return "ready calls in no order"


class ReadyRandom(Random):
    """The same, each call to the rank with the fewest."""

    _base = "ready-random"

    def queue(self, place: EnginePlace) -> CallQueue:
        return _LeastQueue(self._key, place.ranks)

    def describe(self) -> str:
        return "ready calls in no order, each to the rank with the fewest calls"


class _LeastQueue(OrderedQueue):
    """Sends each call to the rank with the fewest in flight."""

    def __init__(self, key: Any, ranks: int) -> None:
        super().__init__(key, gates=False)
        self._running = [0] * ranks
        self._sent: dict[Call, int] = {}

    def take(self) -> Call | Warmup | None:
        job = super().take()
        if job is not None and not isinstance(job, Warmup):
            rank = min(range(len(self._running)), key=lambda each: (self._running[each], each))
            self._running[rank] += 1
            self._sent[job] = rank
            if len(self._running) > 1:
                job.rank = rank
        return job

    def ended(self, call: Call, outcome: Outcome) -> None:
        self.dropped(call)

    def dropped(self, call: Call) -> None:
        self._running[self._sent.pop(call)] -= 1
