"""Axes: what they measure, where their ticks stand, and how values are written on them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Kind = Literal["number", "seconds", "share"]
# Of a time axis: from so many seconds on the next unit is used.
_UNITS = ((3.0 * 86_400, 86_400.0, "d"), (3.0 * 3600, 3600.0, "h"), (5.0 * 60, 60.0, "min"), (0.0, 1.0, "s"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """`label` says what is measured. `kind` is how values are written: numbers, seconds (as s, min, h or d), or shares
    of 1 (as percent). `least` and `most` bound it (None: what the data takes; numbers begin at 0 unless `log`). A
    logarithmic axis takes values above 0 only. `ticks` are places of its ticks (None: round numbers).
    """

    label: str
    kind: Kind = "number"
    least: float | None = None
    most: float | None = None
    log: bool = False
    ticks: tuple[float, ...] | None = None


class Scale:
    """An axis over its data, laid along pixels from `start` to `end`."""

    def __init__(self, axis: Axis, values: list[float], start: float, end: float) -> None:
        found = [value for value in values if math.isfinite(value) and (value > 0 or not axis.log)]
        low = axis.least if axis.least is not None else (min(found, default=1.0) if axis.log else min([0.0, *found]))
        high = axis.most if axis.most is not None else max(found, default=1.0)
        if axis.kind == "share" and axis.most is None and not axis.log:
            high = max(high, 1.0)
        if not high > low:
            high = low * 2 if axis.log else low + 1.0
        self.axis = axis
        self.unit, self.unit_name = _unit(axis, high)
        self.ticks = list(axis.ticks) if axis.ticks is not None else self._ticks(low, high)
        if not axis.log and axis.most is None and axis.ticks is None:
            # The scale ends on a tick, so that the highest value has one above it.
            high = max(high, self._above(high))
            self.ticks = self._ticks(low, high)
        self.low, self.high = low, high
        self._start, self._end = start, end

    def at(self, value: float) -> float:
        """The pixel of a value; values beyond the axis lie on its end."""
        value = min(max(value, self.low), self.high)
        if self.axis.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self._start + (self._end - self._start) * share

    @property
    def label(self) -> str:
        """The axis' label with its unit."""
        return f"{self.axis.label} ({self.unit_name})" if self.unit_name else self.axis.label

    def tick(self, value: float) -> str:
        """A value as its tick says it."""
        if self.axis.kind == "share":
            return f"{value:.0%}"
        return number(value / self.unit)

    def _step(self, low: float, high: float) -> float:
        return _nice((high - low) / self.unit / 5) * self.unit

    def _above(self, high: float) -> float:
        step = self._step(0.0 if high > 0 else high - 1, high)
        return math.ceil(high / step - 1e-9) * step

    def _ticks(self, low: float, high: float) -> list[float]:
        if self.axis.log:
            return _log_ticks(low, high)
        step = self._step(low, high)
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        return [at * step for at in range(first, last + 1)]


def _unit(axis: Axis, high: float) -> tuple[float, str]:
    if axis.kind != "seconds":
        return 1.0, ""
    return next((size, name) for least, size, name in _UNITS if high >= least or least == 0.0)


def _nice(size: float) -> float:
    """The least of 1, 2 and 5 times a power of ten that is not below a size."""
    power: float = 10.0 ** math.floor(math.log10(size))
    return next(power * factor for factor in (1.0, 2.0, 5.0, 10.0) if power * factor >= size * (1 - 1e-9))


def _log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten, with 2 and 5 between them where there is room; powers of two where those are too few."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1.0,) if high / low > 1e4 else (1.0, 2.0, 5.0)
    found = [factor * 10.0**power for power in powers for factor in factors]
    inside = [value for value in found if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]
    if len(inside) >= 3:
        return inside
    powers = range(math.floor(math.log2(low)), math.ceil(math.log2(high)) + 1)
    return [2.0**power for power in powers if low * (1 - 1e-9) <= 2.0**power <= high * (1 + 1e-9)] or [low, high]


def number(value: float) -> str:
    """A number as short as it can be read: 1,200, 35, 4.2, 0.035, 2.1M."""
    size = abs(value)
    for least, factor, suffix in ((1e9, 1e9, "G"), (1e6, 1e6, "M")):
        if size >= least:
            return f"{value / factor:.3g}{suffix}"
    if size >= 100 or value == round(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"
