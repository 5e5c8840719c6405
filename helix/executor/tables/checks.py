"""Checks of a record against the declared columns, compiled once into one function per column."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from helix.errors import InputError, name_help
from helix.executor.tables.rows import Record, RowError, Unfit
from helix.executor.tables.strict_json import StrictError, loads
from helix.schema import Column, InputSchema, has_default, is_required
from helix.types import BOOL, FLOAT, INT, JSON, TEXT, Choice, Type, is_textual, mismatch, parse_cell, required

Convert = Callable[[Any], Any]
Check = Callable[[Record], tuple[Record, RowError | None]]

_ABSENT = object()


class Problem(Exception):
    """A value that does not fit its column: a kind of the contract, and what follows the column's name."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


def compile_check(schema: InputSchema, *, cells: bool) -> Check:
    """The function that turns a record into the declared values and the row's first error.

    With `cells` the record holds texts of a text format, which are parsed under the declared types.
    """
    plan = [(column.name, _converter(column, cells)) for column in schema]

    def check(record: Record) -> tuple[Record, RowError | None]:
        values: Record = {}
        error: RowError | None = None
        get = record.get
        for name, convert in plan:
            try:
                values[name] = convert(get(name, _ABSENT))
            except Problem as problem:
                values[name] = None
                if error is None:
                    error = RowError(problem.kind, f"column `{name}` {problem.message}", name)
        return values, error

    return check


def missing_column(schema: InputSchema, names: list[str], table: str, *, line: int | None = None) -> InputError | None:
    """The error for the first required column that a table with these column names lacks, or None."""
    present = set(names)
    lacking = [column.name for column in schema if is_required(column) and column.name not in present]
    if not lacking:
        return None
    others = f" (and {len(lacking) - 1} more)" if len(lacking) > 1 else ""
    return InputError(
        f"column `{lacking[0]}`{others}, which the workflow needs, is not in the table",
        path=table,
        line=line,
        column=lacking[0],
        kind="input.missing",
        help=_one_column(names) or name_help(lacking[0], names, "columns"),
    )


def _one_column(names: list[str]) -> str | None:
    """What to say of a table whose only column is named like several: its cells are divided by something else."""
    mark = next((mark for mark in ";\t|" if len(names) == 1 and mark in names[0]), None)
    if mark is None:
        return None
    shown = "tabs" if mark == "\t" else f"`{mark}`"
    instead = "name it .tsv, or give --input-format tsv" if mark == "\t" else "divide them by commas, or by tabs (.tsv)"
    return f"its only column is called {names[0]!r}: cells seem to be divided by {shown}; {instead}"


def _converter(column: Column, cells: bool) -> Convert:
    """The function for one column: gives the value, or raises Problem."""
    inner = required(column.type)
    convert = _cell(inner) if cells else _fitting(inner, strict=is_required(column))
    if is_required(column):
        return _needed(convert, column.type, cells)
    default = column.default if has_default(column) else None
    # Each row gets its own copy: a tool that changes a list in one row must not change the others.
    fallback = (lambda: copy.deepcopy(default)) if isinstance(default, list | dict) else (lambda: default)

    def optional_value(value: Any) -> Any:
        if value is None or value is _ABSENT or (cells and value == ""):
            return fallback()
        return convert(value)

    return optional_value


def _needed(convert: Convert, kind: Type, cells: bool) -> Convert:
    """A required column: absent and null are errors, and so is a blank where text stands for the value."""
    blank_fits = isinstance(kind, Choice) and "" in kind.labels

    def needed_cell(value: Any) -> Any:
        if value is _ABSENT:
            raise Problem("input.missing", "is missing")
        if (value == "" or value.isspace()) and not blank_fits:
            if kind == JSON:
                return None
            raise Problem("input.empty", f"is blank; {kind} is needed")
        return convert(value)

    def needed(value: Any) -> Any:
        if value is _ABSENT:
            raise Problem("input.missing", "is missing")
        if value is None and kind != JSON:
            raise Problem("input.null", f"is null; {kind} is needed")
        return convert(value)

    if not cells and kind == TEXT:
        return _needed_text
    return needed_cell if cells else needed


def _needed_text(value: Any) -> Any:
    """The commonest column of all, kept short: a required text."""
    if type(value) is str:
        if value and not value.isspace():
            return value
        raise Problem("input.empty", "is blank; text is needed")
    if value is _ABSENT:
        raise Problem("input.missing", "is missing")
    if value is None:
        raise Problem("input.null", "is null; text is needed")
    raise _unfit(value, TEXT)


def _fitting(kind: Type, *, strict: bool) -> Convert:
    """The check of a JSON value, not null, against a type. `strict`: a blank text is an error."""
    if kind in (TEXT, BOOL, INT):
        exact = {TEXT: str, BOOL: bool, INT: int}[kind]

        def scalar(value: Any) -> Any:
            if type(value) is exact:
                return value
            raise _unfit(value, kind)

        return scalar
    if kind == FLOAT:

        def number(value: Any) -> Any:
            if type(value) is float or type(value) is int:
                return value
            raise _unfit(value, kind)

        return number
    if isinstance(kind, Choice):
        labels = frozenset(kind.labels)

        def label(value: Any) -> Any:
            if type(value) is str:
                if value in labels:
                    return value
                if strict and (not value or value.isspace()):
                    raise Problem("input.empty", f"is blank; {kind} is needed")
            raise _unfit(value, kind)

        return label

    def nested(value: Any) -> Any:
        if type(value) is Unfit or mismatch(value, kind):
            raise _unfit(value, kind)
        return value

    return nested


def _cell(kind: Type) -> Convert:
    """The parse of a cell that is not empty, as `helix.types.parse_cell` has it, with JSON read strictly."""
    if kind == TEXT:
        return lambda cell: cell
    if is_textual(kind) or kind in (BOOL, INT, FLOAT):

        def scalar(cell: str) -> Any:
            try:
                return parse_cell(cell, kind)
            except ValueError as error:
                raise Problem("input.type", f"does not fit: {error}") from None

        if kind not in (INT, FLOAT):
            return scalar
        exact = int if kind == INT else float

        def number(cell: str) -> Any:
            # What parse_cell does, without its way there: most cells of a number column are numbers.
            try:
                value = exact(cell)
            except ValueError:
                return scalar(cell)
            return value if value - value == 0 else scalar(cell)

        return number

    def nested(cell: str) -> Any:
        try:
            value: Any = loads(cell)
        except StrictError as error:
            raise Problem("input.type", f"does not fit: {error}") from None
        except ValueError:
            # Not JSON at all: a text, which only json takes.
            value = cell
        if mismatch(value, kind):
            raise _unfit(value, kind)
        return value

    return nested


def _unfit(value: Any, kind: Type) -> Problem:
    """The error of a value that is there and does not fit."""
    if type(value) is Unfit:
        return Problem("input.type", f"does not fit: {value.why}")
    bad = mismatch(value, kind)
    pointer, message = bad if bad else ("", f"expected {kind}, found {type(value).__name__}")
    place = f" at {pointer}" if pointer else ""
    return Problem("input.type", f"does not fit{place}: {message}")
