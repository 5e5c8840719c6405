"""Reads JSON Lines: one object a line, LF or CRLF between them, blank lines skipped but counted."""

from __future__ import annotations

from collections.abc import Iterator

from helix.executor.tables.bytes_in import ByteSource, lines
from helix.executor.tables.rows import MAX_RECORD_CHARS, BadRecord, Record
from helix.executor.tables.strict_json import (
    STRICT,
    WHITE_SPACE,
    explain,
    loads,
    may_hold_surrogate,
)
from helix.types import found

_LINE_ENDS = ("\n", "", "\r\n")


class JsonLines:
    """A table of JSON objects, one a line. `help` is added to the message of a malformed line."""

    cells = False

    def __init__(self, source: ByteSource, *, help: str | None = None) -> None:
        self.name = source.name
        self._source = source
        self._help = help
        self.line = 0

    def prepare(self) -> None:
        """Nothing is known before the rows are read."""

    def count(self) -> None:
        return None

    def close(self) -> None:
        self._source.close()

    def records(self) -> Iterator[Record | BadRecord]:
        scan = STRICT.scan_once  # type: ignore[attr-defined]
        for number, raw in enumerate(lines(self._source, MAX_RECORD_CHARS), 1):
            self.line = number
            # The usual line takes the short way; whatever is unusual in any way is read again with care.
            try:
                text = raw.decode()
                record, end = scan(text, 0)
                if type(record) is dict and text[end:] in _LINE_ENDS and not may_hold_surrogate(text):
                    yield record
                    continue
            except (ValueError, StopIteration, RecursionError):
                pass
            result = self._read(raw, number)
            if result is not None:
                yield result

    def _read(self, raw: bytes, number: int) -> Record | BadRecord | None:
        """The object of a line, what is wrong with it, or None for a blank line."""
        if len(raw) == MAX_RECORD_CHARS and not raw.endswith(b"\n"):
            return BadRecord(f"the line is longer than {MAX_RECORD_CHARS >> 20} MiB", number, 1, self._help)
        try:
            text = raw.decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            column = len(raw[: error.start].decode()) + 1
            return BadRecord(f"byte 0x{raw[error.start]:02x} is not UTF-8", number, column, self._help)
        if not text.strip(WHITE_SPACE):
            return None
        try:
            value = loads(text)
        except ValueError:
            message, position = explain(text)
            return BadRecord(message, number, position + 1, self._help)
        if not isinstance(value, dict):
            column = len(text) - len(text.lstrip(WHITE_SPACE)) + 1
            return BadRecord(f"expected a JSON object, found {found(value)}", number, column, self._help)
        return value
