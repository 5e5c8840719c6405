"""Read-only SQL over SQLite: one query a call, checked by its parse and run on a connection that cannot write."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from helix.errors import OptionError, ToolError
from helix.executor.tools.results import result_text
from helix.executor.tools.sql_checks import MAX_ROWS as MAX_ROWS
from helix.executor.tools.sql_checks import TIME_LIMIT, bound, records
from helix.executor.tools.sql_checks import check_query as check_query
from helix.executor.tools.threads import Threads
from helix.logical import Tool

# What SQLite itself refuses to do for a query, should the parse be wrong about it.
_REFUSED = frozenset((sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH))
_REFUSED_FUNCTIONS = frozenset(("load_extension", "writefile", "readfile", "edit", "fts3_tokenizer"))


_Made = TypeVar("_Made")
_Ask = Callable[[sqlite3.Connection], _Made]


class _Use:
    """One call's use of a connection. A call that is given up before it has one asks nothing."""

    __slots__ = ("connection", "given_up")

    def __init__(self) -> None:
        self.connection: sqlite3.Connection | None = None
        self.given_up = False

    def give_up(self) -> None:
        """Ends the query: at once where it runs, else at its first look at the clock."""
        self.given_up = True
        if self.connection is not None:
            self.connection.interrupt()


class SqlTool:
    """Runs the statement of the parameter `query`, or the tool's own; the other parameters are bound as `:name`.

    Caps: `max_rows` rows (1000 by default; more is an error, nothing is cut silently) and the tool's timeout (30 s by
    default). Making it raises OptionError where the database is not there or is none, or where the tool's own statement
    is not a query of it.
    """

    def __init__(self, tool: Tool, folder: Path | None, threads: Threads) -> None:
        path = Path(tool.target.removeprefix("sqlite:"))
        if not path.is_absolute() and folder is not None:
            path = folder / path
        if not path.is_file():
            raise OptionError(f"sql tool `{tool.name}`: the database {path} does not exist")
        if tool.query is not None:
            try:
                check_query(tool.query)
            except ToolError as error:
                raise OptionError(f"sql tool `{tool.name}`: {error}") from None
        self._tool = tool
        self._path = path
        self._threads = threads
        self._names = [param.name for param in tool.params]
        self._limit = tool.max_rows or MAX_ROWS
        self._idle: list[sqlite3.Connection] = []
        self._uses: dict[int, _Use] = {}
        self._closed = False
        try:
            self._prepare()
        except ToolError as error:
            raise OptionError(f"sql tool `{tool.name}`: {error}") from None

    async def __call__(self, args: list[Any]) -> str:
        """Runs the query. Raises ToolError; its kind is `timeout` where the query ran too long."""
        given = dict(zip(self._names, args, strict=True))
        own = self._tool.query
        statement = str(given.pop("query")) if own is None else own
        bound_values = {name: bound(value) for name, value in given.items()}
        unchecked = statement if own is None else None
        rows = await self._on_thread(lambda connection: self._rows(connection, statement, bound_values), unchecked)
        return result_text(rows, self._tool.returns, self._tool.name, self._tool.max_bytes)

    def _prepare(self) -> None:
        """Opens the database and has the tool's own statement compiled, so that no call is made in vain."""
        connection = self._connection()
        self._idle.append(connection)
        if self._tool.query is not None:
            try:
                connection.execute(f"EXPLAIN {self._tool.query}", dict.fromkeys(self._names)).close()
            except sqlite3.Error as error:
                raise ToolError(str(error)) from None

    def close(self) -> None:
        """Closes the idle connections; one in use is closed after its query."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    async def _on_thread(self, ask: _Ask[_Made], unchecked: str | None = None) -> _Made:
        """What a function gives that asks a connection; `unchecked` is a statement to be checked before."""
        use = _Use()
        try:
            made: _Made = await self._threads.run(lambda: self._asked(ask, unchecked, use))
            return made
        except asyncio.CancelledError:
            use.give_up()
            raise

    def _asked(self, ask: _Ask[_Made], unchecked: str | None, use: _Use) -> _Made:
        """On a thread: takes a connection, asks it, and gives it back."""
        if unchecked is not None:
            check_query(unchecked)
        if use.given_up:
            raise ToolError(f"{self._tool.name} was given up")
        connection = self._connection()
        self._uses[id(connection)] = use
        use.connection = connection
        try:
            return ask(connection)
        finally:
            use.connection = None
            del self._uses[id(connection)]
            if self._closed:
                connection.close()
            else:
                self._idle.append(connection)

    def _timed(self, connection: sqlite3.Connection) -> float:
        """Starts the clock for one query: the seconds that it may take."""
        seconds = self._tool.timeout or TIME_LIMIT
        ends = time.monotonic() + seconds
        use = self._uses.get(id(connection)) or _Use()
        # Called every so many steps of SQLite's machine: a true value interrupts the query.
        connection.set_progress_handler(lambda: use.given_up or time.monotonic() > ends, 10_000)
        return seconds

    def _rows(self, connection: sqlite3.Connection, statement: str, values: dict[str, Any]) -> list[dict[str, Any]]:
        name = self._tool.name
        seconds = self._timed(connection)
        try:
            cursor = connection.execute(statement, values)
            columns = [column[0] for column in cursor.description or ()]
            found = cursor.fetchmany(self._limit + 1)
            cursor.close()
        except (sqlite3.Error, OverflowError, ValueError) as error:
            if isinstance(error, sqlite3.OperationalError) and "interrupted" in str(error):
                late = ToolError(f"{name} ran longer than {seconds:g} s")
                late.kind = "timeout"
                raise late from None
            raise ToolError(f"{name}: {error}") from None
        return records(name, columns, found, self._limit)

    def _connection(self) -> sqlite3.Connection:
        """An idle connection to the database, or a new one, opened read-only."""
        try:
            return self._idle.pop()
        except IndexError:
            pass
        try:
            address = f"file:{quote(str(self._path))}?mode=ro"
            connection = sqlite3.connect(address, uri=True, check_same_thread=False)
        except sqlite3.Error as error:
            raise ToolError(f"{self._path.name} cannot be read: {error}") from None
        try:
            connection.execute("PRAGMA query_only = ON")
            connection.execute("SELECT name FROM sqlite_master LIMIT 1").fetchall()
        except sqlite3.Error as error:
            connection.close()
            raise ToolError(f"{self._path.name} cannot be read: {error}") from None
        connection.set_authorizer(_authorize)
        return connection


def _authorize(action: int, first: str | None, second: str | None, database: str | None, source: str | None) -> int:
    refused = action in _REFUSED or (action == sqlite3.SQLITE_FUNCTION and second in _REFUSED_FUNCTIONS)
    return sqlite3.SQLITE_DENY if refused else sqlite3.SQLITE_OK
