"""Reads a JSON file: an array of objects, taken apart in pieces, or one object, which is a table of one row.

An element that is valid JSON but not a row (a number, an object with the same key twice) is a malformed record like
another. Text that is not JSON ends the reading with an error, also under `--on-bad-row keep`: where the next element
begins cannot be known.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import Any

from helix.errors import InputError
from helix.executor.tables.bytes_in import ByteSource, blocks
from helix.executor.tables.rows import MAX_RECORD_CHARS, BadRecord, Record
from helix.executor.tables.strict_json import (
    LENIENT,
    STRICT,
    WHITE_SPACE,
    StrictError,
    explain,
    holds_surrogate,
    may_hold_surrogate,
)
from helix.types import found

# The standard library reports a cut-off value a few characters before the end at most (`tru`, `\u12`, `-`).
_NEAR_END = 16


class JsonArray:
    """A table of the objects of one JSON array, or of one object."""

    cells = False

    def __init__(self, source: ByteSource) -> None:
        self.name = source.name
        self._source = source
        self._text: _Text | None = None

    def prepare(self) -> None:
        """Nothing is known before the rows are read."""

    def count(self) -> None:
        return None

    def close(self) -> None:
        self._source.close()

    @property
    def line(self) -> int | None:
        """The physical line where the row read last begins."""
        return None if self._text is None else self._text.place(self._text.begun)[0]

    def records(self) -> Iterator[Record | BadRecord]:
        text = self._text = _Text(self._source)
        first = text.skip_space()
        if first == "":
            return
        if first == "[":
            text.position += 1
            yield from _elements(text)
        elif first == "{":
            yield _record(text)
        else:
            raise text.error("expected a JSON array of objects, or one object")
        if text.skip_space():
            help = "one object a line is JSON Lines: name the file .jsonl or give the format jsonl"
            raise text.error("expected the end of the file", help=help if text.peek() == "{" else None)


def _elements(text: _Text) -> Iterator[Record | BadRecord]:
    """The elements of an array, from behind its bracket to behind its end."""
    if text.skip_space() == "]":
        text.position += 1
        return
    while True:
        if text.skip_space() == "":
            raise text.error("the array is not closed")
        yield _record(text)
        mark = text.skip_space()
        if mark not in (",", "]"):
            raise text.error("expected `,` or `]` after an element" if mark else "the array is not closed")
        text.position += 1
        if mark == "]":
            return


def _record(text: _Text) -> Record | BadRecord:
    """The element at the current position; it is passed over, also where it is malformed."""
    try:
        value, end = text.parse(STRICT)
        sound = not (may_hold_surrogate(text.buffer, text.position, end) and holds_surrogate(value))
    except StrictError:
        value, end = text.parse(LENIENT)
        sound = False
    start = text.begun = text.position
    text.position = end
    if not sound:
        message, offset = explain(text.buffer[start:end])
        return BadRecord(message, *text.place(start + offset))
    if not isinstance(value, dict):
        return BadRecord(f"expected a JSON object, found {found(value)}", *text.place(start))
    return value


class _Text:
    """The text of a file, of which only a window is held: `buffer`, with the reading at `position` in it."""

    def __init__(self, source: ByteSource) -> None:
        self.buffer = ""
        self.position = self.begun = 0
        self._name = source.name
        self._blocks = blocks(source)
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._at_end = False
        # What was dropped from the front of the window: its line breaks, and the characters since the last one.
        self._lines = 0
        self._columns = 0

    def peek(self) -> str:
        """The character at the current position, or empty at the end."""
        return self.buffer[self.position : self.position + 1]

    def skip_space(self) -> str:
        """Pass over white space; the character that follows, or empty at the end."""
        while True:
            rest = len(self.buffer)
            while self.position < rest and self.buffer[self.position] in WHITE_SPACE:
                self.position += 1
            if self.position < rest or not self._more():
                return self.peek()

    def parse(self, decoder: json.JSONDecoder) -> tuple[Any, int]:
        """The value at the current position and its end; reads on while the value is cut off by the window."""
        while True:
            try:
                value, end = decoder.raw_decode(self.buffer, self.position)
            except json.JSONDecodeError as error:
                cut_off = error.pos >= len(self.buffer) - _NEAR_END or error.msg.startswith("Unterminated")
                if not cut_off or not self._more():
                    message = f"not valid JSON: {error.msg[:1].lower()}{error.msg[1:]}"
                    raise self.error(message, error.pos) from None
            except RecursionError:
                raise self.error("the value is nested too deeply") from None
            except ValueError as error:
                if isinstance(error, StrictError):
                    raise
                raise self.error("a number has too many digits") from None
            else:
                # A number may go on behind the window.
                if end < len(self.buffer) or not self._more():
                    return value, end

    def place(self, position: int) -> tuple[int, int]:
        """The 1-based line and column of a position in the window."""
        breaks = self.buffer.count("\n", 0, position)
        line_start = self.buffer.rfind("\n", 0, position) + 1
        return self._lines + breaks + 1, position - line_start + 1 + (0 if breaks else self._columns)

    def error(self, message: str, position: int | None = None, *, help: str | None = None) -> InputError:
        """The error at a position, by default the current one."""
        line, column = self.place(self.position if position is None else position)
        return InputError(message, path=self._name, line=line, column=column, help=help)

    def _more(self) -> bool:
        """Put another block into the window and drop what was read; False at the end of the file."""
        if self._at_end:
            return False
        if len(self.buffer) - self.position > MAX_RECORD_CHARS:
            raise self.error(f"an element is longer than {MAX_RECORD_CHARS >> 20} MiB")
        block = next(self._blocks, b"")
        self._at_end = not block
        self._drop()
        # A value that spans many blocks is parsed again after each: the window grows by its own size at least.
        while block and len(block) < len(self.buffer):
            if not (more := next(self._blocks, b"")):
                break
            block += more
        try:
            self.buffer += self._decoder.decode(block, self._at_end)
        except UnicodeDecodeError as error:
            self.buffer += error.object[: error.start].decode()
            bad = error.object[error.start]
            raise self.error(f"byte 0x{bad:02x} is not UTF-8", len(self.buffer)) from None
        return True

    def _drop(self) -> None:
        self._lines, column = (number - 1 for number in self.place(self.position))
        self._columns = column
        self.buffer = self.buffer[self.position :]
        self.position = 0
