"""Progress as a view on a terminal that is drawn again and again, with all else that is said above it."""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TextIO

from helix.progress.facts import call_facts, phase_facts, row_facts, step_facts, time_facts, token_facts, waiting
from helix.progress.measures import Measures
from helix.progress.words import clean

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

LIVE_EVERY = 0.4
# Seconds in which what is said above the view has it drawn again once: what comes faster waits for the next look.
ABOVE_EVERY = 0.1
# Columns of the bar, and the fewest that it is worth while for.
WIDEST, NARROWEST = 40, 8
# Columns of the longest name of a step that is shown whole.
NAME = 24


class LiveView:
    """Draws the measures at the bottom of the terminal that standard error is; with `steps` a line for each step too.

    While it is there, what is written to standard error or, on a terminal, to standard output comes above it line by
    line, cleaned. A terminal that goes away ends the view and nothing else.
    """

    every = LIVE_EVERY

    def __init__(self, *, steps: bool = False, now: Callable[[], float] = time.monotonic) -> None:
        from rich.console import Console
        from rich.live import Live

        self._stream = sys.stderr
        self._measures: Measures | None = None
        self._steps = steps
        self._now = now
        self._said: list[str] = []
        self._flushed = float("-inf")
        # Tools speak from threads of their own.
        self._lock = threading.RLock()
        self._console = Console(file=self._stream, force_terminal=True, highlight=False)
        # Drawn when there is something new, not by a thread of its own.
        self._live: Live | None = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            get_renderable=lambda: self,
        )
        self._replaced: list[tuple[str, TextIO, Above]] = []

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        if self._measures is not None:
            blocks = (console.encoding or "").lower().startswith("utf")
            yield from drawn(self._measures, console.size.width, console.size.height, steps=self._steps, blocks=blocks)

    def start(self, measures: Measures) -> None:
        """Draws it for the first time."""
        self._measures = measures
        for name in ("stderr", "stdout"):
            stream = getattr(sys, name)
            if name == "stderr" or (stream is not None and stream.isatty()):
                above = Above(stream, self.tell)
                self._replaced.append((name, stream, above))
                setattr(sys, name, above)
        self._guarded(self._begin)

    def _begin(self) -> None:
        assert self._live is not None
        self._live.start()
        # A run that is killed must not leave a terminal without its cursor.
        self._console.show_cursor(True)
        self._live.refresh()

    def show(self, measures: Measures) -> None:
        """Draws it again."""
        self._measures = measures
        self._flush()
        if self._live is not None:
            self._guarded(self._live.refresh)

    def tell(self, text: str) -> None:
        """A message above the view."""
        with self._lock:
            self._said.append(clean(text))
            # Who has kept hold of the stream may speak when the view is gone: then there is no next look.
            if self._live is None or self._now() - self._flushed >= ABOVE_EVERY:
                self._flush()

    def _flush(self) -> None:
        """Shows what was said meanwhile."""
        with self._lock:
            if not self._said:
                return
            said, self._said = "\n".join(self._said), []
            self._flushed = self._now()
            self._guarded(lambda: self._console.print(said, markup=False, highlight=False, emoji=False, soft_wrap=True))

    def stop(self) -> None:
        """Takes it away."""
        for name, stream, above in self._replaced:
            above.finish()
            if getattr(sys, name) is above:
                setattr(sys, name, stream)
        self._replaced.clear()
        with self._lock:
            self._flush()
            live, self._live = self._live, None
        if live is not None:
            self._guarded(live.stop)

    def _guarded(self, draw: Callable[[], None]) -> None:
        try:
            draw()
        except (OSError, ValueError):
            # Nobody watches any more.
            self._live = None


