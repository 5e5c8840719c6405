"""The policies that Helix is compared with, on the same executor: what other systems do, without what they lack.

None of them looks at what the engine holds but `lspf`, and none makes warm-ups.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from helix.executor.engines.base import Reply
from helix.executor.policies.base import CallQueue, EnginePlace, Warmup
from helix.executor.policies.ordered import OrderedQueue
from helix.executor.policies.prefix_cache import Node, PrefixCache, prompt_text

if TYPE_CHECKING:
    from helix.executor.calls import Call, Outcome

# The rows that a policy works through step by step: all of a small table, and no more memory than that for a large one.
BLOCK = 4096
# SGLang's own limit for ordering by the longest match.
LOOKED_AT = 128


class Fcfs:
    """First come, first served: calls go in the order in which they are ready."""

    name = "fcfs"

    def rows(self, window: int) -> int:
        return window

    def queue(self, place: EnginePlace) -> CallQueue:
        return OrderedQueue(lambda call: 0, gates=False)

    def describe(self) -> str:
        return "calls go in the order in which they are ready"


class QueryWise:
    """Row by row: so many rows at once, each with all of its calls that are ready (published with one, arXiv
    2603.16104).
    """

    def __init__(self, rows: int = 1) -> None:
        self._rows = rows

    @property
    def name(self) -> str:
        return f"query-wise:{self._rows}"

    def rows(self, window: int) -> int:
        return self._rows

    def queue(self, place: EnginePlace) -> CallQueue:
        return OrderedQueue(gates=False)

    def describe(self) -> str:
        return f"{self._rows} {'row' if self._rows == 1 else 'rows'} at once, each to its end"


class OperatorWise:
    """Step by step: one step for all rows, to its last call, before the next one (as arXiv 2603.16104 has it)."""

    name = "operator-wise"

    def rows(self, window: int) -> int:
        return max(window, BLOCK)

    def queue(self, place: EnginePlace) -> CallQueue:
        return _StepByStep()

    def describe(self) -> str:
        return f"one step for all rows (of {BLOCK:,}), then the next one"


class _StepByStep(OrderedQueue):
    """One step at a time: another one's calls wait until those in flight have ended."""

    def __init__(self) -> None:
        super().__init__(_by_step, gates=False)
        self._step: tuple[int, ...] | None = None
        self._running = 0

    def take(self) -> Call | Warmup | None:
        if self._heap and self._running and _step(self._heap[0][2]) != self._step:
            return None
        job = super().take()
        if job is not None and not isinstance(job, Warmup):
            self._step = _step(job)
            self._running += 1
        return job

    def ended(self, call: Call, outcome: Outcome) -> None:
        self._running -= 1

    def dropped(self, call: Call) -> None:
        self._running -= 1


def _step(call: Call) -> tuple[int, ...]:
    """The number of the call's step in the plan."""
    return (call.priority[-2],)


def _by_step(call: Call) -> Any:
    return (_step(call), call.priority)


class Random:
    """Ready calls in no order: what a graph runner without a plan comes to. The seed makes it repeat."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    @property
    def name(self) -> str:
        return f"random:{self._seed}"

    def rows(self, window: int) -> int:
        return max(window, BLOCK)

    def queue(self, place: EnginePlace) -> CallQueue:
        return OrderedQueue(self._key, gates=False)

    def _key(self, call: Call) -> Any:
        return blake2b(repr((self._seed, call.priority)).encode(), digest_size=8).digest()

    def describe(self) -> str:
        return "ready calls in no order"


class LongestPrefixFirst:
    """The ready call of which most is in the cache goes next (SGLang's own order, arXiv 2312.07104, by the client)."""

    name = "lspf"

    def rows(self, window: int) -> int:
        return max(window, BLOCK)

    def queue(self, place: EnginePlace) -> CallQueue:
        return _LongestFirst(place)

    def describe(self) -> str:
        return "the ready call of which most is in the cache goes next"


class _LongestFirst:
    def __init__(self, place: EnginePlace) -> None:
        tokens = place.capabilities.kv_tokens
        # About four characters make a token; of several ranks it cannot tell which holds what.
        self._cache = PrefixCache(None if tokens is None else 4.0 * tokens)
        self._waiting: dict[Call, str | None] = {}
        self._nodes: dict[Call, Node] = {}

    def put(self, call: Call) -> None:
        request = call.request
        self._waiting[call] = None if request is None else prompt_text(request.model or "", request.messages)

    def take(self) -> Call | Warmup | None:
        best: Call | None = None
        most = -1
        for number, (call, text) in enumerate(self._waiting.items()):
            if number >= LOOKED_AT:
                break
            found = 0 if text is None else self._cache.matched(text)
            if found > most:
                best, most = call, found
        if best is None:
            return None
        text = self._waiting.pop(best)
        if text is not None:
            node = self._nodes[best] = self._cache.add(text)
            self._cache.pin(node)
            self._cache.computed(node)
        return best

    def ended(self, call: Call, outcome: Outcome) -> None:
        self.dropped(call)

    def dropped(self, call: Call) -> None:
        node = self._nodes.pop(call, None)
        if node is not None:
            self._cache.unpin(node)
            self._cache.drop(node)

    def warmed(self, warmup: Warmup, reply: Reply | None) -> None:
        """Nothing: it makes none."""

    def row_began(self, row: object, rank: int) -> None:
        """Nothing: it knows calls only."""

    def row_ended(self, row: object) -> None:
        """Nothing: it knows calls only."""

    def drain(self) -> list[Call]:
        waiting = sorted(self._waiting, key=lambda call: call.priority)
        self._waiting.clear()
        return waiting
