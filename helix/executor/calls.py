"""Calls waiting and calls in flight: bounded concurrency, one order of release, equal calls made once.

The dispatcher holds a fixed number of workers for each lane. A ready call waits in a heap under its priority, row
before row and step before step within a row, and goes to the next free worker.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Protocol

from helix.executor.gates import Gate, Gates
from helix.executor.memo import Memo
from helix.executor.records import OpenRecord, Recorder
from helix.executor.values import Failure, Order

Priority = tuple[int, ...]
Settle = Callable[["Outcome"], None]
# Engines that answer without waiting would keep a worker busy for good: it lets others run after so many calls.
_YIELD_EVERY = 32


class Outcome:
    """How a call ended: the text of its reply, or a failure.

    `merged` says that an equal call was made instead, `fetched` that it was made before this run.
    """

    __slots__ = ("failure", "fetched", "merged", "text")

    def __init__(
        self, text: str | None, failure: Failure | None = None, *, merged: bool = False, fetched: bool = False
    ) -> None:
        self.text = text
        self.failure = failure
        self.merged = merged
        self.fetched = fetched


class Call:
    """One call: `make` performs it, attempts and all; `settle` takes its outcome, also where an equal call was made.

    Neither may hold the call itself: what holds itself is freed late, and there are many calls.

    `key` is None for a call that shares nothing. `lane` bounds how many calls of a kind run at once. `wanted` says
    whether somebody still needs the outcome when the call's turn comes. `gates` hold it back while another one that
    begins like it goes first. `row` is the input row that it is for. `record` is open while the call is made, where
    records are kept.
    """

    __slots__ = (
        "gates",
        "key",
        "lane",
        "make",
        "order",
        "priority",
        "record",
        "row",
        "settle",
        "step",
        "submitted",
        "wanted",
    )

    def __init__(
        self,
        *,
        step: str,
        order: Order,
        priority: Priority,
        key: bytes | None,
        lane: str,
        make: Callable[[Call], Awaitable[Outcome]],
        settle: Settle,
        wanted: Callable[[], bool],
        gates: tuple[Gate, ...] = (),
        row: int = 0,
    ) -> None:
        self.gates = gates
        self.row = row
        self.submitted = 0.0
        self.record: OpenRecord | None = None
        self.step = step
        self.order = order
        self.priority = priority
        self.key = key
        self.lane = lane
        self.make = make
        self.settle = settle
        self.wanted = wanted


class Known(Protocol):
    """Outcomes from before this run, of the run that it resumes or of a result store, and where new ones are kept."""

    def find(self, call: Call) -> Outcome | None:
        """The outcome of an equal call made before; asked once, when the call is ready."""

    async def keep(self, call: Call, outcome: Outcome) -> None:
        """Keeps the outcome of a call that was made. It counts as done once this returns: then it is durable."""


class Lane:
    """The workers of one kind of call, and the calls that wait for them."""

    __slots__ = ("free", "heap", "workers")

    def __init__(self) -> None:
        self.heap: list[tuple[Priority, int, Call]] = []
        self.free: deque[asyncio.Future[Call]] = deque()
        self.workers: list[asyncio.Task[None]] = []


class Dispatcher:
    """Releases calls to workers. `close` says why no further call is to be made; those in flight end by themselves.

    `sizes` gives lanes their number of workers; a lane that is not named there has as many as the lane `""`.
    """

    def __init__(self, sizes: dict[str, int], *, merge: bool = True, known: Known | None = None) -> None:
        self._sizes = sizes
        self._known = known
        self._lanes: dict[str, Lane] = {}
        self._merge = merge
        self._memo = Memo()
        self._joined: dict[bytes, list[Call]] = {}
        self._gates = Gates()
        self._serial = 0
        self._closed: Callable[[Call], Failure] | None = None
        self.in_flight = 0
        self.waiting = 0
        self.error: BaseException | None = None
        self.on_error: Callable[[], None] | None = None
        self.recorder: Recorder | None = None

    def submit(self, call: Call) -> Outcome | None:
        """Takes a call. Gives its outcome where an equal call has ended; else None, and `settle` is called later."""
        if self.recorder is None:
            return self._submit(call)
        call.submitted = monotonic()
        outcome = self._submit(call)
        if outcome is not None:
            self.recorder.end(call, outcome)
        return outcome

    def _submit(self, call: Call) -> Outcome | None:
        if call.key is not None and self._merge:
            known = self._memo.get(call.key)
            if known is not None:
                return Outcome(known, merged=True) if isinstance(known, str) else Outcome(None, known, merged=True)
            if call.key in self._joined:
                self._joined[call.key].append(call)
                return None
        if self._known is not None:
            before = self._known.find(call)
            if before is not None:
                return before
        if self._closed is not None:
            return Outcome(None, self._closed(call))
        if call.key is not None and self._merge:
            self._joined[call.key] = []
        self.waiting += 1
        self._queue(call)
        return None

    def _release(self, calls: list[Call], own: Lane) -> None:
        """Puts calls in line that were held back. The first is for the worker of this lane that lets them go."""
        for number, call in enumerate(calls):
            self._queue(call, at_once=number > 0 or self._lane(call.lane) is not own)

    def _queue(self, call: Call, *, at_once: bool = True) -> None:
        """Puts a call in line, or gives it to a worker that is free (unless not `at_once`)."""
        self._serial += 1
        lane = self._lane(call.lane)
        if lane.free and at_once:
            lane.free.popleft().set_result(call)
        else:
            heapq.heappush(lane.heap, (call.priority, self._serial, call))

    def _lane(self, name: str) -> Lane:
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = Lane()
            loop = asyncio.get_running_loop()
            count = self._sizes.get(name, self._sizes[""])
            lane.workers = [loop.create_task(self._work(lane)) for _ in range(count)]
        return lane

    async def _work(self, lane: Lane) -> None:
        try:
            await self._serve(lane)
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            # An error of our own must end the run with a message, not leave it waiting for good.
            self.error = self.error or error
            if self.on_error is not None:
                self.on_error()

    async def _serve(self, lane: Lane) -> None:
        loop = asyncio.get_running_loop()
        made = 0
        while True:
            if lane.heap:
                call = heapq.heappop(lane.heap)[2]
            else:
                turn: asyncio.Future[Call] = loop.create_future()
                lane.free.append(turn)
                call = await turn
            if self._closed is None and call.gates and call.wanted() and not self._gates.enter(call):
                continue
            self.waiting -= 1
            if self._closed is not None:
                self._finish(call, Outcome(None, self._closed(call)))
                continue
            if not call.wanted():
                self._drop(call)
                continue
            self.in_flight += 1
            if self.recorder is not None:
                call.record = self.recorder.begin()
            try:
                outcome = await call.make(call)
                if self._known is not None:
                    await self._known.keep(call, outcome)
            finally:
                self.in_flight -= 1
            self._finish(call, outcome)
            if call.gates:
                self._release(self._gates.leave(call, failed=outcome.failure is not None), lane)
            made += 1
            if made % _YIELD_EVERY == 0:
                await asyncio.sleep(0)

    def _finish(self, call: Call, outcome: Outcome) -> None:
        joined: list[Call] = []
        if call.key is not None and self._merge:
            joined = self._joined.pop(call.key, [])
            if outcome.text is not None:
                self._memo.put(call.key, outcome.text)
            elif outcome.failure is not None and not outcome.failure.cut_short:
                self._memo.put(call.key, outcome.failure)
        if self.recorder is not None:
            self.recorder.end(call, outcome)
        call.settle(outcome)
        for other in joined:
            same = Outcome(outcome.text, outcome.failure, merged=True)
            if self.recorder is not None:
                self.recorder.end(other, same)
            other.settle(same)

    def _drop(self, call: Call) -> None:
        """Lets go of a call that nobody wants any more; an equal one that is still wanted takes its place."""
        joined = [] if call.key is None else self._joined.pop(call.key, [])
        message = "not started: the limit is reached"
        call.settle(Outcome(None, Failure("not_started", message, step=call.step, order=call.order)))
        for other in joined:
            outcome = self.submit(other)
            if outcome is not None:
                other.settle(outcome)

    def close(self, reason: Callable[[Call], Failure]) -> None:
        """Makes no further call: waiting ones fail with the reason, those in flight go on."""
        if self._closed is not None:
            return
        self._closed = reason
        for lane in self._lanes.values():
            waiting = [entry[2] for entry in sorted(lane.heap, key=lambda entry: entry[:2])]
            lane.heap.clear()
            for call in waiting:
                self.waiting -= 1
                self._finish(call, Outcome(None, reason(call)))
        for call in self._gates.give_back():
            self.waiting -= 1
            self._finish(call, Outcome(None, reason(call)))

    async def cancel(self) -> None:
        """Ends the workers, calls in flight with them."""
        workers = [worker for lane in self._lanes.values() for worker in lane.workers]
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        self._memo.close()
