"""The result store: values of calls by their keys, for later runs (contract 5, 6).

Only successes are kept, as bytes. A reader has a connection of its own on the thread of the run; what is written goes
through one thread, many results in a transaction. A result that is damaged is never given: each carries a digest of key
and value. The store is a help, not a promise: where it cannot be written any more, the run goes on without it.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import Counter
from hashlib import sha256
from pathlib import Path
from queue import Empty, Full, Queue
from typing import Any

from helix.executor.store.database import BROKEN, FILE, connected, make_folder, open_database, refused
from helix.executor.store.keys import Asking, utf8

DEFAULT_BYTES = 2 * 1024**3
# What a result takes besides its value: its key, digest, index entries.
ENTRY_BYTES = 200
_BATCH = 512
_WAITING = 8192
_LINGER = 0.05

# Rows of one statement: each statement hands the interpreter over to the thread of the run and waits to get it back.
_ROWS = 128
_PUT, _USE, _LENGTH = 0, 1, 2
_Write = tuple[Any, ...]


class Damaged(Exception):
    """A store that cannot be read, or that holds what was not stored there."""


class Results:
    """Reads the results of an open store."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._askings: dict[int, tuple[str, str]] = {}

    def get(self, key: bytes, asking: Asking) -> tuple[int, str] | None:
        """The number and the text of the result under a key, for what was asked. Raises Damaged."""
        try:
            row = self._database.execute(
                "SELECT id, asking, expires, digest, value FROM results WHERE key = ?", (key,)
            ).fetchone()
            if row is None or (row[2] is not None and row[2] <= time.time()):
                return None
            number, asked, _, digest, value = row
            if self._asking(asked) == (asking.model, asking.parameters) and digest == _digest(key, value):
                return number, str(value, "utf-8", "surrogatepass")
        except BROKEN as error:
            raise Damaged(f"cannot be read any more: {error}") from None
        raise Damaged("holds a result that is not what was stored; it is damaged")

    def _asking(self, number: int) -> tuple[str, str] | None:
        found = self._askings.get(number)
        if found is None:
            found = self._database.execute("SELECT model, parameters FROM askings WHERE id = ?", (number,)).fetchone()
            if found is not None:
                self._askings[number] = found
        return found


