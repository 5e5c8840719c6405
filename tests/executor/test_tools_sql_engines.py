"""SQL tools over DuckDB and over database URLs: parameters, values, caps, and that nothing can write."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from running import run

from helix.errors import OptionError, ToolError
from helix.executor.tools.access import ToolAccess
from helix.executor.tools.opener import ToolOpener
from helix.executor.tools.sql_checks import parameters
from helix.schema import Column
from helix.services import Tool
from helix.types import INT, TABLE, TEXT, ListOf, Type

duckdb = pytest.importorskip("duckdb")
pytest.importorskip("sqlalchemy")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one database of each kind."""
    path = tmp_path_factory.mktemp("sql")
    with duckdb.connect(str(path / "shop.duckdb")) as made:
        made.execute("CREATE TABLE orders (id INT, customer TEXT, price DECIMAL(8, 2), day DATE, tags TEXT[])")
        made.execute("INSERT INTO orders VALUES (1, 'Ada', 19.99, '2026-01-02', ['a', 'b'])")
        made.execute("INSERT INTO orders VALUES (2, 'Bob', 3, NULL, NULL)")
        made.execute("CREATE VIEW dear AS SELECT * FROM orders WHERE price > 10")
        made.execute("CREATE SEQUENCE numbers")
        made.execute("CREATE MACRO twice(x) AS x * 2")
    database = sqlite3.connect(path / "shop.sqlite")
    database.executescript(
        "CREATE TABLE orders (id INT, customer TEXT, price REAL);"
        "INSERT INTO orders VALUES (1, 'Ada', 19.99), (2, 'Bob', 3);"
    )
    database.close()
    (path / "secret.csv").write_text("a\nsecret\n")
    return path


def tool(target: str, *params: tuple[str, Type], returns: Type = TABLE, **traits: Any) -> Tool:
    """A SQL tool; without a statement of its own it takes one."""
    columns = tuple(Column(name, kind) for name, kind in (params or (("query", TEXT),)))
    traits = {"effects": "read", **traits}
    return Tool(name="ask", origin="sql", target=target, params=columns, returns=returns, **traits)


def asked(folder: Path, made: Tool, *calls: list[Any], environment: dict[str, str] | None = None) -> list[Any]:
    """What calls give: rows, and the errors of those that failed."""

    async def main() -> list[Any]:
        opener = ToolOpener({}, folder, ToolAccess(environment=environment or {}))
        try:
            run = await opener.open(made)
            found: list[Any] = []
            for args in calls:
                try:
                    found.append(json.loads(await run(args)))
                except ToolError as error:
                    found.append(error)
            return found
        finally:
            await opener.close()

    return asyncio.run(main())


def url(folder: Path) -> str:
    """The SQLite database as a URL, which goes the way of all other databases."""
    return f"sqlite+pysqlite:///{folder / 'shop.sqlite'}"


DUCK = "duckdb:shop.duckdb"


# --- queries ---


def test_duckdb_values_and_parameters(folder: Path) -> None:
    query = "SELECT *, ':customer'::TEXT AS text FROM orders WHERE customer = :customer AND id < :most"
    made = tool(DUCK, ("customer", TEXT), ("most", INT), query=query)
    (rows,) = asked(folder, made, ["Ada", 9])
    assert rows == [
        {"id": 1, "customer": "Ada", "price": 19.99, "day": "2026-01-02", "tags": ["a", "b"], "text": ":customer"}
    ]
    (rows,) = asked(folder, tool(DUCK), ["SELECT count(*) AS n, sum(price) AS s, twice(2) AS t FROM orders"])
    assert rows == [{"n": 2, "s": 22.99, "t": 4}]


def test_url_values_and_parameters(folder: Path) -> None:
    query = "SELECT id, customer, ':most' AS text FROM orders WHERE customer = :customer AND id < :most"
    made = tool(url(folder), ("customer", TEXT), ("most", INT), query=query)
    assert asked(folder, made, ["Ada", 9], ["x' OR 1=1 --", 9]) == [
        [{"id": 1, "customer": "Ada", "text": ":most"}],
        [],
    ]


