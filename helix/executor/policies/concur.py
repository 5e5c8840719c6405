"""CONCUR (arXiv 2601.22705): a window of agents that grows and shrinks with what the engine says of its cache.

Every tick the window grows by 2 where less than a fifth of the cache is in use, and is halved where more than half is
in use and less than a fifth of the prompts was found there. Agents beyond it are paused between their calls, the newest
first, and go on in the order in which they came. The window to start with and the tick are ours: 8 agents, 2 seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from helix.executor.engines.base import Capabilities, Load
from helix.executor.policies.base import BLOCK, CallQueue, EnginePlace, PolicyBase, Warmup
from helix.executor.policies.programs import Clock, ProgramQueue

if TYPE_CHECKING:
    from helix.executor.calls import Call, Outcome

START, TICK = 8.0, 2.0
MORE, LESS = 2.0, 0.5
LITTLE_USE, MUCH_USE, FEW_HITS = 0.2, 0.5, 0.2


class Concur(PolicyBase):
    """See the module. `tick` is in seconds."""

    def __init__(self, tick: float = TICK) -> None:
        self._tick = tick

    @property
    def name(self) -> str:
        return "concur" if self._tick == TICK else f"concur:{self._tick:g}"

    def rows(self, window: int) -> int:
        return max(window, BLOCK)

    def slots(self, capabilities: Capabilities, usual: int) -> int:
        return max(usual, BLOCK)

    def queue(self, place: EnginePlace) -> CallQueue:
        return ConcurQueue(place, self._tick)

    def describe(self) -> str:
        return "a window of rows that grows while the cache is empty and is halved while it loses what rows need"


class ConcurQueue(ProgramQueue):
    """`window` are the rows that may be at work."""

    def __init__(self, place: EnginePlace, tick: float = TICK) -> None:
        super().__init__(place.ranks)
        self.window = START
        self._active = 0
        # What prompts asked for and found since the last tick, in tokens.
        self._asked = self._found = 0
        self._clock = Clock(tick, self.tick, lambda: bool(self.programs), place.load)
        # The engine chooses the rank.
        self._ranks = 1

    def take(self) -> Call | Warmup | None:
        self._clock.start()
        while (call := self.next_call()) is None:
            waits = (each for each in self.programs.values() if not each.active and each.waiting)
            program = min(waits, key=lambda each: each.number, default=None)
            if program is None or self._active >= int(self.window):
                return None
            self.let_in(program)
            self._active += 1
        return call

    def tick(self, load: tuple[Load, ...]) -> None:
        """Sets the window by what the engine says and by the hits since the last time."""
        held = [each.held for each in load if each.held is not None]
        use = sum(held) / len(held) if held else 0.0
        hits = self._found / self._asked if self._asked else 1.0
        if use < LITTLE_USE:
            self.window += MORE
        elif use > MUCH_USE and hits < FEW_HITS:
            self.window = max(1.0, self.window * LESS)
        self._asked = self._found = 0
        self._shrink()
        self.wake()

    def _shrink(self) -> None:
        """Pauses the newest programs that are between two calls."""
        more = self._active - int(self.window)
        if more <= 0:
            return
        between = [each for each in self.programs.values() if each.active and not each.running]
        for program in sorted(between, key=lambda each: -each.number)[:more]:
            self.pause(program)
            self._active -= 1

    def ended(self, call: Call, outcome: Outcome) -> None:
        reply = call.reply
        if reply is not None and reply.prompt_tokens and reply.cached_tokens is not None:
            self._asked += reply.prompt_tokens
            self._found += reply.cached_tokens
        super().ended(call, outcome)

    def dropped(self, call: Call) -> None:
        super().dropped(call)
        self._shrink()

    def row_ended(self, row: object) -> None:
        program = self.programs.get(row)
        if program is not None and program.active:
            self._active -= 1
        super().row_ended(row)
