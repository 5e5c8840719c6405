"""One call made until it succeeds or cannot: attempts, back-off, pauses, time limits, re-ask (contract 11, 16)."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from helix.errors import EngineError, ExecutionError, OutputError, ToolError
from helix.executor.calls import Call, Outcome
from helix.executor.engines.base import Engine, Message, Reply, Request
from helix.executor.limits import CutShort, Limits, TimedOut
from helix.executor.outage import Outage
from helix.executor.overload import Overload
from helix.executor.values import Failure
from helix.replies import correction, parse_reply
from helix.results import StepReport
from helix.types import TEXT, Type

FIRST_BACKOFF = 0.5
LONGEST_BACKOFF = 30.0
# How often one call puts up with an overloaded server, whatever the waits it asks for.
MOST_PAUSES = 500
# How often a call is made again since the engine went away while it was made: it may be what brings the engine down.
MOST_OUTAGES = 5


class EngineCaller:
    """Makes the calls of one llm step on one engine."""

    def __init__(
        self,
        engine: Engine,
        overload: Overload,
        outage: Outage,
        limits: Limits,
        report: StepReport,
        *,
        attempts: int,
        timeout: float | None,
        reask: int,
        returns: Type,
        coerce: bool,
        pack: Callable[[Reply], str] = lambda reply: reply.text,
    ) -> None:
        """`pack` makes the outcome's text of a reply."""
        self._engine = engine
        self._pack = pack
        self._overload = overload
        self._outage = outage
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
        while True:
            try:
                reply, made = await self._reply(request, made, call)
            except _Failed as failed:
                return Outcome(None, self._failure(failed.error, call, failed.attempts))
            try:
                parse_reply(reply.text, self._returns, reply.finish, coerce=self._coerce)
            except OutputError as error:
                if reasks >= self._reask or error.kind == "truncated":
                    return Outcome(None, self._failure(error, call, made))
                reasks += 1
                self._report.reasks += 1
                request = _reasked(original, error, self._returns)
                continue
            self._report.done += 1
            if self._returns == TEXT and reply.finish == "length":
                self._report.cut_replies += 1
            return Outcome(self._pack(reply))

    async def count_tokens(self, request: Request) -> int | None:
        """The length of a prompt in tokens; None where the engine cannot tell.

        The count is a courtesy: the call itself will tell what is wrong with the engine.
        """
        try:
            tokens: int = await self._limits.timed(self._engine.count_tokens(request), self._timeout)
            return tokens
        except Exception:
            return None

    async def _reply(self, request: Request, made: int, call: Call) -> tuple[Reply, int]:
        """One reply, with retries; gives the number of attempts made so far. Raises _Failed."""
        tries = pauses = outages = 0
        waited = 0.0
        came = began = asyncio.get_running_loop().time()
        most_wait = self._limits.settings.wait_limit
        last: ExecutionError | None = None
        while True:
            try:
                if (full := await self._overload.enter(self._limits, came)) is not None:
                    raise _Failed(full, made + tries + min(1, pauses))
                answered = False
                try:
                    await self._outage.wait()
                    self._limits.count_call()
                    began = asyncio.get_running_loop().time()
                    reply = await self._timed_reply(request, call)
                    answered = True
                finally:
                    self._overload.leave(answered=answered)
                return reply, made + tries + 1
            except CutShort as error:
                raise _Failed(error if last is None else _given_up(error, last), made + tries) from None
            except TimedOut as error:
                if call.record is not None:
                    call.record.failed(error, request)
                last = error
                tries += 1
                if error.final or tries >= self._attempts:
                    raise _Failed(error, made + tries) from None
                wait = 0.0
            except EngineError as error:
                if call.record is not None:
                    call.record.failed(error, request)
                last = error
                if error.fatal:
                    self._limits.stop(error.message, fatal=True)
                    raise _Failed(error, made + tries + 1) from None
                if error.overloaded:
                    # An overloaded server costs time, not attempts: everybody waits, as long as it asks for.
                    pause = error.retry_after or _backoff(pauses, call, pauses)
                    pauses += 1
                    waited += pause
                    if pause > most_wait:
                        asked = (
                            f"the engine asks to wait {pause:g} s, longer than the {most_wait:g} s that a call waits"
                        )
                        self._limits.stop(f"{asked}: {error.message}")
                    if waited > most_wait or pauses > MOST_PAUSES:
                        raise _Failed(error, made + tries + 1) from None
                    self._overload.met(error, began, pause)
                    wait = 0.0
                elif await self._was_away(error, began, made + tries):
                    # Nor does an engine that is gone: all wait until it is back.
                    outages += 1
                    if outages > MOST_OUTAGES:
                        raise _Failed(_often(error, outages), made + tries + 1) from None
                    wait = 0.0
                else:
                    tries += 1
                    wait = _backoff(tries - 1, call, made) if error.retry_after is None else error.retry_after
                    if not error.retryable or tries >= self._attempts or wait > most_wait:
                        raise _Failed(error, made + tries) from None
            self._report.retries += 1
            try:
                await self._limits.sleep(wait)
            except CutShort as error:
                raise _Failed(_given_up(error, last), made + tries) from None

    async def _was_away(self, error: EngineError, began: float, made: int) -> bool:
        """Whether a call failed since the engine had gone; returns once it is back. Raises _Failed."""
        try:
            return await self._outage.met(error, began)
        except CutShort as cut:
            raise _Failed(_given_up(cut, error), made) from None

    async def _timed_reply(self, request: Request, call: Call) -> Reply:
        loop = asyncio.get_running_loop()
        start = loop.time()
        report = self._report
        report.calls += 1
        if call.record is not None:
            call.record.attempt()
        try:
            reply: Reply = await self._limits.timed(self._engine.generate(request), self._timeout)
        except ExecutionError:
            raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise EngineError(f"{self._engine.name} dropped the call", retryable=True) from None
        except Exception as error:
            # An engine's fault is this row's error, not the end of the others.
            raise EngineError(f"{self._engine.name} raised {type(error).__name__}: {error}") from error
        finally:
            report.seconds += loop.time() - start
        call.reply = reply
        report.count_tokens(reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens)
        if call.record is not None:
            call.record.reply(request, reply)
        self._limits.count_tokens((reply.prompt_tokens or 0) + (reply.completion_tokens or 0))
        return reply

    def _failure(self, error: ExecutionError, call: Call, attempts: int) -> Failure:
        raw = error.text if isinstance(error, OutputError) else None
        passing = isinstance(error, TimedOut) and error.final
        return Failure(
            error.kind, error.message, step=call.step, order=call.order, attempts=attempts, raw=raw, passing=passing
        )


