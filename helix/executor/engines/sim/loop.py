"""An event loop in virtual time: where nothing is ready it moves its clock to the next timer instead of sleeping.

A run inside it takes the time that its coroutines compute, and ends with the same result as on an ordinary loop. Work
in threads (`run_in_executor`, or anything inside `outside_work`) holds the clock until it is done: it takes no virtual
time, but for what is charged for it.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context
from typing import Any, TypeVar

from helix.errors import HelixError

_Made = TypeVar("_Made")

# Real seconds that a loop with nothing to do waits for a thread that it was not told of.
GRACE = 1.0


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
            return self._real.select(None)
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
            self._root = future
        return super().run_until_complete(future)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As ever, but that timers of one time fire in the order in which they were made."""
        timer = _Timer(when, callback, args, self, context)
        self._timers += 1
        timer.serial = self._timers
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

    @asynccontextmanager
    async def outside_work(self) -> AsyncIterator[None]:
        """Holds the clock while a thread works, then charges for it."""
        with self.hold():
            yield
        if self.job_seconds > 0:
            await asyncio.sleep(self.job_seconds)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """As ever; the clock is held until the work is done."""
        done = super().run_in_executor(executor, func, *args)
        self.jobs += 1
        done.add_done_callback(self._job_done)
        return done

    def _job_done(self, done: asyncio.Future[Any]) -> None:
        self.jobs -= 1


def run_virtual(work: Coroutine[Any, Any, _Made], *, job_seconds: float = 0.0) -> _Made:
    """The result of a coroutine, run on a virtual loop of its own. Raises DeadlockError where it waits for good."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(job_seconds=job_seconds)) as runner:
        return runner.run(work)
