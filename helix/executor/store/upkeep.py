"""What a store holds, for people, and how it is emptied: `helix cache show` and `helix cache clear`."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from helix.errors import StoreError
from helix.executor.store.database import BROKEN, FILE, open_database, refused
from helix.executor.store.runs import JOURNAL, is_locked, read_about, run_folders


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The results of one model at one step: their number, their bytes, and how often they were fetched."""

    model: str
    step: str
    results: int
    bytes: int
    hits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRun:
    """A run that can be found again. `began` is in seconds since 1970; `calls` is None for one that was killed."""

    folder: Path
    workflow: str
    input: str
    began: float | None
    state: str
    bytes: int
    calls: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What a store holds. `file_bytes` is the size of its files."""

    folder: Path
    held: tuple[Held, ...]
    runs: tuple[HeldRun, ...]
    file_bytes: int
    lengths: int

    @property
    def results(self) -> int:
        """The number of results."""
        return sum(each.results for each in self.held)

    @property
    def bytes(self) -> int:
        """The bytes of their values."""
        return sum(each.bytes for each in self.held)


def contents(folder: Path) -> Contents:
    """What the store in a folder holds. Raises StoreError where there is none, or where it cannot be read."""
    if not (folder / FILE).exists() and not any(run_folders(folder)):
        raise StoreError(f"there is no store in {folder}; `helix run` makes one, --store names another folder")
    held: list[Held] = []
    lengths = 0
    if (folder / FILE).exists():
        database = open_database(folder)
        try:
            rows = database.execute(
                "SELECT model, step, count(*), sum(size), sum(hits) FROM results JOIN askings ON asking = askings.id "
                "GROUP BY model, step ORDER BY model, step"
            )
            held = [Held(model=row[0], step=row[1], results=row[2], bytes=row[3], hits=row[4]) for row in rows]
            lengths = database.execute("SELECT coalesce(sum(count), 0) FROM lengths").fetchone()[0]
        except BROKEN as error:
            raise refused(folder / FILE, error) from None
        finally:
            database.close()
    files = (folder / FILE, folder / f"{FILE}-wal")
    return Contents(
        folder=folder,
        held=tuple(held),
        runs=tuple(_held_run(each) for each in run_folders(folder)),
        file_bytes=sum(file.stat().st_size for file in files if file.exists()),
        lengths=lengths,
    )


def _held_run(folder: Path) -> HeldRun:
    about = read_about(folder)
    journal = folder / JOURNAL
    return HeldRun(
        folder=folder,
        workflow=str(about.get("workflow", "?")),
        input=str(about.get("input", "?")),
        began=about.get("began"),
        state="running" if is_locked(folder) else str(about.get("state", "?")),
        bytes=journal.stat().st_size if journal.exists() else 0,
        calls=about.get("calls"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """What was removed: results and runs; `kept` runs are being worked on."""

    results: int
    runs: int
    kept: int


def clear(folder: Path, *, older: float | None = None, runs: bool = True) -> Cleared:
    """Removes results last used, and runs last worked on, more than so many seconds ago (None: all).

    A run that a process works on is left alone. Raises StoreError.
    """
    found = contents(folder)
    before = None if older is None else time.time() - older
    gone = 0
    if (folder / FILE).exists():
        gone = _clear_results(folder, before)
    removed = kept = 0
    for run in found.runs if runs else ():
        if before is not None and _worked_on(run.folder) >= before:
            continue
        if is_locked(run.folder):
            kept += 1
            continue
        shutil.rmtree(run.folder, ignore_errors=True)
        removed += 1
    return Cleared(results=gone, runs=removed, kept=kept)


def _clear_results(folder: Path, before: float | None) -> int:
    database = open_database(folder)
    try:
        database.execute("BEGIN IMMEDIATE")
        if before is None:
            gone = database.execute("DELETE FROM results").rowcount
            database.execute("DELETE FROM lengths")
        else:
            gone = database.execute(
                "DELETE FROM results WHERE session IN (SELECT id FROM sessions WHERE began < ?)", (before,)
            ).rowcount
        database.execute("COMMIT")
        database.execute("PRAGMA incremental_vacuum").fetchall()
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except BROKEN as error:
        raise refused(folder / FILE, error) from None
    finally:
        database.close()
    return gone


def _worked_on(folder: Path) -> float:
    """When a run was last worked on."""
    times = [each.stat().st_mtime for each in folder.iterdir() if each.is_file() and each.name != "lock"]
    return max(times, default=0.0)
