"""Lookups that wait are answered by one query, each with the rows, the order and the errors of its own."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_runs import run_plan
from rules_support import plan_of

from helix.errors import ToolError
from helix.executor.tools import Threads, open_tool
from helix.logical import Invoke, LogicalPlan, Tool, every_node
from helix.optimizer.driver import optimize
from helix.optimizer.rules.batch_point_lookups import KEYS, batch_point_lookups
from helix.schema import Column
from helix.sql.lookup import lookup_of
from helix.types import JSON, TABLE, ListOf, Record, Type

SHOP = """
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT, total REAL, note);
CREATE TABLE people (name TEXT, city TEXT);
"""
ORDERS = [(number, f"c{number * 7 % 5}", number / 2, None if number % 3 else f"n{number}") for number in range(40)]
PEOPLE = [(f"c{number}", f"city {number % 2}") for number in range(4)]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder with a database of forty orders by five customers."""
    made(tmp_path / "shop.db", SHOP)
    return tmp_path


def made(file: Path, script: str) -> None:
    database = sqlite3.connect(file)
    database.executescript(script)
    database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", ORDERS)
    database.executemany("INSERT INTO people VALUES (?, ?)", PEOPLE)
    database.commit()
    database.close()


def asking(query: str, kind: str = "text", returns: str = "table", more: str = "") -> LogicalPlan:
    return plan_of(f'''
workflow w(key: {kind})
tool find(key: {kind}) -> {returns} from sql "sqlite:shop.db" query "{query}"{more}
found = find(key)
output key, found
''')


def batched(plan: LogicalPlan) -> LogicalPlan:
    return optimize(plan, None, [batch_point_lookups]).plan


def keys(*values: Any) -> list[dict[str, Any]]:
    return [{"key": value} for value in values]


# --- where it fires -----------------------------------------------------------------------------------------------

LOOKUPS = [
    "SELECT id, total FROM orders WHERE customer = :key",
    "select * from orders o where (o.customer == :key) and o.total > 3",
    "SELECT o.id, p.city FROM orders o JOIN people p ON o.customer = p.name WHERE :key = o.customer",
    "SELECT upper(note) AS note FROM main.orders WHERE customer = @key AND note IS NOT NULL;",
]
OTHERS = [
    "SELECT count(*) AS n FROM orders WHERE customer = :key",
    "SELECT total(total) AS n FROM orders WHERE customer = :key",
    "SELECT id FROM orders WHERE customer = :key ORDER BY id",
    "SELECT id FROM orders WHERE customer = :key LIMIT 1",
    "SELECT DISTINCT customer FROM orders WHERE customer = :key",
    "SELECT id, row_number() OVER () AS n FROM orders WHERE customer = :key",
    "SELECT id FROM orders WHERE customer = :key OR total = 1",
    "SELECT id FROM orders WHERE NOT customer = :key",
    "SELECT id FROM orders WHERE lower(customer) = :key",
    "SELECT id FROM orders WHERE customer = :key AND total > :key",
    "SELECT id FROM orders WHERE customer LIKE :key",
    "SELECT id FROM orders WHERE id BETWEEN 1 AND 9 AND customer = :key",
    "SELECT id FROM orders WHERE customer = :key UNION SELECT 1",
    "SELECT id FROM orders WHERE customer = :key AND total = (SELECT max(total) FROM orders)",
    "SELECT id FROM (SELECT * FROM orders) WHERE customer = :key",
    "WITH o AS (SELECT * FROM orders) SELECT id FROM o WHERE customer = :key",
    "SELECT id FROM orders WHERE customer = :key AND random() > 0",
    "SELECT id, :key AS k FROM orders",
    "SELECT id FROM orders GROUP BY customer HAVING customer = :key",
]


@pytest.mark.parametrize("query", LOOKUPS)
def test_a_lookup_is_marked(query: str) -> None:
    assert tools(batched(asking(query)))[0].batch == KEYS