def test_pieces_of_statements() -> None:
    text = "SELECT ':a', \":a\", x::int, a[1:a], $$ :a $$, -- :a\n/* :a */ :a, :b, :ab FROM t"
    found = list(parameters(text, ("a", "b")))
    assert "".join(piece for piece, _ in found) == text
    assert [name for _, name in found if name] == ["a", "b"]


@pytest.mark.parametrize("kind", ["duckdb", "url"])
def test_caps(folder: Path, kind: str) -> None:
    target = DUCK if kind == "duckdb" else url(folder)
    many = "SELECT * FROM orders AS a, orders AS b"
    rows, cell = asked(folder, tool(target, max_rows=3), [many], ["SELECT 1 AS a, 2 AS a"])
    assert str(rows) == "ask found more than 3 rows; add a LIMIT, or raise the trait `max_rows`"
    assert str(cell) == "ask: two columns are called `a`; name them apart with AS"
    wide = (
        "SELECT replace(hex(zeroblob(40000)), '0', 'xxxxx') AS a"
        if kind == "url"
        else "SELECT repeat('x', 400000) AS a"
    )
    (large,) = asked(folder, tool(target, max_bytes=100_000), [wide])
    assert "more than the 100,000 bytes that `max_bytes` allows" in str(large)


def test_a_query_that_runs_for_good_is_stopped(folder: Path) -> None:
    began = time.monotonic()
    endless = "SELECT count(*) AS n FROM range(100000000) AS a, range(100000000) AS b"
    late, after = asked(folder, tool(DUCK, timeout=1.0), [endless], ["SELECT 1 AS a"])
    assert (late.kind, str(late)) == ("timeout", "ask ran longer than 1 s")
    assert after == [{"a": 1}]
    endless = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) AS n FROM c"
    late, after = asked(folder, tool(url(folder), timeout=1.0), [endless], ["SELECT 1 AS a"])
    assert late.kind == "timeout"
    assert after == [{"a": 1}]
    assert time.monotonic() - began < 10


# --- nothing can write, and nothing else is read ---


def digest(folder: Path) -> dict[str, str]:
    """What is in the folder."""
    files = [each for each in sorted(folder.rglob("*")) if each.is_file()]
    return {str(each): hashlib.sha256(each.read_bytes()).hexdigest() for each in files}


WRITES = [
    "INSERT INTO orders VALUES (3, 'Eve', 1, NULL, NULL)",
    "UPDATE orders SET price = 0",
    "DELETE FROM orders",
    "DROP TABLE orders",
    "CREATE TABLE t AS SELECT 1",
    "CREATE TEMP TABLE t AS SELECT 1",
    "SELECT 1; DROP TABLE orders",
    "WITH gone AS (DELETE FROM orders RETURNING *) SELECT * FROM gone",
    "COPY orders TO 'out.csv'",
    "COPY (SELECT 1) TO 'out.csv'",
    "ATTACH 'other.duckdb'",
    "PRAGMA query_only = OFF",
    "SET enable_external_access = true",
    "INSTALL httpfs",
    "LOAD httpfs",
    "CALL pragma_version()",
    "EXPORT DATABASE 'out'",
    "CHECKPOINT",
    "VACUUM",
    "EXPLAIN ANALYZE DELETE FROM orders",
    "SELECT nextval('numbers')",
    "SELECT * FROM read_csv('secret.csv')",
    "SELECT * FROM 'secret.csv'",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM glob('*')",
    "SELECT getenv('HOME')",
    "SELECT load_extension('x')",
    "",
    "not SQL at all",
]


@pytest.mark.parametrize("kind", ["duckdb", "url"])
def test_nothing_writes_and_no_file_is_read(folder: Path, kind: str) -> None:
    before = digest(folder)
    made = tool(DUCK if kind == "duckdb" else url(folder))
    found = asked(folder, made, *[[statement] for statement in WRITES], ["SELECT count(*) AS n FROM orders"])
    assert found.pop() == [{"n": 2}]
    for statement, result in zip(WRITES, found, strict=True):
        assert isinstance(result, ToolError), (statement, result)
        assert result.kind == "tool"
        assert "secret" not in str(result).replace("secret.csv", "")
    assert digest(folder) == before


