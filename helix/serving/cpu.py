"""SGLang on the CPU with a tiny model, for trying it out and for tests: installed once, in the user's cache folder.

It is SGLang's own wheel with its own radix cache; `recipe` stands in for a few names that only its CPU build has.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from helix.errors import EngineError, OptionError
from helix.folders import cache_folder
from helix.serving.command import Flag, ServerCommand

RECIPE = Path(__file__).with_name("recipe")
MODEL = "smollm2"
SIZE = 2.9e9  # bytes of an installation, about
LOOK = 1.0  # seconds between looks at how far it is
TELL = 30.0  # seconds between two lines where nobody watches a bar
KV_TOKENS = 16_384
LAST_LINES = 8


def home() -> Path:
    """The folder of the installation: HELIX_SGLANG_HOME, else `sglang-cpu` in the cache folder."""
    named = os.environ.get("HELIX_SGLANG_HOME")
    return Path(named).expanduser().absolute() if named else cache_folder() / "sglang-cpu"


def installed(folder: Path) -> bool:
    """Whether an installation is there; which recipe it was made by is looked at when it is started."""
    return (folder / "done").is_file()


def cpu_command(folder: Path, *, ranks: int = 1, kv_tokens: int | None = None) -> ServerCommand:
    """The command that starts it, with what only the CPU needs. Host, port and what a plan wants come on top."""
    environment = [
        Flag(name="SGLANG_USE_CPU_ENGINE", value="1", why="SGLang's CPU code instead of CUDA's"),
        Flag(name="HF_HUB_OFFLINE", value="1", why="the model is on this machine"),
        Flag(name="OMP_NUM_THREADS", value="1", why="the scheduler needs the other cores"),
        Flag(name="PYTHONUNBUFFERED", value="1", why="its messages come at once"),
        Flag(name="PYTHONPATH", value=str(RECIPE / "shims"), why="names that the wheel leaves to a CPU build"),
    ]
    if ranks > 1:
        cores = "|".join(str(rank % (os.cpu_count() or 1)) for rank in range(ranks))
        environment.append(Flag(name="SGLANG_CPU_OMP_THREADS_BIND", value=cores, why="a core for each rank"))
    held = str(KV_TOKENS if kv_tokens is None else kv_tokens)
    return ServerCommand(
        environment=tuple(environment),
        program=(str(folder / "venv" / "bin" / "python"), "-m", "sglang.launch_server"),
        flags=(
            Flag(name="--model-path", value=str(folder / "model"), why="SmolLM2-135M-Instruct: it shows that all runs"),
            Flag(name="--served-model-name", value=MODEL, why="the name that requests use"),
            Flag(name="--device", value="cpu", why="no GPU is asked for"),
            Flag(name="--dtype", value="float32", why="quick on any processor, and replies do not hang on the batch"),
            Flag(name="--attention-backend", value="torch_native", why="the one that any CPU has"),
            Flag(name="--max-total-tokens", value=held, why="the KV cache of a rank, in tokens"),
            Flag(name="--max-running-requests", value="16", why="more at once are not faster on a few cores"),
            Flag(name="--chunked-prefill-size", value="512", why="replies go on while a long prompt is computed"),
            Flag(name="--sleep-on-idle", why="an idle server leaves the cores alone"),
        ),
    )


def install(folder: Path, *, quiet: bool, say: Callable[[str], None]) -> None:
    """Installs it unless it is there and of this recipe. Safe with several processes at once: one waits for the other.

    Raises OptionError where this machine cannot have it, EngineError, fatal, where the installation fails.
    """
    if not sys.platform.startswith("linux") or os.uname().machine != "x86_64":
        raise OptionError("SGLang on the CPU needs Linux on x86-64; give an address with --engine, or use `embedded`")
    fresh = not installed(folder)
    if fresh:
        say(f"installing SGLang for the CPU in {folder}, once: about 3 GB, two or three minutes")
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(  # bash as the user has it, a script of ours  # nosec B603 B607
            ["bash", str(RECIPE / "install.sh"), str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHON": sys.executable},
            start_new_session=True,
        )
        try:
            began = time.monotonic()
            _watch(process, folder, quiet=quiet or not fresh, say=say)
        finally:
            _end(process)
        if process.returncode:
            raise EngineError(_failed(folder, log), fatal=True)
    if fresh:
        say(f"installed in {time.monotonic() - began:.0f} s")


def _watch(process: subprocess.Popen[bytes], folder: Path, *, quiet: bool, say: Callable[[str], None]) -> None:
    """Shows how far it is until it ends, read from the size of what is there."""
    began = told = time.monotonic()
    if not quiet and sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("installing"), BarColumn(None), DownloadColumn(), TimeElapsedColumn())
        with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=SIZE)
            while _runs(process):
                bar.update(task, completed=min(SIZE, _size(folder)))
        return
    while _runs(process):
        if not quiet and time.monotonic() - told >= TELL:
            told = time.monotonic()
            say(f"installing, {told - began:.0f} s so far, {_size(folder) / 1e9:.1f} of about {SIZE / 1e9:.1f} GB")


def _runs(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(timeout=LOOK)
    except subprocess.TimeoutExpired:
        return True
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends an installation that was interrupted, with what it started."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def _size(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except OSError:
                continue
    return total


def _failed(folder: Path, log: IO[bytes]) -> str:
    log.seek(0)
    lines = [line for line in log.read().decode("utf-8", "replace").splitlines() if line.strip()][-LAST_LINES:]
    said = "\n".join(f"  {line}" for line in lines)
    what = f"SGLang for the CPU cannot be installed in {folder}; the package index has to be reachable, and 3 GB free"
    return f"{what}:\n{said}" if said else what


if __name__ == "__main__":
    from helix.progress import say as _say

    install(home(), quiet=False, say=_say)
