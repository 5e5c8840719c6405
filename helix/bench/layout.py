"""Tables of text: as columns for a terminal, and as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A table with a title above it and notes below. The first column is of names, the others of figures."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = field(default=())

    def text(self) -> str:
        """For a terminal."""
        lines = [self.header, *self.rows]
        widths = [max(len(line[at]) for line in lines) for at in range(len(self.header))]
        made = [self.title]
        for line in lines:
            first, *rest = (
                cell.ljust(width) if not at else cell.rjust(width)
                for at, (cell, width) in enumerate(zip(line, widths, strict=True))
            )
            made.append("  ".join([first, *rest]).rstrip())
        return "\n".join([*made, *(f"  {note}" for note in self.notes)]) + "\n"

    def markdown(self) -> str:
        """For a page."""
        lines = [self.header, ("---", *("---:" for _ in self.header[1:])), *self.rows]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        notes = "".join(f"\n{note}  " for note in self.notes)
        title = f"**{self.title}**\n\n" if self.title else ""
        return f"{title}{table}\n" + (f"{notes.rstrip()}\n" if notes else "")


def figure(value: float | None) -> str:
    """A number in three digits."""
    if value is None or value != value:
        return "-"
    size = abs(value)
    if size >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"


def median(values: Sequence[float | None]) -> str:
    """The median of values, with the least and the most where there are several that differ."""
    known = [value for value in values if value is not None and value == value]
    if not known:
        return "-"
    middle, low, high = (figure(each) for each in (statistics.median(known), min(known), max(known)))
    return middle if low == high else f"{middle} ({low}-{high})"


def spread(values: Sequence[float]) -> str:
    """Mean, least and most, as published tables have them."""
    if not values:
        return "-"
    return " / ".join(figure(each) for each in (statistics.fmean(values), min(values), max(values)))


def percent(value: float) -> str:
    """A share in percent."""
    return f"{100 * value:.1f}"
