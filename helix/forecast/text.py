"""A forecast as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from helix.errors import cell_width
from helix.forecast import words
from helix.forecast.measures import Forecast
from helix.progress import clean

_NAME = 14
_LEAST = 60


def forecast_text(forecast: Forecast, *, width: int | None = None) -> str:
    """All of it, ending in a line break. `width` is how many columns sentences may take; tables take what they need."""
    lines = _lines(forecast, max(_LEAST, width or 120))
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _lines(forecast: Forecast, width: int) -> Iterator[str]:
    yield clean(words.title(forecast))
    yield from _wrapped("engine", words.settings(forecast.optimized.deployment), width)
    yield ""
    for name, fact in words.facts(forecast):
        yield from _wrapped(name, fact, width)
    trial = forecast.optimized
    if trial.steps:
        yield ""
        yield from table(words.STEP_HEADS, words.step_rows(trial))
    if forecast.plain is not None:
        yield ""
        yield from table(words.PLAN_HEADS, words.plan_rows(forecast))
    if forecast.cases:
        yield ""
        yield from table(words.CASE_HEADS, words.case_rows(forecast))
    notes = words.notes(forecast)
    if notes:
        yield ""
    for note in notes:
        yield from textwrap.wrap(clean(f"note: {note}"), width, subsequent_indent="  ")
    yield ""
    yield f"log {trial.digest} ({words.count(trial.events, 'event')})"


def _wrapped(name: str, fact: str, width: int) -> list[str]:
    lines = textwrap.wrap(clean(fact), width - _NAME) or [""]
    return [f"{name:{_NAME}}{lines[0]}", *(" " * _NAME + line for line in lines[1:])]


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A table in columns: the first to the left, the others to the right; empty columns are left out."""
    found = [[clean(cell) for cell in row] for row in rows]
    kept = [at for at in range(len(heads)) if any(row[at] not in ("", "-") for row in found)]
    shown = [[line[at] for at in kept] for line in ([*heads], *found)]
    widths = [max(_cells(line[at]) for line in shown) for at in range(len(kept))]
    for line in shown:
        cells = [
            cell + " " * (wide - _cells(cell)) if at == 0 else " " * (wide - _cells(cell)) + cell
            for at, (cell, wide) in enumerate(zip(line, widths, strict=True))
        ]
        yield "  ".join(cells)


def _cells(text: str) -> int:
    return sum(map(cell_width, text))
