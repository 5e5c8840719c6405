"""One call made until it succeeds or cannot: attempts, back-off, pauses, time limits, re-ask (contract 11, 16)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from helix.errors import EngineError, ExecutionError, OutputError, ToolError
from helix.executor.calls import Call, Outcome
from helix.executor.engines.base import Engine, Message, Reply, Request
from helix.executor.replies import correction, parse_reply
from helix.executor.settings import RunSettings
from helix.executor.values import Failure
from helix.results import StepReport
from helix.types import Type

FIRST_BACKOFF = 0.5
LONGEST_BACKOFF = 30.0


class Pause:
    """A pause that an overloaded server asked for: it holds up everybody on that engine together."""

    def __init__(self) -> None:
        self._until = 0.0
        self.count = 0

    def extend(self, seconds: float) -> None:
        """Holds up all calls for so many seconds from now, or longer where a longer pause is running."""
        self.count += 1
        self._until = max(self._until, asyncio.get_running_loop().time() + seconds)

    async def wait(self) -> None:
        """Waits until the pause is over; it may grow meanwhile."""
        loop = asyncio.get_running_loop()
        while True:
            left = self._until - loop.time()
            if left <= 0:
                return
            await asyncio.sleep(left)


class Limits:
    """What bounds all calls of a run together: its deadline and budgets. `stop` ends the run with a reason."""

    def __init__(self, settings: RunSettings, stop: Callable[[str, bool], None]) -> None:
        self.settings = settings
        self.deadline: float | None = None
        self.stop = stop
        self.calls = 0
        self.tokens = 0

    def start(self) -> None:
        """Starts the clock."""
        if self.settings.run_timeout is not None:
            self.deadline = asyncio.get_running_loop().time() + self.settings.run_timeout

    def count_call(self) -> None:
        """Counts a call before it is made. Raises LimitError where the budget is used up."""
        limit = self.settings.max_calls
        if limit is not None and self.calls >= limit:
            self.stop(f"the budget of {limit} calls is used up", False)
            raise _OverBudget(f"the budget of {limit} calls is used up")
        self.calls += 1

    def count_tokens(self, tokens: int) -> None:
        """Counts tokens after a call; past the budget no further call is made."""
        self.tokens += tokens
        limit = self.settings.max_tokens
        if limit is not None and self.tokens >= limit:
            self.stop(f"the budget of {limit} tokens is used up", False)

    async def timed(self, work: Awaitable[Any], call_timeout: float | None) -> Any:
        """Awaits within the time of a call and of the run. Raises _TimedOut."""
        loop = asyncio.get_running_loop()
        ends = None if call_timeout is None else loop.time() + call_timeout
        by_run = self.deadline is not None and (ends is None or self.deadline < ends)
        if by_run:
            ends = self.deadline
        if ends is None:
            return await work
        try:
            async with asyncio.timeout_at(ends):
                return await work
        except TimeoutError:
            if loop.time() < ends:
                raise
            seconds = self.settings.run_timeout if by_run else call_timeout
            what = "the run's time limit" if by_run else "no reply within"
            raise _TimedOut(f"{what} of {seconds:g} s" if by_run else f"{what} {seconds:g} s", final=by_run) from None


class _OverBudget(ExecutionError):
    kind = "limit"


class _TimedOut(ExecutionError):
    kind = "timeout"

    def __init__(self, message: str, *, final: bool) -> None:
        super().__init__(message)
        self.final = final


class EngineCaller:
    """Makes the calls of one llm step on one engine."""

    def __init__(
        self,
        engine: Engine,
        pause: Pause,
        limits: Limits,
        report: StepReport,
        *,
        attempts: int,
        timeout: float | None,
        reask: int,
        returns: Type,
        coerce: bool,
    ) -> None:
        self._engine = engine
        self._pause = pause
        self._limits = limits
        self._report = report
        self._attempts = attempts
        self._timeout = timeout
        self._reask = reask
        self._returns = returns
        self._coerce = coerce

    async def make(self, request: Request, call: Call) -> Outcome:
        """Makes the call with all its attempts; the outcome's text is one that parses."""
        made = 0
        reasks = 0
        original = request
        try:
            while True:
                reply, tries = await self._attempt(request, made, call)
                made += tries
                try:
                    parse_reply(reply.text, self._returns, reply.finish, coerce=self._coerce)
                except OutputError as error:
                    if reasks >= self._reask or error.kind == "truncated":
                        return Outcome(None, self._failure(error, call, made))
                    reasks += 1
                    self._report.reasks += 1
                    request = _reasked(original, error, self._returns)
                    continue
                return Outcome(reply.text)
        except _Failed as failed:
            return Outcome(None, self._failure(failed.error, call, failed.attempts))

    async def _attempt(self, request: Request, made: int, call: Call) -> tuple[Reply, int]:
        """One reply, with retries; gives the number of attempts that it took. Raises _Failed."""
        tries = 0
        waited = 0.0
        waits = 0
        settings = self._limits.settings
        while True:
            await self._pause.wait()
            try:
                self._limits.count_call()
                reply = await self._timed_reply(request)
                return reply, tries + 1
            except EngineError as error:
                if error.fatal:
                    self._limits.stop(error.message, True)
                    raise _Failed(error, made + tries + 1) from None
                if error.overloaded:
                    # An overloaded server costs time, not attempts: everybody waits, as long as it asks for.
                    pause = error.retry_after if error.retry_after is not None else _backoff(waits, call, waits)
                    waits += 1
                    waited += max(pause, 0.01)
                    if waited > settings.wait_limit:
                        raise _Failed(error, made + tries + 1) from None
                    self._report.retries += 1
                    self._pause.extend(pause)
                    continue
                tries += 1
                if not error.retryable or tries >= self._attempts:
                    raise _Failed(error, made + tries) from None
                self._report.retries += 1
                delay = error.retry_after if error.retry_after is not None else _backoff(tries - 1, call, made)
                await self._sleep(delay, made + tries)
            except _TimedOut as error:
                tries += 1
                if error.final or tries >= self._attempts:
                    raise _Failed(error, made + tries) from None
                self._report.retries += 1
            except _OverBudget as error:
                raise _Failed(error, made + tries) from None

    async def _timed_reply(self, request: Request) -> Reply:
        loop = asyncio.get_running_loop()
        start = loop.time()
        report = self._report
        report.calls += 1
        try:
            reply: Reply = await self._limits.timed(self._engine.generate(request), self._timeout)
        finally:
            report.seconds += loop.time() - start
        report.prompt_tokens += reply.prompt_tokens or 0
        report.completion_tokens += reply.completion_tokens or 0
        report.cached_tokens += reply.cached_tokens or 0
        self._limits.count_tokens((reply.prompt_tokens or 0) + (reply.completion_tokens or 0))
        return reply

    async def _sleep(self, seconds: float, made: int) -> None:
        try:
            await self._limits.timed(asyncio.sleep(seconds), None)
        except _TimedOut as error:
            raise _Failed(error, made) from None

    def _failure(self, error: ExecutionError, call: Call, attempts: int) -> Failure:
        raw = error.text if isinstance(error, OutputError) else None
        return Failure(error.kind, error.message, step=call.step, order=call.order, attempts=attempts, raw=raw)


