"""Outcomes of finished deterministic calls, so that an equal call later in the run is not made again (contract 4).

Recent outcomes are held in memory; older ones go to a private temporary database on disk, so that memory stays flat
over any number of rows. It ends with the run: results kept between runs are the business of the result store.
"""

from __future__ import annotations

import json
import sqlite3
from collections import OrderedDict

from helix.errors import HelixError
from helix.executor.values import Failure

RECENT = 4096
RECENT_CHARS = 32 * 1024 * 1024
_BATCH = 1024
# What an entry takes besides its text, in characters: enough to bound many small ones.
_ENTRY = 200


class Memo:
    """A map from a call's key to the text of its reply or to its failure, as large as the disk."""

    def __init__(self, recent: int = RECENT, chars: int = RECENT_CHARS) -> None:
        self._recent: OrderedDict[bytes, str | Failure] = OrderedDict()
        self._limit = recent
        self._chars = 0
        self._most_chars = chars
        self._database: sqlite3.Connection | None = None

    def get(self, key: bytes) -> str | Failure | None:
        """The outcome stored under a key."""
        known = self._recent.get(key)
        if known is None and self._database is not None:
            row = self._database.execute("SELECT text, failed FROM memo WHERE key = ?", (key,)).fetchone()
            if row is not None:
                text = str(row[0], "utf-8", "surrogatepass")
                known = Failure.of_parts(json.loads(text)) if row[1] else text
        return known

    def put(self, key: bytes, outcome: str | Failure) -> None:
        """Stores an outcome. Raises HelixError where the disk is full."""
        self._recent[key] = outcome
        self._chars += _size(outcome)
        if len(self._recent) >= self._limit + _BATCH or self._chars > self._most_chars:
            try:
                self._spill()
            except sqlite3.Error as error:
                raise HelixError(
                    f"cannot keep replies in a temporary file: {error}; the environment variable SQLITE_TMPDIR names "
                    "another folder"
                ) from None

    def _spill(self) -> None:
        """Moves the oldest outcomes to disk: at least a batch of them, and half of the text where there is much."""
        if self._database is None:
            # An empty name is a database on disk that SQLite removes by itself.
            self._database = sqlite3.connect("", isolation_level=None)
            self._database.execute("PRAGMA journal_mode = OFF")
            self._database.execute("PRAGMA synchronous = OFF")
            self._database.execute("CREATE TABLE memo (key BLOB PRIMARY KEY, text BLOB, failed INT) WITHOUT ROWID")
        rows: list[tuple[bytes, bytes, bool]] = []
        while self._recent and (len(rows) < _BATCH or self._chars > self._most_chars / 2):
            key, outcome = self._recent.popitem(last=False)
            self._chars -= _size(outcome)
            failed = isinstance(outcome, Failure)
            text = json.dumps(outcome.parts()) if isinstance(outcome, Failure) else outcome
            rows.append((key, text.encode("utf-8", "surrogatepass"), failed))
        self._database.execute("BEGIN")
        self._database.executemany("INSERT OR REPLACE INTO memo VALUES (?, ?, ?)", rows)
        self._database.execute("COMMIT")

    def close(self) -> None:
        """Drops everything."""
        self._recent.clear()
        self._chars = 0
        if self._database is not None:
            self._database.close()
            self._database = None


def _size(outcome: str | Failure) -> int:
    if isinstance(outcome, str):
        return len(outcome) + _ENTRY
    return len(outcome.message) + len(outcome.raw or "") + len(outcome.traceback) + 2 * _ENTRY
