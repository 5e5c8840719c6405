"""A real SGLang on the CPU, for tests and benchmarks: whether it is installed, starting one, and asking it things.

It is what `helix serve --cpu` runs; `python -m helix.serving.cpu` installs it, outside the checkout.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from typing import IO, Any

from helix.serving import cpu
from helix.serving.settings import REPORTS

PATIENCE = 240.0  # seconds that a server may take to be ready; 25 on a quiet machine of two cores
FLUSH_PATIENCE = 30.0
_SAMPLE = re.compile(r"^(\w+:?\w*)(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


def absent() -> str | None:
    """Why there is no SGLang to start, or None where there is one."""
    if cpu.installed(cpu.home()):
        return None
    return f"no SGLang in {cpu.home()}; python -m helix.serving.cpu installs it"


class Server:
    """A server of this machine. `address` is http://127.0.0.1:PORT; flags are those of SGLang.

    Without a `port` a free one is taken.
    """

    def __init__(self, *flags: str, port: int = 0) -> None:
        """Starts the server and waits until it is ready; raises RuntimeError with the end of its log where it ends."""
        self.flags = flags
        if not port:
            with socket.create_server(("127.0.0.1", 0)) as taken:
                port = int(taken.getsockname()[1])
        self.port = port
        self.address = f"http://127.0.0.1:{self.port}"
        command = cpu.cpu_command(cpu.home())
        reports = [flag.name for flag in REPORTS]
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # open as long as the server runs
        # A session of its own, so that the server's processes can be ended together.
        self._process = subprocess.Popen(
            [*command.words, *reports, "--host", "127.0.0.1", "--port", str(self.port), *flags],
            env={**os.environ, **{each.name: each.value or "" for each in command.environment}},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        """The process of the server, which leads the group of all its processes."""
        return self._process.pid

    @property
    def log(self) -> str:
        """What the server has printed."""
        return os.pread(self._log.fileno(), 1 << 24, 0).decode("utf-8", "replace")

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends the server's processes: asks first, then insists."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=20)
        self._log.close()

    def get(self, path: str, body: Any = None, timeout: float = 60.0) -> bytes:
        """The body of an answer; with `body` the request is a POST of it as JSON. Raises URLError."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"})
        with _opener.open(request, timeout=timeout) as answer:
            return bytes(answer.read())

    def json(self, path: str, body: Any = None, timeout: float = 60.0) -> Any:
        """The JSON value of an answer."""
        return json.loads(self.get(path, body, timeout))

    def flush(self) -> None:
        """Empties the prefix cache. The server refuses while it works, so this waits until it has come to rest."""
        ends = time.monotonic() + FLUSH_PATIENCE
        while True:
            try:
                self.get("/flush_cache", {})
            except urllib.error.HTTPError as error:
                if time.monotonic() > ends:
                    raise RuntimeError(f"the server does not flush its cache: {error.read().decode()}") from None
                time.sleep(0.2)
            else:
                return

    def metrics(self) -> dict[str, float]:
        """The figures of /metrics by name, without the prefix `sglang:`; those of one name and several labels added."""
        found: dict[str, float] = {}
        for name, value in _SAMPLE.findall(self.get("/metrics").decode()):
            short = name.removeprefix("sglang:")
            found[short] = found.get(short, 0.0) + float(value)
        return found

    def _wait_until_ready(self) -> None:
        ends = time.monotonic() + PATIENCE
        while True:
            if self._process.poll() is not None:
                raise RuntimeError(f"SGLang ended with {self._process.returncode}:\n{self.log[-4000:]}")
            with contextlib.suppress(OSError):
                self.get("/health", timeout=5)
                return
            if time.monotonic() > ends:
                raise RuntimeError(f"SGLang was not ready in {PATIENCE:g} s:\n{self.log[-4000:]}")
            time.sleep(0.5)


# Proxies of the environment are not for this machine.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Servers:
    """Servers by their flags, started when asked for. At most two run at once: each takes 3 GB."""

    def __init__(self, most: int = 2) -> None:
        self._most = most
        self._running: dict[tuple[str, ...], Server] = {}

    def __call__(self, *flags: str) -> Server:
        """A running server with these flags, its cache empty."""
        server = self._running.pop(flags, None)
        if server is None:
            while len(self._running) >= self._most:
                self._running.pop(next(iter(self._running))).stop()
            server = Server(*flags)
        self._running[flags] = server  # the one used last goes last
        server.flush()
        return server

    def stop(self) -> None:
        """Ends all."""
        while self._running:
            self._running.popitem()[1].stop()