@pytest.mark.parametrize("query", OTHERS)
def test_what_is_no_lookup_stays(query: str) -> None:
    plan = asking(query)
    assert batch_point_lookups(plan, None) is plan  # type: ignore[arg-type]


def test_a_key_that_no_row_changes_stays() -> None:
    plan = plan_of("""
workflow w(key: text)
tool find(key: text) -> table from sql "sqlite:shop.db" query "SELECT id FROM orders WHERE customer = :key"
found = find("c1")
output key, found
""")
    assert batched(plan) is plan


def test_a_tool_that_is_never_fresh_stays() -> None:
    plan = asking(LOOKUPS[0], more=", freshness 0")
    assert batched(plan) is plan


def tools(plan: LogicalPlan) -> list[Tool]:
    return [node.tool for node in every_node(plan.sink) if isinstance(node, Invoke)]


# --- what comes out -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", LOOKUPS)
@pytest.mark.parametrize(
    "index",
    [
        "",
        "CREATE INDEX i ON orders (customer)",
        "CREATE INDEX i ON orders (customer, total DESC)",
        "CREATE INDEX i ON orders (note, customer); ANALYZE",
        "CREATE UNIQUE INDEX i ON people (name)",
        "CREATE INDEX i ON orders (total) WHERE customer = 'c1'",
    ],
)
def test_rows_and_order_are_those_of_the_single_queries(tmp_path: Path, query: str, index: str) -> None:
    made(tmp_path / "shop.db", SHOP + index)
    plan = asking(query)
    rows = keys(*(f"c{number % 7}" for number in range(60)))
    plain, better = (run_plan(each, rows, folder=tmp_path) for each in (plan, batched(plan)))
    assert better.rows == plain.rows
    assert better.report.calls <= plain.report.calls == 7
    assert better.report.calls + better.report.merged == plain.report.calls + plain.report.merged


def test_waiting_lookups_are_one_call(shop: Path) -> None:
    rows = keys(*(f"c{number}" for number in range(40)))
    plan = asking(LOOKUPS[0])
    plain, better = (run_plan(each, rows, folder=shop) for each in (plan, batched(plan)))
    assert better.rows == plain.rows
    assert plain.report.calls == 40
    # The first of the workers that are free when the first row comes takes all others along.
    assert better.report.calls == 1
    assert better.report.merged == 39
    assert better.report.steps["found"].done == 1


@pytest.mark.parametrize("settings", [{"concurrency": 1}, {"concurrency": 40}, {"merge": False}])
def test_results_do_not_depend_on_what_waits(shop: Path, settings: dict[str, Any]) -> None:
    rows = keys(*(f"c{number * number % 9}" for number in range(50)))
    plan = asking(LOOKUPS[0])
    plain, better = (run_plan(each, rows, folder=shop, **settings) for each in (plan, batched(plan)))
    assert better.rows == plain.rows
    assert better.report.calls <= plain.report.calls
    if settings.get("merge") is False:
        assert better.report.calls == 50


def test_a_step_inside_a_loop_is_batched_over_its_items(shop: Path) -> None:
    plan = plan_of("""
workflow w(names: list[text])
tool find(key: text) -> table from sql "sqlite:shop.db" query "SELECT id FROM orders WHERE customer = :key"
found = for name in names {
  rows = find(name)
  yield rows
}
output found
""")
    rows = [{"names": [f"c{number}" for number in range(start, start + 5)]} for start in range(0, 20, 3)]
    plain, better = (run_plan(each, rows, folder=shop) for each in (plan, batched(plan)))
    assert better.rows == plain.rows
    assert better.report.calls < plain.report.calls


# --- errors -------------------------------------------------------------------------------------------------------

FAILURES = {
    "too many rows": ("SELECT id FROM orders WHERE note IS NULL AND customer = :key", "table", ", max_rows 5"),
    "a result that does not fit": ("SELECT note FROM orders WHERE customer = :key", "list[{ note: text }]", ""),
    "binary values": ("SELECT x'00' AS b FROM orders WHERE customer = :key", "table", ""),
    "two columns of one name": ("SELECT id, id FROM orders WHERE customer = :key", "table", ""),
    "a value that has no result": (
        "SELECT abs(id - 9223372036854775807 - 2) AS x FROM orders WHERE customer = :key", "table", ""
    ),
}  # fmt: skip


