"""Runs `helix` on a terminal of its own and reads what a person would see there."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.reduction import DupFd
from pathlib import Path
from types import TracebackType

import pyte
from running import PATIENCE, environment

# Processes come from one that has loaded all that they need: a new one takes longer than what most tests look at.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["terminals", "helix.cli", "helix.commands.run", "helix.executor.engines.openai", "rich.live"]
)


def _command(args: tuple[str, ...], cwd: str, env: dict[str, str], terminal: object) -> None:
    """`helix` with these arguments, in a session of its own with this terminal."""
    from helix.cli import main

    os.setsid()
    theirs = terminal.detach()  # type: ignore[attr-defined]
    for number in range(3):
        os.dup2(theirs, number)
    os.close(theirs)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
    sys.argv = ["helix", *args]
    code = 1
    try:
        main()
    except SystemExit as ended:
        code = int(ended.code or 0)
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        # Not as multiprocessing ends: that fails where the terminal is gone.
        os._exit(code)


class Terminal:
    """`helix` with these arguments on a terminal of so many columns and lines; a context manager.

    `raw` are all bytes that it sent, `lines` what is on the screen, from top to bottom without what has scrolled out.
    """

    def __init__(
        self, *args: str | Path, cwd: Path, columns: int = 80, rows: int = 40, env: Mapping[str, str] | None = None
    ) -> None:
        self.raw = b""
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        ours, theirs = pty.openpty()
        self._terminal: int | None = ours
        self._size(columns, rows)
        given = environment({"TERM": "xterm-256color", **(env or {})})
        for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
            if name not in (env or {}):
                given.pop(name, None)
        self.process = FORKS.Process(
            target=_command, args=(tuple(map(str, args)), os.fspath(cwd), given, DupFd(theirs)), daemon=True
        )
        self.process.start()
        os.close(theirs)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.join()
        self.process.close()
        self.hang_up()

    def _size(self, columns: int, rows: int) -> None:
        assert self._terminal is not None
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, columns: int, rows: int) -> None:
        """Changes the size of the terminal."""
        self._size(columns, rows)
        self._screen.resize(rows, columns)
        self.signal(signal.SIGWINCH)

    def signal(self, number: int) -> None:
        """Sends a signal."""
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def hang_up(self) -> None:
        """The terminal goes away, as when its window is closed; the run is told nothing else."""
        if self._terminal is not None:
            os.close(self._terminal)
            self._terminal = None

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self._screen.display if line.strip()]

    @property
    def cursor_is_shown(self) -> bool:
        return not self._screen.cursor.hidden

    def until(self, seen: Callable[[list[str]], bool]) -> list[str]:
        """Reads until the screen is as wanted; its lines then."""
        ends = time.monotonic() + PATIENCE
        while not seen(self.lines):
            assert time.monotonic() < ends, self.lines
            if not self._read():
                assert seen(self.lines), self.lines
        return self.lines

    def finish(self) -> int:
        """Reads to the end; the exit code."""
        ends = time.monotonic() + PATIENCE
        while self._read():
            assert time.monotonic() < ends, self.lines
        return self.ended()

    def ended(self) -> int:
        """Waits for the process alone; the exit code."""
        self.process.join(PATIENCE)
        assert self.process.exitcode is not None, self.lines
        return self.process.exitcode

    def _read(self) -> bool:
        """Takes what has come; False at the end."""
        assert self._terminal is not None
        ready, _, _ = select.select([self._terminal], [], [], 0.1)
        if ready:
            try:
                data = os.read(self._terminal, 65_536)
            except OSError:
                data = b""
            if not data:
                return False
            self.raw += data
            self._stream.feed(data)
        return True


def beginning(lines: list[str], words: str) -> str:
    """The last line that begins so; empty where there is none."""
    return next((line for line in reversed(lines) if line.startswith(words)), "")
