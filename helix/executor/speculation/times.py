"""How long calls take: histograms with bins of 19 %, and the expected time that two of them have in common."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

# Bins per doubling. A bin stands for its middle: an error of at most 9 %.
_FINE = 4
_SHORTEST, _LONGEST = 1e-4, 1e5
# A declared or assumed time counts as so many measured ones.
_PRIOR = 2.0
# Counts above this are halved, so that what was long ago fades.
_MOST = 1000.0


class Times:
    """A histogram of seconds. `prior` is what is assumed before anything was measured; None: nothing is known."""

    __slots__ = ("_counts", "_prior", "_total", "version")

    def __init__(self, prior: float | None = None) -> None:
        self._counts: dict[int, float] = {}
        self._total = 0.0
        self._prior = prior
        self.version = 0

    def add(self, seconds: float) -> None:
        """Notes a measured time."""
        if not math.isfinite(seconds) or seconds < 0:
            return
        place = _bin(seconds)
        self._counts[place] = self._counts.get(place, 0.0) + 1
        self._total += 1
        self.version += 1
        if self._total > _MOST:
            self._counts = {place: count / 2 for place, count in self._counts.items() if count >= 0.5}
            self._total = sum(self._counts.values())

    @property
    def known(self) -> bool:
        """Whether there is anything to expect."""
        return self._total > 0 or self._prior is not None

    def shares(self) -> list[tuple[float, float]]:
        """The times with their probabilities, in order; none where nothing is known."""
        counts = dict(self._counts)
        if self._prior is not None:
            place = _bin(self._prior)
            counts[place] = counts.get(place, 0.0) + _PRIOR
        total = sum(counts.values())
        return [(_middle(place), count / total) for place, count in sorted(counts.items())]

    def mean(self) -> float:
        """The expected time; 0 where nothing is known."""
        return sum(seconds * share for seconds, share in self.shares())

    def to_json(self) -> dict[str, float]:
        """The measured counts by bin."""
        return {str(place): count for place, count in sorted(self._counts.items())}

    def load(self, found: Any) -> None:
        """Takes over counts of an earlier run; what is no such thing is left out."""
        if not isinstance(found, Mapping):
            return
        low, high = _bin(_SHORTEST), _bin(_LONGEST)
        for name, count in found.items():
            try:
                place, number = int(name), float(count)
            except (TypeError, ValueError):
                continue
            if low <= place <= high and 0 < number <= 2 * _MOST:
                self._counts[place] = number
        self._total = sum(self._counts.values())
        self.version += 1


def expected_least(one: Times, other: Times) -> float:
    """E[min(X, Y)] of two independent times, in seconds; 0 where one of them is not known.

    The sum over the survival functions: the integral of P(X > t) P(Y > t).
    """
    left, right = one.shares(), other.shares()
    if not left or not right:
        return 0.0
    points = sorted({seconds for seconds, _ in (*left, *right)})
    total, before = 0.0, 0.0
    alive_left = alive_right = 1.0
    at_left = at_right = 0
    for point in points:
        total += (point - before) * alive_left * alive_right
        while at_left < len(left) and left[at_left][0] <= point:
            alive_left -= left[at_left][1]
            at_left += 1
        while at_right < len(right) and right[at_right][0] <= point:
            alive_right -= right[at_right][1]
            at_right += 1
        before = point
    return max(0.0, total)


def _bin(seconds: float) -> int:
    return math.floor(math.log2(min(_LONGEST, max(_SHORTEST, seconds))) * _FINE)


def _middle(place: int) -> float:
    return float(2.0 ** ((place + 0.5) / _FINE))
