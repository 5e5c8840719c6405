"""Where a piece of a workflow was written: file, line and column, for messages that point at it."""

from __future__ import annotations

import linecache
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A text that spans point into. `text` is None for a Python file, which is read only when a message needs it."""

    name: str
    text: str | None = field(default=None, repr=False)

    def line(self, number: int) -> str:
        """The text of a 1-based line without its line break; empty where there is none."""
        if self.text is None:
            return linecache.getline(self.name, number).rstrip("\r\n")
        lines = self.text.split("\n")
        return lines[number - 1] if 0 < number <= len(lines) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of a source. Lines and columns count from 1, columns in characters; the end is exclusive."""

    source: Source
    line: int
    column: int
    end_line: int
    end_column: int

    def __str__(self) -> str:
        return f"{self.source.name}:{self.line}:{self.column}"

    def until(self, other: Span) -> Span:
        """The span from the beginning of this one to the end of the other."""
        return Span(
            source=self.source,
            line=self.line,
            column=self.column,
            end_line=other.end_line,
            end_column=other.end_column,
        )
