"""Whatever changes a database is never called `read`: made-up statements are run, and the file's hash compared."""

from __future__ import annotations

import hashlib
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helix.sql.effects import sql_effect

SETUP = """
CREATE TABLE orders (id INTEGER PRIMARY KEY, total INTEGER, note TEXT);
INSERT INTO orders VALUES (1, 10, 'a'), (2, 20, 'b');
CREATE TABLE archive (id INTEGER, total INTEGER, note TEXT);
"""
DUCKDB_SETUP = """
CREATE SEQUENCE numbers;
CREATE VIEW drawn AS SELECT nextval('numbers') AS n;
CREATE MACRO draws(x) AS nextval('numbers') + x;
"""
BASE_TABLES = frozenset(("orders", "archive"))

# Pieces of statements; most of those put together are no SQL, and that is part of the test.
CLAUSES = (
    "SELECT * FROM orders", "SELECT total FROM orders WHERE id = 1", "SELECT 1", "VALUES (1, 2)", "FROM orders",
    "INSERT INTO archive SELECT * FROM orders", "INSERT INTO orders VALUES (9, 9, 'x')",
    "DELETE FROM orders",
    "UPDATE orders SET total = total + 1", "REPLACE INTO orders VALUES (1, 1, 'r')", "DROP TABLE archive",
    "CREATE TABLE made (a INTEGER)", "CREATE TABLE made AS SELECT * FROM orders", "CREATE INDEX i ON orders (total)",
    "CREATE VIEW v AS SELECT 1 AS a", "ALTER TABLE orders ADD COLUMN extra TEXT", "PRAGMA user_version = 5",
    "PRAGMA journal_mode = WAL", "PRAGMA application_id(7)", "PRAGMA table_info(orders)", "VACUUM", "REINDEX",
    "ANALYZE",
    "ATTACH 'side.db' AS side", "CREATE TABLE side.made (a)", "VACUUM INTO 'copy.db'", "BEGIN", "COMMIT", "END",
    "EXPLAIN DELETE FROM orders", "EXPLAIN QUERY PLAN SELECT 1", "EXPLAIN ANALYZE DELETE FROM orders",
    "SELECT nextval('numbers')", "SELECT * FROM orders WHERE id < nextval('numbers')", "SELECT draws(1)",
    "SELECT * FROM drawn", "COPY orders TO 'out.csv'", "COPY (SELECT 1) TO 'out.csv'", "EXPORT DATABASE 'folder'",
    "SELECT * FROM query('DELETE FROM orders')", "CHECKPOINT", "CALL force_checkpoint()", "TRUNCATE orders",
    "INSERT INTO orders VALUES (1, 2, 'c') ON CONFLICT DO UPDATE SET total = 3", "DELETE FROM orders RETURNING *",
    "MERGE INTO orders USING archive ON orders.id = archive.id WHEN MATCHED THEN DELETE",
    "SELECT * INTO made FROM orders", "SELECT load_extension('x')", "SELECT writefile('out.txt', 'x')", "TABLE orders",
    "PIVOT orders ON note USING sum(total)", "SUMMARIZE orders", "DESCRIBE orders", "SET threads = 1",
)  # fmt: skip
JOINTS = (
    " ", "; ", ";", " UNION ALL ", " UNION ", " EXCEPT ", ", ", " AS (", ")", "(", " -- ", "\n", "\r", " /* ", " */ ",
    "/*", "*/", "/* /* */", "'", '"', "`", "\\'", " WITH x AS (", "WITH x AS MATERIALIZED (", ") SELECT * FROM x",
    " WHERE EXISTS (", " RETURNING ", "\x00", "\u00a0", "--", "#", "$$", "E'", "::", " FOR UPDATE", "/*!", "/*+ x */",
    " IN (", " LIMIT 1", " ORDER BY 1", "[", "]", ":=", "@x", "?1",
)  # fmt: skip
PARTS = st.lists(st.one_of(st.sampled_from(CLAUSES), st.sampled_from(JOINTS)), min_size=1, max_size=6).map("".join)
WRAPPED = st.builds(
    lambda inner, outer: outer.replace("?", inner),
    st.sampled_from(CLAUSES),
    st.sampled_from((
        "?", "?;", "(?)", "SELECT * FROM (?)", "WITH x AS (?) SELECT * FROM x", "WITH x AS (?) SELECT 1",
        "SELECT (?)", "SELECT 1 WHERE EXISTS (?)", "SELECT 1; ?", "?; SELECT 1", "SELECT 1 /* /* */; ? -- */",
        "SELECT 1 UNION ALL ?", "SELECT '\\'; ? -- '", "SELECT 1 --\r; ?", "/* x */ ?", "-- x\n?", "EXPLAIN ?",
        "WITH RECURSIVE x(a) AS (?) SELECT * FROM x", "SELECT a FROM (SELECT 1 AS a) WHERE a IN (?)",
    )),
)  # fmt: skip
STATEMENTS = st.one_of(WRAPPED, PARTS)