class _Failed(Exception):
    """A call that will not be tried again."""

    def __init__(self, error: ExecutionError, attempts: int) -> None:
        super().__init__(error.message)
        self.error = error
        self.attempts = attempts


def _reasked(request: Request, error: OutputError, kind: Type) -> Request:
    """The request again with the bad reply and a correction at its tail, so that its prefix stays cached."""
    bad = (Message(role="assistant", content=error.text),) if error.text.strip() else ()
    tail = (*bad, Message(role="user", content=correction(error, kind)))
    return replace(request, messages=(*request.messages, *tail))


def _backoff(number: int, call: Call, salt: int) -> float:
    """Seconds before the next attempt: doubling, with a jitter drawn from the call's place, so that runs repeat."""
    digest = blake2b(repr((call.priority, number, salt)).encode(), digest_size=4).digest()
    jitter = 0.5 + int.from_bytes(digest, "big") / 2**33
    return min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0 ** min(number, 16)) * jitter


class ToolCaller:
    """Makes the calls of one tool step: one attempt, since a tool that raised may have acted."""

    def __init__(
        self, run: Callable[[list[Any]], Awaitable[str]], limits: Limits, report: StepReport, timeout: float | None
    ) -> None:
        self._run = run
        self._limits = limits
        self._report = report
        self._timeout = timeout

    async def make(self, args: list[Any], call: Call) -> Outcome:
        """Runs the tool; the outcome's text is its result as JSON."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        try:
            self._limits.count_call()
            self._report.calls += 1
            return Outcome(await self._limits.timed(self._run(args), self._timeout))
        except ExecutionError as error:
            trace = error.traceback if isinstance(error, ToolError) else ""
            failure = Failure(error.kind, error.message, step=call.step, order=call.order, attempts=1, traceback=trace)
            return Outcome(None, failure)
        finally:
            self._report.seconds += loop.time() - start
