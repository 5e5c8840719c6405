"""What every table reader shares: rows, what can be wrong with them, and the report of a first pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from helix.errors import InputError

OnBadRow = Literal["stop", "keep"]

# A longer record is refused: it is nearly always a quote or a bracket that was never closed, and reading on
# would take all memory.
MAX_RECORD_CHARS = 64 * 1024 * 1024

ERROR_KINDS = ("input.record", "input.missing", "input.null", "input.empty", "input.type")


@dataclass(frozen=True, slots=True)
class RowError:
    """Why a row of the input cannot be used. `column` is the column's name; None for a malformed record."""

    kind: str
    message: str
    column: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the input.

    `index` counts records from 0, malformed ones too. `values` has every declared column in declared order,
    null where the value does not fit. `error` is the first thing wrong, in declared order of the columns.
    """

    index: int
    values: dict[str, Any]
    error: RowError | None


class Unfit(NamedTuple):
    """Stands in a record for a value that has no JSON form; `why` says so."""

    why: str


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A malformed record.

    `line` is the 1-based physical line, `column` the 1-based character in it; None where the format has no lines.
    """

    message: str
    line: int | None = None
    column: int | None = None
    help: str | None = None

    def error(self, name: str, row: int | None) -> InputError:
        """The error that stops the reading of the table called `name`."""
        return InputError(
            self.message,
            path=name,
            row=row,
            line=self.line,
            column=self.column,
            kind="input.record",
            help=self.help,
        )

    def row_error(self) -> RowError:
        """The error of a row that is kept in place."""
        place = "" if self.line is None else f"line {self.line}, column {self.column}: "
        return RowError("input.record", place + self.message)


Record = dict[str, Any]


class Reader(Protocol):
    """One table, read from its beginning by every call of `records`.

    `name` is what messages call the table. With `cells` the values are the texts of a text format, still to be
    parsed under the declared types; otherwise they are JSON values or `Unfit`. Readers of text have a `line` besides:
    the 1-based physical line where the record given last begins.
    """

    name: str
    cells: bool

    def prepare(self) -> None:
        """Raise InputError where the head of the table already shows that it does not fit."""

    def records(self) -> Iterator[Record | BadRecord]:
        """A pass over the table. Raises InputError where nothing after a malformed record can be read."""

    def count(self) -> int | None:
        """The number of records where it is known without a pass."""

    def close(self) -> None:
        """Give back files; no pass may follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanReport:
    """What a first pass found. `rows` counts all rows, malformed ones too.

    `errors` maps each kind of row error to the number of rows that have it as their first error; `first` maps it
    to the index of the first such row and its error, `places` to the file and the line of that row where it has lines
    (`rows.csv:7`). `absent` names the declared columns that no row has and that
    need not be there.
    """

    rows: int
    errors: dict[str, int] = field(default_factory=dict)
    first: dict[str, tuple[int, RowError]] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    absent: tuple[str, ...] = ()

    @property
    def failed(self) -> int:
        """The number of rows with an error."""
        return sum(self.errors.values())

    @property
    def malformed(self) -> int:
        """The number of malformed records."""
        return self.errors.get("input.record", 0)
