"""Starts the child process, waits for its address, and ends it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import IO, Any

import helix
from helix.errors import EngineError

KEPT_LINES = 40  # of what the child said last
SHOWN_LINES = 6
LOOK = 0.01  # seconds between looks at a child that is starting or ending
LAST_WAIT = 5.0  # seconds for a child to end by itself


class Child:
    """A running child. Its output is read by threads, so that it never blocks on a full pipe."""

    def __init__(self, settings: dict[str, Any]) -> None:
        """Starts the process; `settings` goes to its standard input."""
        self._process = subprocess.Popen(  # words of ours alone  # nosec B603
            # -P: a file in the current folder that is named like a module is not to be taken for it.
            [sys.executable, "-P", "-m", "helix.executor.engines.embedded"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(),
            start_new_session=True,  # Ctrl+C is for the parent alone
        )
        self._last: deque[str] = deque(maxlen=KEPT_LINES)
        self._report: str | None = None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._threads = [
            threading.Thread(target=self._read_report, args=(self._process.stdout,), daemon=True),
            threading.Thread(target=self._read_log, args=(self._process.stderr,), daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        self._tell(settings)

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    async def address(self, timeout: float) -> str:
        """Its address, when it serves. Raises EngineError, fatal, where it ends before, or after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while self._report is None:
            if self._process.poll() is not None and not self._threads[0].is_alive():
                raise self.ended("ended before it was ready")
            if time.monotonic() > deadline:
                raise EngineError(
                    f"the embedded engine was not ready after {timeout:g} seconds{self._words()}", fatal=True
                )
            await asyncio.sleep(LOOK)
        return str(json.loads(self._report)["address"])

    def is_running(self) -> bool:
        """Whether the process is there."""
        return self._process.poll() is None

    def ended(self, what: str) -> EngineError:
        """The error that says that it ended, how, and what it said last."""
        self._threads[1].join(1.0)
        code = self._process.poll()
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        return EngineError(f"the embedded engine {what} ({how}){self._words()}", fatal=True)

    async def close(self) -> None:
        """Ends it: by the end of its input, and by force where that does not help. Safe to call twice."""
        process = self._process
        with contextlib.suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        deadline = time.monotonic() + LAST_WAIT
        while process.poll() is None:
            if time.monotonic() > deadline:
                process.kill()
                process.wait()
                break
            await asyncio.sleep(LOOK)
        for thread, stream in zip(self._threads, (process.stdout, process.stderr), strict=True):
            thread.join(1.0)
            if stream is not None and not thread.is_alive():
                stream.close()

    def _tell(self, settings: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it ended already: `address` says why
            self._process.stdin.write(json.dumps(settings).encode() + b"\n")
            self._process.stdin.flush()

    def _read_report(self, stream: IO[bytes]) -> None:
        line = stream.readline().decode("utf-8", "replace")
        self._report = line if line.strip() else None

    def _read_log(self, stream: IO[bytes]) -> None:
        for line in stream:
            text = line.decode("utf-8", "replace").rstrip()
            if text:
                self._last.append(text)

    def _words(self) -> str:
        lines = list(self._last)[-SHOWN_LINES:]
        return "".join(["; it said last:", *(f"\n  {line[:300]}" for line in lines)]) if lines else ""


def usable_cores() -> int:
    """The cores this process may use: its affinity, cut by the quota of its control group (Linux)."""
    with contextlib.suppress(AttributeError, OSError):
        cores = len(os.sched_getaffinity(0))
        with contextlib.suppress(OSError, ValueError):
            quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
            if quota != "max":
                cores = min(cores, max(1, int(quota) // int(period)))
        return cores
    return os.cpu_count() or 1


def _environment() -> dict[str, str]:
    """The parent's, without keys, and with the folder of a helix that is not installed but run from its sources.

    Threads that wait for one another sleep instead of spinning: on two cores beside a busy process, spinning ones
    decoded 1 to 27 tokens a second, sleeping ones 28 to 64; alone it costs about a quarter.
    """
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    root = Path(helix.__file__).resolve().parent.parent
    if root.name not in ("site-packages", "dist-packages"):
        paths = [str(root), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return environment
