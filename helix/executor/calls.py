"""Calls waiting and calls in flight: bounded concurrency, one order of release, equal calls made once.

The dispatcher holds a fixed number of workers for each lane. A ready call waits in the queue of its lane, which a
policy has made, and goes to the next free worker when the queue says so.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from helix.executor.engines.base import Reply, Request
from helix.executor.gates import Gate
from helix.executor.memo import Memo
from helix.executor.policies.base import CallQueue, WakingQueue, Warm, Warmup
from helix.executor.policies.ordered import OrderedQueue
from helix.executor.records import OpenRecord, Recorder
from helix.executor.values import Failure, Order

if TYPE_CHECKING:
    from helix.executor.store.keys import Asked

Priority = tuple[int, ...]
Settle = Callable[["Outcome"], None]
# Engines that answer without waiting would keep a worker busy for good: it lets others run after so many calls.
_YIELD_EVERY = 32
# Replies of one step of an engine come within some milliseconds, and the calls that they make ready share beginnings:
# so long those wait for one another, in seconds, where beginnings can be computed ahead.
GATHER = 0.004


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

    `request` is what an engine is asked, `instance` what all calls have in common that are for one row at one level of
    the plan, `node` the id of the plan's operator. `rank` is the worker that the policy chose, `keep` how long it wants
    the prompt cached, against others; `reply` is what the engine answered last. `asked` is what a result store and a
    journal know the call by; None where there are none. `timer` is there while the call is made: it ends the call where
    it is given up.
    """

    __slots__ = (
        "asked",
        "gates",
        "instance",
        "keep",
        "key",
        "lane",
        "make",
        "node",
        "order",
        "priority",
        "rank",
        "record",
        "reply",
        "request",
        "row",
        "settle",
        "step",
        "submitted",
        "timer",
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
        request: Request | None = None,
        instance: object = None,
        node: str = "",
        asked: Asked | None = None,
    ) -> None:
        self.asked = asked
        self.gates = gates
        self.request = request
        self.instance = instance
        self.node = node
        self.rank: int | None = None
        self.keep: int | None = None
        self.reply: Reply | None = None
        self.row = row
        self.submitted = 0.0
        self.record: OpenRecord | None = None
        self.timer: asyncio.Timeout | None = None
        self.step = step
        self.order = order
        self.priority = priority
        self.key = key
        self.lane = lane
        self.make = make
        self.settle = settle
        self.wanted = wanted


def addressed(request: Request, call: Call) -> Request:
    """A request as its call's policy wants it sent."""
    if call.rank is None and call.keep is None:
        return request
    return replace(request, rank=call.rank, priority=call.keep)


class Known(Protocol):
    """Outcomes from before this run, of the run that it resumes or of a result store, and where new ones are kept."""

    def find(self, call: Call) -> Outcome | None:
        """The outcome of an equal call made before; asked once, when the call is ready."""

    async def keep(self, call: Call, outcome: Outcome) -> None:
        """Keeps the outcome of a call that was made. It counts as done once this returns: then it is durable."""


class Lane:
    """The workers of one kind of call, and the queue of those that wait for them."""

    __slots__ = ("free", "pumping", "queue", "warm", "workers")

    def __init__(self, queue: CallQueue, warm: Warm | None) -> None:
        self.queue = queue
        self.warm = warm
        self.free: deque[asyncio.Future[Call | Warmup]] = deque()
        self.workers: list[asyncio.Task[None]] = []
        self.pumping = False


