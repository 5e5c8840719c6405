"""An engine that turns calls away for the load (429, 503): all wait together, then calls come back at a pace it bears.

As congestion is met on a network: after a pause few calls are let go, with each that is answered more, and where the
next one is turned away less. There is a bound on how many are made at once, for servers that bound that, and one on how
many in a second, for servers that count those: how many that is, is what they answered since the time before.
"""

from __future__ import annotations

import asyncio

from helix.errors import EngineError
from helix.executor.limits import Limits

# How many calls may be made at once grows by one with each that is answered, up to half of those of which some were
# turned away; then it grows e-fold in so many seconds, as does the pace.
GROWS_IN = 2.0
# After calls were turned away the pace is this share of what was answered, at least one call in so many seconds.
LESS = 0.85
LEAST_EVERY = 1.0
# A server that asks for no wait may turn calls away for other reasons than their number: at least so many a second.
LEAST_UNASKED = 4.0
# What was answered is counted over this time at least, in seconds.
SHORT = 0.1
# A pace beyond this, in calls a second, bounds nothing. Timers are late by about so many seconds: that is made up for.
MOST = 5_000.0
LATE = 0.01
# How long one sleeps at most before it looks again, in seconds: the pace grows meanwhile.
LOOK = 0.25


class Overload:
    """What calls to one engine wait for. Free of cost until a first call is turned away."""

    def __init__(self) -> None:
        self.in_flight = 0
        self._until = 0.0
        self._window: float | None = None
        self._threshold = 0.0
        self._rate: float | None = None
        self._slot = 0.0
        self._cut = self._since = float("-inf")
        self._answered = 0
        self._heard = 0.0
        # Since when nobody was let through, and what the engine said last.
        self._full: float | None = None
        self._error: EngineError | None = None
        self._line: asyncio.Lock | None = None
        self._left = asyncio.Event()

    @property
    def left(self) -> float:
        """The seconds that the engine still wants to be left alone."""
        return max(0.0, self._until - asyncio.get_running_loop().time())

    async def enter(self, limits: Limits, came: float) -> EngineError | None:
        """Waits for the turn of a call that came at this loop time; `leave` is to be called after it. Raises CutShort
        as soon as the run ends.

        Gives what the engine said, and there is nothing to leave, where it let nobody through for as long as a call
        waits.
        """
        if self._error is None:
            self.in_flight += 1
            return None
        if self._line is None:
            self._line = asyncio.Lock()
        async with self._line:
            error = await self._turn(limits, came)
            if error is None:
                self.in_flight += 1
            return error

    async def _turn(self, limits: Limits, came: float) -> EngineError | None:
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            if self._full is not None and now - max(self._full, came) > limits.settings.wait_limit:
                return self._error
            wait = max(self._until, self._slot if self._rate is not None else now) - now
            if wait > LATE / 100:
                await limits.sleep(min(wait, LOOK))
            elif self._window is not None and self.in_flight >= int(self._window):
                self._left.clear()
                try:
                    await limits.until_halt(self._left.wait(), LOOK)
                except TimeoutError:
                    continue
            else:
                break
        if self._rate is not None:
            self._slot = max(self._slot, now - LATE) + 1 / self._rate
        return None

    def leave(self, *, answered: bool) -> None:
        """A call has ended; `answered` says that it got a reply."""
        self.in_flight -= 1
        if self._error is None:
            return
        self._left.set()
        if not answered:
            return
        self._full = None
        self._answered += 1
        now = asyncio.get_running_loop().time()
        if self._window is not None:
            slowly = self._window * max(0.0, now - self._heard) / GROWS_IN
            self._window += 1.0 if self._window < self._threshold else min(1.0, slowly)
        self._heard = max(self._heard, now)
        if self._rate is not None:
            self._rate += 1 / GROWS_IN
            if self._rate > MOST:
                self._rate = None

    def met(self, error: EngineError, began: float, pause: float) -> None:
        """A call that began at this loop time was turned away: all wait so many seconds, or as long as they do already.

        Of calls that were made at once only the first one tells that there were too many.
        """
        now = asyncio.get_running_loop().time()
        self._until = max(self._until, now + pause)
        self._error = error
        if self._full is None:
            self._full = now
        if began <= self._cut:
            return
        if self._window is None:
            # Nothing is known of what the engine bears: begin with one call at a time.
            self._threshold, self._window = self.in_flight / 2, 1.0
        else:
            if self.in_flight + 1 >= int(self._window):
                self._threshold = self._window = max(1.0, self._window / 2)
            pace = self._answered / max(SHORT, now - self._since)
            if self._answered == 0 and self._rate is not None:
                pace = self._rate / 2
            if pace:
                self._rate = max(LESS * pace, 1 / max(LEAST_EVERY, pause) if error.retry_after else LEAST_UNASKED)
                self._slot = self._until
        self._cut, self._answered, self._heard = now, 0, self._until
        # A pause that the server asked for is part of its pace; one of our own is not: what fails by chance would make
        # the pace smaller and smaller.
        self._since = now if error.retry_after else self._until
