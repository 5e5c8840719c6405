"""Warm-up of an agent's next prompt: while its tools run, an idle engine computes what is known of that prompt.

The transcript so far is the beginning of the next prompt, whatever the tools give, and so is the message that will
hold their results, up to the first of them. It is computed with nothing to be generated (`max_new_tokens: 0`), and only
where the engine has nothing else to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import cast

from helix.errors import ExecutionError
from helix.executor.engines.base import Capabilities, Engine, Request, WarmingEngine
from helix.executor.limits import Limits
from helix.executor.speculation.figures import Figures

# So often an engine is asked whether it has nothing to do, and so many seconds go by between.
LOOKS, LOOK = 10, 0.05


class PrefixWarmer:
    """Computes beginnings on idle engines, one at a time on each, within the time of a call. `engines` are those of the
    run by name. A run with a budget of calls or tokens makes none: all of the budget is for what was asked for.
    """

    def __init__(self, engines: Mapping[str, tuple[Engine, Capabilities]], figures: Figures, limits: Limits) -> None:
        self._engines = engines
        self._figures = figures
        self._limits = limits
        self._busy: dict[str, asyncio.Task[None]] = {}

    def __call__(self, session: str, engine: str, request: Request) -> None:
        """Begins a warm-up, if the engine can and another one is not going on."""
        found = self._engines.get(engine)
        if found is None or not found[1].warms or engine in self._busy:
            return
        settings = self._limits.settings
        if settings.max_calls is not None or settings.max_tokens is not None or self._limits.halted:
            return
        task = asyncio.get_running_loop().create_task(self._work(cast(WarmingEngine, found[0]), request))
        self._busy[engine] = task
        task.add_done_callback(lambda done: self._busy.pop(engine, None))

    async def _work(self, engine: WarmingEngine, request: Request) -> None:
        settings = self._limits.settings
        try:
            if not await self._idle(engine, request.rank):
                return
            await self._limits.timed(engine.warm(request), settings.call_timeout)
        except ExecutionError:
            # The call that follows computes what is missing.
            return
        self._figures.warmups += 1

    @staticmethod
    async def _idle(engine: WarmingEngine, rank: int | None) -> bool:
        """Whether an engine has nothing to do. Some still count the call that has just ended: so ask again."""
        for _ in range(LOOKS):
            ranks = [load for load in await engine.load() if rank is None or load.rank == rank]
            if ranks and not any(load.running or load.waiting for load in ranks):
                return True
            await asyncio.sleep(LOOK)
        return False

    async def close(self) -> None:
        """Gives up what is going on."""
        tasks = list(self._busy.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
