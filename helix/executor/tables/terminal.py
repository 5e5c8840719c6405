"""Results on a terminal: control characters are shown as `\\u001b`, so that what a model wrote does not steer it.

JSON stays the same JSON. Files and pipes get every byte as it is.
"""

from __future__ import annotations

import codecs
import io
import json
from typing import BinaryIO

from helix.progress import clean


def escaped(text: str) -> str:
    """The text with what a terminal would obey written out."""
    text = text.replace("\r\n", "\n")
    return text if clean(text) == text else "".join(char if clean(char) == char else _written(char) for char in text)


def _written(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x1_0000 else json.dumps(char)[1:-1]


class TerminalBytes(io.RawIOBase):
    """Passes UTF-8 text on to a terminal, escaped."""

    def __init__(self, target: BinaryIO) -> None:
        self._to = target
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._to.write(escaped(self._decoder.decode(data)).encode("utf-8"))
        return len(data)

    def flush(self) -> None:
        self._to.flush()

    def fileno(self) -> int:
        return self._to.fileno()
