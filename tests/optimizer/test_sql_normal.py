"""The normal form of SQL: one text for queries that differ in layout alone, and the same program to SQLite."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix.sql.lexer import tokens_of
from helix.sql.normal import normal_query

SCHEMA = """
CREATE TABLE Orders (Id INTEGER PRIMARY KEY, customer TEXT, total REAL, "desc" TEXT, note);
CREATE INDEX by_customer ON Orders (customer, total);
CREATE TABLE customers (name TEXT UNIQUE COLLATE NOCASE, city TEXT, "a b" INT);
INSERT INTO Orders VALUES (1, 'ada', 3.5, 'x', NULL), (2, 'bob', 1, 'y', 'n'), (3, 'ada', 2, NULL, 7);
INSERT INTO customers VALUES ('ada', 'Paris', 1), ('bob', 'Rome', 2);
"""


def program(database: sqlite3.Connection, query: str) -> tuple[Any, ...]:
    """What SQLite makes of a query: its instructions and the names of its columns, or what it says against it."""
    given_values = {"c": "ada", "n": 2}
    try:
        steps = database.execute(f"EXPLAIN {query}", given_values).fetchall()
        cursor = database.execute(query, given_values)
        return steps, [column[0] for column in cursor.description], cursor.fetchall()
    except sqlite3.Error as error:
        return (str(error),)


# --- queries, written in many ways --------------------------------------------------------------------------------

SPACES = st.sampled_from([" ", "  ", "\n", "\t", " -- a remark (\n", " /* SELECT */ "])
COLUMNS = ["Id", "id", "customer", "o.total", "Orders.total", '"desc"', "o.note", "[customer]", "total", "name", "city"]
SINGLE = ["Orders", "orders o", "Orders AS o", "main.orders as o", "Orders o"]
PAIRED = ["Orders o JOIN customers c ON (o.customer = c.name)", "orders AS o left join customers on customer == name"]


def spelled(word: str) -> st.SearchStrategy[str]:
    """A keyword in any case."""
    return st.sampled_from([word.upper(), word.lower(), word.capitalize()])


def bracketed(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """The same within one or more pairs of brackets, or none."""
    return st.one_of(inner, inner, inner.map(lambda text: f"({text})"), inner.map(lambda text: f"(( {text}))"))


OPERANDS = st.one_of(
    st.sampled_from(COLUMNS),
    st.sampled_from(["1", "2.5", "'ada'", ":c", ":n", "NULL", "x'01'", "lower(customer)", "ABS ( total )", "-1"]),
    st.sampled_from(["(SELECT max(total) FROM orders)", "count(*)", "total + 1 * 2", "(total + 1) * 2", "a || b"]),
)
PREDICATES = st.one_of(
    st.builds(
        lambda left, sign, right: f"{left}{sign}{right}", OPERANDS,
        st.sampled_from(["=", " == ", " <> ", "!=", "<", " >= ", " IS ", " is not "]), OPERANDS,
    ),
    st.builds(
        lambda left, low, high: f"{left} between {low} AND {high}", OPERANDS, bracketed(OPERANDS), bracketed(OPERANDS)
    ),
    st.builds(lambda left, right: f"{left} IN ({right}, {left})", OPERANDS, OPERANDS),
    st.builds(lambda left: f"{left} in (select customer from Orders)", OPERANDS),
    st.builds(lambda left: f"{left} NOT LIKE 'a%'", OPERANDS),
    st.sampled_from(["note ISNULL", "note IS NOT NULL", "exists (select 1 from customers c where (name = customer))"]),
)  # fmt: skip
CONDITIONS = st.recursive(
    bracketed(PREDICATES),
    lambda inner: bracketed(
        st.one_of(
            st.builds(lambda a, word, b: f"{a} {word} {b}", inner, st.one_of(spelled("and"), spelled("or")), inner),
            st.builds(lambda word, a: f"{word} {a}", spelled("not"), inner),
        )
    ),
    max_leaves=5,
)
ITEMS = st.one_of(
    st.sampled_from([*COLUMNS, "*", "o.*"]),
    st.builds(lambda value, word: f"{value} {word} x", OPERANDS, st.sampled_from(["AS", "as", ""])),
    OPERANDS,
    st.sampled_from(["case when total > 2 then 'much' else 'little' end", "case total WHEN 1 THEN 2 END as k"]),
)


@st.composite
def queries(draw: st.DrawFn) -> str:
    """Queries of many forms; some of them SQLite refuses."""
    items = draw(st.lists(ITEMS, min_size=1, max_size=3))
    tables = draw(st.sampled_from(SINGLE + PAIRED))
    words = [draw(spelled("select")), draw(st.sampled_from([", ", ","])).join(items), draw(spelled("from")), tables]
    if draw(st.booleans()):
        words += [draw(spelled("where")), draw(CONDITIONS)]
    if draw(st.integers(0, 4)) == 0:
        words += ["GROUP by", draw(st.sampled_from(COLUMNS)), "having", draw(CONDITIONS)]
    if draw(st.booleans()):
        words += [draw(spelled("order")), draw(spelled("by")), draw(st.sampled_from(["1", "total desc", "x", "(1)"]))]
    if draw(st.booleans()):
        words += [draw(spelled("limit")), "2"]
    gaps = [draw(SPACES) for _ in words]
    text = "".join(f"{gap}{word}" for gap, word in zip(gaps, words, strict=True))
    if draw(st.integers(0, 5)) == 0:
        text = f"select * from ({text}) q"
    if draw(st.integers(0, 5)) == 0:
        text = f"{text} UNION all {text}"
    return text + draw(st.sampled_from(["", ";", " ; ", "\n"]))


@given(queries())
def test_the_normal_form_is_the_same_program(query: str) -> None:
    database = sqlite3.connect(":memory:")
    database.executescript(SCHEMA)
    normal = normal_query(query)
    try:
        assert program(database, normal) == program(database, query)
    finally:
        database.close()
    assert normal_query(normal) == normal


@given(st.data())
def test_layout_keywords_and_brackets_make_no_difference(data: st.DataObject) -> None:
    pieces = ["select", "id", ",", "count(*)", "as", "n", "from", "orders", "as", "o", "where", "(", "total", "<>", "1",
              ")", "and", "not", "(", "customer", "is", "null", ")", "limit", "3"]  # fmt: skip
    names = {"id", "n", "orders", "o", "total", "customer"}
    written = ""
    for piece in pieces:
        shown = {"<>": st.sampled_from(["<>", "!="]), "count(*)": st.sampled_from(["count(*)", "COUNT ( * )"])}.get(
            piece, st.just(piece) if piece in names else spelled(piece)
        )
        written += data.draw(SPACES) + data.draw(shown)
    assert normal_query(written) == (
        "SELECT id, COUNT(*) AS n FROM orders AS o WHERE total <> 1 AND NOT customer IS NULL LIMIT 3"
    )


# --- single cases -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "normal"),
    [
        ("select count( * ) from t", "SELECT count( * ) FROM t"),
        ("select a.b x, (select 1) y from t a", "SELECT a.b AS x, (SELECT 1) AS y FROM t AS a"),
        ("select replace(a, 'x', '') r, desc from t", "SELECT REPLACE(a, 'x', '') AS r, desc FROM t"),
        ("select my_own(a) r from t", "SELECT my_own(a) AS r FROM t"),
        ("select a from t where x between 1 and (2 = 2)", "SELECT a FROM t WHERE x BETWEEN 1 AND (2 = 2)"),
        ("select a from t where not (a or b) and (c or d)", "SELECT a FROM t WHERE NOT (a OR b) AND (c OR d)"),
        ("select a from t where (((a = 1)) and (b=2)) or (c=3)", "SELECT a FROM t WHERE a = 1 AND b = 2 OR c = 3"),
        ("select a from t where x in ((select 1))", "SELECT a FROM t WHERE x IN ((SELECT 1))"),
        ("select a from t where a = 'it''s' -- so", "SELECT a FROM t WHERE a = 'it''s'"),
        ('select "x" from t where [y z]==`w`', 'SELECT "x" FROM t WHERE [y z] = `w`'),
        ("select max(a) m from t where min(a) > 1", "SELECT MAX(a) AS m FROM t WHERE min(a) > 1"),
        ("with z(a) as (select 1) select * from z", "WITH z(a) AS (SELECT 1) SELECT * FROM z"),
        ("select 1 -- so", "SELECT 1 -- so"),
        ("select 1+1 /* so */ ;", "SELECT 1+1 /* so */"),
        ("select 1 as x -- so", "SELECT 1 AS x"),
        ("values (1), (2)", "values (1), (2)"),
    ],
)
def test_normal_form(query: str, normal: str) -> None:
    assert normal_query(query) == normal


@pytest.mark.parametrize(
    "statement",
    [
        "selec a from t",
        "select a from t; select b from t",
        "delete from t",
        "select 'open from t",
        "select a from t where and",
        "",
        "(" * 3000,
        "\x00",
    ],
)
def test_what_cannot_be_read_stays_as_it_is(statement: str) -> None:
    assert normal_query(statement) == statement


@given(st.text(max_size=40))
def test_any_text_is_survived(statement: str) -> None:
    normal = normal_query(statement)
    assert normal_query(normal) == normal
    tokens_of(statement)
