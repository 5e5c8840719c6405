"""Which of two things the end of a run waits for: the work of the engine, or the longest chain of calls of one row.

What a chain takes is learned: how long calls take, and what goes by between one of a row and its next one, as for a
tool. How long the work takes is what is left of it over the calls that end in a second.
"""

from __future__ import annotations

from collections.abc import Iterable

# Calls that have to end before anything is said.
ENOUGH = 16
# The chain counts once it is so much of the work.
MUCH = 1.2


class Chains:
    """Of one rank. Times are in seconds."""

    __slots__ = ("_began", "_called", "_calls", "_gaps", "_waited")

    def __init__(self) -> None:
        self._began: float | None = None
        self._called = self._waited = 0.0
        self._calls = self._gaps = 0

    def call(self, began: float, ended: float) -> None:
        """A call has ended."""
        self._began = began if self._began is None else self._began
        self._called += ended - began
        self._calls += 1

    def gap(self, seconds: float) -> None:
        """So long a row had no call."""
        self._waited += seconds
        self._gaps += 1

    def bind(self, now: float, left: Iterable[int]) -> bool:
        """Whether the longest of some chains, of so many calls each, takes much of the time that all of them take."""
        if self._began is None or self._calls < ENOUGH or now <= self._began:
            return False
        longest = total = 0
        for each in left:
            longest = max(longest, each)
            total += each
        turn = self._called / self._calls + (self._waited / self._gaps if self._gaps else 0.0)
        return longest * turn >= MUCH * total * (now - self._began) / self._calls
