"""The file of the result store: one SQLite database in WAL mode, made whole and looked at before it is opened.

A file that is no store, a damaged one and one of a newer version are refused and left as they are.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import struct
import threading
from contextlib import suppress
from pathlib import Path

from helix.errors import StoreError

FILE = "store.db"
# "HLXs" in the header of the file says whose it is.
APPLICATION = 0x484C5873
VERSION = 1
# A store up to this size is checked through when it is opened; in a larger one damage is found where it is met.
CHECKED_BYTES = 16 * 1024 * 1024
BUSY_SECONDS = 30.0
# What SQLite raises over a damaged file: its message may hold what is no text.
BROKEN = (sqlite3.Error, UnicodeError)
_MAGIC = b"SQLite format 3\x00"

_SCHEMA = """
PRAGMA page_size = 8192;
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = DELETE;
BEGIN;
CREATE TABLE askings (
  id INTEGER PRIMARY KEY, model TEXT NOT NULL, parameters TEXT NOT NULL, UNIQUE (model, parameters)
);
CREATE TABLE results (
  id INTEGER PRIMARY KEY,
  key BLOB NOT NULL UNIQUE,
  asking INTEGER NOT NULL,
  step TEXT NOT NULL,
  session INTEGER NOT NULL,
  hits INTEGER NOT NULL DEFAULT 0,
  expires REAL,
  size INTEGER NOT NULL,
  digest BLOB NOT NULL,
  value BLOB NOT NULL
);
CREATE INDEX results_by_use ON results (session, id, size);
CREATE TABLE sessions (id INTEGER PRIMARY KEY AUTOINCREMENT, began REAL NOT NULL);
CREATE TABLE totals (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO totals VALUES ('bytes', 0), ('entries', 0);
CREATE TABLE lengths (
  signature TEXT NOT NULL, model TEXT NOT NULL, sampling TEXT NOT NULL,
  tokens INTEGER NOT NULL, cut INTEGER NOT NULL, count INTEGER NOT NULL,
  PRIMARY KEY (signature, model, sampling, tokens, cut)
) WITHOUT ROWID;
CREATE TRIGGER added AFTER INSERT ON results BEGIN
  UPDATE totals SET value = value + CASE name WHEN 'bytes' THEN NEW.size ELSE 1 END;
END;
CREATE TRIGGER removed AFTER DELETE ON results BEGIN
  UPDATE totals SET value = value - CASE name WHEN 'bytes' THEN OLD.size ELSE 1 END;
END;
CREATE TRIGGER resized AFTER UPDATE OF size ON results BEGIN
  UPDATE totals SET value = value + NEW.size - OLD.size WHERE name = 'bytes';
END;
"""
_SCHEMA += f"""
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
COMMIT;
PRAGMA journal_mode = WAL;
"""


def make_folder(folder: Path) -> None:
    """Makes the folder of a store, which no version control is to take up. Raises StoreError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        ignore = folder / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise StoreError(f"results cannot be kept in {folder}: {error.strerror or error}") from None


def open_database(folder: Path) -> sqlite3.Connection:
    """The database of a store, made where there is none. Raises StoreError."""
    path = folder / FILE
    try:
        if not path.exists():
            _make(path)
        check_file(path)
        connection = connected(path)
    except (OSError, *BROKEN) as error:
        raise refused(path, error) from None
    try:
        if path.stat().st_size <= CHECKED_BYTES:
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                raise damaged(path, found)
        connection.execute("SELECT name FROM totals LIMIT 1").fetchone()
    except BROKEN as error:
        connection.close()
        raise refused(path, error) from None
    except StoreError:
        connection.close()
        raise
    return connection


def connected(path: Path) -> sqlite3.Connection:
    """A connection that waits for its turn, and that any thread may use."""
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def _make(path: Path) -> None:
    """Makes an empty store beside its place and links it in, so that another process finds it whole or not at all."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    with suppress(FileNotFoundError):
        beside.unlink()
    try:
        connection = sqlite3.connect(beside, isolation_level=None)
        try:
            connection.executescript(_SCHEMA)
        finally:
            connection.close()
        with suppress(FileExistsError):
            os.link(beside, path)
    finally:
        for left in (beside, Path(f"{beside}-wal"), Path(f"{beside}-shm")):
            with suppress(OSError):
                left.unlink()


def check_file(path: Path) -> None:
    """Reads the head of the file without opening it as a database. Raises StoreError where it is no store of ours."""
    with path.open("rb") as file:
        head = file.read(100)
    size = path.stat().st_size
    if len(head) < 100 or not head.startswith(_MAGIC):
        raise StoreError(f"{path} is no result store of Helix; it was left as it is{_advice(path)}")
    pages, version = struct.unpack(">I", head[28:32])[0], struct.unpack(">I", head[60:64])[0]
    if struct.unpack(">I", head[68:72])[0] != APPLICATION:
        raise StoreError(f"{path} is a database, but no result store of Helix; it was left as it is{_advice(path)}")
    if version > VERSION:
        what = f"{path} was written by a newer version of Helix (format {version}; this one knows {VERSION})"
        raise StoreError(f"{what}; it was left as it is{_advice(path)}")
    page = struct.unpack(">H", head[16:18])[0] or 65536
    page = 65536 if page == 1 else page
    # What a log beside the file still holds may be missing from the file itself.
    if size < pages * page and not path.with_name(path.name + "-wal").exists():
        raise damaged(path, f"{pages * page - size:,} bytes are missing at its end")


def refused(path: Path, error: Exception) -> StoreError:
    """The error of a store that cannot be used: it is damaged, or the machine does not let it be used."""
    if isinstance(error, OSError | sqlite3.OperationalError):
        why = getattr(error, "strerror", None) or error
        what = f"results cannot be kept in {path.parent}: {why}"
        return StoreError(f"{what}; free some space, name another folder with --store, or run with --no-store")
    return damaged(path, error)


def damaged(path: Path, why: object) -> StoreError:
    """The error of a store that is damaged."""
    return StoreError(f"the result store {path} cannot be used: {why}; it was left as it is{_advice(path)}")


def _advice(path: Path) -> str:
    return f": move {path.name} away, name another folder with --store, or run with --no-store"
