"""The books of speculation: what guesses have saved and cost, for the report, the breakers and the stages of tools."""

from __future__ import annotations

import re

from helix.executor.speculation.breaker import Breaker, State
from helix.executor.speculation.budgets import rate_group
from helix.executor.speculation.figures import Figures
from helix.executor.speculation.guess import Guess
from helix.executor.speculation.log import LaunchLog
from helix.executor.speculation.sessions import own_name
from helix.executor.speculation.settings import SpeculationSettings
from helix.executor.speculation.state import SpeculationState
from helix.services import Tool

# What a server says that gets too many calls.
_TOO_MANY = re.compile(r"\b429\b|too many requests", re.IGNORECASE)


class Books:
    """Books each guess once. Times are seconds of the run's clock."""

    def __init__(self, settings: SpeculationSettings, state: SpeculationState, log: LaunchLog | None) -> None:
        self.settings = settings
        self.state = state
        self.figures = Figures()
        self.log = log
        self._breakers: dict[str, Breaker] = {}

    def breaker(self, tool: Tool, now: float) -> State:
        """What the breaker of a tool's rate group allows."""
        return self._of(tool).state(now)

    def _of(self, tool: Tool) -> Breaker:
        return self._breakers.setdefault(rate_group(tool), Breaker(self.settings))

    def made(self, guess: Guess, now: float) -> None:
        """A guess passed the gate."""
        self.figures.guess(own_name(guess.tool.name), shadow=guess.kind == "shadow")
        if self.log is not None:
            self.log.launched(guess, now)

    def failed(self, guess: Guess, error: BaseException, now: float) -> None:
        """A guess's call raised."""
        self.figures.errors += 1
        if _TOO_MANY.search(str(error)):
            self._of(guess.tool).refused(now)
            self._note(guess.tool)

    def saved(self, guess: Guess, hidden: float, now: float, *, late: bool) -> None:
        """A real call has its result from a guess; in the shadow it would have had it."""
        if guess.kind == "shadow":
            self.figures.shadow_hit(own_name(guess.tool.name), hidden)
        else:
            self.figures.hit(own_name(guess.tool.name), hidden, late=late)
        self.settle(guess, now, hidden)

    def compared(self, guess: Guess, equal: bool) -> None:
        """A guess's result was compared with the real one."""
        self.figures.compared += 1
        self.figures.differences += not equal
        self.state.stage(guess.tool).compared(equal, self.settings)
        if self.log is not None:
            self.log.compared(guess, equal)

    def real_call(self, tool: Tool, delayed: float, now: float) -> None:
        """A real call got its place, after so many seconds that guesses held it up."""
        self.figures.delayed += delayed
        self._of(tool).real_call(now, delayed > 0)
        self._note(tool)

    def settle(self, guess: Guess, now: float, hidden: float | None = None) -> None:
        """Books what a guess saved (seconds), or that it was for nothing (None)."""
        if guess.settled:
            return
        guess.settled = True
        if guess.kind != "shadow" and not guess.launched:
            # It never began: it has cost nothing and says nothing.
            return
        value = -self.settings.fixed
        value += -guess.worth.waste if hidden is None else self.settings.second * hidden
        if guess.launched:
            self.figures.launched += 1
            self.figures.fees += guess.tool.fee or 0.0
            if not guess.served and hidden is None:
                self.figures.wasted += 1
                self.figures.wasted_seconds += (now if guess.ended is None else guess.ended) - (guess.began or 0.0)
        else:
            self.state.stage(guess.tool).shadowed(value, self.settings)
        self._of(guess.tool).resolved(now, p_low=guess.p_low, hit=hidden is not None or guess.matched, value=value)
        self._note(guess.tool)
        if self.log is not None:
            self.log.settled(guess, hidden, now)

    def _note(self, tool: Tool) -> None:
        breaker = self._of(tool)
        if breaker.opened:
            self.figures.breakers[rate_group(tool)] = breaker.reason
