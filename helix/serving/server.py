"""A server in a process group of its own: started, waited for, ended with all its processes."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import IO

from helix.errors import EngineError, OptionError
from helix.serving.command import ServerCommand

LOOK = 0.5  # seconds between two questions whether the server is ready
TELL = 30.0  # seconds between two words on how long it has been
PATIENCE = 15.0  # seconds that the server has to end by itself
LAST_LINES = 20


def refuse_taken(host: str, port: int) -> None:
    """Raises OptionError where nobody can listen there, with who answers if that can be told."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise OptionError(f"--host {host} is no address of this machine: {error.strerror or error}") from None
    with socket.socket(family[0], socket.SOCK_STREAM) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(family[4])
            return
        except PermissionError:
            raise OptionError(f"port {port} needs rights that you do not have; --port takes another one") from None
        except OSError as error:
            why = error.strerror or str(error)
    address = f"{reachable(host)}:{port}"
    if answers(f"http://{address}/server_info") or answers(f"http://{address}/get_server_info"):
        raise OptionError(
            f"an SGLang server answers on port {port} already; use it with `--engine sglang://{address}`, or start "
            "another one with --port"
        )
    raise OptionError(f"port {port} of {host} cannot be used: {why}; --port takes another one")


def reachable(host: str) -> str:
    """The host as a client on this machine names it."""
    shown = "127.0.0.1" if host in ("0.0.0.0", "::", "") else host  # listens nowhere  # nosec B104
    return f"[{shown}]" if ":" in shown else shown


def answers(url: str, timeout: float = 2.0) -> bool:
    """Whether a GET is answered with 200. Proxies are not asked: the server is on this machine."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=timeout) as reply:
            return bool(reply.status == 200)
    except (OSError, urllib.error.URLError, ValueError):
        return False


class Server:
    """A server that runs. Ended by `stop`, or by leaving the context."""

    def __init__(self, command: ServerCommand, *, host: str, port: int, quiet: bool) -> None:
        """Starts it. What it says goes to standard error; with `quiet` only where it fails. Raises OptionError."""
        self._address = f"http://{reachable(host)}:{port}"
        self._log: IO[bytes] | None = tempfile.TemporaryFile() if quiet else None  # noqa: SIM115  # as long as it runs
        more = {flag.name: flag.value or "" for flag in command.environment}
        output: IO[bytes] | int = self._log if self._log is not None else _standard_error()
        try:
            self._process = subprocess.Popen(  # what the user asked for  # nosec B603
                command.words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **more},
                # Ctrl+C in the terminal is for us; we end the server and all that it started.
                start_new_session=True,
            )
        except OSError as error:
            raise OptionError(f"{command.words[0]} cannot be run: {error.strerror or error}") from None

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *args: object) -> None:
        self.stop()

    def wait_ready(self, say: Callable[[str], None]) -> float:
        """Waits until the server answers; gives the seconds it took. Raises EngineError where it ends before."""
        began = told = time.monotonic()
        while not answers(f"{self._address}/health"):
            if self._process.poll() is not None:
                raise EngineError(self._ended("before it was ready"), fatal=True)
            now = time.monotonic()
            if now - told >= TELL:
                told = now
                say(f"waiting for SGLang to be ready, {now - began:.0f} s so far")
            time.sleep(LOOK)
        return time.monotonic() - began

    def wait(self) -> None:
        """Waits until it ends by itself, which it should not. Raises EngineError."""
        self._process.wait()
        raise EngineError(self._ended("by itself"), fatal=True)

    def stop(self) -> None:
        """Ends the server and all its processes; safe to call twice."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=PATIENCE)
        # Those that it started are in its group: what is left of them by now does not listen.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._log is not None:
            self._log.close()
            self._log = None

    def _ended(self, when: str) -> str:
        said = f"SGLang ended {when}, with code {self._process.returncode}"
        if self._log is None:
            return f"{said}; what it said is above"
        self._log.seek(0)
        lines = self._log.read().decode("utf-8", "replace").splitlines()[-LAST_LINES:]
        return "\n".join([f"{said}; the last that it said:", *lines]) if lines else f"{said} and said nothing"


def _standard_error() -> int:
    """Where a server may write: our own standard error, or nowhere if there is none."""
    try:
        return sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):
        return subprocess.DEVNULL
