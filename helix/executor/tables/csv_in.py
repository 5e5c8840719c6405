"""Reads CSV and TSV as RFC 4180 has them: a header, double quotes, line ends LF or CRLF, cells kept byte for byte.

TSV differs in the delimiter only. A record with more or fewer cells than the header is malformed, and so are text
behind a closing quote, a bare CR outside quotes and a NUL. Blank lines are skipped; in a table of one column a blank
line between rows is a row with an empty cell, and blank lines at the end are skipped.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Generator, Iterator
from typing import NamedTuple

from helix.errors import InputError
from helix.executor.tables.bytes_in import ByteSource, lines
from helix.executor.tables.checks import missing_column
from helix.executor.tables.rows import MAX_RECORD_CHARS, BadRecord, Record
from helix.schema import InputSchema


class DelimitedText:
    """A table with a header and cells between delimiters. Records hold the cells of declared columns, as texts."""

    cells = True

    def __init__(self, source: ByteSource, schema: InputSchema, delimiter: str) -> None:
        self.name = source.name
        self._source = source
        self._schema = schema
        self._delimiter = delimiter
        self.line = 0

    def prepare(self) -> None:
        """Read the header and check that every required column is in it."""
        records = self.records()
        next(records, None)
        records.close()

    def count(self) -> None:
        return None

    def close(self) -> None:
        self._source.close()

    def records(self) -> Generator[Record | BadRecord, None, None]:
        # The limit is the process's, not the reader's; a smaller one would refuse long documents.
        csv.field_size_limit(max(csv.field_size_limit(), MAX_RECORD_CHARS))
        text = _Lines(self._source)
        reader = csv.reader(text.read(), delimiter=self._delimiter, strict=True)
        header = self._header(text, reader)
        if header is None:
            return
        wanted = {column.name for column in self._schema}
        picks = [(name, place) for place, name in enumerate(header) if name in wanted]
        width = len(header)
        blank_lines = 0
        while True:
            text.record.clear()
            try:
                row = next(reader, None)
            except csv.Error as error:
                row = []
                fault: BadRecord | None = self._fault(text, error)
            else:
                if row is None:
                    return
                fault = text.fault
                if fault is None and len(row) != width:
                    if not row:
                        blank_lines += 1
                        continue
                    fault = self._wrong_width(text, width, len(row))
            self.line = text.number - len(text.record) + 1
            if blank_lines:
                if width == 1:
                    for _ in range(blank_lines):
                        yield dict.fromkeys((name for name, _ in picks), "")
                blank_lines = 0
            if fault is None:
                yield {name: row[place] for name, place in picks}
            else:
                text.fault = None
                yield fault

    def _header(self, text: _Lines, reader: Iterator[list[str]]) -> list[str] | None:
        """The names of the columns, or None for a table without a header, which has no rows."""
        try:
            header = next((row for row in reader if row), None)
        except csv.Error as error:
            raise self._fault(text, error).error(self.name, None) from None
        if text.fault is not None:
            raise text.fault.error(self.name, None)
        if header is None:
            return None
        twice = next((name for place, name in enumerate(header) if name and name in header[:place]), None)
        if twice is not None:
            raise InputError(
                f"two columns of the header are called `{twice}`", path=self.name, line=text.number, column=twice
            )
        if missing := missing_column(self._schema, header, self.name, line=text.number):
            raise missing
        return header

    def _fault(self, text: _Lines, error: csv.Error) -> BadRecord:
        """What is wrong with a record that the csv module refuses, and where."""
        if text.fault is not None:
            return text.fault
        row, column, message = dissect(text.record, self._delimiter).fault or (0, 1, str(error))
        return BadRecord(message, text.number - len(text.record) + 1 + row, column)

    def _wrong_width(self, text: _Lines, width: int, cells: int) -> BadRecord:
        """A record with too many or too few cells: the place of the first extra cell, or the end of the record."""
        row, column = dissect(text.record, self._delimiter).starts[min(width, cells)]
        named = f"{width} cell" if width == 1 else f"{width} cells"
        line = text.number - len(text.record) + 1 + row
        return BadRecord(f"expected {named} as in the header, found {cells}", line, column)


class _Lines:
    """Feeds lines to the csv module and remembers what messages need.

    `number` is the 1-based number of the last line read, `record` the lines since it was last cleared, `fault` the
    first line since then that is no text at all.
    """

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self.number = 0
        self.record: list[str] = []
        self.fault: BadRecord | None = None

    def read(self) -> Iterator[str]:
        record = self.record
        for raw in lines(self._source, MAX_RECORD_CHARS):
            self.number += 1
            try:
                line = raw.decode()
            except UnicodeDecodeError as error:
                line = raw.decode(errors="replace")
                column = len(raw[: error.start].decode()) + 1
                self._set_fault(f"byte 0x{raw[error.start]:02x} is not UTF-8", column)
            if "\0" in line:
                self._set_fault("a NUL character is not text", line.index("\0") + 1)
            if len(raw) == MAX_RECORD_CHARS and not raw.endswith(b"\n"):
                self._set_fault(f"the line is longer than {MAX_RECORD_CHARS >> 20} MiB", 1)
            record.append(line)
            yield line

    def _set_fault(self, message: str, column: int) -> None:
        if self.fault is None:
            self.fault = BadRecord(message, self.number, column)


class Anatomy(NamedTuple):
    """Where the cells of a record begin, as 0-based line of the record and 1-based column; the last is its end.

    `fault` is what no parser could pass over, with its place; None where there is nothing.
    """

    starts: list[tuple[int, int]]
    fault: tuple[int, int, str] | None


def dissect(record: list[str], delimiter: str) -> Anatomy:
    """Go through a record again, slowly, to say where something is. Only for records with an error."""
    starts = [(0, 1)]
    special = re.compile(f"[{re.escape(delimiter)}\r]")
    opened: tuple[int, int] | None = None
    row, place = 0, 0
    for row, line in enumerate(record):
        body = line.removesuffix("\n").removesuffix("\r")
        place = 0
        while place < len(body):
            if opened is None and starts[-1] == (row, place + 1) and body[place] == '"':
                opened = (row, place + 1)
                place += 1
            if opened is not None:
                place = body.find('"', place)
                if place < 0:
                    break
                place += 1
                if body[place : place + 1] == '"':
                    place += 1
                    continue
                opened = None
                following = body[place : place + 1]
                if following not in ("", delimiter, "\r"):
                    message = f"expected {_shown(delimiter)} after the closing quote, found `{following}`"
                    return Anatomy(starts, (row, place + 1, message))
            mark = special.search(body, place)
            if mark is None:
                break
            place = mark.end()
            if mark.group() == "\r":
                return Anatomy(starts, (row, place, "a bare CR is outside quotes; lines end with LF or CRLF"))
            starts.append((row, place + 1))
        place = len(body)
    if opened is not None:
        message = "the quote opened here is never closed"
        if sum(map(len, record)) >= MAX_RECORD_CHARS:
            message = f"the cell is longer than {MAX_RECORD_CHARS >> 20} MiB, or its quote is never closed"
        return Anatomy(starts, (*opened, message))
    return Anatomy([*starts, (row, place + 1)], None)


def _shown(delimiter: str) -> str:
    return "a tab" if delimiter == "\t" else f"`{delimiter}`"