@pytest.mark.parametrize(("query", "returns", "more"), FAILURES.values(), ids=FAILURES.keys())
def test_errors_are_each_row_s_own(shop: Path, query: str, returns: str, more: str) -> None:
    plan = asking(query, returns=returns, more=more)
    assert tools(batched(plan))[0].batch == KEYS
    rows = keys(*(f"c{number}" for number in range(7)), "c2")
    plain, better = (run_plan(each, rows, folder=shop) for each in (plan, batched(plan)))
    assert better.rows == plain.rows
    assert any(row["_error"] for row in plain.rows)
    assert better.report.calls <= plain.report.calls


def test_a_budget_counts_what_is_asked(shop: Path) -> None:
    rows = keys(*(f"c{number}" for number in range(40)))
    better = run_plan(batched(asking(LOOKUPS[0])), rows, folder=shop, max_calls=1)
    assert [row["_error"] for row in better.rows] == [None] * 40
    plain = run_plan(asking(LOOKUPS[0]), rows, folder=shop, max_calls=1)
    assert sum(row["_error"] is not None for row in plain.rows) == 39


# --- against SQLite, over types, collations and indexes -----------------------------------------------------------

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 3),
    st.sampled_from([1.0, 1.5, 2**53 + 1, 2**63 - 1, 2**70, -0.0, 1e300]),
    st.sampled_from(["1", "01", "1.0", " 1", "a", "A", "a ", "", "ä", "Ä", "x,y", "0,1", "\ud800", "null"]),
    st.lists(st.integers(0, 1), max_size=2),
)
STORED = st.one_of(
    st.none(),
    st.integers(-2, 3),
    st.sampled_from([1.0, 1.5, float(2**53), 2**63 - 1, "1", "01", "a", "A", "a ", "ä", "", b"1", "[0]", 1e300]),
)


async def results(tool: Tool, file: Path, asked: list[Any]) -> tuple[list[Any], list[Any]]:
    """What each key finds by itself, as text or error, and what the batch finds."""
    threads = Threads()
    opened: Any = open_tool(tool, {}, file.parent, threads)
    alone: list[Any] = []
    try:
        for key in asked:
            try:
                alone.append(await opened([key]))
            except ToolError as error:
                alone.append(error)
        return alone, await opened.many([[key] for key in asked])
    finally:
        opened.close()
        threads.close()


KINDS = ["TEXT", "INTEGER", "REAL", "NUMERIC", "BLOB", "", "TEXT COLLATE NOCASE", "COLLATE RTRIM", "DATETIME"]
INDEXES = [
    "",
    "CREATE INDEX i ON t (k)",
    "CREATE INDEX i ON t (k, v)",
    "CREATE INDEX i ON t (v, k)",
    "CREATE INDEX i ON t (k COLLATE BINARY)",
    "CREATE INDEX i ON t (v) WHERE k = 'a'",
]
QUERIES = [
    "SELECT rowid AS n, v, k FROM t WHERE k = :key",
    "SELECT v AS v FROM t AS x WHERE x.k = :key AND v < 5",
    "SELECT a.v, b.v AS w FROM t a JOIN t b ON a.k = b.k WHERE a.k = :key AND a.v >= b.v",
    "SELECT v FROM t WHERE :key = k",
]


@given(
    st.sampled_from(KINDS),
    st.sampled_from(INDEXES),
    st.sampled_from(QUERIES),
    st.lists(st.tuples(STORED, st.integers(0, 9)), max_size=12),
    st.lists(VALUES, min_size=2, max_size=9),
)
def test_a_batch_finds_what_each_key_finds(
    kind: str, index: str, query: str, stored: list[tuple[Any, int]], asked: list[Any]
) -> None:
    tool = Tool(
        name="find", origin="sql", target="sqlite:t.db", params=(Column("key", JSON),), returns=TABLE,
        effects="read", query=query, batch=KEYS,
    )  # fmt: skip
    assert lookup_of(query) is not None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "t.db"
        database = sqlite3.connect(file)
        database.execute(f"CREATE TABLE t (k {kind}, v INT)")
        database.executemany("INSERT INTO t VALUES (?, ?)", stored)
        database.execute(index) if index else None
        database.commit()
        database.close()
        alone, together = asyncio.run(results(tool, file, asked))
    for single, text in zip(alone, together, strict=True):
        if text is not None:
            assert text == single


