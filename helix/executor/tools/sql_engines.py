"""SQL over other databases than SQLite: DuckDB files, and whatever SQLAlchemy has a driver for, run read-only.

A statement is checked by its parse before it runs, and runs where it cannot write: a DuckDB file is opened read-only
and without access to other files or the net; on a server the query runs in a read-only transaction, where it has such,
which is rolled back in any case. Give the tool a role that may only read: it is the one guard that knows all functions.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from helix.errors import OptionError, ToolError
from helix.executor.tools.access import Secrets, ToolAccess
from helix.executor.tools.files import check_file
from helix.executor.tools.results import result_text
from helix.executor.tools.sql_checks import (
    MAX_ROWS,
    TIME_LIMIT,
    bound,
    check_harmless,
    check_query,
    parameters,
    records,
)
from helix.executor.tools.threads import Threads
from helix.logical import Tool
from helix.tools.targets import FILES, sql_backend, sql_dialect

# How a transaction that cannot write begins, and how its time is bounded on the server, where a backend has that.
_BEGIN: dict[str, tuple[str, ...]] = {
    "sqlite": ("PRAGMA query_only = ON",),
    "postgresql": ("SET TRANSACTION READ ONLY", "SET LOCAL statement_timeout = {ms}"),
    "cockroachdb": ("SET TRANSACTION READ ONLY", "SET LOCAL statement_timeout = {ms}"),
    "redshift": ("SET statement_timeout TO {ms}",),
    "mysql": ("SET SESSION max_execution_time = {ms}", "START TRANSACTION READ ONLY"),
    "mariadb": ("SET SESSION max_statement_time = {s}", "START TRANSACTION READ ONLY"),
    "oracle": ("SET TRANSACTION READ ONLY",),
}
_DUCKDB: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "lock_configuration": "true",
}
_SHOWN = 500
# How DuckDB's errors begin that are of the statement itself.
_WRONG = ("Catalog Error", "Binder Error", "Parser Error")

# Takes what stops a query that is running, from another thread.
Running = Callable[[Callable[[], Any]], None]


class Database(Protocol):
    """A database that blocking calls on any thread ask. `guarded` says that no query can do harm there."""

    guarded: bool

    def open(self) -> None:
        """Connects. Raises ToolError."""

    def ask(
        self, statement: str, values: dict[str, Any], most: int, seconds: float, running: Running
    ) -> tuple[list[str], list[Any]]:
        """The columns and at most so many rows of a query. Raises ToolError."""

    def close(self) -> None:
        """Closes what is open."""


class _Asking:
    """One query on its thread, and how it is stopped from another one."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._stop: Callable[[], Any] | None = None
        self._given_up = False
        self._timer: threading.Timer | None = None

    def __call__(self, stop: Callable[[], Any]) -> None:
        """Takes what stops the query, just before it runs. Raises ToolError where nobody waits for it any more."""
        self._stop = stop
        # A query that was given up just before it ran does not hear of it: then this ends it.
        self._timer = threading.Timer(self._seconds + 1, self._halt)
        self._timer.daemon = True
        self._timer.start()
        if self._given_up:
            raise ToolError("it was given up")

    def give_up(self) -> None:
        """Stops the query, whether it runs or is about to."""
        self._given_up = True
        self._halt()

    def ended(self) -> None:
        """The query is over: nothing is to be stopped."""
        self._stop = None
        if self._timer is not None:
            self._timer.cancel()

    def _halt(self) -> None:
        stop = self._stop
        if stop is not None:
            with suppress(Exception):
                stop()