class _Failed(Exception):
    """A call that will not be tried again."""

    def __init__(self, error: ExecutionError, attempts: int) -> None:
        super().__init__(error.message)
        self.error = error
        self.attempts = attempts


def _given_up(error: CutShort, last: ExecutionError) -> CutShort:
    """The end of a call that waited to be tried again when the run ended."""
    reason = error.message.partition(": ")[2]
    return CutShort(f"not tried again: {reason}; the attempt before failed: {last.message}", error.kind)


def _often(error: EngineError, times: int) -> EngineError:
    """The end of a call during which the engine went away again and again."""
    return EngineError(f"the engine went away {times} times while it worked on this call: {error.message}")


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
        self,
        run: Callable[[list[Any], Call], Awaitable[str]],
        limits: Limits,
        report: StepReport,
        timeout: float | None,
    ) -> None:
        self._run = run
        self._limits = limits
        self._report = report
        self._timeout = timeout

    def expect(self, args: list[Any], call: Call) -> None:
        """Hears of a call that waits for its turn."""

    async def make(self, args: list[Any], call: Call) -> Outcome:
        """Runs the tool; the outcome's text is its result as JSON."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        made = 0
        trace = ""
        passing = False
        try:
            self._limits.count_call()
            self._report.calls += 1
            if call.record is not None:
                call.record.attempt()
            made = 1
            text = await self._limits.timed(self._run(args, call), self._timeout, "result")
            self._report.done += 1
            return Outcome(text)
        except ExecutionError as error:
            kind, message = error.kind, error.message
            trace = error.traceback if isinstance(error, ToolError) else ""
            passing = isinstance(error, TimedOut) and error.final
        except Exception as error:
            kind, message, trace = "tool", f"{type(error).__name__}: {error}", traceback.format_exc()
        finally:
            self._report.seconds += loop.time() - start
        failure = Failure(
            kind, message, step=call.step, order=call.order, attempts=made, traceback=trace, passing=passing
        )
        return Outcome(None, failure)
