"""Where the bytes of a table come from: files that can be read again, and streams that are spooled so that they can.

Every pass opens its own stream at the first byte. gzip is recognised by its first bytes, a UTF-8 mark at the beginning
is dropped, and UTF-16 is refused with a message rather than read as noise.
"""

from __future__ import annotations

import codecs
import contextlib
import functools
import gzip
import io
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from helix.errors import HelixError, InputError

BUFFER_BYTES = 1024 * 1024
BLOCK_BYTES = 1024 * 1024
_GZIP_MARK = b"\x1f\x8b"


class ByteSource(Protocol):
    """Bytes that can be read from their beginning any number of times. `name` is what messages call them."""

    name: str

    def open(self) -> BinaryIO:
        """A new stream at the first byte."""

    def close(self) -> None:
        """Give back what is held."""


class FileBytes:
    """A regular file. It must stay the same between passes: a run counts its rows first and reads them later."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        self._seen: tuple[int, int, int] | None = None

    def open(self) -> BinaryIO:
        try:
            stream = self._path.open("rb", buffering=BUFFER_BYTES)
        except OSError as error:
            raise unreadable(self.name, error) from None
        state = os.fstat(stream.fileno())
        seen = (state.st_ino, state.st_size, state.st_mtime_ns)
        if self._seen is not None and self._seen != seen:
            stream.close()
            raise InputError("the file changed after it was checked; start the run again", path=self.name)
        self._seen = seen
        return stream

    def close(self) -> None:
        """Nothing is held: each stream is closed by who opened it."""


class SpooledBytes:
    """A stream that can be read once, copied to a nameless temporary file at first use; `owned` closes it as well."""

    def __init__(self, name: str, stream: BinaryIO, *, owned: bool) -> None:
        self.name = name
        self._stream = stream
        self._owned = owned
        self._spool: BinaryIO | None = None

    def open(self) -> BinaryIO:
        if self._spool is None:
            self._spool = new_spool(self.name)
            with spooling(self.name):
                shutil.copyfileobj(self._stream, self._spool, BUFFER_BYTES)
                self._spool.flush()
        return reopen(self._spool)

    def close(self) -> None:
        if self._spool is not None:
            self._spool.close()
        if self._owned:
            self._stream.close()


@contextlib.contextmanager
def spooling(name: str) -> Iterator[None]:
    """Turns a failed write of a temporary file into a message that says where it was and what helps."""
    try:
        yield
    except OSError as error:
        raise HelixError(
            f"cannot copy {name} to a temporary file in {tempfile.gettempdir()}: {error.strerror or error}; "
            "the environment variable TMPDIR names another folder"
        ) from None


def new_spool(name: str) -> BinaryIO:
    """A temporary file without a name: it is gone when closed, also when the process is killed."""
    with spooling(name):
        spool: BinaryIO = tempfile.TemporaryFile(prefix="helix-")  # noqa: SIM115
    return spool


def reopen(spool: BinaryIO) -> BinaryIO:
    """A stream of its own over a spool: several can read at once, each at its own place."""
    return io.BufferedReader(_At(spool.fileno()), BUFFER_BYTES)


class _At(io.RawIOBase):
    """Reads a file descriptor at a position of its own and leaves the descriptor open."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        size = os.fstat(self._descriptor).st_size
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: size}[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: memoryview | bytearray) -> int:  # type: ignore[override]
        data = os.pread(self._descriptor, len(buffer), self._position)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


def unreadable(name: str, error: OSError) -> InputError:
    """The error for a file that cannot be opened or read."""
    return InputError(f"cannot read the file: {error.strerror or error}", path=name)


def open_text(source: ByteSource) -> BinaryIO:
    """A stream of the UTF-8 bytes of a text table: unpacked, without a byte order mark."""
    stream = source.open()
    try:
        if stream.read(2) == _GZIP_MARK:
            stream.seek(0)
            # The buffer makes reading by lines as quick as from a plain file.
            stream = io.BufferedReader(_Gunzip(stream), BUFFER_BYTES)
        else:
            stream.seek(0)
        head = stream.peek(3)[:3]  # type: ignore[attr-defined]
        if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise InputError("the file is in UTF-16; save it as UTF-8", path=source.name, line=1, column=1)
        if head.startswith(codecs.BOM_UTF8):
            stream.read(len(codecs.BOM_UTF8))
    except BaseException:
        stream.close()
        raise
    return stream


class _Gunzip(gzip.GzipFile):
    """Unpacks a stream and closes it at the end."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__(fileobj=stream, mode="rb")
        self._packed = stream

    def close(self) -> None:
        super().close()
        self._packed.close()


def _bad_gzip(name: str, error: Exception) -> InputError:
    reason = "it ends too early" if isinstance(error, EOFError) else str(error)
    return InputError(f"the gzip data cannot be unpacked: {reason}", path=name)


def lines(source: ByteSource, limit: int) -> Iterator[bytes]:
    """The physical lines of a text table, split at LF only and with their ends kept, each at most `limit` bytes.

    A longer line comes as its first `limit` bytes without a line end; the rest of it is skipped.
    """
    try:
        with open_text(source) as stream:
            for line in iter(functools.partial(stream.readline, limit), b""):
                yield line
                if len(line) == limit and not line.endswith(b"\n"):
                    while (rest := stream.readline(BUFFER_BYTES)) and not rest.endswith(b"\n"):
                        pass
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _bad_gzip(source.name, error) from None
    except OSError as error:
        raise unreadable(source.name, error) from None


def blocks(source: ByteSource) -> Iterator[bytes]:
    """The bytes of a text table in pieces of `BLOCK_BYTES`."""
    try:
        with open_text(source) as stream:
            yield from iter(functools.partial(stream.read, BLOCK_BYTES), b"")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _bad_gzip(source.name, error) from None
    except OSError as error:
        raise unreadable(source.name, error) from None
