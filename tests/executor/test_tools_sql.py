"""SQL tools: queries only, whatever way a write is dressed up; caps on rows and time; values in and out."""

from __future__ import annotations

import gc
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from running import Ran, run

from helix.errors import OptionError, ToolError
from helix.executor.tools import sql
from helix.executor.tools.sql import check_query


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    connection = sqlite3.connect(tmp_path / "shop.db")
    connection.executescript(
        "CREATE TABLE orders (id INTEGER, item TEXT, price REAL, note BLOB);"
        "INSERT INTO orders VALUES (1, 'pen', 1.5, NULL), (2, 'ไทย', 2.0, NULL), (3, 'ink', NULL, x'00ff');"
        "CREATE VIRTUAL TABLE words USING fts5(body); INSERT INTO words VALUES ('hello world');"
    )
    connection.commit()
    connection.close()
    return tmp_path


FREE = 'tool ask(query: text) -> table from sql "sqlite:shop.db"'


def ask(folder: Path, *queries: str, declared: str = FREE, **options: Any) -> Ran:
    text = f"workflow t(q: text)\n{declared}\nr = ask(q)\noutput r"
    return run(text, [{"q": query} for query in queries], folder=folder, **options)


def content(folder: Path) -> bytes:
    return (folder / "shop.db").read_bytes()


def test_a_query_gives_its_rows_with_columns_in_order(shop: Path) -> None:
    ran = ask(shop, "SELECT price, item, id FROM orders ORDER BY id LIMIT 2")
    assert ran.column("r") == [[{"price": 1.5, "item": "pen", "id": 1}, {"price": 2.0, "item": "ไทย", "id": 2}]]
    assert list(ran.rows[0]["r"][0]) == ["price", "item", "id"]


@pytest.mark.parametrize(
    "query",
    [
        "WITH c AS (SELECT 1 AS n) SELECT n FROM c",
        "SELECT 1 AS n UNION SELECT 2",
        "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 5) SELECT n FROM c;",
        "SELECT value AS n FROM json_each('[1, 2]')",
        "SELECT body FROM words WHERE words MATCH 'hello'",
        "SELECT upper(item) AS n FROM orders -- a comment",
        "SELECT 'INSERT INTO x; DROP TABLE y' AS n",
        "SELECT name FROM sqlite_master",
    ],
)
def test_queries_of_many_kinds_run(shop: Path, query: str) -> None:
    assert ask(shop, query).errors == [None]


WRITES = (
    "INSERT INTO orders VALUES (4, 'x', 0, NULL)",
    "UPDATE orders SET price = 0",
    "DELETE FROM orders",
    "REPLACE INTO orders VALUES (1, 'x', 0, NULL)",
    "DROP TABLE orders",
    "CREATE TABLE t (a)",
    "CREATE TEMP TABLE t (a)",
    "ALTER TABLE orders ADD COLUMN x",
    "VACUUM",
    "VACUUM INTO 'copy.db'",
    "REINDEX",
    "ANALYZE",
    "BEGIN",
    "PRAGMA user_version = 7",
    "PRAGMA query_only = OFF",
    "ATTACH 'other.db' AS other",
    "DETACH main",
    "EXPLAIN SELECT 1",
    "SELECT 1; SELECT 2",
    "SELECT 1; DELETE FROM orders",
    "WITH c AS (SELECT 1) DELETE FROM orders",
    "WITH c AS (SELECT 1) INSERT INTO orders SELECT 9, 'x', 0, NULL",
    "WITH c AS (DELETE FROM orders RETURNING id) SELECT id FROM c",
    "SELECT * FROM (DELETE FROM orders RETURNING id)",
    "SELECT id INTO copy FROM orders",
    "VALUES (1)",
    "",
    "   ",
    "-- only a comment",
    "not sql at all",
    "SELECT",
    "SELECT '\0'",
    "SELECT load_extension('x')",
    "(((((",
)


