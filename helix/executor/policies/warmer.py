"""Makes the warm-ups of one engine: they wait like calls, take as long as calls may, and fail in silence."""

from __future__ import annotations

import asyncio

from helix.errors import ExecutionError
from helix.executor.engines.base import Reply, Request, WarmingEngine
from helix.executor.limits import Limits
from helix.executor.overload import Overload
from helix.results import RunReport


class Warmer:
    """Computes beginnings on an engine. A failure is no row's: the calls that follow compute what is missing."""

    def __init__(
        self, engine: WarmingEngine, overload: Overload, limits: Limits, report: RunReport, timeout: float | None
    ) -> None:
        self._engine = engine
        self._overload = overload
        self._limits = limits
        self._report = report
        self._timeout = timeout

    async def __call__(self, request: Request) -> Reply | None:
        """The engine's reply; None where it has not computed the beginning."""
        try:
            if await self._overload.enter(self._limits, asyncio.get_running_loop().time()) is not None:
                return None
            answered = False
            try:
                reply: Reply = await self._limits.timed(self._engine.warm(request), self._timeout)
                answered = True
            finally:
                self._overload.leave(answered=answered)
        except ExecutionError:
            return None
        self._report.warmups += 1
        self._report.warmup_tokens += max(0, (reply.prompt_tokens or 0) - (reply.cached_tokens or 0))
        return reply
