"""What SQL tools of all databases have in common: statements checked before they run, parameters, rows as records."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from helix.canonical import canonical_text
from helix.errors import ToolError

MAX_ROWS = 1000
TIME_LIMIT = 30.0
# What may not stand in a query even below its root.
_WRITES = (
    "Insert",
    "Update",
    "Delete",
    "Merge",
    "Create",
    "Drop",
    "Alter",
    "Command",
    "Attach",
    "Detach",
    "Pragma",
    "Into",
)
# Texts, quoted names and comments, in which no parameter stands, and casts (`::`), which look like one.
_PARAMETER = re.compile(
    r"""
      '(?:[^']|'')*' | "(?:[^"]|"")*" | `[^`]*` | --[^\n]* | /\*.*?\*/ | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$
    | :: | (?P<name>(?<![\w:]):[^\W\d]\w*)
    """,
    re.VERBOSE | re.DOTALL,
)


def check_query(statement: str, dialect: str = "sqlite") -> None:
    """Refuses everything but one query. Raises ToolError saying what was found."""
    import sqlglot
    from sqlglot import exp

    try:
        parsed = sqlglot.parse(statement, read=dialect)
    except Exception as error:
        # Whatever the parser stumbles over, the statement came from a row or a model and is that row's error.
        first = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip().split("\n")[0]
        raise ToolError(f"the statement is not SQL: {first}") from None
    roots = [each for each in parsed if each is not None]
    if len(roots) != 1:
        raise ToolError(f"one query is run at a time, found {len(roots)} statements")
    root = roots[0]
    if not isinstance(root, exp.Query):
        raise ToolError(f"only queries are run, found {type(root).__name__.upper()}")
    for part in root.walk():
        if type(part).__name__ in _WRITES:
            raise ToolError(f"only queries are run, found {type(part).__name__.upper()} inside one")


def check_harmless(statement: str, dialect: str) -> None:
    """Refuses a query that is not known to be harmless, function by function. Raises ToolError.

    For statements that a row or a model writes, on databases where a read-only transaction does not keep a query from
    stopping others, waiting for good or drawing from a sequence.
    """
    from helix.sql.effects import sql_effect
    from helix.tools.effects import HARMLESS

    check_query(statement, dialect)
    found = sql_effect(statement, dialect)
    if found.effects not in HARMLESS:
        raise ToolError(f"only queries that are known to change nothing are run: {found.reason}")


def bound(value: Any) -> Any:
    """A value as it is bound to a statement: a list or a record as its JSON."""
    return canonical_text(value) if isinstance(value, list | dict) else value


def parameters(statement: str, known: Collection[str]) -> Iterator[tuple[str, str | None]]:
    """A statement in pieces: texts as they are (None), and each `:name` of a known parameter with its name."""
    at = 0
    for found in _PARAMETER.finditer(statement):
        name = found["name"]
        if name is None or name[1:] not in known:
            continue
        if found.start() > at:
            yield statement[at : found.start()], None
        yield name, name[1:]
        at = found.end()
    if at < len(statement):
        yield statement[at:], None


def records(name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], limit: int) -> list[dict[str, Any]]:
    """The rows as records. Raises ToolError where there are too many, or where they make no records."""
    if len(rows) > limit:
        raise ToolError(f"{name} found more than {limit} rows; add a LIMIT, or raise the trait `max_rows`")
    twice = next((column for column in columns if list(columns).count(column) > 1), None)
    if twice is not None:
        raise ToolError(f"{name}: two columns are called `{twice}`; name them apart with AS")
    if any(isinstance(value, bytes | bytearray | memoryview) for row in rows for value in row):
        raise ToolError(f"{name} found binary values; select them as hex(...)")
    return [dict(zip(columns, row, strict=True)) for row in rows]