class Dispatcher:
    """Releases calls to workers. `close` says why no further call is to be made; those in flight end by themselves.

    `sizes` gives lanes their number of workers; a lane that is not named there has as many as the lane `""`. A lane has
    a queue in the order of the plan unless `use` gives it another.
    """

    def __init__(self, sizes: dict[str, int], *, merge: bool = True, known: Known | None = None) -> None:
        self._sizes = sizes
        self._known = known
        self._queues: dict[str, tuple[CallQueue, Warm | None]] = {}
        self._lanes: dict[str, Lane] = {}
        self._merge = merge
        self._memo = Memo()
        self._joined: dict[bytes, list[Call]] = {}
        self._closed: Callable[[Call], Failure] | None = None
        self.in_flight = 0
        self.waiting = 0
        # Calls whose outcomes were known from before the run.
        self.fetched = 0
        # Whether the workers were ended.
        self.over = False
        self.error: BaseException | None = None
        self.on_error: Callable[[], None] | None = None
        self.recorder: Recorder | None = None
        # Hears of each call that has an outcome, and when it was begun (the loop's time; None: it was not made).
        self.heard: Callable[[Call, Outcome, float | None], None] | None = None

    def use(self, lane: str, size: int, queue: CallQueue, warm: Warm | None = None) -> None:
        """Gives a lane its number of workers, its queue, and what makes its warm-ups; before its first call."""
        self._sizes[lane] = size
        self._queues[lane] = (queue, warm)

    def slots(self, lane: str) -> int:
        """How many calls of a lane are made at once."""
        return self._sizes.get(lane, self._sizes[""])

    def busy(self, beginning: str) -> int:
        """How many workers make a call just now, of the lanes whose names begin so."""
        lanes = [lane for name, lane in self._lanes.items() if name.startswith(beginning)]
        return sum(len(lane.workers) - sum(not turn.done() for turn in lane.free) for lane in lanes)

    @property
    def no_room(self) -> bool:
        """Whether calls are held back for want of room in an engine's cache."""
        return self.waiting > 0 and any(getattr(queue, "no_room", False) for queue, _ in self._queues.values())

    def row_began(self, instance: object, rank: int) -> None:
        """Tells the queues which rank the schedule has for a row."""
        for queue, _ in self._queues.values():
            queue.row_began(instance, rank)

    def row_ended(self, instance: object) -> None:
        """Tells the queues that no call of a row will come any more."""
        for queue, _ in self._queues.values():
            queue.row_ended(instance)

    def submit(self, call: Call) -> Outcome | None:
        """Takes a call. Gives its outcome where an equal call has ended; else None, and `settle` is called later."""
        if self.recorder is not None:
            call.submitted = asyncio.get_running_loop().time()
        outcome = self._submit(call)
        if outcome is not None:
            self._tell(call, outcome)
        return outcome

    def _tell(self, call: Call, outcome: Outcome, began: float | None = None) -> None:
        if self.recorder is not None:
            self.recorder.end(call, outcome)
        if self.heard is not None:
            self.heard(call, outcome, began)

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
                self.fetched += 1
                self._remember(call, before)
                return before
        if self._closed is not None:
            return Outcome(None, self._closed(call))
        if call.key is not None and self._merge:
            self._joined[call.key] = []
        self.waiting += 1
        self._queue(call)
        return None

    def _queue(self, call: Call) -> None:
        """Puts a call in line. Workers look at the loop's next turn: all that gets ready now is to be there then."""
        lane = self._lane(call.lane)
        lane.queue.put(call)
        self._wake(lane)

    def _wake(self, lane: Lane) -> None:
        if not lane.free or lane.pumping:
            return
        lane.pumping = True
        loop = asyncio.get_running_loop()
        if lane.warm is None:
            loop.call_soon(self._pump, lane)
        else:
            loop.call_later(GATHER, self._pump, lane)

    def _pump(self, lane: Lane) -> None:
        """Hands calls to free workers."""
        lane.pumping = False
        try:
            while lane.free:
                if lane.free[0].done():
                    lane.free.popleft()
                elif (job := lane.queue.take()) is not None:
                    lane.free.popleft().set_result(job)
                else:
                    return
        except Exception as error:
            self._broke(error)

    def _lane(self, name: str) -> Lane:
        lane = self._lanes.get(name)
        if lane is None:
            queue, warm = self._queues.get(name) or (OrderedQueue(), None)
            lane = self._lanes[name] = Lane(queue, warm)
            if isinstance(queue, WakingQueue):
                queue.attach(partial(self._wake, lane))
            loop = asyncio.get_running_loop()
            lane.workers = [loop.create_task(self._work(lane)) for _ in range(self.slots(name))]
        return lane

    async def _work(self, lane: Lane) -> None:
        try:
            await self._serve(lane)
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            self._broke(error)

    def _broke(self, error: BaseException) -> None:
        """An error of our own must end the run with a message, not leave it waiting for good."""
        self.error = self.error or error
        if self.on_error is not None:
            self.on_error()

    async def _serve(self, lane: Lane) -> None:
        loop = asyncio.get_running_loop()
        made = 0
        while True:
            job = lane.queue.take() if lane.warm is None else None
            if job is None:
                turn: asyncio.Future[Call | Warmup] = loop.create_future()
                lane.free.append(turn)
                self._wake(lane)
                job = await turn
            if isinstance(job, Warmup):
                await self._warm(lane, job)
            else:
                await self._call(lane, job)
            self._wake(lane)
            made += 1
            if made % _YIELD_EVERY == 0:
                await asyncio.sleep(0)

    async def _warm(self, lane: Lane, warmup: Warmup) -> None:
        """Has a beginning computed, unless the run has ended."""
        reply: Reply | None = None
        self.in_flight += 1
        try:
            if self._closed is None and lane.warm is not None:
                reply = await lane.warm(warmup.request)
        finally:
            self.in_flight -= 1
        lane.queue.warmed(warmup, reply)

    async def _call(self, lane: Lane, call: Call) -> None:
        """Makes a call, unless nobody wants it any more."""
        self.waiting -= 1
        if self._closed is not None:
            lane.queue.dropped(call)
            self._finish(call, Outcome(None, self._closed(call)))
            return
        if not call.wanted():
            lane.queue.dropped(call)
            self._drop(call)
            return
        self.in_flight += 1
        if self.recorder is not None:
            call.record = self.recorder.begin(getattr(lane.queue, "locked", None))
        began = asyncio.get_running_loop().time()
        given_up = False
        try:
            try:
                async with asyncio.timeout(None) as call.timer:
                    outcome = await call.make(call)
            except TimeoutError:
                if call.timer is None or not call.timer.expired():
                    raise
                given_up, outcome = True, _given_up(call)
            call.timer = None
            if self._known is not None and not given_up:
                await self._known.keep(call, outcome)
        finally:
            self.in_flight -= 1
        # Told before the outcome makes others ready: they find the cache as this call leaves it.
        lane.queue.ended(call, outcome)
        if self.recorder is not None and (locked := getattr(lane.queue, "locked", None)) is not None:
            self.recorder.sample(locked)
        if given_up:
            self._tell(call, outcome, began)
            self._drop(call)
        else:
            self._finish(call, outcome, began)

    def give_up(self, call: Call) -> None:
        """Ends a call that nobody wants any more, as `wanted` says by now. One that is being made goes on where equal
        ones wait for its outcome; one that waits for its turn is dropped when it comes.
        """
        joined = [] if call.key is None else self._joined.get(call.key, [])
        if call in joined:
            joined.remove(call)
        elif call.timer is not None and not joined:
            call.timer.reschedule(asyncio.get_running_loop().time())

    def _finish(self, call: Call, outcome: Outcome, began: float | None = None) -> None:
        joined: list[Call] = []
        if call.key is not None and self._merge:
            joined = self._joined.pop(call.key, [])
            self._remember(call, outcome)
        self._tell(call, outcome, began)
        call.settle(outcome)
        for other in joined:
            same = Outcome(outcome.text, outcome.failure, merged=True)
            self._tell(other, same)
            other.settle(same)

    def _remember(self, call: Call, outcome: Outcome) -> None:
        """Lets equal calls later in the run share an outcome."""
        if call.key is None or not self._merge:
            return
        if outcome.text is not None:
            self._memo.put(call.key, outcome.text)
        elif outcome.failure is not None and not outcome.failure.cut_short:
            self._memo.put(call.key, outcome.failure)

    def _drop(self, call: Call) -> None:
        """Lets go of a call that nobody wants any more; an equal one that is still wanted takes its place."""
        joined = [] if call.key is None else self._joined.pop(call.key, [])
        call.settle(_given_up(call))
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
            for call in lane.queue.drain():
                self.waiting -= 1
                self._finish(call, Outcome(None, reason(call)))

    async def cancel(self) -> None:
        """Ends the workers, calls in flight with them."""
        self.over = True
        workers = [worker for lane in self._lanes.values() for worker in lane.workers]
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        self._memo.close()


def _given_up(call: Call) -> Outcome:
    """The outcome of a call that nobody wants."""
    return Outcome(None, Failure("not_started", "not started: the limit is reached", step=call.step, order=call.order))
