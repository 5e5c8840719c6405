"""How far a run is, on standard error: a live bar on a terminal, a line now and then elsewhere, nothing when quiet."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from types import TracebackType
from typing import Any
from unicodedata import category

from helix.results import RunReport

# Where nobody watches a bar, a line after so many seconds is enough.
LINE_EVERY = 15.0

# Control characters, format marks that reorder text, halves of characters, line and paragraph separators.
_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


_KEPT = "\n\t\u200c\u200d"


def clean(text: str) -> str:
    """Text without control characters: what a model wrote must not move the cursor or colour the terminal.

    Line breaks, tabs and the joiners that emoji and some scripts are written with stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char in _KEPT or category(char) not in _HIDDEN else "?" for char in text)


def say(text: str) -> None:
    """One message on standard error, cleaned. If nobody reads there any more, the run goes on all the same."""
    with suppress(OSError, ValueError):
        print(clean(text), file=sys.stderr, flush=True)


def count(number: int, noun: str) -> str:
    """A number with its noun: `1 row`, `2,000 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


class Progress:
    """Shows the report of a run as it grows. `start` is called when the engine is ready.

    `bar` allows a live bar; it must be off where results go to the same terminal.
    """

    def __init__(self, rows: int, *, quiet: bool, bar: bool = True) -> None:
        self._rows = rows
        self._quiet = quiet
        self._live = bar
        self._bar: Any = None
        self._task: Any = None
        self._began = time.monotonic()
        self._last = self._began
        self._waiting: str | None = None

    def __enter__(self) -> Progress:
        return self

    def start(self) -> None:
        """Shows the bar."""
        self._began = self._last = time.monotonic()
        if self._quiet or not self._live or not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self._bar = Bar(
            TextColumn("rows"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(file=sys.stderr),
            transient=True,
            refresh_per_second=4,
        )
        self._task = self._bar.add_task("", total=self._rows)
        self._bar.start()

    def update(self, report: RunReport) -> None:
        """Shows the figures as they are now, and once what the run begins to wait for."""
        if self._quiet:
            return
        if report.waiting != self._waiting:
            self._tell(report.waiting or "the engine answers again; going on")
            self._waiting = report.waiting
        if self._bar is not None:
            self._bar.update(self._task, completed=report.done_rows, description=self._figures(report))
        elif time.monotonic() - self._last >= LINE_EVERY:
            self._last = time.monotonic()
            seconds = self._last - self._began
            figures = f"{report.done_rows:,} of {count(self._rows, 'row')}, {self._figures(report)}"
            say(f"{figures}, {seconds:.0f} s")

    def _tell(self, text: str) -> None:
        """One message, above the bar where there is one."""
        if self._bar is None:
            say(text)
        else:
            self._bar.console.print(clean(text), markup=False, highlight=False)

    def _figures(self, report: RunReport) -> str:
        failed = f", {report.failed_rows:,} failed" if report.failed_rows else ""
        merged = f", {report.merged:,} merged" if report.merged else ""
        return f"{count(report.calls, 'call')}{merged}{failed}"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
