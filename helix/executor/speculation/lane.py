"""The lane of guesses: low priority, some places kept for real calls, no call of theirs behind a guess for long."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from helix.executor.speculation.budgets import Budgets
from helix.executor.speculation.guess import Guess
from helix.executor.speculation.settings import SpeculationSettings
from helix.services import Tool

# The name of the lane of a tool's real calls, and how many are made there at once.
Lanes = Callable[[Tool], tuple[str, int]]
Run = Callable[[Tool, list[Any]], Awaitable[str]]


class _Places:
    """The places of one lane."""

    __slots__ = ("delayed", "guesses", "launched", "moved", "real", "running")

    def __init__(self) -> None:
        self.real = 0
        self.guesses = 0
        self.running: list[Guess] = []
        self.moved: deque[asyncio.Future[None]] = deque()
        self.delayed = 0.0
        self.launched = 0


class GuessLane:
    """Makes guesses where there is room for them.

    `lanes` tells the lane of a tool, `run` makes a call, `ended` hears of each guess that has a result or none, and of
    each that could not be begun for want of budget (with the reason).
    """

    def __init__(
        self,
        settings: SpeculationSettings,
        budgets: Budgets,
        lanes: Lanes,
        run: Run,
        ended: Callable[[Guess, BaseException | None], None],
    ) -> None:
        self._settings = settings
        self._budgets = budgets
        self._lanes = lanes
        self._run = run
        self._ended = ended
        self._places: dict[str, _Places] = {}
        self._waiting: deque[Guess] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    def offer(self, guess: Guess, session: str) -> str | None:
        """Begins a guess, or lets it wait for a place. Gives the reason where a budget forbids it."""
        refusal = self._budgets.refusal(session, guess.tool)
        if refusal is not None:
            guess.state = "dropped"
            return refusal
        self._budgets.launched(session, guess.tool)
        self._waiting.append(guess)
        self.pump()
        return None

    def pump(self) -> None:
        """Begins the guesses that there are places for."""
        for guess in list(self._waiting):
            if guess.state != "waiting":
                continue
            if self._room(guess.tool):
                self._start(guess)
        self._waiting = deque(guess for guess in self._waiting if guess.state == "waiting")

    def _room(self, tool: Tool) -> bool:
        name, size = self._lanes(tool)
        places = self._of(name)
        self._lose(places)
        kept = max(1, math.ceil(size * self._settings.reserved))
        # Where real calls have all places, more of them may wait: then none is left for guesses either.
        return not places.moved and places.guesses + 1 <= size - max(kept, places.real)

    def _of(self, name: str) -> _Places:
        return self._places.setdefault(name, _Places())

    def _start(self, guess: Guess) -> None:
        loop = asyncio.get_running_loop()
        places = self._of(self._lanes(guess.tool)[0])
        places.guesses += 1
        places.launched += 1
        places.running.append(guess)
        guess.state = "running"
        guess.began = loop.time()
        guess.task = loop.create_task(self._work(guess, places))
        self._tasks.add(guess.task)
        guess.task.add_done_callback(self._tasks.discard)

    async def _work(self, guess: Guess, places: _Places) -> None:
        error: BaseException | None = None
        text: str | None = None
        try:
            text = await self._run(guess.tool, guess.args)
        except (Exception, SystemExit, asyncio.CancelledError) as raised:
            # A guess is nobody's call: whatever it raises, the real call finds out by itself.
            error = raised
        guess.ended = asyncio.get_running_loop().time()
        self._budgets.ended(guess.tool)
        if guess in places.running:
            places.running.remove(guess)
            places.guesses -= 1
        if guess.state == "running":
            guess.text = text
            guess.state = "done" if error is None else "failed"
        self._ended(guess, error)
        self._free(places)

    def _free(self, places: _Places) -> None:
        """There may be a place: the first real call that waits looks, and it passes the word on."""
        if places.moved:
            if not places.moved[0].done():
                places.moved[0].set_result(None)
        elif self._waiting:
            self.pump()

    def promote(self, guess: Guess) -> None:
        """A real call waits for a guess that runs: from now on it has the place of that call."""
        places = self._of(self._lanes(guess.tool)[0])
        if guess in places.running:
            places.running.remove(guess)
            places.guesses -= 1

    def drop(self, guess: Guess) -> bool:
        """Gives a guess up. Gives whether its call was cancelled: one that cannot be runs to its end, in its place."""
        if guess.state == "waiting":
            # It never began: its budget is for others.
            self._budgets.ended(guess.tool)
        cancelled = guess.state == "running" and guess.claims == 0 and guess.tool.cancellable
        guess.state = "dropped"
        if cancelled and guess.task is not None:
            guess.task.cancel()
        if guess.void is not None and not guess.void.done():
            guess.void.set_result(None)
        return cancelled

    def expected_delay(self, tool: Tool) -> float:
        """By how much a guess has held up real calls of its lane so far, in seconds."""
        places = self._of(self._lanes(tool)[0])
        return places.delayed / (places.launched + 1)

    @asynccontextmanager
    async def real(self, tool: Tool, delayed: Callable[[float], None]) -> AsyncIterator[None]:
        """The place of a real call. Where guesses have taken too many, one of them that can be cancelled is; else the
        call waits for the first that ends. `delayed` hears how long.
        """
        name, size = self._lanes(tool)
        places = self._of(name)
        places.real += 1
        try:
            waited = 0.0
            if places.moved or (places.guesses and places.real + places.guesses > size):
                waited = await self._make_room(places, size)
            places.delayed += waited
            delayed(waited)
            yield
        finally:
            places.real -= 1
            self._free(places)

    def _lose(self, places: _Places) -> None:
        """Takes the places of guesses that are overdue: nobody waits for such any more."""
        ends = asyncio.get_running_loop().time() - self._settings.deadline
        for guess in places.running.copy():
            if guess.began is not None and guess.began <= ends:
                places.running.remove(guess)
                places.guesses -= 1
                if guess.tool.cancellable and guess.task is not None and guess.claims == 0:
                    guess.task.cancel()

    async def _make_room(self, places: _Places, size: int) -> float:
        """Waits for a place behind those that wait already; gives for how long."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        for guess in reversed(places.running.copy()):
            if places.real + places.guesses > size and guess.tool.cancellable and guess.claims == 0:
                self.drop(guess)
                places.running.remove(guess)
                places.guesses -= 1
        ahead = bool(places.moved)
        again = False
        while ahead or (places.guesses and places.real + places.guesses > size):
            ahead = False
            waiter: asyncio.Future[None] = loop.create_future()
            if again:
                places.moved.appendleft(waiter)
            else:
                places.moved.append(waiter)
            again = True
            oldest = min((guess.began or began for guess in places.running), default=began)
            try:
                await asyncio.wait((waiter,), timeout=max(0.0, oldest + self._settings.deadline - loop.time()))
            finally:
                places.moved.remove(waiter)
            self._lose(places)
        self._free(places)
        return loop.time() - began

    async def close(self) -> None:
        """Ends all guesses."""
        self._waiting.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
