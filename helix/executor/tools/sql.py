"""Read-only SQL over SQLite: one query a call, checked by its parse and run on a connection that cannot write."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from helix.canonical import canonical_text
from helix.errors import OptionError, ToolError
from helix.logical import Tool
from helix.types import mismatch

MAX_ROWS = 1000
TIME_LIMIT = 30.0
_CONNECTIONS = threading.local()
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


def sql_tool(tool: Tool, folder: Path | None) -> Callable[[list[Any]], Awaitable[str]]:
    """Runs the statement of the parameter `query`, or the tool's own; the other parameters are bound as `:name`.

    Caps: `max_rows` rows (1000 by default; more is an error, nothing is cut silently) and the tool's timeout. Raises
    OptionError where the database is not there or the tool's own statement is not a query.
    """
    path = Path(tool.target.removeprefix("sqlite:"))
    if not path.is_absolute() and folder is not None:
        path = folder / path
    if not path.is_file():
        raise OptionError(f"sql tool `{tool.name}`: the database {path} does not exist")
    names = [param.name for param in tool.params]
    if tool.query is not None:
        try:
            check_query(tool.query)
        except ToolError as error:
            raise OptionError(f"sql tool `{tool.name}`: {error}") from None

    async def run(args: list[Any]) -> str:
        given = dict(zip(names, args, strict=True))
        statement = tool.query if tool.query is not None else str(given.pop("query"))
        bound = {
            name: value if not isinstance(value, list | dict) else canonical_text(value)
            for name, value in given.items()
        }
        rows = await asyncio.to_thread(_query, path, statement, bound, tool)
        bad = mismatch(rows, tool.returns)
        if bad is not None:
            raise ToolError(f"{tool.name} gave a result that does not fit at `{bad[0] or '/'}`: {bad[1]}")
        return canonical_text(rows)

    return run


def check_query(statement: str) -> None:
    """Refuses everything but one query. Raises ToolError saying what was found."""
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        parsed = sqlglot.parse(statement, read="sqlite")
    except (SqlglotError, RecursionError) as error:
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


def _query(path: Path, statement: str, bound: dict[str, Any], tool: Tool) -> list[dict[str, Any]]:
    check_query(statement)
    connection = _connection(path)
    limit = tool.max_rows or MAX_ROWS
    ends = time.monotonic() + (tool.timeout or TIME_LIMIT)
    # Called every so many steps of SQLite's machine: a true value interrupts the query.
    connection.set_progress_handler(lambda: time.monotonic() > ends, 10_000)
    try:
        cursor = connection.execute(statement, bound)
        names = [column[0] for column in cursor.description or ()]
        found = cursor.fetchmany(limit + 1)
    except sqlite3.OperationalError as error:
        if "interrupted" in str(error):
            raise ToolError(f"{tool.name} ran longer than {tool.timeout or TIME_LIMIT:g} s") from None
        raise ToolError(f"{tool.name}: {error}") from None
    except (sqlite3.Error, OverflowError) as error:
        raise ToolError(f"{tool.name}: {error}") from None
    if len(found) > limit:
        raise ToolError(f"{tool.name} found more than {limit} rows; add a LIMIT, or raise the trait `max_rows`")
    if any(isinstance(value, bytes) for row in found for value in row):
        raise ToolError(f"{tool.name} found binary values; select them as hex(...)")
    return [dict(zip(names, row, strict=True)) for row in found]


def _connection(path: Path) -> sqlite3.Connection:
    """The thread's connection to a database, opened read-only."""
    known: dict[Path, sqlite3.Connection] = _CONNECTIONS.__dict__.setdefault("open", {})
    connection = known.get(path)
    if connection is None:
        try:
            connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)
            connection.execute("PRAGMA query_only = ON")
            connection.execute("SELECT name FROM sqlite_master LIMIT 1").fetchall()
        except sqlite3.Error as error:
            raise ToolError(f"{path.name} cannot be read: {error}") from None
        known[path] = connection
    return connection
