"""Writes results as JSON Lines, CSV or TSV: UTF-8, LF between rows.

JSON Lines: keys in column order, no escapes beyond those that JSON needs. CSV: a header; texts as they are, in double
quotes where the delimiter, a quote, CR or LF is in them; null an empty cell, an empty text `""` (the csv module reads
both as an empty text, other readers tell them apart); numbers and booleans as JSON writes them; lists, records, json,
table and `_error` as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, BinaryIO

from helix.executor.tables.result_columns import ROW, ColumnError, Columns, encodable, json_text
from helix.types import Type, found, is_textual, required

_PIECE_BYTES = 1024 * 1024


class _Lines:
    """Collects lines and writes them in pieces, or at once where somebody may be reading along."""

    def __init__(self, stream: BinaryIO, *, live: bool) -> None:
        self._stream = stream
        self._live = live
        self._lines: list[bytes] = []
        self._size = 0

    def add(self, line: str) -> None:
        data = line.encode()
        self._lines.append(data)
        self._size += len(data)
        if self._live or self._size >= _PIECE_BYTES:
            self.flush()

    def flush(self) -> None:
        self._stream.write(b"".join(self._lines))
        self._lines.clear()
        self._size = 0
        if self._live:
            self._stream.flush()


class JsonLinesEncoder:
    """Rows as JSON objects, one a line."""

    def __init__(self, stream: BinaryIO, columns: Columns, *, live: bool) -> None:
        self._names = [name for name, _ in columns]
        self._lines = _Lines(stream, live=live)

    def add(self, row: dict[str, Any]) -> None:
        """Take a row. Raises ColumnError, and takes nothing, where a value has no JSON form."""
        try:
            line = json_text(row)
        except (ValueError, TypeError, RecursionError):
            for name in self._names:
                _json_cell(name, row[name])
            raise ColumnError(ROW, "the row is nested too deeply") from None
        self._lines.add(line + "\n")

    def finish(self) -> None:
        """Write what is still held."""
        self._lines.flush()


class DelimitedEncoder:
    """Rows as cells between delimiters, below a header."""

    def __init__(self, stream: BinaryIO, columns: Columns, *, live: bool, delimiter: str) -> None:
        self._lines = _Lines(stream, live=live)
        self._delimiter = delimiter
        self._special = re.compile(f'["\\r\\n{re.escape(delimiter)}]')
        self._cells = [(name, self._cell(name, kind)) for name, kind in columns]
        self._lines.add(delimiter.join(self._quoted(name) for name, _ in columns) + "\n")

    def add(self, row: dict[str, Any]) -> None:
        """Take a row. Raises ColumnError, and takes nothing, where a value has no JSON form or is no text."""
        self._lines.add(self._delimiter.join([cell(row[name]) for name, cell in self._cells]) + "\n")

    def finish(self) -> None:
        """Write what is still held."""
        self._lines.flush()

    def _quoted(self, text: str) -> str:
        if text and not self._special.search(text):
            return text
        return '"' + text.replace('"', '""') + '"'

    def _cell(self, name: str, kind: Type) -> Callable[[Any], str]:
        """The cell of a value of a column."""
        quoted = self._quoted
        if not is_textual(required(kind)):
            return lambda value: "" if value is None else quoted(_json_cell(name, value))

        def text_cell(value: Any) -> str:
            if value is None:
                return ""
            if not isinstance(value, str):
                raise ColumnError(name, f"expected {kind}, found {found(value)}")
            return quoted(encodable(value))

        return text_cell


def _json_cell(name: str, value: Any) -> str:
    try:
        return json_text(value)
    except (ValueError, TypeError) as error:
        raise ColumnError(name, f"the value has no JSON form: {str(error).lower()}") from None
    except RecursionError:
        raise ColumnError(name, "the value is nested too deeply") from None