def test_over_a_url_what_is_not_known_to_be_harmless_is_not_run(folder: Path) -> None:
    made = tool(url(folder))
    (error,) = asked(folder, made, ["SELECT pg_terminate_backend(1)"])
    assert str(error).startswith(
        "only queries that are known to change nothing are run: it calls `pg_terminate_backend`"
    )


def test_a_connection_that_writes_all_the_same_is_read_only(folder: Path) -> None:
    """Should the check of the statement be wrong: the database itself refuses."""
    from helix.executor.tools.sql_engines import DuckDatabase, UrlDatabase

    for database in (
        DuckDatabase(tool(DUCK), folder),
        UrlDatabase(tool(url(folder)), ToolAccess(environment={})),
    ):
        database.open()
        for statement in ("DELETE FROM orders", "CREATE TABLE t (a INT)"):
            with pytest.raises(ToolError, match=r"(?i)read.?only"):
                database.ask(statement, {}, 10, 5.0, lambda stop: None)
        database.close()


# --- before any call ---


@pytest.mark.parametrize(
    ("target", "query", "message"),
    [
        ("duckdb:none.duckdb", None, "does not exist"),
        ("duckdb:secret.csv", None, "secret.csv cannot be read: "),
        (DUCK, "DELETE FROM orders", "only queries are run, found DELETE"),
        (DUCK, "SELECT a FROM nowhere", "Catalog Error: Table with name nowhere does not exist!"),
        (DUCK, "SELECT prize FROM orders LIMIT :query", 'Binder Error: Referenced column "prize" not found'),
        ("postgresql+psycopg://u:${PW}@127.0.0.1:1/x", None, "sql tool `ask`"),
        ("postgresql+nodriver://u:${PW}@127.0.0.1:1/x", None, "sql tool `ask`"),
        ("postgresql+psycopg://u:${NOT}@127.0.0.1:1/x", None, r"wants ${NOT}: the environment has no NOT"),
    ],
)
def test_what_cannot_be_opened_is_found_before_any_call(
    folder: Path, target: str, query: str | None, message: str
) -> None:
    with pytest.raises(OptionError) as caught:
        asked(folder, tool(target, query=query), environment={"PW": "s3cret-value"})
    assert message in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(("package", "extra"), [("duckdb", "duckdb"), ("sqlalchemy", "sql")])
def test_without_the_package_it_says_what_to_install(
    folder: Path, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(OptionError, match=rf"pip install 'helix-workflows\[{extra}\]'"):
        asked(folder, tool(DUCK if package == "duckdb" else url(folder)))


def test_in_a_run(folder: Path) -> None:
    text = """workflow w(who: text)
tool orders(who: text) -> list[{ id: int, price: float }] from sql "duckdb:shop.duckdb"
  query "SELECT id, price FROM orders WHERE customer = :who", freshness until_write
tool any(query: text) -> table from sql "duckdb:shop.duckdb"
x = orders(who)
y = any("SELECT count(*) AS n FROM dear")
output x, y"""
    ran = run(text, [{"who": who} for who in ("Ada", "Bob", "Ada", "Eve")], folder=folder)
    assert ran.errors == [None] * 4
    assert ran.column("x") == [[{"id": 1, "price": 19.99}], [{"id": 2, "price": 3}], [{"id": 1, "price": 19.99}], []]
    assert ran.column("y") == [[{"n": 1}]] * 4
    # What holds until a write is asked for once; of a statement in another dialect nobody knows whether it holds.
    assert ran.report.steps["x"].calls == 3
    assert ran.report.steps["y"].calls == 4


def test_result_types(folder: Path) -> None:
    made = tool(DUCK, ("n", INT), query="SELECT id FROM orders WHERE id = :n", returns=ListOf(TEXT))
    (error,) = asked(folder, made, [1])
    assert "does not fit" in str(error)