class Above(io.TextIOBase):
    """Stands for a stream while the view is there: whole lines go above it; all else is the stream's own."""

    def __init__(self, stream: TextIO, tell: Callable[[str], None]) -> None:
        self._stream = stream
        self._tell = tell
        self._process = os.getpid()
        # Of each thread the line that it has not ended yet: what `print` writes comes in pieces.
        self._begun: dict[int, str] = {}

    def write(self, text: str) -> int:
        """Takes text; lines that are whole are shown."""
        if os.getpid() != self._process:
            # A process that a tool has forked has no view of its own.
            return self._stream.write(text)
        thread = threading.get_ident()
        *lines, rest = (self._begun.pop(thread, "") + text).split("\n")
        if rest:
            self._begun[thread] = _last(rest)
        if lines:
            self._tell("\n".join(_last(line.removesuffix("\r")) for line in lines))
        return len(text)

    def finish(self) -> None:
        """Shows lines that were not ended."""
        for line in self._begun.values():
            self._tell(line)
        self._begun.clear()

    def writable(self) -> bool:
        """It is for writing."""
        return True

    def isatty(self) -> bool:
        """As the stream."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """As the stream."""
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """As the stream."""
        return self._stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        """As the stream."""
        return self._stream.errors

    @property
    def buffer(self) -> Any:
        """The stream's own."""
        return self._stream.buffer


def _last(line: str) -> str:
    """What a line shows that was written over and over again from its beginning."""
    return line if line.endswith("\r") else line.rpartition("\r")[2]


def drawn(measures: Measures, width: int, height: int, *, steps: bool = False, blocks: bool = True) -> Iterator[Text]:
    """The view as lines that fit a terminal of so many columns and lines, the most important ones first.

    `blocks` allows characters beyond ASCII for the bar.
    """
    from rich.text import Text

    room = max(1, width - 1)
    lines: list[Text] = [_rows_line(measures, room, blocks=blocks)]
    reason = waiting(measures)
    if reason is not None:
        lines.append(Text(reason, style="yellow"))
    for label, facts in (
        ("phase", phase_facts(measures)),
        ("time", time_facts(measures)),
        ("calls", call_facts(measures)),
        ("tokens", token_facts(measures)),
    ):
        if facts:
            lines.append(Text.assemble((f"{label:<7}", "bold"), fitted(facts, room - 7)))
    if steps:
        names = [clean(name) for name in measures.steps]
        wide = min(NAME, max(map(len, names), default=0))
        free = max(0, height - 1 - len(lines))
        shown = list(zip(names, measures.steps.values(), strict=True))
        hidden = len(shown) - max(0, free - 1) if len(shown) > free else 0
        for name, step in shown[: len(shown) - hidden]:
            named = Text(f"  {name}")
            named.truncate(wide + 2, overflow="crop", pad=True)
            lines.append(named.append("  ").append(fitted(step_facts(step), room - wide - 4)))
        if hidden and free:
            lines.append(Text(f"  and {hidden:,} more {'step' if hidden == 1 else 'steps'}"))
    for line in lines[: max(1, height - 1)]:
        line.no_wrap = True
        line.truncate(room, overflow="crop")
        yield line


def fitted(facts: list[str], room: int) -> str:
    """The first of the facts that fit, at least one."""
    text = facts[0]
    for fact in facts[1:]:
        if len(text) + 2 + len(fact) > room:
            break
        text += f", {fact}"
    return text


def _rows_line(measures: Measures, room: int, *, blocks: bool) -> Text:
    from rich.text import Text

    facts = row_facts(measures)
    if not measures.rows:
        return Text.assemble(("rows   ", "bold"), fitted(facts, room - 7))
    share = min(1.0, measures.done / measures.rows)
    bar = min(WIDEST, room - 7 - 2 - 6 - sum(len(fact) + 2 for fact in facts))
    if bar < NARROWEST:
        return Text.assemble(("rows   ", "bold"), fitted([facts[0], f"{_percent(share)}", *facts[1:]], room - 7))
    full = int(bar * share)
    one, rest = ("\u2501", "\u2501") if blocks else ("=", "-")
    if blocks:
        # Without colours the rest has to look different too.
        rest = "\u2500"
    return Text.assemble(
        ("rows   ", "bold"),
        (one * full, "green"),
        (rest * (bar - full), "bright_black"),
        f"  {_percent(share):>4}  {', '.join(facts)}",
    )


def _percent(share: float) -> str:
    """A share of rows; all of them only where it is all."""
    return f"{int(share * 100)}%"
