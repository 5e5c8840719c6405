"""Where results go: a file that appears whole under its name, or a stream such as standard output.

A file is written beside its target under a hidden name, flushed to the disk and renamed. The hidden file is locked
while it is written, so that two runs cannot write one result, and what a killed run left is used again by the next.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from helix.errors import HelixError, OptionError
from helix.executor.tables.terminal import TerminalBytes

BUFFER_BYTES = 1024 * 1024

# A file name has at most 255 bytes; this leaves room for the ends of the hidden name.
_NAME_BYTES = 200


@contextlib.contextmanager
def writing(name: str) -> Iterator[None]:
    """Turns a failed write (a full disk, say) into one clear message."""
    try:
        yield
    except OSError as error:
        raise HelixError(f"cannot write {name}: {error.strerror or error}") from None


class Place(Protocol):
    """Takes the bytes of a result. `stream` is written to until one of `commit`, `keep` or `abort` is called.

    `live` says that somebody may be reading along; `broken` that the reader is gone and bytes are dropped.
    """

    name: str
    stream: BinaryIO
    live: bool

    @property
    def broken(self) -> bool: ...

    def commit(self) -> None:
        """All bytes are written: show them under the target's name."""

    def keep(self, path: Path) -> None:
        """Show what was written under another name and leave the target alone."""

    def abort(self) -> None:
        """Drop what was written and leave the target alone."""


class FilePlace:
    """A file, which appears under its name at `commit`."""

    live = False
    broken = False

    def __init__(self, target: str) -> None:
        self.name = target
        # A link stays a link: what it points to is replaced.
        self._target = Path(os.path.realpath(target))
        folder = self._target.parent
        if not folder.is_dir():
            raise OptionError(f"cannot write {target}: there is no folder {folder}")
        cut = self._target.name.encode()[:_NAME_BYTES].decode(errors="ignore")
        self._hidden = folder / f".{cut}.helix-part"
        try:
            descriptor = _open_locked(self._hidden)
            if descriptor is None:
                raise OptionError(f"cannot write {target}: another run is writing it")
            with contextlib.suppress(OSError):
                os.fchmod(descriptor, stat.S_IMODE(self._target.stat().st_mode))
        except OSError as error:
            raise OptionError(f"cannot write {target}: {error.strerror or error}") from None
        self.stream = open(descriptor, "wb", buffering=BUFFER_BYTES)  # noqa: SIM115 (closed by commit or abort)

    def commit(self) -> None:
        self._move(self._target)

    def keep(self, path: Path) -> None:
        self._move(Path(os.path.realpath(path)))

    def abort(self) -> None:
        # The hidden name goes first, while it is still locked, so that it is never another run's.
        with contextlib.suppress(OSError):
            self._hidden.unlink()
        with contextlib.suppress(OSError):
            self.stream.close()

    def _move(self, target: Path) -> None:
        try:
            with writing(str(target)):
                self.stream.flush()
                os.fsync(self.stream.fileno())
                os.replace(self._hidden, target)
                self.stream.close()
                folder = os.open(target.parent, os.O_RDONLY)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
        except HelixError:
            self.abort()
            raise


def _open_locked(path: Path) -> int | None:
    """An empty file at the path, locked by this process; None where another process holds the lock."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError:
            # A file system without locks: the check for another run is lost, nothing else.
            pass
        # Between opening and locking, the other run may have finished and renamed the file.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                os.ftruncate(descriptor, 0)
                return descriptor
        os.close(descriptor)


class StreamPlace:
    """A stream that shows bytes at once. When its reader goes away, the rest is dropped without a word."""

    live = True

    def __init__(self, name: str, stream: BinaryIO, *, owned: bool) -> None:
        self.name = name
        self._quiet = _Quiet(stream)
        self._owned = owned
        self.stream: BinaryIO = self._quiet  # type: ignore[assignment]

    @property
    def broken(self) -> bool:
        """Whether the reader is gone."""
        return self._quiet.broken

    def commit(self) -> None:
        try:
            with writing(self.name):
                self._quiet.flush()
        finally:
            if self._owned:
                self._quiet.close_target()

    def keep(self, path: Path) -> None:
        self.commit()

    def abort(self) -> None:
        with contextlib.suppress(HelixError):
            self.commit()


class _Quiet(io.RawIOBase):
    """Passes bytes on until the reader is gone."""

    def __init__(self, target: BinaryIO) -> None:
        self._to = target
        self.broken = False

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        if not self.broken:
            try:
                self._to.write(data)
            except BrokenPipeError:
                self._give_up()
        return len(data)

    def flush(self) -> None:
        # A stream flushes once more when it is thrown away, when what it writes to may be closed.
        if not self.broken and not self._to.closed:
            try:
                self._to.flush()
            except BrokenPipeError:
                self._give_up()

    def close_target(self) -> None:
        with contextlib.suppress(OSError):
            self._to.close()

    def _give_up(self) -> None:
        self.broken = True
        # The interpreter flushes standard output once more when it ends, and would complain then.
        with contextlib.suppress(OSError, ValueError):
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, self._to.fileno())
            os.close(nothing)


def open_place(target: str) -> Place:
    """The place for a target: `-` is standard output; a device or named pipe is written directly."""
    if target == "-":
        if not hasattr(sys.stdout, "buffer"):
            raise OptionError("there is no standard output to write to")
        stream: Any = TerminalBytes(sys.stdout.buffer) if sys.stdout.isatty() else sys.stdout.buffer
        place = StreamPlace("standard output", stream, owned=False)
        # What was printed before must come first.
        place.stream.flush()
        return place
    path = Path(target)
    try:
        if path.is_dir():
            raise OptionError(f"cannot write {target}: it is a folder")
        if path.exists() and not path.is_file():
            return StreamPlace(target, path.open("wb"), owned=True)
    except OSError as error:
        raise OptionError(f"cannot write {target}: {error.strerror or error}") from None
    return FilePlace(target)
