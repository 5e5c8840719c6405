"""The journal of a run: the outcome of each finished call, on disk before the call counts as done (contract 8).

A file that only grows: a head line, then records of a mark, a length, a checksum and what the record holds. Calls that
end together share one write and one sync. A record that was cut off, as by a power cut, is dropped, and what is damaged
in the middle is skipped; the calls in there are made again. Where each outcome lies is looked up in a private temporary
database, so that memory stays flat over any number of calls.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import struct
import threading
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from zlib import crc32

from helix.errors import StoreError
from helix.executor.store.keys import utf8
from helix.executor.values import Failure

HEAD = b"helix journal 1\n"
_HEADS = b"helix journal "
_MARK = b"\xf5HxJ"
_FRAME = struct.Struct(">4sII")
# The key in the run, the key of the prompt and its ordinal where it is one of several equal ones, and how it ended.
_BODY = struct.Struct(">16s16siB")
_REPLY, _FAILURE = 0, 1
_MOST_RECORD = 1 << 30
_BLOCK = 1 << 20
_NO_PROMPT = bytes(16)


class Record:
    """What a journal holds of one call: the text of its outcome or its failure, and where it belongs.

    `prompt` and `ordinal` say which of several equal prompts that share nothing it answers.
    """

    __slots__ = ("failure", "key", "ordinal", "prompt", "text")

    def __init__(
        self,
        key: bytes,
        text: str | None,
        failure: Failure | None = None,
        *,
        prompt: bytes | None = None,
        ordinal: int = 0,
    ) -> None:
        self.key = key
        self.text = text
        self.failure = failure
        self.prompt = prompt
        self.ordinal = ordinal

    def packed(self) -> bytes:
        """The record as it lies in the file."""
        failed = self.failure is not None
        told = json.dumps(self.failure.parts()) if self.failure is not None else self.text or ""
        prompt, ordinal = (_NO_PROMPT, -1) if self.prompt is None else (self.prompt[:16], self.ordinal)
        body = _BODY.pack(self.key, prompt, ordinal, _FAILURE if failed else _REPLY) + utf8(told)
        return _FRAME.pack(_MARK, len(body), crc32(body)) + body

    @classmethod
    def unpacked(cls, body: bytes) -> Record:
        """The record of a body. Raises ValueError where it holds none."""
        key, prompt, ordinal, kind = _BODY.unpack_from(body)
        text = str(memoryview(body)[_BODY.size :], "utf-8", "surrogatepass")
        failure = Failure.of_parts(json.loads(text)) if kind == _FAILURE else None
        where = {"prompt": None if ordinal < 0 else prompt, "ordinal": max(ordinal, 0)}
        return cls(key, None if failure else text, failure, **where)


class Journal:
    """The journal in a file, made where there is none. Who opens it holds the lock of the run.

    `calls` counts the outcomes that it held when it was opened, `failures` those of them that are failures, `added`
    those that came since, `damaged` the bytes that could not be read. With `anew` what it held is dropped, with `retry`
    its failures are. Raises StoreError for a file that is no journal.
    """

    def __init__(self, path: Path, *, anew: bool = False, retry: bool = False) -> None:
        self.path = path
        self.calls = self.failures = self.damaged = self.added = 0
        self._retry = retry
        self._index: sqlite3.Connection | None = None
        try:
            if anew:
                path.unlink(missing_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                self._end = self._read()
            except BaseException:
                os.close(self._file)
                raise
            _sync_folder(path.parent)
        except OSError as error:
            raise StoreError(f"the journal {path} cannot be used: {error.strerror or error}") from None
        self._error: OSError | None = None
        self._closed = False
        self._pending: list[tuple[bytes, asyncio.Future[None] | None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="helix-journal", daemon=True)
        self._thread.start()

    # --- what it holds ---

    def find(self, key: bytes) -> Record | None:
        """The outcome under a key, of those that it held when it was opened."""
        if self._index is None:
            return None
        place = self._index.execute("SELECT at, size FROM calls WHERE key = ?", (key,)).fetchone()
        if place is None:
            return None
        try:
            body = os.pread(self._file, place[1], place[0])
            return Record.unpacked(body)
        except (OSError, ValueError, struct.error):
            return None

    def uses(self, prompt: bytes, ordinal: int) -> bool:
        """Whether one of its outcomes answers an equal prompt under this ordinal."""
        if self._index is None:
            return False
        asked = "SELECT 1 FROM ordinals WHERE prompt = ? AND ordinal = ?"
        return self._index.execute(asked, (prompt[:16], ordinal)).fetchone() is not None

    def _read(self) -> int:
        """Reads the file through; gives where the next record goes. What is cut off at the end is cut away."""
        head = os.pread(self._file, len(HEAD), 0)
        if head != HEAD:
            if not HEAD.startswith(head):
                newer = head.startswith(_HEADS)
                what = "was written by a newer version of Helix" if newer else "is no journal of Helix"
                raise StoreError(f"the file {self.path} {what}; it was left as it is")
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, HEAD, 0)
            os.fsync(self._file)
            return len(HEAD)
        end = len(HEAD)
        known: list[tuple[bytes, int, int, bool]] = []
        answered: list[tuple[bytes, int]] = []
        for at, body in self._records():
            key, prompt, ordinal, kind = _BODY.unpack_from(body)
            known.append((key, at, len(body), kind == _FAILURE))
            if ordinal >= 0 and kind == _REPLY:
                answered.append((prompt, ordinal))
            if len(known) >= 4096:
                self._note(known, answered)
            end = at + len(body)
        self._note(known, answered)
        if self._index is not None:
            if self._retry:
                self._index.execute("DELETE FROM calls WHERE failed")
            self.calls, self.failures = self._index.execute("SELECT count(*), total(failed) FROM calls").fetchone()
            self.failures = int(self.failures)
        size = os.fstat(self._file).st_size
        if size > end:
            os.ftruncate(self._file, end)
        return end

    def _note(self, known: list[tuple[bytes, int, int, bool]], answered: list[tuple[bytes, int]]) -> None:
        if self._index is None and known:
            # An empty name is a database on disk that SQLite removes by itself.
            self._index = sqlite3.connect("", isolation_level=None, check_same_thread=False)
            self._index.execute("PRAGMA journal_mode = OFF")
            self._index.execute("PRAGMA synchronous = OFF")
            self._index.execute(
                "CREATE TABLE calls (key BLOB PRIMARY KEY, at INTEGER, size INTEGER, failed INTEGER) WITHOUT ROWID"
            )
            self._index.execute(
                "CREATE TABLE ordinals (prompt BLOB, ordinal INTEGER, PRIMARY KEY (prompt, ordinal)) WITHOUT ROWID"
            )
        if self._index is not None:
            self._index.execute("BEGIN")
            self._index.executemany("INSERT OR REPLACE INTO calls VALUES (?, ?, ?, ?)", known)
            self._index.executemany("INSERT OR IGNORE INTO ordinals VALUES (?, ?)", answered)
            self._index.execute("COMMIT")
        known.clear()
        answered.clear()

    def _records(self) -> Iterator[tuple[int, bytes]]:
        """The bodies of whole records and where they lie; damaged stretches between them are counted and skipped."""
        at = len(HEAD)
        size = os.fstat(self._file).st_size
        buffer, start = b"", at
        bad_from: int | None = None
        while at + _FRAME.size <= size:
            if at + _FRAME.size > start + len(buffer) or at < start:
                buffer, start = os.pread(self._file, _BLOCK, at), at
            mark, length, checksum = _FRAME.unpack_from(buffer, at - start)
            body = b""
            if mark == _MARK and _BODY.size <= length <= min(_MOST_RECORD, size - at - _FRAME.size):
                first = at + _FRAME.size
                if first + length <= start + len(buffer):
                    body = buffer[first - start : first - start + length]
                else:
                    body = os.pread(self._file, length, first)
            if body and crc32(body) == checksum:
                if bad_from is not None:
                    self.damaged += at - bad_from
                    bad_from = None
                yield at + _FRAME.size, body
                at += _FRAME.size + length
                continue
            bad_from = at if bad_from is None else bad_from
            at = self._next_mark(at + 1, size)

    def _next_mark(self, at: int, size: int) -> int:
        while at < size:
            block = os.pread(self._file, _BLOCK, at)
            found = block.find(_MARK)
            if found >= 0:
                return at + found
            at += max(1, len(block) - len(_MARK) + 1) if len(block) > len(_MARK) else size
        return size

    # --- what is added ---

    async def keep(self, record: Record) -> None:
        """Adds an outcome; it is on disk once this returns. Raises StoreError where it cannot be."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = self._loop.create_future()
        self._add(record.packed(), done)
        # A loop in virtual time holds its clock while the disk is written.
        with getattr(self._loop, "hold", nullcontext)():
            await done

    def note(self, record: Record) -> None:
        """Adds an outcome that is safe elsewhere: it goes to disk with what comes next."""
        self._add(record.packed(), None)

    def _add(self, packed: bytes, done: asyncio.Future[None] | None) -> None:
        self.added += 1
        with self._turn:
            self._pending.append((packed, done))
            self._turn.notify()

    def _work(self) -> None:
        """The thread that writes: all that waits at once, then one sync for all of it."""
        while True:
            with self._turn:
                while not self._pending and not self._closed:
                    self._turn.wait()
                batch, self._pending = self._pending, []
                if not batch:
                    return
            if self._error is None:
                try:
                    self._append(b"".join(packed for packed, _ in batch))
                except OSError as error:
                    self._error = error
            waiting = [done for _, done in batch if done is not None]
            if waiting and self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._tell, waiting)

    def _append(self, data: bytes) -> None:
        at = self._end
        view = memoryview(data)
        try:
            while view:
                written = os.pwrite(self._file, view, at)
                view = view[written:]
                at += written
            _sync(self._file)
        except OSError:
            # Half a record must not stand before whole ones.
            with suppress(OSError):
                os.ftruncate(self._file, self._end)
            raise
        self._end = at

    def _tell(self, waiting: list[asyncio.Future[None]]) -> None:
        for done in waiting:
            if done.done():
                continue
            if self._error is None:
                done.set_result(None)
            else:
                why = self._error.strerror or self._error
                done.set_exception(StoreError(f"the journal {self.path} cannot be written: {why}"))

    def close(self) -> None:
        """Writes what waits and closes the file."""
        with self._turn:
            if self._closed:
                return
            self._closed = True
            self._turn.notify()
        self._thread.join()
        os.close(self._file)
        if self._index is not None:
            self._index.close()
            self._index = None


def _sync(file: int) -> None:
    getattr(os, "fdatasync", os.fsync)(file)


def _sync_folder(folder: Path) -> None:
    """Makes sure that a new file is found again after a power cut."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
