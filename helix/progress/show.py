"""Which view of a run's progress there is, and when it is drawn."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Protocol

from helix.errors import OptionError
from helix.progress.json_lines import JsonView, message
from helix.progress.measures import Measures, Meter
from helix.progress.plain import PlainView
from helix.progress.words import say
from helix.results import RunReport

if TYPE_CHECKING:
    from helix.optimizer.cost import Prices

# What `--progress` takes.
MODES = ("auto", "live", "steps", "plain", "json", "off")
Kind = Literal["live", "plain", "json", "off"]
# Seconds between two looks at a run; in simulated time it tells of itself much more often.
LOOK_EVERY = 0.25


class View(Protocol):
    """Shows measures: at most one `show` in `every` seconds."""

    every: float

    def start(self, measures: Measures) -> None: ...

    def show(self, measures: Measures) -> None: ...

    def tell(self, text: str) -> None: ...

    def stop(self) -> None: ...


def kind_of(mode: str, *, quiet: bool, shared: bool) -> Kind:
    """The kind of view that a mode comes to here; `shared`: results go to a terminal too.

    A live view needs a terminal for itself that can move its cursor. Raises OptionError where one is asked for that
    cannot be.
    """
    if mode == "auto" and quiet:
        return "off"
    if mode in ("plain", "json", "off"):
        return mode  # type: ignore[return-value]
    hindrance = _hindrance(shared)
    if hindrance is not None and mode == "live":
        raise OptionError(f"--progress live needs a terminal for itself, and {hindrance}; give --progress plain")
    return "live" if hindrance is None else "plain"


def _hindrance(shared: bool) -> str | None:
    if sys.stderr is None or not sys.stderr.isatty():
        return "standard error is none"
    terminal = os.environ.get("TERM", "")
    if terminal.lower() in ("dumb", "unknown"):
        return f"this one cannot move its cursor (TERM={terminal})"
    return "the results go to it too" if shared else None


def sayer(mode: str) -> Callable[[str], None]:
    """How things are said to a person beside the progress: in JSON they are objects too."""
    return message if mode == "json" else say


class Progress:
    """Shows the report of a run as it grows. `start` is called when the engine is ready, else with the first `update`.

    `rows` are those of the input (None: as the run tells), `prices` those of tokens (None: no cost is shown), `mode` is
    one of `MODES`. `shared` says that results go to a terminal too: then nothing is drawn there. `now` tells seconds.
    """

    def __init__(
        self,
        rows: int | None,
        *,
        quiet: bool,
        mode: str = "auto",
        shared: bool = False,
        prices: Prices | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.kind = kind_of(mode, quiet=quiet, shared=shared)
        self._quiet = quiet
        self._steps = mode == "steps"
        self._now = now
        self._meter = Meter(rows, prices)
        self._view: View | None = None
        self._looked = self._shown = 0.0
        self._started = False
        self._waiting: str | None = None

    def __enter__(self) -> Progress:
        return self

    def start(self) -> None:
        """The run begins: a live view is drawn."""
        self._started = True
        now = self._looked = self._shown = self._now()
        self._meter.start(now)
        if self.kind == "off":
            return
        self._view = self._made()
        self._view.start(self._meter.read(RunReport(), now))

    def _made(self) -> View:
        if self.kind == "json":
            return JsonView()
        if self.kind == "plain":
            return PlainView(steps=self._steps)
        from helix.progress.live import LiveView

        return LiveView(steps=self._steps, now=self._now)

    def update(self, report: RunReport) -> None:
        """Shows the figures as they are now, and once what the run begins to wait for."""
        if not self._started:
            self.start()
        view = self._view
        if report.waiting != self._waiting:
            if not self._quiet:
                (say if view is None else view.tell)(report.waiting or "the engine answers again; going on")
            self._waiting = report.waiting
        now = self._now()
        if view is None or now - self._looked < LOOK_EVERY:
            return
        self._looked = now
        measures = self._meter.read(report, now)
        if now - self._shown >= view.every:
            self._shown = now
            view.show(measures)

    def end(self, report: RunReport) -> None:
        """The run has ended with this report."""
        if isinstance(self._view, JsonView):
            self._view.end(self._meter.read(report, self._now()), report)
        self._close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        view, self._view = self._view, None
        if view is not None:
            view.stop()
