"""An engine that goes away in the middle of a run: everybody waits together until it is back (contract 11)."""

from __future__ import annotations

import asyncio

from helix.errors import EngineError
from helix.executor.engines.base import Engine
from helix.executor.limits import Limits
from helix.results import RunReport

# Seconds between two looks at an engine that is away: more each time, up to the longest.
FIRST_LOOK = 0.25
LONGEST_LOOK = 5.0
# An engine that takes a connection and says nothing for so long is not back yet.
LOOK_TIMEOUT = 10.0


class Outage:
    """Whether one engine can be reached, for all that call it. Engines without `look` are never taken to be away.

    The first call that gets no answer looks whether the engine is still there, and goes on looking until it is; all
    others wait for that. After `wait_limit` seconds the run ends.
    """

    def __init__(self, engine: Engine, limits: Limits, report: RunReport) -> None:
        self._look = getattr(engine, "look", None)
        self._name = engine.name
        self._limits = limits
        self._report = report
        self._watching: asyncio.Future[bool] | None = None
        self._ended = float("-inf")

    async def wait(self) -> None:
        """Waits while the engine is away; who makes a call then hears from `Limits` whether the run goes on."""
        while self._watching is not None:
            await asyncio.wait((self._watching,))

    async def met(self, error: EngineError, began: float) -> bool:
        """Whether a call that began at this loop time failed since the engine was away; returns once it is back.

        False where the engine is there, so that the failure is the call's own. Raises CutShort where the run ends.
        """
        if self._look is None or error.status is not None or not error.retryable:
            return False
        if (other := self._watching) is not None:
            await asyncio.wait((other,))
            return other.result()
        if began < self._ended:
            # What was under way when the engine went away may hear of it late.
            return True
        watching = self._watching = asyncio.get_running_loop().create_future()
        away = True
        try:
            away = await self._watch(error)
        finally:
            self._watching = None
            watching.set_result(away)
        return away

    async def _watch(self, error: EngineError) -> bool:
        """Looks until the engine answers; whether it had been away."""
        loop = asyncio.get_running_loop()
        limit = self._limits.settings.wait_limit
        began, pause, away = loop.time(), FIRST_LOOK, False
        while not await self._answers():
            waited = loop.time() - began
            if not away:
                away = True
                self._report.waiting = (
                    f"waiting, up to --wait-limit {limit:g} s, for an engine that does not answer: {error.message}"
                )
            if waited >= limit:
                self._limits.stop(f"{self._name} has not answered for {waited:.0f} s: {error.message}")
            # Where the run has ended, by this or otherwise, sleep says so.
            await self._limits.sleep(max(0.0, min(pause, limit - waited)))
            pause = min(LONGEST_LOOK, 1.5 * pause)
        if away:
            self._ended = loop.time()
            self._report.waiting = None
            self._report.notes.append(f"{self._name} did not answer for {self._ended - began:.1f} s; the calls waited")
        return away

    async def _answers(self) -> bool:
        """One look. An engine that came back as another one ends the run."""
        assert self._look is not None
        try:
            await self._limits.until_halt(self._look(), LOOK_TIMEOUT)
        except TimeoutError:
            return False
        except EngineError as error:
            if error.fatal:
                self._limits.stop(error.message, fatal=True)
            return False
        return True
