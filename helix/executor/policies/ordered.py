"""Queues that keep ready calls in one order, and know nothing of what the engine holds."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from helix.executor.engines.base import Reply
from helix.executor.gates import Gates
from helix.executor.policies.base import Warmup

if TYPE_CHECKING:
    from helix.executor.calls import Call, Outcome

Key = Callable[["Call"], Any]


def plan_order(call: Call) -> Any:
    """Row before row, and step before step within a row."""
    return call.priority


class OrderedQueue:
    """The ready call with the smallest key goes next; of equal ones the one that was ready first.

    `gates`: of calls that begin alike one goes first, as the plan asks for.
    """

    def __init__(self, key: Key = plan_order, *, gates: bool = True) -> None:
        self._key = key
        self._heap: list[tuple[Any, int, Call]] = []
        self._serial = 0
        self._gates = Gates() if gates else None

    def put(self, call: Call) -> None:
        self._serial += 1
        heapq.heappush(self._heap, (self._key(call), self._serial, call))

    def take(self) -> Call | Warmup | None:
        while self._heap:
            call = heapq.heappop(self._heap)[2]
            if self._gates is None or not call.gates or not call.wanted() or self._gates.enter(call):
                return call
        return None

    def ended(self, call: Call, outcome: Outcome) -> None:
        self._let_go(call, failed=outcome.failure is not None)

    def dropped(self, call: Call) -> None:
        self._let_go(call, failed=True)

    def _let_go(self, call: Call, *, failed: bool) -> None:
        if self._gates is not None and call.gates:
            for held in self._gates.leave(call, failed=failed):
                self.put(held)

    def warmed(self, warmup: Warmup, reply: Reply | None) -> None:
        """Nothing: it makes none."""

    def row_began(self, row: object, rank: int) -> None:
        """Nothing: it knows calls only."""

    def row_ended(self, row: object) -> None:
        """Nothing: it knows calls only."""

    def drain(self) -> list[Call]:
        waiting = [entry[2] for entry in sorted(self._heap, key=lambda entry: entry[:2])]
        self._heap = []
        return waiting + ([] if self._gates is None else self._gates.give_back())