class OtherSqlTool:
    """Runs queries on a database; parameters, caps and errors are those of SQLite tools."""

    def __init__(self, tool: Tool, database: Database, threads: Threads) -> None:
        self._tool = tool
        self._database = database
        self._threads = threads
        self._dialect = sql_dialect(tool.target)
        self._names = [param.name for param in tool.params]
        self._limit = tool.max_rows or MAX_ROWS
        if tool.query is not None:
            try:
                check_query(tool.query, self._dialect)
            except ToolError as error:
                raise OptionError(f"sql tool `{tool.name}`: {error}") from None

    async def open(self) -> None:
        """Connects. Raises OptionError where that is not possible within the time of a call."""
        try:
            async with asyncio.timeout(self._tool.timeout or TIME_LIMIT):
                await self._threads.run(self._opened)
        except TimeoutError:
            raise OptionError(f"sql tool `{self._tool.name}`: the database does not answer") from None
        except ToolError as error:
            raise OptionError(f"sql tool `{self._tool.name}`: {error}") from None

    def _opened(self) -> None:
        """On a thread: connects, and has a DuckDB tool's own statement planned, so that no call is made in vain."""
        self._database.open()
        if self._tool.query is None or not self._database.guarded:
            return
        asking = _Asking(self._tool.timeout or TIME_LIMIT)
        try:
            self._database.ask(f"EXPLAIN {self._tool.query}", dict.fromkeys(self._names), 1, TIME_LIMIT, asking)
        except ToolError as error:
            # That null is no value for a parameter says nothing of the statement.
            if error.message.startswith(_WRONG):
                raise
        finally:
            asking.ended()

    async def __call__(self, args: list[Any]) -> str:
        """Runs the query. Raises ToolError; its kind is `timeout` where the query ran too long."""
        given = dict(zip(self._names, args, strict=True))
        own, name = self._tool.query, self._tool.name
        statement = str(given.pop("query")) if own is None else own
        values = {key: bound(value) for key, value in given.items()}
        seconds = self._tool.timeout or TIME_LIMIT
        asking = _Asking(seconds)
        try:
            async with asyncio.timeout(seconds) as timer:
                columns, rows = await self._threads.run(
                    lambda: self._asked(statement, own is None, values, seconds, asking)
                )
        except (TimeoutError, asyncio.CancelledError) as error:
            asking.give_up()
            if isinstance(error, asyncio.CancelledError) or not timer.expired():
                raise
            late = ToolError(f"{name} ran longer than {seconds:g} s")
            late.kind = "timeout"
            raise late from None
        found = records(name, columns, rows, self._limit)
        return result_text(found, self._tool.returns, name, self._tool.max_bytes)

    def close(self) -> None:
        """Closes the database."""
        self._database.close()

    def _asked(
        self, statement: str, foreign: bool, values: dict[str, Any], seconds: float, asking: _Asking
    ) -> tuple[list[str], list[Any]]:
        """On a thread: checks a statement that is not the tool's own, and asks."""
        if foreign:
            (check_query if self._database.guarded else check_harmless)(statement, self._dialect)
        try:
            return self._database.ask(statement, values, self._limit + 1, seconds, asking)
        except ToolError as error:
            raise ToolError(f"{self._tool.name}: {error}") from None
        finally:
            asking.ended()


class DuckDatabase:
    """A DuckDB file, opened read-only, with no access to other files and no extensions to load."""

    guarded = True

    def __init__(self, tool: Tool, folder: Path | None) -> None:
        path = Path(tool.target.removeprefix("duckdb:"))
        if not path.is_absolute() and folder is not None:
            path = folder / path
        if not path.is_file():
            raise OptionError(f"sql tool `{tool.name}`: the database {path} does not exist")
        self._path = path
        self._lock = threading.Lock()
        self._connection: Any = None

    def open(self) -> None:
        """Opens the file."""
        try:
            import duckdb
        except ImportError:
            raise ToolError("it needs duckdb: pip install 'helix-workflows[duckdb]'") from None
        try:
            self._connection = duckdb.connect(str(self._path), read_only=True, config=_DUCKDB)
        except duckdb.Error as error:
            raise ToolError(f"{self._path.name} cannot be read: {_first_line(error)}") from None

    def ask(
        self, statement: str, values: dict[str, Any], most: int, seconds: float, running: Running
    ) -> tuple[list[str], list[Any]]:
        """The columns and rows of a query; parameters are `$name` to DuckDB."""
        import duckdb

        pieces = list(parameters(statement, values))
        text = "".join(piece if name is None else f"${name}" for piece, name in pieces)
        used = {name: values[name] for _, name in pieces if name is not None}
        # A connection serves one call at a time, and refuses a second one instead of letting it wait.
        with self._lock:
            cursor = self._connection.cursor()
        running(cursor.interrupt)
        try:
            cursor.execute(text, used) if used else cursor.execute(text)
            return [column[0] for column in cursor.description or ()], cursor.fetchmany(most)
        except (duckdb.Error, ValueError, OverflowError, RuntimeError) as error:
            raise ToolError(_first_line(error)) from None
        finally:
            # It may be just being interrupted; then it is closed when it is freed.
            with suppress(duckdb.Error):
                cursor.close()

    def close(self) -> None:
        """Closes the file; a query that was given up and still runs keeps it open until it ends."""
        if self._connection is not None:
            import duckdb

            with self._lock, suppress(duckdb.Error):
                self._connection.close()