@pytest.mark.parametrize("query", WRITES)
def test_all_else_is_refused_and_changes_nothing(shop: Path, query: str) -> None:
    before, files = content(shop), sorted(each.name for each in shop.iterdir())
    text = f'workflow t(q: text?)\n{FREE}\nr = ask(default(q, ""))\noutput r'
    ran = run(text, [{"q": query}], folder=shop)
    assert ran.errors == [("tool", "r")]
    assert content(shop) == before
    assert sorted(each.name for each in shop.iterdir()) == files


@pytest.mark.parametrize("query", [each for each in WRITES if each.split()[:1] not in (["EXPLAIN"], ["VALUES"], [])])
def test_the_connection_refuses_writes_even_where_the_parse_would_not(
    shop: Path, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "check_query", lambda statement: None)
    before, files = content(shop), sorted(each.name for each in shop.iterdir())
    ask(shop, query)
    assert content(shop) == before
    assert sorted(each.name for each in shop.iterdir()) == files


def test_messages_say_what_was_found() -> None:
    for query, message in (
        ("DELETE FROM t", "only queries are run, found DELETE"),
        ("SELECT 1; SELECT 2", "one query is run at a time, found 2 statements"),
        ("", "one query is run at a time, found 0 statements"),
        ("SELECT FROM WHERE", "the statement is not SQL: "),
        ("WITH c AS (DELETE FROM t RETURNING a) SELECT a FROM c", "only queries are run, found DELETE inside one"),
    ):
        with pytest.raises(ToolError) as caught:
            check_query(query)
        assert str(caught.value).startswith(message)
        assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT * FROM absent", "ask: no such table: absent"),
        ("SELECT note FROM orders", "ask found binary values; select them as hex(...)"),
        ("SELECT 1 AS a, 2 AS a", "ask: two columns are called `a`; name them apart with AS"),
        ("SELECT 9e999 AS a", "ask gave a result that is not JSON"),
        ("SELECT :missing AS a", "ask: "),
    ],
)
def test_what_a_query_meets_is_the_rows_error(shop: Path, query: str, message: str) -> None:
    ran = ask(shop, query, "SELECT 1 AS fine")
    assert ran.errors == [("tool", "r"), None]
    assert ran.rows[0]["_error"]["message"].startswith(message)


def test_more_rows_than_the_cap_are_an_error_and_not_cut(shop: Path) -> None:
    many = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {}) SELECT n FROM c"
    declared = FREE + "   max_rows 5"
    ran = ask(shop, many.format(5), many.format(6), declared=declared)
    assert len(ran.rows[0]["r"]) == 5
    assert ran.rows[1]["_error"]["message"] == "ask found more than 5 rows; add a LIMIT, or raise the trait `max_rows`"
    assert ask(shop, many.format(1001)).errors == [("tool", "r")]


ENDLESS = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) AS n FROM c"


