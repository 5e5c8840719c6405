"""Calls of one tool that wait while others are made, answered together by one query.

Nothing waits for a batch to fill up: a worker that comes to make a call takes along those that are waiting just then.
They keep their place in line; when their turn comes, the answer is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from helix.executor.attempts import ToolCaller
from helix.executor.calls import Call, Outcome
from helix.executor.limits import CutShort, Limits
from helix.results import StepReport

Many = Callable[[list[list[Any]]], Awaitable[list[str | None]]]


class BatchCaller(ToolCaller):
    """Makes the calls of one tool step, up to `size` of them by one query.

    A call that a batch does not answer is made by itself, so that its error is its own. A batch counts as one call, and
    one that answers nothing as none: the next one is half as large.
    """

    def __init__(
        self,
        run: Callable[[list[Any], Call], Awaitable[str]],
        many: Many,
        limits: Limits,
        report: StepReport,
        timeout: float | None,
        *,
        size: int,
    ) -> None:
        super().__init__(run, limits, report, timeout)
        self._many = many
        self._size = size
        self._waiting: dict[bytes, tuple[list[Any], Call]] = {}
        self._answers: dict[bytes, asyncio.Future[Outcome | None]] = {}
        self._making: set[bytes] = set()

    def expect(self, args: list[Any], call: Call) -> None:
        """Hears of a call that waits for its turn; an equal one that waits already stands for it."""
        key = call.key
        if key is not None and self._size > 1 and not self._knows(key):
            self._waiting[key] = (args, call)

    def _knows(self, key: bytes) -> bool:
        return key in self._waiting or key in self._answers or key in self._making

    async def make(self, args: list[Any], call: Call) -> Outcome:
        """The outcome of a call whose turn has come."""
        key = call.key
        if key is None:
            return await super().make(args, call)
        self._waiting.pop(key, None)
        self._making.add(key)
        try:
            answer = self._answers.get(key)
            outcome = await (self._together(args, call) if answer is None else answer)
            return outcome or await super().make(args, call)
        finally:
            self._making.discard(key)
            self._answers.pop(key, None)

    async def _together(self, args: list[Any], call: Call) -> Outcome | None:
        """The outcome of a call that is made with those that are waiting; None where it is to be made by itself."""
        mates = self._mates()
        if not mates:
            return None
        loop = asyncio.get_running_loop()
        began = loop.time()
        for key, _ in mates:
            self._answers[key] = loop.create_future()
        pending = [self._answers[key] for key, _ in mates]
        texts: list[str | None] = []
        try:
            texts = await self._asked([args, *(given for _, given in mates)])
        finally:
            for future, text in zip(pending, texts[1:] or [None] * len(pending), strict=True):
                if not future.done():
                    future.set_result(None if text is None else Outcome(text, merged=True))
        if texts[0] is None:
            return None
        if call.record is not None:
            call.record.attempt(began)
        return Outcome(texts[0])

    def _mates(self) -> list[tuple[bytes, list[Any]]]:
        """Takes the calls that are waiting, those that nobody wants any more left out."""
        taken: list[tuple[bytes, list[Any]]] = []
        while self._waiting and len(taken) + 1 < self._size:
            key = next(iter(self._waiting))
            args, call = self._waiting.pop(key)
            if call.wanted():
                taken.append((key, args))
        return taken

    async def _asked(self, calls: list[list[Any]]) -> list[str | None]:
        """The results of several calls by one query; None for those that it does not answer."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        nothing: list[str | None] = [None] * len(calls)
        try:
            self._limits.count_call()
        except CutShort:
            # Each call made by itself tells that the run has ended.
            return nothing
        texts = nothing
        try:
            texts = await self._limits.timed(self._many(calls), self._timeout, "result")
        except Exception:
            # Each call made by itself tells what is wrong, if anything is.
            texts = nothing
        finally:
            self._report.seconds += loop.time() - start
            if texts.count(None) < len(texts):
                self._report.calls += 1
                self._report.done += 1
            else:
                self._limits.uncount_call()
                self._size //= 2
        return texts