class ResultStore:
    """A store open for one run. `notes` are what a person should know of it at the end.

    `most` bounds the bytes of all values; beyond it the results that were used longest ago go first. Opening raises
    StoreError.
    """

    def __init__(self, folder: Path, *, most: int = DEFAULT_BYTES) -> None:
        make_folder(folder)
        self.path = folder / FILE
        self.notes: list[str] = []
        self._most = most
        self._reader = open_database(folder)
        self._found = Results(self._reader)
        self._numbers: dict[tuple[str, str], int] = {}
        self._broken = False
        self._queue: Queue[_Write | None] = Queue(_WAITING)
        try:
            cursor = self._reader.execute("INSERT INTO sessions (began) VALUES (?)", (time.time(),))
        except BROKEN as error:
            self._reader.close()
            raise refused(self.path, error) from None
        self._session = cursor.lastrowid
        self._thread = threading.Thread(target=self._work, name="helix-store", daemon=True)
        self._thread.start()

    # --- reading ---

    def get(self, key: bytes, asking: Asking) -> str | None:
        """The text stored under a key, for what was asked. Counts as a use of it."""
        if self._broken:
            return None
        try:
            found = self._found.get(key, asking)
        except Damaged as error:
            self._give_up(str(error))
            return None
        if found is None:
            return None
        self._later((_USE, found[0]))
        return found[1]

    # --- writing ---

    def put(self, key: bytes, asking: Asking, text: str) -> None:
        """Stores a value, soon. Waits only where the disk does not keep up."""
        value = utf8(text)
        expires = None if asking.holds is None else time.time() + asking.holds
        result = (key, asking.label, self._session, expires, len(value) + ENTRY_BYTES, _digest(key, value), value)
        self._later((_PUT, (asking.model, asking.parameters), result), wait=True)

    def add_length(self, signature: str, model: str, sampling: str, tokens: int, cut: bool) -> None:
        """Counts the length of a reply; one of many that is lost does no harm."""
        self._later((_LENGTH, (signature, model, sampling, tokens, int(cut))))

    def _later(self, write: _Write, *, wait: bool = False) -> None:
        """Hands something to the writing thread. What need not be kept is dropped where there is no room for it."""
        if self._broken:
            return
        try:
            self._queue.put(write, block=wait)
        except Full:
            return

    def _give_up(self, why: str) -> None:
        """Uses the store no more in this run."""
        if not self._broken:
            self._broken = True
            self.notes.append(f"the result store {self.path} {why}; the run goes on without it")

    def _work(self) -> None:
        """The thread that writes."""
        try:
            database = connected(self.path)
        except BROKEN as error:
            self._give_up(f"cannot be written: {error}")
            database = None
        ended = False
        while not ended:
            batch = self._batch()
            if batch[-1] is None:
                ended = True
                batch.pop()
            if self._broken or database is None or not batch:
                continue
            try:
                self._write(database, batch)
            except BROKEN as error:
                _rolled_back(database)
                self._give_up(f"cannot be written: {error}")
        if database is not None:
            database.close()

    def _batch(self) -> list[_Write | None]:
        """What is to be written in one transaction, at least one thing. None is the end."""
        batch: list[_Write | None] = [self._queue.get()]
        until = time.monotonic() + _LINGER
        while len(batch) < _BATCH and batch[-1] is not None:
            try:
                batch.append(self._queue.get(timeout=max(0.0, until - time.monotonic())))
            except Empty:
                break
        return batch

    def _write(self, database: sqlite3.Connection, batch: list[Any]) -> None:
        database.execute("BEGIN IMMEDIATE")
        results = [(self._number(database, item[1]), *item[2]) for item in batch if item[0] == _PUT]
        for at in range(0, len(results), _ROWS):
            _insert(database, results[at : at + _ROWS])
        used = [item[1] for item in batch if item[0] == _USE]
        if used:
            places = ", ".join("?" * len(used))
            database.execute(
                # What is put into the texts of SQL here is question marks alone.
                f"UPDATE results SET hits = hits + 1, session = max(session, ?) WHERE id IN ({places})",  # nosec B608
                (self._session, *used),
            )
        lengths = Counter(item[1] for item in batch if item[0] == _LENGTH)
        if lengths:
            rows = [(*length, number) for length, number in lengths.items()]
            database.execute(
                f"INSERT INTO lengths VALUES {_places(6, len(rows))} ON CONFLICT DO UPDATE SET "  # nosec B608
                "count = count + excluded.count",
                [value for row in rows for value in row],
            )
        evict(database, self._most)
        database.execute("COMMIT")

    def _number(self, database: sqlite3.Connection, asking: tuple[str, str]) -> int:
        """The number that results of what was asked refer to it by."""
        found = self._numbers.get(asking)
        if found is None:
            database.execute("INSERT OR IGNORE INTO askings (model, parameters) VALUES (?, ?)", asking)
            (found,) = database.execute("SELECT id FROM askings WHERE model = ? AND parameters = ?", asking).fetchone()
            self._numbers[asking] = found
        return int(found)

    def close(self) -> None:
        """Writes what waits and closes the file."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
        self._reader.close()


def evict(database: sqlite3.Connection, most: int) -> None:
    """Removes results until their bytes are within the bound: those of the earliest last use first."""
    excess = database.execute("SELECT value FROM totals WHERE name = 'bytes'").fetchone()[0] - most
    if excess <= 0:
        return
    gone: list[tuple[int]] = []
    for number, size in database.execute("SELECT id, size FROM results ORDER BY session, id"):
        gone.append((number,))
        excess -= size
        if excess <= 0:
            break
    database.executemany("DELETE FROM results WHERE id = ?", gone)
    database.execute("PRAGMA incremental_vacuum(1024)").fetchall()


def _insert(database: sqlite3.Connection, results: list[tuple[Any, ...]]) -> None:
    database.execute(
        "INSERT INTO results (asking, key, step, session, expires, size, digest, value) VALUES "  # nosec B608
        f"{_places(8, len(results))} ON CONFLICT (key) DO UPDATE SET asking = excluded.asking, step = excluded.step, "
        "session = excluded.session, expires = excluded.expires, size = excluded.size, digest = excluded.digest, "
        "value = excluded.value",
        [value for result in results for value in result],
    )


def _places(columns: int, rows: int) -> str:
    """The places of so many rows in a statement."""
    row = f"({', '.join('?' * columns)})"
    return ", ".join([row] * rows)


def _digest(key: bytes, value: bytes) -> bytes:
    return sha256(key + value).digest()[:16]


def _rolled_back(database: sqlite3.Connection) -> None:
    try:
        database.execute("ROLLBACK")
    except sqlite3.Error:
        # SQLite has rolled back by itself.
        return
