"""The rows of an input as a run knows them: by what is in them, so that an edited, added or moved one is found out.

A row's identity is a digest of its values and, among equal rows, its number. The digests lie in a private temporary
database; of a finished look at the input they are kept in a file beside the journal.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from helix.canonical import canonical_text
from helix.errors import StoreError
from helix.executor.store.keys import utf8
from helix.executor.tables import Row

FILE = "rows"
_HEAD = b"helix rows 1\n"
_SIZE = 16
_BATCH = 4096
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChanges:
    """How an input differs from what it was: numbers of rows; `first` are the indexes of the first that are new."""

    changed: int = 0
    added: int = 0
    removed: int = 0
    first: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changed or self.added or self.removed)

    def words(self, name: str) -> str:
        """The changes as a person is told them."""
        parts = [
            f"{number:,} {what}"
            for number, what in ((self.changed, "changed"), (self.added, "added"), (self.removed, "removed"))
            if number
        ]
        shown = ", ".join(map(str, self.first))
        more = ", ..." if self.changed + self.added > len(self.first) else ""
        which = "" if not shown else f" ({'row' if len(self.first) == 1 and not more else 'rows'} {shown}{more})"
        return f"rows of {name} differ from the last run: {', '.join(parts)}{which}; only calls of such rows are new"


class RowPrints:
    """The digests of an input's rows, taken in order while the input is looked through."""

    def __init__(self) -> None:
        # An empty name is a database on disk that SQLite removes by itself.
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute("CREATE TABLE new (row INTEGER PRIMARY KEY, digest BLOB NOT NULL)")
        self._batch: list[tuple[int, bytes]] = []
        self._all = sha256()
        self._numbered = False
        self._last: tuple[int, bytes] = (-1, b"")
        self.rows = 0

    def add(self, row: Row) -> None:
        """Takes the next row."""
        error = row.error
        told: Any = row.values if error is None else [row.values, error.kind, error.message]
        try:
            text = canonical_text(told)
        except ValueError:
            # Not a number, or without end: JSON has no text for it, Python has.
            text = repr(told)
        digest = sha256(utf8(text)).digest()[:_SIZE]
        self._all.update(digest)
        self._batch.append((row.index, digest))
        self.rows += 1
        if len(self._batch) >= _BATCH:
            self._flush("new")

    def _flush(self, table: str) -> None:
        self._database.execute("BEGIN")
        self._database.executemany(f"INSERT INTO {table} VALUES (?, ?)", self._batch)  # a name of ours  # nosec B608
        self._database.execute("COMMIT")
        self._batch.clear()

    @property
    def content(self) -> str:
        """A digest of all rows."""
        return self._all.hexdigest()

    def identity(self, row: int) -> bytes:
        """What a row is known by."""
        if self._last[0] == row:
            return self._last[1]
        if not self._numbered:
            self._number()
        found = self._database.execute("SELECT digest FROM new WHERE row = ?", (row,)).fetchone()
        digest: bytes = b"" if found is None else found[0]
        copy = self._database.execute("SELECT number FROM copies WHERE row = ?", (row,)).fetchone()
        identity = digest + b"%d" % (0 if copy is None else copy[0])
        self._last = (row, identity)
        return identity

    def _number(self) -> None:
        """Numbers equal rows in the order of the input."""
        if self._batch:
            self._flush("new")
        self._database.execute("CREATE TABLE copies (row INTEGER PRIMARY KEY, number INTEGER NOT NULL)")
        self._database.execute(
            "INSERT INTO copies SELECT row, number FROM (SELECT row, row_number() OVER "
            "(PARTITION BY digest ORDER BY row) - 1 AS number FROM new) WHERE number > 0 ORDER BY row"
        )
        self._numbered = True

    def compare(self, folder: Path) -> RowChanges | None:
        """How the rows differ from those that were saved in a folder; None where there is nothing to compare with."""
        path = folder / FILE
        try:
            with path.open("rb") as file:
                if file.readline() != _HEAD or file.readline().decode("ascii", "replace").strip() == self.content:
                    return None
                if self._batch:
                    self._flush("new")
                self._database.execute("CREATE TEMP TABLE old (row INTEGER PRIMARY KEY, digest BLOB NOT NULL)")
                for number, digest in enumerate(_digests(file)):
                    self._batch.append((number, digest))
                    if len(self._batch) >= _BATCH:
                        self._flush("old")
                self._flush("old")
        except OSError:
            return None
        database = self._database
        database.execute("CREATE TEMP TABLE was AS SELECT digest, count(*) AS n FROM old GROUP BY digest")
        database.execute("CREATE INDEX temp.was_digest ON was (digest)")
        database.execute(
            "CREATE TEMP TABLE now AS SELECT digest, count(*) AS n, min(row) AS row FROM new GROUP BY digest"
        )
        database.execute("CREATE INDEX temp.now_digest ON now (digest)")
        missing = "SELECT total(max(0, a.n - coalesce(b.n, 0))) FROM {} a LEFT JOIN {} b USING (digest)"
        came = int(database.execute(missing.format("now", "was")).fetchone()[0])
        went = int(database.execute(missing.format("was", "now")).fetchone()[0])
        first = database.execute(
            "SELECT now.row FROM now LEFT JOIN was USING (digest) WHERE was.n IS NULL ORDER BY now.row LIMIT ?",
            (_SHOWN,),
        ).fetchall()
        for table in ("old", "was", "now"):
            database.execute(f"DROP TABLE temp.{table}")
        changed = min(came, went)
        return RowChanges(
            changed=changed, added=came - changed, removed=went - changed, first=tuple(row for (row,) in first)
        )

    def save(self, folder: Path) -> None:
        """Keeps the digests for the next run, in place of those of the last one. Raises StoreError."""
        if self._batch:
            self._flush("new")
        path = folder / FILE
        beside = folder / f".{FILE}.{os.getpid()}"
        try:
            with beside.open("wb") as file:
                file.write(_HEAD + self.content.encode() + b"\n")
                for (digest,) in self._database.execute("SELECT digest FROM new ORDER BY row"):
                    file.write(digest)
            beside.replace(path)
        except OSError as error:
            raise StoreError(f"{path} cannot be written: {error.strerror or error}") from None

    def close(self) -> None:
        """Drops the digests."""
        self._database.close()


def _digests(file: Any) -> Iterator[bytes]:
    while block := file.read(_SIZE * _BATCH):
        for at in range(0, len(block) - _SIZE + 1, _SIZE):
            yield block[at : at + _SIZE]
