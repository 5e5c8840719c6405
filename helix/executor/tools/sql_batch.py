"""Lookups by one key, answered for many keys by one query, row for row as each key's own query would.

That needs the rows of one key in the order in which its own query gives them. SQLite gives rows in the order in which
its plan walks tables and indexes, so its two plans are compared: where they walk the same ones, the rows of one key
come alike. Where they do not, or anything else is unusual, the keys are asked for one by one.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from helix.errors import ToolError
from helix.executor.tools.results import result_text
from helix.executor.tools.sql import SqlTool
from helix.executor.tools.sql_checks import bound
from helix.executor.tools.threads import Threads, charging
from helix.logical import Tool
from helix.sql.lookup import lookup_of

# What plans of both kinds are made of; whatever else a plan does (automatic indexes, sorting) is not compared.
_WALKS = ("SCAN ", "SEARCH ")
_OTHER = ("AUTOMATIC",)
_KEYS = "CORRELATED SCALAR SUBQUERY"


class SqlLookups(SqlTool):
    """A SQL tool whose query is a lookup by one key."""

    def __init__(self, tool: Tool, folder: Path | None, threads: Threads) -> None:
        super().__init__(tool, folder, threads)
        assert tool.query is not None
        self._query = tool.query
        self._lookup = lookup_of(tool.query)
        # By the number of keys: how many there are may change SQLite's plan.
        self._alike: dict[int, bool] = {}

    async def many(self, calls: list[list[Any]]) -> list[str | None]:
        """The results of several calls by one query, in their order: None for a call to be made by itself."""
        keys = [bound(args[0]) for args in calls]
        with charging(self._tool.cost):
            found = await self._on_thread(lambda connection: self._found(connection, keys))
        return [None if rows is None else self._text(rows) for rows in found]

    def _text(self, rows: list[dict[str, Any]]) -> str | None:
        try:
            return result_text(rows, self._tool.returns, self._tool.name, self._tool.max_bytes)
        except ToolError:
            # The call by itself tells what is wrong, in its own words.
            return None

    def _found(self, connection: sqlite3.Connection, keys: list[Any]) -> list[list[dict[str, Any]] | None]:
        """The rows of each key; None for a key whose own query is to tell what they are."""
        nothing: list[list[dict[str, Any]] | None] = [None] * len(keys)
        lookup = self._lookup
        if lookup is None:
            return nothing
        self._timed(connection)
        rows: list[list[dict[str, Any]]] = [[] for _ in keys]
        odd: set[int] = set()
        try:
            if not self._is_alike(connection, keys):
                return nothing
            cursor = connection.execute(lookup.batch(len(keys)), keys)
            columns = [column[0] for column in cursor.description[:-1]]
            if len(set(columns)) < len(columns):
                return nothing
            for *values, places in cursor:
                if places is None:
                    return nothing
                row = dict(zip(columns, values, strict=True))
                binary = any(isinstance(value, bytes) for value in values)
                for place in map(int, str(places).split(",")):
                    if binary or len(rows[place]) == self._limit:
                        odd.add(place)
                    else:
                        rows[place].append(row)
        except (sqlite3.Error, OverflowError, ValueError):
            return nothing
        return [None if place in odd else rows[place] for place in range(len(keys))]

    def _is_alike(self, connection: sqlite3.Connection, keys: list[Any]) -> bool:
        """Whether SQLite walks the same tables and indexes for one key and for so many."""
        known = self._alike.get(len(keys))
        if known is None:
            assert self._lookup is not None
            one = _walks(connection, self._query, {self._lookup.parameter: keys[0]})
            all_of_them = _walks(connection, self._lookup.batch(len(keys)), keys)
            known = one is not None and one == all_of_them and _are_plain(connection, self._lookup.tables)
            self._alike[len(keys)] = known
        return known


def _walks(connection: sqlite3.Connection, statement: str, values: Any) -> list[str] | None:
    """What a query walks, outermost first; None where it does anything else."""
    found: list[str] = []
    for _, parent, _, detail in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values):
        if parent != 0 or detail.startswith(_KEYS):
            continue
        if not detail.startswith(_WALKS) or any(word in detail for word in _OTHER):
            return None
        found.append(detail)
    return found


def _are_plain(connection: sqlite3.Connection, tables: tuple[str, ...]) -> bool:
    """Whether these are stored tables for which a value never decides the plan.

    With statistics on single values, and with indexes over a part of a table, SQLite plans for the value that is bound.
    """
    for table in tables:
        found = connection.execute(
            "SELECT type, sql FROM sqlite_master WHERE name = ? COLLATE NOCASE AND type IN ('table', 'view')", (table,)
        ).fetchone()
        if found is None or found[0] != "table" or str(found[1]).upper().startswith("CREATE VIRTUAL"):
            return False
        quoted = '"' + table.replace('"', '""') + '"'
        if any(row[4] for row in connection.execute(f"PRAGMA index_list({quoted})")):
            return False
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'sqlite_stat4'").fetchone() is None
