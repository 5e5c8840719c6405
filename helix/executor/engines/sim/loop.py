"""An event loop in virtual time: where nothing is ready it moves its clock to the next timer instead of sleeping.

A run inside it takes the time that its coroutines compute, and ends with the same result as on an ordinary loop. Work
in threads (`run_in_executor`, or anything inside `outside_work`) holds the clock until it is done, however long that
is: it takes the virtual time that is charged for it, and what began first goes on first.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context, ContextVar
from typing import Any, TypeVar

from helix.errors import HelixError

_Made = TypeVar("_Made")

# Real seconds that a loop with nothing to do waits for a thread that it was not told of, and that it waits for work
# outside which gives no sign of life: time limits are virtual, and do not run meanwhile.
GRACE = 1.0
PATIENCE = 900.0
# What work outside takes at least, in virtual seconds: the clock does not move before all of it that began at one time
# is done, so its end does not depend on which thread was the faster one.
LEAST = 1e-6
# What work outside is charged that is done for whoever has set it.
_charge: ContextVar[float | None] = ContextVar("charge", default=None)


class DeadlockError(HelixError):
    """Everything waits for something that will never come."""


class _Timer(asyncio.TimerHandle):
    """A timer that comes after those made before it for the same time. asyncio's own have no order then."""

    serial = 0

    def __lt__(self, other: asyncio.TimerHandle) -> bool:
        when, others = self.when(), other.when()
        return when < others or (when == others and self.serial < getattr(other, "serial", 0))


class _Selector(selectors.BaseSelector):
    """Asks the real selector without waiting, and moves the clock of its loop."""

    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        self.loop: VirtualLoop | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        loop = self.loop
        if loop is None or (timeout is not None and timeout <= 0):
            return self._real.select(0)
        if loop.jobs:
            found = self._real.select(PATIENCE)
            if not found:
                loop.hung()
            return found
        found = self._real.select(0)
        if found:
            return found
        if timeout is not None:
            loop.advance(timeout)
            return []
        found = self._real.select(GRACE)
        if not found:
            loop.stuck()
        return found

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def close(self) -> None:
        self._real.close()

    def get_map(self) -> Any:
        return self._real.get_map()


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module. `job_seconds` is what each piece of work outside is charged, in virtual seconds.

    It needs no sockets and no processes; those it is given anyway are polled, not waited for.
    """

    def __init__(self, *, job_seconds: float = 0.0) -> None:
        selector = _Selector()
        self._virtual = 0.0
        self._timers = 0
        self.jobs = 0
        self.job_seconds = job_seconds
        self._root: asyncio.Future[Any] | None = None
        super().__init__(selector)
        # Timers of one nanosecond are one event; 0 would make a timer that is due by rounding wait for ever.
        self._clock_resolution = 1e-9
        selector.loop = self

    def time(self) -> float:
        return self._virtual

    def run_until_complete(self, future: Any) -> Any:
        """As ever. The first one is the work; what comes after it cleans up."""
        if self._root is None and asyncio.isfuture(future):
            self.watch(future)
        return super().run_until_complete(future)

    def watch(self, work: asyncio.Future[Any]) -> None:
        """Says what is waited for now, where the loop runs on by itself: that is what gets stuck."""
        self._root = work

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As ever, but that timers of one time fire in the order in which they were made."""
        return self._timer(when, callback, args, context, self._turn())

    def _turn(self) -> int:
        self._timers += 1
        return self._timers

    def _timer(
        self, when: float, callback: Callable[..., Any], args: tuple[Any, ...], context: Context | None, turn: int
    ) -> asyncio.TimerHandle:
        timer = _Timer(when, callback, args, self, context)
        timer.serial = turn
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def advance(self, seconds: float) -> None:
        """Moves the clock to the next timer, which is due in so many seconds."""
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        due = timers[0].when() if timers else self._virtual + seconds
        self._virtual = max(self._virtual, due)

    def stuck(self) -> None:
        """Nothing can happen any more: an error while the work goes on, none once it is over (threads may end)."""
        if self._root is None or self._root.done():
            return
        waiting = sorted(task.get_name() for task in asyncio.all_tasks(self) if not task.done())
        shown = ", ".join(waiting[:8]) + (", ..." if len(waiting) > 8 else "")
        raise DeadlockError(f"nothing can happen any more at {self._virtual:.6f} s; {len(waiting)} tasks wait: {shown}")

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Holds the clock."""
        self.jobs += 1
        try:
            yield
        finally:
            self.jobs -= 1

    def hung(self) -> None:
        """Work outside gives no sign of life."""
        raise DeadlockError(
            f"work outside the simulation has not come back within {PATIENCE:g} s; the clock stands at "
            f"{self._virtual:.6f} s meanwhile, so no time limit of a tool ends it"
        )

    @contextmanager
    def charging(self, seconds: float | None) -> Iterator[None]:
        """Has work outside that is done inside charged so many virtual seconds (None: as ever)."""
        token = _charge.set(seconds)
        try:
            yield
        finally:
            _charge.reset(token)

    @asynccontextmanager
    async def outside_work(self) -> AsyncIterator[None]:
        """Holds the clock while a thread works, then charges for it."""
        turn = self._turn()
        with self.hold():
            yield
        charged = _charge.get()
        await self._after(self.job_seconds if charged is None else charged, turn)

    async def _after(self, seconds: float, turn: int) -> None:
        """Waits as `asyncio.sleep` does, in a place among equal times that was taken before."""
        done = self.create_future()
        timer = self._timer(self._virtual + max(seconds, LEAST), _release, (done,), None, turn)
        try:
            await done
        finally:
            timer.cancel()

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """As ever; the clock is held until the work is done, and it ends once what is charged for it has passed."""
        turn = self._turn()
        done = super().run_in_executor(executor, func, *args)
        self.jobs += 1
        done.add_done_callback(self._job_done)
        charged = _charge.get()
        return done if charged is None else self.create_task(self._charged(done, charged, turn))

    async def _charged(self, done: asyncio.Future[Any], seconds: float, turn: int) -> Any:
        try:
            return await done
        finally:
            await self._after(seconds, turn)

    def _job_done(self, done: asyncio.Future[Any]) -> None:
        self.jobs -= 1


def _release(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


def run_virtual(work: Coroutine[Any, Any, _Made], *, job_seconds: float = 0.0) -> _Made:
    """The result of a coroutine, run on a virtual loop of its own. Raises DeadlockError where it waits for good."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(job_seconds=job_seconds)) as runner:
        return runner.run(work)
