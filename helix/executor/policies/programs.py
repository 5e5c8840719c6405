"""Rows as programs: what policies know that let whole rows in and hold them back between their calls.

A program is *active* while its calls may go. Else it is paused, or has not begun: its calls wait here, and it goes on
with a call that it has, never in the middle of one.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from helix.errors import EngineError
from helix.executor.engines.base import Load, Reply
from helix.executor.policies.base import Ask, Warmup

if TYPE_CHECKING:
    from helix.executor.calls import Call, Outcome

# Characters of a token, until replies have told.
PER_TOKEN = 4.0


class Program:
    """A row at work. `number` is its place in the order of arrival, `tokens` what its last prompt and reply took,
    `running` counts its calls in flight. `begun`: it has been active. `leaving`: it is paused once its calls end.
    """

    __slots__ = ("active", "begun", "instance", "leaving", "number", "prompt", "rank", "running", "tokens", "waiting")

    def __init__(self, instance: object, number: int) -> None:
        self.instance = instance
        self.number = number
        self.waiting: dict[Call, int] = {}
        self.running = 0
        self.tokens = 0.0
        self.prompt: Any = None
        self.rank = 0
        self.active = self.begun = self.leaving = False

    @property
    def reasoning(self) -> bool:
        """Whether it has a call; else it waits for something else, as for a tool."""
        return bool(self.running or self.waiting)


class Clock:
    """Calls `tick` every so many seconds of the loop's time, with what the engine is doing where it tells, as long as
    `alive` says that there is something to look after.
    """

    def __init__(
        self,
        seconds: float,
        tick: Callable[[tuple[Load, ...]], None],
        alive: Callable[[], bool],
        load: Ask | None = None,
    ) -> None:
        self._seconds = seconds
        self._tick = tick
        self._alive = alive
        self._load = load
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts it, where it does not run."""
        if self._timer is None and self._task is None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._fire)

    def _fire(self) -> None:
        self._timer = None
        if not self._alive():
            return
        if self._load is None:
            self._tick(())
            self._again()
        else:
            self._task = asyncio.get_running_loop().create_task(self._look(self._load()))

    async def _look(self, asked: Any) -> None:
        try:
            load: tuple[Load, ...] = await asked
        except EngineError:
            # What an engine that is away is doing is found out when it is back.
            load = ()
        finally:
            self._task = None
        self._tick(load)
        self._again()

    def _again(self) -> None:
        if self._alive():
            self.start()


class ProgramQueue:
    """The calls of active programs go in the order in which they came. Who is active is for others to say."""

    def __init__(self, ranks: int) -> None:
        self.programs: dict[object, Program] = {}
        self.wake: Callable[[], None] = lambda: None
        self._ranks = ranks
        self._arrived = self._put = self._waiting = 0
        # The calls that may go, in the order in which they came.
        self._ready: list[tuple[int, Call]] = []

    def attach(self, wake: Callable[[], None]) -> None:
        self.wake = wake

    def put(self, call: Call) -> None:
        program = self.programs.get(call.instance)
        if program is None:
            self._arrived += 1
            program = self.programs[call.instance] = Program(call.instance, self._arrived)
        self._put += 1
        program.waiting[call] = self._put
        self._waiting += 1
        if program.active:
            heapq.heappush(self._ready, (self._put, call))
        if call.request is not None:
            length = sum(len(message.content) for message in call.request.messages)
            program.tokens = max(program.tokens, length / PER_TOKEN)

    def next_call(self) -> Call | None:
        """The call of an active program that came first."""
        while self._ready:
            number, call = heapq.heappop(self._ready)
            program = self.programs.get(call.instance)
            # What was paused since stands here for nothing; it comes again when it goes on.
            if program is None or not program.active or program.waiting.get(call) != number:
                continue
            del program.waiting[call]
            self._waiting -= 1
            program.running += 1
            if self._ranks > 1:
                call.rank = program.rank
            return call
        return None

    def let_in(self, program: Program) -> None:
        """Makes a program active."""
        program.active = program.begun = True
        program.leaving = False
        for call, number in program.waiting.items():
            heapq.heappush(self._ready, (number, call))

    def pause(self, program: Program) -> None:
        """Holds a program back from its next call on."""
        program.active = program.leaving = False

    @property
    def waiting(self) -> bool:
        """Whether any call waits."""
        return self._waiting > 0

    def ended(self, call: Call, outcome: Outcome) -> None:
        reply = call.reply
        program = self.programs.get(call.instance)
        if program is not None and reply is not None and reply.prompt_tokens is not None:
            program.tokens = float(reply.prompt_tokens + (reply.completion_tokens or 0))
        self.dropped(call)

    def dropped(self, call: Call) -> None:
        program = self.programs.get(call.instance)
        if program is None:
            return
        program.running -= 1
        if program.leaving and not program.running:
            self.pause(program)

    def warmed(self, warmup: Warmup, reply: Reply | None) -> None:
        """Nothing: it makes none."""

    def row_began(self, row: object, rank: int) -> None:
        """Nothing: its programs begin with their first call."""

    def row_ended(self, row: object) -> None:
        self.programs.pop(row, None)

    def drain(self) -> list[Call]:
        found = {call: number for program in self.programs.values() for call, number in program.waiting.items()}
        for program in self.programs.values():
            program.waiting.clear()
        self._ready, self._waiting = [], 0
        return sorted(found, key=found.__getitem__)
