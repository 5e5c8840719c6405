"""What bounds all calls of a run together: its deadline, its budgets, its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Protocol

from helix.errors import ExecutionError
from helix.executor.settings import RunSettings


class Stop(Protocol):
    """Ends the run early with a reason; `kind` is what the rows that are not done fail with."""

    def __call__(self, reason: str, *, fatal: bool = False, kind: str = "not_started") -> None: ...


class CutShort(ExecutionError):
    """A call that is not made, or not made again, since the run has ended early."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class TimedOut(ExecutionError):
    """No result within the time of a call, or (`final`) of the run."""

    kind = "timeout"

    def __init__(self, message: str, *, final: bool) -> None:
        super().__init__(message)
        self.final = final


class Limits:
    """The bounds of a run. Calls are counted before they are made; `stop` ends the run where a budget is used up."""

    def __init__(self, settings: RunSettings, stop: Stop) -> None:
        self.settings = settings
        self.calls = 0
        self.tokens = 0
        self._stop = stop
        self._deadline: float | None = None
        self._reason: str | None = None
        self._kind = "not_started"
        self._halted = asyncio.Event()

    def start(self) -> None:
        """Starts the clock."""
        if self.settings.run_timeout is not None:
            self._deadline = asyncio.get_running_loop().time() + self.settings.run_timeout

    def stop(self, reason: str, *, fatal: bool = False) -> None:
        """Ends the run."""
        self._stop(reason, fatal=fatal)

    def halt(self, reason: str, kind: str) -> None:
        """The run has ended early: no call is made from now on, and who waits to make one again wakes up."""
        if self._reason is None:
            self._reason, self._kind = reason, kind
            self._halted.set()

    @property
    def halted(self) -> bool:
        """Whether the run has ended early."""
        return self._reason is not None

    def count_call(self) -> None:
        """Counts a call before it is made. Raises CutShort where the run has ended or the budget is used up."""
        limit = self.settings.max_calls
        if self._reason is None and limit is not None and self.calls >= limit:
            self._stop(f"the budget of {limit} calls is used up", kind="limit")
        if self._reason is not None:
            raise CutShort(f"not started: {self._reason}", self._kind)
        self.calls += 1

    def uncount_call(self) -> None:
        """Takes back one call that came to nothing: others are made, and counted, in its place."""
        self.calls -= 1

    def count_tokens(self, tokens: int) -> None:
        """Counts tokens after a call; past the budget no further call is made."""
        self.tokens += tokens
        limit = self.settings.max_tokens
        if limit is not None and self.tokens >= limit:
            self._stop(f"the budget of {limit} tokens is used up", kind="limit")

    async def sleep(self, seconds: float) -> None:
        """Waits before a call is made again. Raises CutShort as soon as the run ends."""
        if self._reason is None and seconds > 0:
            try:
                await asyncio.wait_for(self._halted.wait(), seconds)
            except TimeoutError:
                return
        if self._reason is not None:
            raise CutShort(f"not tried again: {self._reason}", self._kind)

    async def until_halt(self, work: Awaitable[Any], seconds: float) -> Any:
        """Awaits for so many seconds at most. Raises TimeoutError after them, CutShort as soon as the run ends."""
        task = asyncio.ensure_future(work)
        halted = asyncio.ensure_future(self._halted.wait())
        try:
            await asyncio.wait((task, halted), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if self._reason is not None:
                raise CutShort(f"not tried again: {self._reason}", self._kind)
            if not task.done():
                raise TimeoutError
            return task.result()
        finally:
            task.cancel()
            halted.cancel()
            await asyncio.gather(task, halted, return_exceptions=True)

    async def timed(self, work: Awaitable[Any], call_timeout: float | None, what: str = "reply") -> Any:
        """Awaits within the time of a call and of the run. Raises TimedOut."""
        loop = asyncio.get_running_loop()
        ends = None if call_timeout is None else loop.time() + call_timeout
        by_run = self._deadline is not None and (ends is None or self._deadline < ends)
        if by_run:
            ends = self._deadline
        if ends is None:
            return await work
        try:
            async with asyncio.timeout_at(ends) as timer:
                return await work
        except TimeoutError:
            if not timer.expired():
                raise
        if by_run:
            raise TimedOut(f"the run's time limit of {self.settings.run_timeout:g} s", final=True)
        raise TimedOut(f"no {what} within {call_timeout:g} s", final=False)
