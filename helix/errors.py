"""Every error that Helix raises on purpose, and how each is shown.

`HelixError` is the root. `SourceError` points at a place in a workflow, `PlanError` at a plan, `InputError` at a
place in a table, `ExecutionError` at a step of a row while a run is going on.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from helix.span import Span

# A longer line is shown in part, so that the caret stays in sight.
_EXCERPT = 100
# What joins or parts letters and emoji in writing, and shows nothing by itself.
_JOINERS = "\u200c\u200d"


class HelixError(Exception):
    """The root of all errors with a message meant for people."""

    def render(self) -> str:
        """The whole message as a terminal shows it, without colour."""
        return f"error: {self}"


class SourceError(HelixError):
    """A mistake in a workflow: `message` says what was found and expected, `help` what to write instead."""

    def __init__(self, message: str, span: Span | None = None, help: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.span = span
        self.help = help

    def render(self) -> str:
        lines = [f"error: {self.message}"]
        if self.span is not None:
            lines.append(f"  --> {self.span}")
            lines += _excerpt(self.span)
        if self.help:
            lines.append(f"  help: {self.help}")
        return "\n".join(lines)


class ParseError(SourceError):
    """The text is not a workflow."""


class BindError(SourceError):
    """A name that does not exist, exists twice, or is used where it may not be."""


class TypeMismatch(SourceError):
    """A value of one type where another is needed."""


class TemplateError(SourceError):
    """A prompt that is not a template, or that uses what templates may not."""


class SourceErrors(HelixError):
    """Several mistakes found in one pass, in the order of their places."""

    def __init__(self, errors: Iterable[SourceError]) -> None:
        self.errors = tuple(sorted(errors, key=_place))
        super().__init__("\n".join(error.message for error in self.errors))

    def render(self) -> str:
        blocks = [error.render() for error in self.errors]
        if len(blocks) > 1:
            blocks.append(f"{len(blocks)} errors")
        return "\n\n".join(blocks)


class PlanError(HelixError):
    """A plan that breaks an invariant, or a plan file that does not hold a plan."""


class OptionError(HelixError):
    """A setting of a run or a command that does not fit."""


class InputError(HelixError):
    """A table that cannot be read or does not fit the workflow.

    `row` is the 0-based index of the record, `line` the 1-based physical line, `column` a column's name or, for a
    malformed record, the 1-based character position; each is None where it is not known.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        row: int | None = None,
        column: str | int | None = None,
        line: int | None = None,
        kind: str = "input.record",
        help: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.row = row
        self.column = column
        self.line = line
        self.kind = kind
        self.help = help

    def render(self) -> str:
        lines = [f"error: {self.message}"]
        place = ":".join(str(part) for part in (self.path, self.line, self.column) if part is not None)
        if place:
            lines.append(f"  --> {place}")
        if self.help:
            lines.append(f"  help: {self.help}")
        return "\n".join(lines)


class StoreError(HelixError):
    """A result store, or the journal of a run, that cannot be used. It is left as it is."""


class ExecutionError(HelixError):
    """A step that failed on a row. `kind` is one of the kinds of the contract (`engine`, `timeout`, `schema`, ...)."""

    kind = "engine"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class EngineError(ExecutionError):
    """An engine that answered with an error, or not at all.

    `status` is the HTTP status (None: no answer came). `retryable` says whether the same request may succeed later;
    `retry_after` is the wait in seconds that the server asked for; `fatal` stops the run: no other request can succeed.
    `overloaded` marks 429 and 503, which pause everybody and use up no attempt.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retryable: bool = False,
        retry_after: float | None = None,
        fatal: bool = False,
        overloaded: bool = False,
        kind: str = "engine",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retryable = retryable
        self.retry_after = retry_after
        self.fatal = fatal
        self.overloaded = overloaded
        self.kind = kind


class OutputError(ExecutionError):
    """A reply that is not of the declared type. `text` is the raw reply, kept with the row's error."""

    def __init__(self, message: str, *, text: str, kind: str = "schema") -> None:
        super().__init__(message)
        self.text = text
        self.kind = kind


class ToolError(ExecutionError):
    """A tool that raised; `traceback` goes into the report, never into a prompt."""

    kind = "tool"

    def __init__(self, message: str, *, traceback: str = "") -> None:
        super().__init__(message)
        self.traceback = traceback


class LimitError(ExecutionError):
    """A limit of the run was reached: time, failed rows, calls or tokens."""

    kind = "limit"


def _place(error: SourceError) -> tuple[str, int, int, str]:
    span = error.span
    return ("", 0, 0, error.message) if span is None else (span.source.name, span.line, span.column, error.message)


def _excerpt(span: Span) -> list[str]:
    """The line of a span with carets below it, lined up also under tabs and wide characters."""
    text = span.source.line(span.line)
    if not text:
        return []
    start = min(span.column - 1, len(text))
    end = span.end_column - 1 if span.end_line == span.line else len(text)
    end = min(max(end, start + 1), max(len(text), start + 1))
    if len(text) > _EXCERPT:
        first = max(0, min(start - _EXCERPT // 3, len(text) - _EXCERPT))
        text, start, end = text[first : first + _EXCERPT], start - first, min(end - first, _EXCERPT)
    shown = [char if char == "\t" or char in _JOINERS or char.isprintable() else "?" for char in text]
    pad = "".join("\t" if char == "\t" else " " * cell_width(char) for char in shown[:start])
    carets = "^" * max(1, sum(cell_width(char) for char in shown[start:end]))
    gutter = " " * len(str(span.line))
    return [f"{gutter} |", f"{span.line} | {''.join(shown)}", f"{gutter} | {pad}{carets}"]


def cell_width(char: str) -> int:
    """How many terminal cells a character takes: 0, 1 or 2 (Unicode TR11, combining marks 0)."""
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def near_match(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like the given one, or None where none is close."""
    import difflib

    candidates = sorted(set(known))
    folded = {candidate.casefold(): candidate for candidate in reversed(candidates)}
    found = difflib.get_close_matches(name.casefold(), sorted(folded), n=1, cutoff=0.6)
    return folded[found[0]] if found else None


def name_help(name: str, known: Iterable[str], what: str = "known names", most: int = 12) -> str:
    """The help line for an unknown name: a near match, and the known names, `most` of them."""
    names = sorted(set(known))
    near = near_match(name, (each for each in names if len(each) <= _EXCERPT))
    listed = ", ".join(map(_clipped, names[:most])) + (", ..." if len(names) > most else "")
    known_part = f"{what}: {listed}" if names else f"there are no {what} here"
    return f"did you mean `{near}`? {known_part}" if near else known_part


def _clipped(name: str) -> str:
    """A name as a list of names shows it: what stands where names should may be a whole file."""
    return name if len(name) <= _EXCERPT else f"{name[:_EXCERPT]}..."
