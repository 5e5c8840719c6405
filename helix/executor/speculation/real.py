"""The real calls of a run: each has its result from a guess, or is made; those that act change the epoch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from helix.executor.speculation.books import Books
from helix.executor.speculation.effect import effect_of
from helix.executor.speculation.epochs import Epochs
from helix.executor.speculation.guess import Guess
from helix.executor.speculation.table import GuessTable
from helix.executor.tool_calls import Make, ToolCall
from helix.services import Tool
from helix.tools.effects import HARMLESS, Effect


class RealCalls:
    """Stands around real calls. `timeout` is their time limit, `lead` how long the decision took that asked for one."""

    def __init__(
        self,
        books: Books,
        epochs: Epochs,
        table: GuessTable,
        *,
        known: Callable[[Tool], Tool],
        timeout: Callable[[Tool], float | None],
        lead: Callable[[ToolCall], float | None],
    ) -> None:
        self._books = books
        self._settings = books.settings
        self._epochs = epochs
        self._table = table
        self._known = known
        self._timeout = timeout
        self._lead = lead
        self._comparing: set[asyncio.Task[None]] = set()

    async def __call__(self, call: ToolCall, make: Make) -> str:
        """The result of a call."""
        if call.tool.hinted:
            call = replace(call, tool=self._known(call.tool))
        effect = effect_of(call.tool, call.args)
        self._books.figures.real_calls += 1
        if effect.effects not in HARMLESS:
            return await self._act(call.tool, effect, make)
        self._books.figures.real_reads += 1
        now = asyncio.get_running_loop().time()
        guess = self._matching(call, effect, now)
        if guess is None:
            return await self._made(call, make)
        if guess.kind == "shadow":
            return await self._shadowed(guess, call, make, now)
        stage = self._books.state.stage(call.tool)
        if guess.kind == "issue" or stage.stage != "serve" or stage.audits(self._settings):
            return await self._compared(guess, call, make, now)
        text = await self._served(guess, call, now)
        return await self._made(call, make) if text is None else text

    def _matching(self, call: ToolCall, effect: Effect, now: float) -> Guess | None:
        """The guess that a call may have its result from."""
        if effect.volatile:
            return None
        table, tool = self._table, call.tool
        guess = table.find(table.key(tool, table.call(tool, call.args), effect, (call.session, call.turn)), now)
        if guess is None:
            return None
        guess.matched = True
        if guess.kind != "shadow" and guess.state == "waiting":
            # It has not begun: the real call goes ahead of all guesses.
            table.drop(guess)
            return None
        return guess

    async def _act(self, tool: Tool, effect: Effect, make: Make) -> str:
        """Makes a call that writes, or may: what was read before it, or while it went on, is worth nothing any more."""
        self._epochs.bump(effect.writes)
        self._table.drop_stale()
        try:
            async with self._table.lane.real(tool, lambda seconds: self._place(tool, seconds)):
                return await make()
        except BaseException as error:
            given_up = isinstance(error, asyncio.CancelledError | TimeoutError)
            if (given_up or getattr(error, "kind", "") == "timeout") and not tool.cancellable:
                # Nobody waits for it any more, and it may still be at work.
                self._epochs.broke(effect.writes)
            raise
        finally:
            self._epochs.bump(effect.writes)
            self._table.drop_stale()

    async def _made(self, call: ToolCall, make: Make) -> str:
        """Makes a call that reads."""
        tool, loop = call.tool, asyncio.get_running_loop()
        async with self._table.lane.real(tool, lambda seconds: self._place(tool, seconds)):
            began = loop.time()
            text = await make()
            seconds = loop.time() - began
        self._books.state.tool_times(tool).add(seconds)
        self._limit(call, seconds)
        return text

    async def _shadowed(self, guess: Guess, call: ToolCall, make: Make, now: float) -> str:
        """Makes a call that a guess in the shadow would have served."""
        loop = asyncio.get_running_loop()
        text = await self._made(call, make)
        if not guess.settled:
            lead, seconds = now - guess.born, loop.time() - now
            self._books.saved(guess, min(lead, seconds), loop.time(), late=lead < seconds)
        self._table.drop(guess)
        return text

    async def _served(self, guess: Guess, call: ToolCall, now: float) -> str | None:
        """The result of a guess, awaited at the priority of the call; None where there is none to serve."""
        tool, late, loop = guess.tool, guess.state == "running", asyncio.get_running_loop()
        limit = self._timeout(tool)
        guess.claims += 1
        try:
            if guess.task is not None and not guess.task.done():
                # From now on it has the place of the call that waits for it, and no second one is begun.
                self._table.lane.promote(guess)
                rest = None if limit is None or guess.began is None else max(0.0, guess.began + limit - now)
                void = guess.void = guess.void or loop.create_future()
                async with self._table.lane.real(tool, lambda seconds: self._place(tool, seconds)):
                    first = asyncio.FIRST_COMPLETED
                    await asyncio.wait((guess.task, void), timeout=rest, return_when=first)
            slow = limit is not None and guess.seconds > limit
            if guess.state != "done" or guess.text is None or slow or not self._table.current(guess):
                # An error is never served, nor what took longer than the call itself might have: it is made again.
                return None
            if not guess.served:
                self._books.state.tool_times(tool).add(guess.seconds)
            guess.served += 1
            self._limit(call, guess.seconds)
            self._books.saved(guess, max(0.0, guess.seconds - (loop.time() - now)), loop.time(), late=late)
            return guess.text
        finally:
            guess.claims -= 1
            self._table.give_up(guess, (call.session, call.turn))

    async def _compared(self, guess: Guess, call: ToolCall, make: Make, now: float) -> str:
        """Makes a call, and has its result compared with that of a guess, which nobody is served."""
        loop = asyncio.get_running_loop()
        owner = (call.session, call.turn)
        guess.claims += 1
        try:
            text = await self._made(call, make)
        except BaseException:
            guess.claims -= 1
            self._table.give_up(guess, owner)
            raise
        hidden = min(max(0.0, now - guess.born), loop.time() - now)
        task = loop.create_task(self._compare(guess, owner, text, hidden))
        self._comparing.add(task)
        task.add_done_callback(self._comparing.discard)
        return text

    async def _compare(self, guess: Guess, owner: tuple[str, int | None], text: str, hidden: float) -> None:
        loop = asyncio.get_running_loop()
        try:
            if guess.task is not None and not guess.task.done():
                await asyncio.wait((guess.task,), timeout=self._settings.deadline)
            if guess.state != "done" or guess.text is None or not self._table.current(guess):
                return
            equal = guess.text == text
            self._books.compared(guess, equal)
            if equal:
                self._books.settle(guess, loop.time(), hidden)
            else:
                # Nothing that is on its way is served of a tool that has shown a difference.
                self._table.drop_tool(guess.tool)
        finally:
            guess.claims -= 1
            self._table.give_up(guess, owner)

    def _place(self, tool: Tool, delayed: float) -> None:
        self._books.real_call(tool, delayed, asyncio.get_running_loop().time())

    def _limit(self, call: ToolCall, seconds: float) -> None:
        """What a call could have been spared, had it begun with the decision that asked for it."""
        lead = self._lead(call)
        if lead is not None:
            self._books.figures.limit += min(lead, seconds)

    async def close(self) -> None:
        """Gives up what is being compared."""
        tasks = list(self._comparing)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