class UrlDatabase:
    """A database that SQLAlchemy has a driver for. Its URL may want `${NAME}` of the environment."""

    guarded = False

    def __init__(self, tool: Tool, access: ToolAccess, folder: Path | None = None) -> None:
        self._tool, self._access, self._folder = tool, access, folder
        self._secrets = Secrets(f"sql tool `{tool.name}`", (tool.target,), access.environment)
        self._url = self._secrets.into(tool.target, quoted=True)
        self._backend = sql_backend(tool.target)
        self._engine: Any = None

    def open(self) -> None:
        """Makes one connection, to be kept for the first query."""
        try:
            import sqlalchemy
        except ImportError:
            raise ToolError("it needs SQLAlchemy: pip install 'helix-workflows[sql]'") from None
        if self._backend in FILES:
            name = sqlalchemy.make_url(self._url).database or ""
            check_file(self._tool, name, Path.cwd(), self._folder, self._access)
        try:
            self._engine = sqlalchemy.create_engine(
                self._url, pool_pre_ping=True, max_overflow=-1, hide_parameters=True
            )
            self._engine.connect().close()
        except ModuleNotFoundError as error:
            raise ToolError(f"its driver `{error.name}` is not installed") from None
        except Exception as error:
            # Drivers raise what they like.
            raise ToolError(f"the database cannot be reached: {self._words(error)}") from None

    def ask(
        self, statement: str, values: dict[str, Any], most: int, seconds: float, running: Running
    ) -> tuple[list[str], list[Any]]:
        """The columns and rows of a query, from a transaction that is rolled back."""
        from sqlalchemy import text

        pieces = list(parameters(statement, values))
        # What looks like a parameter and is none, in a text or a cast, stays as it is.
        escaped = "".join(piece if name else re.sub(r"(?<!:):(?=\w)", r"\\:", piece) for piece, name in pieces)
        used = {name: values[name] for _, name in pieces if name is not None}
        try:
            with self._engine.connect() as connection:
                driver = connection.connection.dbapi_connection
                stop = getattr(driver, "cancel", None) or getattr(driver, "interrupt", None)
                if stop is not None:
                    running(stop)
                try:
                    for begin in _BEGIN.get(self._backend, ()):
                        # A little more than the call has: what ends it is this side, which knows why.
                        limits = {"ms": str(int(seconds * 1000) + 500), "s": f"{seconds + 0.5:g}"}
                        connection.exec_driver_sql(begin.format(**limits))
                    found = connection.execute(text(escaped), used)
                    return list(found.keys()), [tuple(row) for row in found.fetchmany(most)]
                finally:
                    connection.rollback()
        except Exception as error:
            raise ToolError(self._words(error)) from None

    def close(self) -> None:
        """Closes the connections that nobody uses."""
        if self._engine is not None:
            self._engine.dispose()

    def _words(self, error: BaseException) -> str:
        return self._secrets.out_of(_first_line(getattr(error, "orig", None) or error))


def _first_line(error: BaseException) -> str:
    """The first line of what a driver says."""
    line = str(error).strip().split("\n")[0].strip()[:_SHOWN]
    return line or type(error).__name__