Execute = Callable[[Path, str], Any]


def run_sqlite(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute(statement).fetchall()
    except sqlite3.Error as error:
        # What a driver that runs scripts would do counts too.
        if "one statement at a time" not in str(error):
            raise
        connection.executescript(statement)
    finally:
        connection.close()


def state_of(folder: Path) -> dict[str, str]:
    """The files of a folder by their hashes."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


class Bench:
    """A folder with a database, made anew whenever a statement has changed it."""

    def __init__(self, folder: Path, fresh: Path, execute: Execute) -> None:
        self.folder = folder
        self._fresh = fresh
        self._execute = execute
        self.changed = 0
        self._renew()
        self.before = state_of(folder)

    def _renew(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        shutil.copy(self._fresh, self.folder / "data.db")

    def changes(self, statement: str) -> bool:
        """Whether a statement changes the database, or leaves another file."""
        # Most are no SQL; what they did before they failed counts.
        with suppress(Exception):
            self._execute(self.folder / "data.db", statement)
        after = state_of(self.folder)
        if after != self.before:
            self.changed += 1
            self._renew()
            return True
        return False


@pytest.fixture(scope="module")
def sqlite_bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("sqlite")
    connection = sqlite3.connect(folder / "fresh.db")
    connection.executescript(SETUP)
    connection.close()
    return Bench(folder / "bench", folder / "fresh.db", run_sqlite)


@pytest.fixture(scope="module")
def duckdb_bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    duckdb = pytest.importorskip("duckdb")
    folder = tmp_path_factory.mktemp("duckdb")
    connection = duckdb.connect(str(folder / "fresh.db"))
    connection.execute(SETUP + DUCKDB_SETUP)
    connection.close()

    def run_duckdb(path: Path, statement: str) -> None:
        opened = duckdb.connect(str(path), config={"threads": 1})
        try:
            opened.execute(statement).fetchall()
        finally:
            opened.close()

    return Bench(folder / "bench", folder / "fresh.db", run_duckdb)


def check(bench: Bench, statement: str, dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    effect = sql_effect(statement, dialect, BASE_TABLES)
    # Relative names of files lead into the folder that is looked at.
    monkeypatch.chdir(bench.folder)
    changed = bench.changes(statement)
    monkeypatch.undo()
    assert not (changed and effect.effects in ("pure", "read")), statement


def test_the_bench_sees_changes(sqlite_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(sqlite_bench.folder)
    assert not sqlite_bench.changes("SELECT * FROM orders")
    assert sqlite_bench.changes("DELETE FROM orders")
    assert not sqlite_bench.changes("SELECT * FROM orders")


def test_each_clause_in_each_wrapping_on_sqlite(sqlite_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(7)
    for clause in CLAUSES:
        check(sqlite_bench, clause, "sqlite", monkeypatch)
        for joint in draw.sample(JOINTS, 3):
            check(sqlite_bench, f"SELECT 1{joint}{clause}", "sqlite", monkeypatch)
            check(sqlite_bench, f"{clause}{joint}SELECT 1", "sqlite", monkeypatch)
    assert sqlite_bench.changed > 15


LOOSE = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], database=None
)


@settings(LOOSE, max_examples=150)
@given(statement=STATEMENTS)
def test_never_read_on_sqlite(sqlite_bench: Bench, monkeypatch: pytest.MonkeyPatch, statement: str) -> None:
    check(sqlite_bench, statement, "sqlite", monkeypatch)


@pytest.mark.slow
@settings(LOOSE, max_examples=1500)
@given(statement=STATEMENTS)
def test_never_read_on_sqlite_at_length(sqlite_bench: Bench, monkeypatch: pytest.MonkeyPatch, statement: str) -> None:
    check(sqlite_bench, statement, "sqlite", monkeypatch)


def test_the_bench_sees_changes_of_duckdb(duckdb_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(duckdb_bench.folder)
    assert not duckdb_bench.changes("SELECT * FROM orders")
    for statement in ("DELETE FROM orders", "SELECT nextval('numbers')", "SELECT * FROM drawn", "SELECT draws(1)"):
        assert duckdb_bench.changes(statement), statement


@pytest.mark.slow
@settings(LOOSE, max_examples=350)
@given(statement=STATEMENTS)
def test_never_read_on_duckdb(duckdb_bench: Bench, monkeypatch: pytest.MonkeyPatch, statement: str) -> None:
    check(duckdb_bench, statement, "duckdb", monkeypatch)
