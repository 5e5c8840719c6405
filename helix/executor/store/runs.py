"""What is kept of one run in a folder of its own: its journal, its rows, and a few words on it.

A run is found again by its workflow, its input and its settings: `RunKey`. One process works on a run at a time.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from helix.canonical import canonical_bytes, canonical_text
from helix.errors import StoreError
from helix.executor.store.journal import Journal
from helix.executor.store.keys import utf8
from helix.executor.store.rows import RowChanges, RowPrints

RUNS = "runs"
JOURNAL = "journal"
ABOUT = "run.json"
_LOCK = "lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKey:
    """What a run is found again by.

    `plan` is the content id of the bound plan, constants that were set included. `input` is the absolute path of the
    input, or a digest of its rows where it has none. `models` are the identities of the models that answer.
    """

    plan: str
    input: str
    models: tuple[str, ...]

    @property
    def id(self) -> str:
        """The name of the run's folder: 16 hexadecimal digits."""
        parts = canonical_text(["helix run 1", self.plan, self.input, list(self.models)])
        return sha256(utf8(parts)).hexdigest()[:16]


class KeptRun:
    """A run that is being worked on: its lock is held, its journal is open.

    `changes` says how the input differs from what it was. `began` is when the run was begun, in seconds since 1970;
    None where it is new. `finished` says that it had come to its end. Opening raises StoreError.
    """

    def __init__(
        self,
        folder: Path,
        key: RunKey,
        rows: RowPrints,
        *,
        workflow: str,
        input: str,
        anew: bool = False,
        retry: bool = False,
    ) -> None:
        self.folder = folder / RUNS / key.id
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"the run cannot be kept in {self.folder}: {error.strerror or error}") from None
        self._lock = _locked(self.folder / _LOCK, workflow)
        try:
            before = {} if anew else read_about(self.folder)
            self.began: float | None = before.get("began")
            self.finished = before.get("state") == "finished"
            self.journal = Journal(self.folder / JOURNAL, anew=anew, retry=retry)
            self.rows = rows
            self.changes: RowChanges | None = rows.compare(self.folder) if self.journal.calls else None
            self._about: dict[str, Any] = {
                "version": 1,
                "workflow": workflow,
                "input": input,
                "began": self.began or time.time(),
            }
            try:
                rows.save(self.folder)
                self._write("unfinished")
            except BaseException:
                self.journal.close()
                raise
        except BaseException:
            os.close(self._lock)
            raise

    def close(self, *, finished: bool) -> None:
        """Puts down whether the run came to its end, and lets others at it."""
        self.journal.close()
        self._about["calls"] = self.journal.calls + self.journal.added
        try:
            self._write("finished" if finished else "unfinished")
        except StoreError:
            # The journal holds all that a resumed run needs.
            pass
        finally:
            os.close(self._lock)

    def _write(self, state: str) -> None:
        path, beside = self.folder / ABOUT, self.folder / f".{ABOUT}.{os.getpid()}"
        try:
            beside.write_bytes(canonical_bytes({**self._about, "state": state}) + b"\n")
            beside.replace(path)
        except OSError as error:
            raise StoreError(f"{path} cannot be written: {error.strerror or error}") from None


def read_about(folder: Path) -> dict[str, Any]:
    """What is said of a run; nothing where it cannot be read."""
    try:
        found = json.loads((folder / ABOUT).read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def run_folders(store: Path) -> Iterator[Path]:
    """The folders of the runs that a store keeps, in the order of their names."""
    folder = store / RUNS
    if folder.is_dir():
        yield from sorted(each for each in folder.iterdir() if each.is_dir())


def is_locked(folder: Path) -> bool:
    """Whether a process works on a run."""
    try:
        os.close(_locked(folder / _LOCK, ""))
    except StoreError:
        return True
    return False


def _locked(path: Path, workflow: str) -> int:
    """Holds the lock of a run; the system lets go of it when the process ends, however it ends."""
    import fcntl

    try:
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise StoreError(f"the run cannot be kept: {path}: {error.strerror or error}") from None
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(number, 32).decode("ascii", "replace").strip()
        os.close(number)
        who = f" (process {holder})" if holder.isdigit() else ""
        raise StoreError(
            f"this run of `{workflow}` over this input is going on in another process{who}; wait for its end, or run "
            "with --no-store, or with another folder in --store"
        ) from None
    except OSError as error:
        os.close(number)
        raise StoreError(f"the run cannot be locked: {path}: {error.strerror or error}") from None
    os.ftruncate(number, 0)
    os.pwrite(number, b"%d\n" % os.getpid(), 0)
    return number
