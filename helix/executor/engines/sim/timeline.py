"""The events of a simulation in order: integer nanoseconds, one heap, one armed timer of the loop."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

SECOND = 1_000_000_000

# Of events at one time these go first: what frees something before what takes it.
ABORT, TRANSFER_END, STEP_END, ARRIVAL, STEP_START = range(5)


class Timeline:
    """Events keyed (time, kind, worker, serial), each a function; they fire on the loop's thread, by its clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_error: Callable[[Exception], None]) -> None:
        self._loop = loop
        self._on_error = on_error
        self._heap: list[tuple[int, int, int, int, Callable[[int], None]]] = []
        self._serial = 0
        self._timer: asyncio.TimerHandle | None = None
        self._armed = 0
        self._firing = False
        # The clock at the start: the simulation's own begins at 0.
        self._began = loop.time()
        self._now = 0

    def now(self) -> int:
        """Nanoseconds since the start, never before the last event that fired."""
        return max(self._now, round((self._loop.time() - self._began) * SECOND))

    def at(self, time: int, kind: int, event: Callable[[int], None], worker: int = 0) -> None:
        """Has an event fire at a time; it is told the time."""
        self._serial += 1
        heapq.heappush(self._heap, (time, kind, worker, self._serial, event))
        if not self._firing and (self._timer is None or time < self._armed):
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            self._armed = self._heap[0][0]
            self._timer = self._loop.call_at(self._began + self._armed / SECOND, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._firing = True
        now = self.now()
        # All that is due now, and no later: what the tasks do that these wake comes before the next time.
        while self._heap and self._heap[0][0] <= now:
            time, _, _, _, event = heapq.heappop(self._heap)
            self._now = max(self._now, time)
            try:
                event(self._now)
            except Exception as error:
                self.close()
                self._on_error(error)
                return
            if self._heap and self._heap[0][0] > time:
                break
        self._firing = False
        self._arm()

    def close(self) -> None:
        """Fires nothing any more."""
        self._firing = False
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
