"""The breaker: stops guesses at a tool that cost more than they save, are wrong more often than told, or do harm."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Literal

from helix.executor.speculation.settings import SpeculationSettings

State = Literal["closed", "open", "shadow"]
# A hit rate this many standard deviations below what was told is no accident.
_FAR = 2.33
# The share of real calls that guesses may hold up.
_HELD_UP = 0.1


@dataclass(frozen=True, slots=True)
class _Outcome:
    p_low: float
    hit: bool
    value: float


class Breaker:
    """The breaker of one rate group. `closed`: guesses may be made. `open`: none is, until the cool-off has passed.
    `shadow`: they are counted but not made, and close it again where they would have been worth their cost.

    `reason` says why it opened last. Times are of the run's clock.
    """

    def __init__(self, settings: SpeculationSettings) -> None:
        self._settings = settings
        self._outcomes: deque[_Outcome] = deque(maxlen=max(1, settings.window))
        self._held: deque[bool] = deque(maxlen=max(1, settings.window))
        self._until = 0.0
        self._cool_off = settings.cool_off
        self._state: State = "closed"
        self.reason = ""
        self.opened = 0

    def state(self, now: float) -> State:
        """What is allowed now."""
        if self._state == "open" and now >= self._until:
            self._state = "shadow"
            self._outcomes.clear()
            self._held.clear()
        return self._state

    def resolved(self, now: float, *, p_low: float, hit: bool, value: float) -> None:
        """A guess, made or counted in the shadow, was right or wrong, and was worth so much."""
        if self.state(now) == "open":
            return
        self._outcomes.append(_Outcome(p_low, hit, value))
        if len(self._outcomes) < self._settings.least:
            return
        bad = self._bad()
        if bad is not None:
            self._open(now, bad)
        elif self._state == "shadow":
            self._state = "closed"
            self._cool_off = self._settings.cool_off
            self._outcomes.clear()

    def _bad(self) -> str | None:
        outcomes = self._outcomes
        if sum(each.value for each in outcomes) < 0:
            return "guesses cost more than they save"
        told = sum(each.p_low for each in outcomes)
        spread = math.sqrt(sum(each.p_low * (1 - each.p_low) for each in outcomes))
        if sum(each.hit for each in outcomes) < told - _FAR * spread - 0.5:
            return "guesses are right less often than told"
        return None

    def refused(self, now: float) -> None:
        """A server said that it gets too many calls (429)."""
        if self.state(now) != "open":
            self._open(now, "a server gets too many calls")

    def real_call(self, now: float, held_up: bool) -> None:
        """A real call was made; guesses held it up or not."""
        self._held.append(held_up)
        if self.state(now) == "closed" and held_up:
            enough = len(self._held) >= self._settings.least
            if enough and sum(self._held) > _HELD_UP * len(self._held):
                self._open(now, "guesses hold up real calls")

    def _open(self, now: float, reason: str) -> None:
        self._state = "open"
        self.reason = reason
        self.opened += 1
        self._until = now + self._cool_off
        self._cool_off = min(2 * self._cool_off, self._settings.longest_cool_off)
        self._outcomes.clear()
        self._held.clear()