def answered(folder: Path, script: str, query: str, asked: list[Any], returns: Type = TABLE) -> list[Any]:
    """What a batch finds in a database."""
    tool = Tool(
        name="find", origin="sql", target="sqlite:t.db", params=(Column("key", JSON),), returns=returns,
        effects="read", query=query, batch=KEYS,
    )  # fmt: skip
    database = sqlite3.connect(folder / "t.db")
    database.executescript(script)
    database.close()
    found = asyncio.run(results(tool, folder / "t.db", asked))[1]
    return [None if text is None else json.loads(text) for text in found]


def test_types_and_collations_decide_as_for_one_key(tmp_path: Path) -> None:
    script = "CREATE TABLE t (k TEXT COLLATE NOCASE, n INT); INSERT INTO t VALUES ('a', 1), ('A', 2), ('1', 3)"
    found = answered(tmp_path, script, "SELECT n FROM t WHERE k = :key", ["a", "A", 1, "1", None, "z", True])
    assert found == [[{"n": 1}, {"n": 2}]] * 2 + [[{"n": 3}]] * 2 + [[], [], [{"n": 3}]]


@pytest.mark.parametrize(
    "script",
    [
        # Each of these may give the rows of one key in another order, or SQLite may plan for the value.
        "CREATE TABLE s (k, n); CREATE VIEW t AS SELECT * FROM s ORDER BY n",
        "CREATE TABLE t (k, n); CREATE INDEX i ON t (n) WHERE k = 'a'",
        "CREATE VIRTUAL TABLE t USING fts5 (k, n)",
    ],
)
def test_unusual_tables_are_asked_key_by_key(tmp_path: Path, script: str) -> None:
    assert answered(tmp_path, script, "SELECT n FROM t WHERE k = :key", ["a", "b"]) == [None, None]


def test_a_plan_that_walks_otherwise_for_many_keys_is_not_batched(tmp_path: Path) -> None:
    script = "CREATE TABLE t (k TEXT, n INT, more); CREATE INDEX i ON t (k, n);"
    script += "".join(f"INSERT INTO t VALUES ('k{number % 10}', {20 - number}, 0);" for number in range(20)) + "ANALYZE"
    query = "SELECT n, more FROM t WHERE k = :key"
    asked = [f"k{number}" for number in range(8)]
    database = sqlite3.connect(":memory:")
    database.executescript(script)
    lookup = lookup_of(query)
    assert lookup is not None
    alone = [n for n, _ in database.execute(query, {"key": "k3"})]
    together = [n for n, _, places in database.execute(lookup.batch(8), asked) if places == "3"]
    # By the index for one key, through the table for eight: the same rows, the other way round.
    assert (alone, together) == ([7, 17], [17, 7])
    database.close()
    assert answered(tmp_path, script, query, asked) == [None] * 8


def test_a_result_that_does_not_fit_is_left_to_its_own_call(tmp_path: Path) -> None:
    script = "CREATE TABLE t (k, n); INSERT INTO t VALUES ('a', 1), ('b', 'x')"
    kind = ListOf(Record((("n", JSON),)))
    assert answered(tmp_path, script, "SELECT n FROM t WHERE k = :key", ["a", "b"], kind) == [[{"n": 1}], [{"n": "x"}]]
    strict = ListOf(Record((("n", TABLE),)))
    (tmp_path / "t.db").unlink()
    assert answered(tmp_path, script, "SELECT n FROM t WHERE k = :key", ["a", "c"], strict) == [None, []]