def test_a_query_that_takes_too_long_is_stopped(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.monotonic()
    ran = ask(shop, ENDLESS, "SELECT 1 AS n", declared=FREE + "   timeout 200ms")
    assert ran.errors == [("timeout", "r"), None]
    monkeypatch.setattr(sql, "TIME_LIMIT", 0.2)
    ran = ask(shop, ENDLESS)
    assert ran.errors == [("timeout", "r")]
    assert ran.rows[0]["_error"]["message"] == "ask ran longer than 0.2 s"
    assert time.monotonic() - began < 5


def test_a_query_that_the_run_gave_up_ends_on_its_thread_too(shop: Path) -> None:
    import threading

    began = time.monotonic()
    ask(shop, *(f"{ENDLESS} WHERE {number} = {number}" for number in range(8)), run_timeout=0.3)
    while any(thread.name == "helix-tool" for thread in threading.enumerate()):
        assert time.monotonic() - began < 5
        time.sleep(0.01)


def test_parameters_are_bound_and_never_pasted(shop: Path) -> None:
    declared = (
        'tool ask(item: text, least: float?) -> list[{ id: int }] from sql "sqlite:shop.db"   '
        'query "SELECT id FROM orders WHERE item = :item AND (:least IS NULL OR price >= :least)"'
    )
    text = f"workflow t(q: text, p: float?)\n{declared}\nr = ask(q, p)\noutput r"
    rows = [{"q": "pen"}, {"q": "pen", "p": 2.0}, {"q": "' OR 1=1 --"}, {"q": "ไทย", "p": 1}]
    assert run(text, rows, folder=shop).column("r") == [[{"id": 1}], [], [], [{"id": 2}]]


def test_lists_and_records_are_bound_as_json(shop: Path) -> None:
    declared = (
        'tool ask(ids: list[int]) -> table from sql "sqlite:shop.db"   '
        'query "SELECT item FROM orders WHERE id IN (SELECT value FROM json_each(:ids)) ORDER BY id"'
    )
    text = f"workflow t(q: list[int])\n{declared}\nr = ask(q)\noutput r"
    assert run(text, [{"q": [1, 3]}], folder=shop).column("r") == [[{"item": "pen"}, {"item": "ink"}]]


def test_equal_queries_are_asked_once(shop: Path) -> None:
    ran = ask(shop, *["SELECT 1 AS n"] * 5)
    assert (ran.report.calls, ran.report.merged) == (1, 4)


def test_a_result_that_does_not_fit_its_type_is_the_rows_error(shop: Path) -> None:
    declared = 'tool ask(query: text) -> list[{ id: int }] from sql "sqlite:shop.db"'
    ran = ask(shop, "SELECT item AS id FROM orders", "SELECT id, item FROM orders LIMIT 1", declared=declared)
    assert "does not fit at `/0/id`" in ran.rows[0]["_error"]["message"]
    assert ran.rows[1]["r"] == [{"id": 1}]


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ('tool ask(query: text) -> table from sql "sqlite:none.db"', "sql tool `ask`: the database"),
        (FREE.replace("(query: text)", "(q: text)") + '   query "DELETE FROM orders"', "sql tool `ask`: only queries"),
        ('tool ask(query: text) -> table from sql "sqlite:."', "sql tool `ask`: the database"),
    ],
)
def test_what_is_wrong_with_a_tool_is_found_before_the_first_call(shop: Path, declared: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        ask(shop, "SELECT 1", declared=declared)
    assert str(caught.value).startswith(message)


def test_a_file_that_is_no_database_is_found_before_any_call_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "shop.db").write_text("not a database, but long enough to be looked at " * 50)
    before = content(tmp_path)
    with pytest.raises(OptionError, match=r"sql tool `\w+`: shop\.db cannot be read: file is not a database"):
        ask(tmp_path, "SELECT 1 AS n")
    assert content(tmp_path) == before


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT * FROM nowhere WHERE id = :key", "no such table: nowhere"),
        ("SELECT absent FROM orders WHERE id = :key", "no such column: absent"),
        ("SELECT absent(id) FROM orders WHERE id = :key", "no such function: absent"),
    ],
)
def test_what_a_tools_own_query_names_is_looked_up_before_any_call(shop: Path, query: str, message: str) -> None:
    declared = f'tool find(key: int) -> table from sql "sqlite:shop.db" query "{query}"'
    with pytest.raises(OptionError) as caught:
        run(f"workflow t(q: int)\n{declared}\nr = find(q)\noutput r", [{"q": 1}], folder=shop)
    assert str(caught.value) == f"sql tool `find`: {message}"


def test_connections_are_closed_with_the_run(shop: Path) -> None:
    ask(shop, *(f"SELECT {number} AS n" for number in range(20)))
    gc.collect()
    assert not [each for each in gc.get_objects() if isinstance(each, sqlite3.Connection) and _is_open(each)]


def _is_open(connection: sqlite3.Connection) -> bool:
    try:
        connection.total_changes  # noqa: B018
    except sqlite3.ProgrammingError:
        return False
    return True
