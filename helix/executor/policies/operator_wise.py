"""Step by step (OpWise of arXiv 2603.16104), in two forms.

`barrier`: one step for all rows, to its last call, before the next one. `chain`: rows run beside one another, and
within a row one step after the other, also where several could run at once: what a program comes to that awaits each
step (AgentScope in that paper's comparison).
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

from helix.executor.policies.base import BLOCK, CallQueue, EnginePlace, PolicyBase, Warmup
from helix.executor.policies.ordered import OrderedQueue

if TYPE_CHECKING:
    from helix.executor.calls import Call, Outcome

BARRIER, CHAIN = "barrier", "chain"


class OperatorWise(PolicyBase):
    """See the module."""

    def __init__(self, form: str = BARRIER) -> None:
        self._form = form

    @property
    def name(self) -> str:
        return "operator-wise" if self._form == BARRIER else f"operator-wise:{self._form}"

    def rows(self, window: int) -> int:
        return max(window, BLOCK)

    def queue(self, place: EnginePlace) -> CallQueue:
        return _Barrier() if self._form == BARRIER else _Chain()

    def describe(self) -> str:
        if self._form == BARRIER:
            return f"one step for all rows (of {BLOCK:,}), then the next one"
        return f"rows beside one another (of {BLOCK:,}), one step of each at a time"


def _step(call: Call) -> int:
    """The number of the call's step in the plan."""
    return call.priority[-2]


class _Barrier(OrderedQueue):
    """One step at a time: another one's calls wait until those in flight have ended."""

    def __init__(self) -> None:
        super().__init__(lambda call: (_step(call), call.priority), gates=False)
        self._step: int | None = None
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


class _Row:
    """A row at work: the step whose calls run, how many of them, and the calls that wait, the first step first."""

    __slots__ = ("running", "step", "waiting")

    def __init__(self) -> None:
        self.step = -1
        self.running = 0
        self.waiting: list[tuple[int, int, Call]] = []


class _Chain(OrderedQueue):
    """First come, first served, of each row one step at a time."""

    def __init__(self) -> None:
        super().__init__(lambda call: 0, gates=False)
        self._rows: dict[Any, _Row] = {}
        self._held = 0

    def put(self, call: Call) -> None:
        row = self._rows.setdefault(call.instance, _Row())
        if row.running and row.step != _step(call):
            self._held += 1
            heapq.heappush(row.waiting, (_step(call), self._held, call))
            return
        row.step = _step(call)
        row.running += 1
        super().put(call)

    def ended(self, call: Call, outcome: Outcome) -> None:
        self.dropped(call)

    def dropped(self, call: Call) -> None:
        row = self._rows.get(call.instance)
        if row is None:
            return
        row.running -= 1
        if not row.running and row.waiting:
            row.step = row.waiting[0][0]
            while row.waiting and row.waiting[0][0] == row.step:
                row.running += 1
                super().put(heapq.heappop(row.waiting)[2])

    def row_ended(self, row: object) -> None:
        self._rows.pop(row, None)

    def drain(self) -> list[Call]:
        held = [entry[2] for row in self._rows.values() for entry in row.waiting]
        for row in self._rows.values():
            row.waiting = []
        return super().drain() + sorted(held, key=lambda call: call.priority)
