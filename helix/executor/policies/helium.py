"""Helium's release (arXiv 2603.16104) of the order that its planner makes, in the form of its code or of its paper.

The rows are cut into as many equal parts as there are workers, one behind the other, and each worker makes all calls of
its part. What no row changes is computed on each worker first; then the calls that are ready go in the order of the
plan, as long as no more than ten wait on the worker.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from helix.executor.engines.base import Capabilities, Load, Message, Reply
from helix.executor.policies.base import BLOCK, CallQueue, EnginePlace, PolicyBase, Warmup
from helix.executor.policies.programs import Clock
from helix.physical import PhysicalPlan, Planner, WarmPrefix

if TYPE_CHECKING:
    from helix.executor.calls import Call, Outcome

CODE, PAPER = "code", "paper"
# Calls that may wait on a worker.
WAITING = 10
# How often it is looked how many do, in seconds.
LOOK = 0.02


class Helium(PolicyBase):
    """See the module."""

    def __init__(self, form: str = CODE) -> None:
        self._form = form
        self.physical: PhysicalPlan | None = None
        self.planner: Planner | None = "helium-paper" if form == PAPER else "helium-code"

    @property
    def name(self) -> str:
        return f"helium:{self._form}"

    def rows(self, window: int) -> int:
        return max(window, BLOCK)

    def slots(self, capabilities: Capabilities, usual: int) -> int:
        return max(usual, BLOCK)

    def follow(self, physical: PhysicalPlan, calls: int) -> bool:
        self.physical = physical
        return True

    def queue(self, place: EnginePlace) -> CallQueue:
        return HeliumQueue(self, place)

    def describe(self) -> str:
        return f"Helium's order of the steps, for all rows of a worker one phase after the other (its {self._form})"


class HeliumQueue:
    """The calls of each worker in the order of the plan."""

    def __init__(self, policy: Helium, place: EnginePlace) -> None:
        self._policy = policy
        self._warms = place.warm is not None
        self._load = place.load
        ranks = place.ranks
        self._slots = max(1, place.slots // ranks)
        self._heaps: list[list[tuple[tuple[int, ...], int, Call]]] = [[] for _ in range(ranks)]
        self._put = 0
        self._running = [0] * ranks
        self._sent: dict[Call, int] = {}
        # What is thought to wait on each worker, at most.
        self._waits = [0] * ranks
        self._clock = Clock(LOOK, self.look, lambda: any(self._heaps), place.load)
        self._wake: Callable[[], None] = lambda: None
        # The beginnings that are still to be computed, each with its worker, and how many are being computed.
        self._ahead: list[tuple[int, WarmPrefix]] | None = None if self._warms else []
        self._done: set[tuple[int, int]] = set()
        self._warming: dict[Warmup, tuple[int, int]] = {}

    def attach(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def put(self, call: Call) -> None:
        self._put += 1
        heapq.heappush(self._heaps[self._rank_of(call)], (call.priority, self._put, call))

    def _rank_of(self, call: Call) -> int:
        """Whose part of the rows a call's row is in."""
        ranks = len(self._heaps)
        physical = self._policy.physical
        if ranks == 1:
            return 0
        rows = max(1, round(physical.rows)) if physical is not None else 1
        sequence = call.priority[2] if len(call.priority) > 2 else 0
        return min(ranks - 1, sequence * ranks // rows)

    def look(self, load: tuple[Load, ...]) -> None:
        """Takes note of how many calls wait on each worker."""
        for each in load:
            if 0 <= each.rank < len(self._waits):
                self._waits[each.rank] = each.waiting
        self._wake()

    def take(self) -> Call | Warmup | None:
        if not any(self._heaps):
            return None
        if self._ahead is None:
            physical = self._policy.physical
            warm = () if physical is None else physical.warm
            self._ahead = [(rank, prefix) for prefix in warm for rank in range(len(self._heaps))]
        if self._ahead or self._warming:
            return self._next_warmup()
        for rank in sorted(range(len(self._heaps)), key=lambda each: (self._running[each], each)):
            if self._heaps[rank] and self._may_send(rank):
                call = heapq.heappop(self._heaps[rank])[2]
                self._running[rank] += 1
                self._waits[rank] += 1
                self._sent[call] = rank
                if len(self._heaps) > 1:
                    call.rank = rank
                return call
        self._clock.start()
        return None

    def _may_send(self, rank: int) -> bool:
        return self._waits[rank] <= WAITING if self._load is not None else self._running[rank] < self._slots

    def _next_warmup(self) -> Warmup | None:
        """The next beginning whose shorter one is there."""
        physical = self._policy.physical
        assert physical is not None
        assert self._ahead is not None
        for at, (rank, prefix) in enumerate(self._ahead):
            if prefix.after is None or (rank, prefix.after) in self._done:
                del self._ahead[at]
                call = self._like(prefix)
                assert call.request is not None
                messages = tuple(Message(role=role, content=text) for role, text in prefix.messages)
                number = rank if len(self._heaps) > 1 else None
                warmup = Warmup(replace(call.request, messages=messages, schema=None, rank=number), call, rank)
                self._warming[warmup] = (rank, physical.warm.index(prefix))
                return warmup
        return None

    def _like(self, prefix: WarmPrefix) -> Call:
        """A call that waits: one that begins so, where there is one."""
        waiting = [entry[2] for heap in self._heaps for entry in heap]
        return next((call for call in waiting if call.node == prefix.node), waiting[0])

    def warmed(self, warmup: Warmup, reply: Reply | None) -> None:
        self._done.add(self._warming.pop(warmup))

    def ended(self, call: Call, outcome: Outcome) -> None:
        self.dropped(call)

    def dropped(self, call: Call) -> None:
        self._running[self._sent.pop(call)] -= 1

    def row_began(self, row: object, rank: int) -> None:
        """Nothing: rows belong to workers by their number."""

    def row_ended(self, row: object) -> None:
        """Nothing: it knows calls only."""

    def drain(self) -> list[Call]:
        waiting = sorted(entry for heap in self._heaps for entry in heap)
        self._heaps = [[] for _ in self._heaps]
        return [call for _, _, call in waiting]
