"""Replies of finished deterministic calls, so that an equal call later in the run is not made again (contract 4).

Recent replies are held in memory; older ones go to a private temporary database on disk, so that memory stays flat over
any number of rows. It ends with the run: results kept between runs are the business of the result store.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict

RECENT = 4096
_BATCH = 1024


class Memo:
    """A map from a call's key to the text of its reply, as large as the disk."""

    def __init__(self, recent: int = RECENT) -> None:
        self._recent: OrderedDict[bytes, str] = OrderedDict()
        self._limit = recent
        self._spilled = 0
        self._database: sqlite3.Connection | None = None

    def get(self, key: bytes) -> str | None:
        """The reply stored under a key."""
        text = self._recent.get(key)
        if text is None and self._spilled:
            assert self._database is not None
            row = self._database.execute("SELECT reply FROM memo WHERE key = ?", (key,)).fetchone()
            text = None if row is None else str(row[0], "utf-8", "surrogatepass")
        return text

    def put(self, key: bytes, text: str) -> None:
        """Stores a reply."""
        self._recent[key] = text
        if len(self._recent) >= self._limit + _BATCH:
            self._spill()

    def _spill(self) -> None:
        if self._database is None:
            # An empty name is a database on disk that SQLite removes by itself.
            self._database = sqlite3.connect("", isolation_level=None)
            self._database.execute("PRAGMA journal_mode = OFF")
            self._database.execute("PRAGMA synchronous = OFF")
            self._database.execute("CREATE TABLE memo (key BLOB PRIMARY KEY, reply BLOB) WITHOUT ROWID")
        oldest = [self._recent.popitem(last=False) for _ in range(_BATCH)]
        rows = [(key, text.encode("utf-8", "surrogatepass")) for key, text in oldest]
        self._database.execute("BEGIN")
        self._database.executemany("INSERT OR REPLACE INTO memo VALUES (?, ?)", rows)
        self._database.execute("COMMIT")
        self._spilled += len(rows)

    def close(self) -> None:
        """Drops everything."""
        self._recent.clear()
        if self._database is not None:
            self._database.close()
            self._database = None
