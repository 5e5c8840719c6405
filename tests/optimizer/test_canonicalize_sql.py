"""Equal queries become equal steps; what asks for the time or for chance is one of a kind, in plan and run."""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from plan_runs import Ran, run_plan
from rules_support import plan_of

from helix.executor.engines.scripted import ScriptedEngine
from helix.logical import Const, Invoke, LogicalPlan, Render, every_node
from helix.optimizer.driver import choose_rules, optimize
from helix.optimizer.rule import RuleContext
from helix.optimizer.rules.batch_point_lookups import batch_point_lookups
from helix.optimizer.rules.canonicalize_sql import canonicalize_sql
from helix.optimizer.rules.merge_equal_steps import merge_equal_steps
from helix.sql.clock import is_volatile
from helix.templates.template import Template, Text
from helix.traits import traits
from helix.types import TEXT

ASK = 'tool ask(query: text, key: text = "") -> table from sql "sqlite:shop.db"\n'


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder with a small database."""
    database = sqlite3.connect(tmp_path / "shop.db")
    database.executescript("CREATE TABLE orders (Id INTEGER PRIMARY KEY, customer TEXT, total REAL, day TEXT)")
    rows = [(number, f"c{number % 3}", number / 2, f"2026-01-{number + 10}") for number in range(9)]
    database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", rows)
    database.commit()
    database.close()
    return tmp_path


def merged(plan: LogicalPlan) -> LogicalPlan:
    return optimize(plan, None, [canonicalize_sql, merge_equal_steps]).plan


def calls(plan: LogicalPlan) -> list[Invoke]:
    return [node for node in every_node(plan.sink) if isinstance(node, Invoke)]


def both(plan: LogicalPlan, rows: list[dict[str, Any]], folder: Path, **settings: Any) -> tuple[Ran, Ran]:
    better = merged(plan)
    return run_plan(plan, rows, folder=folder, **settings), run_plan(better, rows, folder=folder, **settings)


# --- what merges --------------------------------------------------------------------------------------------------

SAME = [
    ("select total from orders where customer = :key", "SELECT  total FROM orders\nWHERE (customer = :key);"),
    ("select count(*) n from orders o", "SELECT COUNT(*) AS n FROM orders AS o -- all of them"),
    ("select id, total from orders where total != 1", "SELECT id , total from orders where ((total <> 1))"),
]
OTHER = [
    # The name of a column without AS is its text.
    ("select count(*) from orders", "select COUNT(*) from orders"),
    ("select id from orders", "select Id from orders"),
    ("select total from orders where customer = 'C1'", "select total from orders where customer = 'c1'"),
    ("select total from orders where total = 1", "select total from orders where total = 1.0"),
    ("select total from orders where customer = 'a  b'", "select total from orders where customer = 'a b'"),
    ("select random() as r", "SELECT random() AS r"),
    ("select datetime('now') as t", "SELECT datetime('now') AS t"),
    ("select nothing at all", "SELECT nothing at all"),
]


def asking(first: str, second: str) -> LogicalPlan:
    queries = "".join(f"{name} = ask({json.dumps(query)}, key)\n" for name, query in (("a", first), ("b", second)))
    return plan_of(f"workflow w(key: text)\n{ASK}{queries}output a, b")


@pytest.mark.parametrize(("first", "second"), SAME)
def test_equal_queries_are_one_step(shop: Path, first: str, second: str) -> None:
    plan = asking(first, second)
    assert len(calls(merged(plan))) == 1
    plain, better = both(plan, [{"key": "c1"}, {"key": "c2"}], shop)
    assert better.rows == plain.rows
    assert better.report.calls < plain.report.calls or "count" in first


@pytest.mark.parametrize(("first", "second"), OTHER)
def test_other_queries_are_two(shop: Path, first: str, second: str) -> None:
    plan = asking(first, second)
    assert len(calls(merged(plan))) == 2
    if "random" not in first and "now" not in first:
        plain, better = both(plan, [{"key": "c1"}, {"key": "c2"}], shop)
        assert better.rows == plain.rows


def test_a_tools_own_query_is_put_in_normal_form(shop: Path) -> None:
    plan = plan_of("""
workflow w(key: text)
tool find(key: text) -> table from sql "sqlite:shop.db" query "select total from orders where (customer=:key)"
a = find(key)
output a
""")
    better = optimize(plan, None, [canonicalize_sql]).plan
    assert calls(better)[0].tool.query == "SELECT total FROM orders WHERE customer = :key"
    assert run_plan(better, [{"key": "c1"}], folder=shop).rows == run_plan(plan, [{"key": "c1"}], folder=shop).rows
    assert canonicalize_sql(better, RuleContext()) is better


def test_a_query_that_is_put_together_from_constants_is_a_constant(shop: Path) -> None:
    plan = plan_of(f"""
workflow w(key: text)
{ASK}let table = "orders"
a = ask("select total from orders")
b = ask("SELECT total  FROM " + table)
output a, b
""")
    better = optimize(plan, None, choose_rules()).plan
    assert len(calls(better)) == 1
    assert run_plan(better, [{"key": "x"}], folder=shop).rows == run_plan(plan, [{"key": "x"}], folder=shop).rows


def test_a_query_that_a_template_writes_without_holes_is_a_constant() -> None:
    plan = plan_of(f'workflow w(key: text)\n{ASK}a = ask("x", key)\noutput a')
    (call,) = calls(plan)
    written = Render(template=Template(segments=(Text(text="select  1"),)), args=())
    changed = replace(plan, sink=replace(plan.sink, columns=(("a", replace(call, args=(written, call.args[1]))),)))
    (better,) = calls(canonicalize_sql(changed, RuleContext()))
    assert better.args[0] == Const(type=TEXT, json='"SELECT 1"')


@pytest.mark.parametrize("query", ['"select {{ key }}"', "key", 'lower("SELECT 1")'])
def test_a_query_that_a_row_writes_stays(query: str) -> None:
    plan = plan_of(f"workflow w(key: text)\n{ASK}a = ask({query})\noutput a")
    assert canonicalize_sql(plan, RuleContext()).id == plan.id


def test_other_tools_stay() -> None:
    plan = plan_of("""
workflow w(key: text)
tool ask(query: text) -> json from python "lib:ask" effects read
a = ask("select  1")
output a
""")
    assert canonicalize_sql(plan, RuleContext()) is plan


@pytest.mark.parametrize(
    "query",
    [
        "select nothing at all",
        "select missing  from orders",
        "select 1 from  nowhere",
        "delete  from orders",
        "select (",
        "select total from orders where  customer = :key and abs(-9223372036854775807 - id) > 0",
    ],
)
def test_errors_are_told_in_the_same_words(shop: Path, query: str) -> None:
    plan = asking(query, "select total from orders where customer = :key")
    plain, better = both(plan, [{"key": "c1"}, {"key": "c2"}], shop)
    assert better.rows == plain.rows
    assert plain.rows[0]["_error"] is not None


# --- volatile queries ---------------------------------------------------------------------------------------------

VOLATILE = [
    "SELECT random() AS r",
    "SELECT abs( RANDOM ( ) ) AS r",
    "SELECT hex(randomblob(4)) AS r",
    'SELECT "random"() AS r',
    "SELECT current_timestamp AS r",
    "SELECT CURRENT_DATE AS r",
    "SELECT datetime('now') AS r",
    "SELECT strftime('%s') AS r",
    "SELECT date(lower('NOW'), '+1 day') AS r",
    'SELECT julianday("now") AS r',
    "SELECT unixepoch() AS r",
    "SELECT total FROM orders WHERE day > date(:key)",
    "SELECT last_insert_rowid() AS r",
]
SETTLED = [
    "SELECT date(day, '+1 day') AS r FROM orders",
    "SELECT strftime('%Y', day) AS r FROM orders",
    "SELECT date('2026-01-01') AS r",
    "SELECT 'random()' AS r -- datetime('now')",
    "SELECT date AS r FROM (SELECT day AS date FROM orders)",
    "SELECT o.day AS current_day FROM orders o",
    "SELECT datetime(day, :key) AS r FROM orders",
]


@pytest.mark.parametrize("query", VOLATILE)
def test_what_asks_for_the_time_or_for_chance_is_volatile(query: str) -> None:
    assert is_volatile(query)


@pytest.mark.parametrize("query", SETTLED)
def test_what_reads_the_database_alone_is_not(query: str) -> None:
    assert not is_volatile(query)


def own(query: str, more: str = "") -> LogicalPlan:
    """Two equal steps of a tool with this query of its own."""
    return plan_of(f"""
workflow w(key: text)
tool find(key: text) -> table from sql "sqlite:shop.db" query {json.dumps(query)}{more}
a = find(key)
b = find(key)
output a, b
""")


def test_a_volatile_query_is_one_of_a_kind(shop: Path) -> None:
    plan = own("select random() as r")
    assert calls(plan)[0].tool.freshness == "0"
    assert not traits(calls(plan)[0]).deterministic
    assert len(calls(merged(plan))) == 2
    ran = run_plan(plan, [{"key": "x"}] * 3, folder=shop)
    assert ran.report.calls == 6
    assert len({row[name][0]["r"] for row in ran.rows for name in "ab"}) == 6


def test_what_a_tool_declares_counts(shop: Path) -> None:
    held = own("select random() as r", ", freshness 1h")
    assert len(calls(merged(held))) == 1
    ran = run_plan(held, [{"key": "x"}] * 3, folder=shop)
    assert ran.report.calls == 1
    never = own("select total from orders where customer = :key", ", freshness 0")
    assert len(calls(merged(never))) == 2
    assert optimize(never, None, [batch_point_lookups]).plan.id == never.id
    assert run_plan(never, [{"key": "c1"}] * 3, folder=shop).report.calls == 6


def test_a_python_tool_may_be_never_fresh_too() -> None:
    def toss(key: str) -> int:
        return next(coins)

    coins = itertools.count()
    for more, tosses in (("", 1), (", freshness 0", 4)):
        plan = plan_of(f"""
workflow w(key: text)
tool toss(key: text) -> int from python "lib:toss" effects read{more}
a = toss(key)
b = toss(key)
output a, b
""")
        ran = run_plan(merged(plan), [{"key": "x"}] * 2, callables={"toss": toss})
        assert ran.report.calls == tosses


def test_a_volatile_query_that_comes_with_the_row_is_made_each_time(shop: Path) -> None:
    plan = plan_of(f"workflow w(key: text)\n{ASK}a = ask(key)\nb = ask(key)\noutput a, b")
    # Nobody knows before the run: the steps are two in the plan, and one or two in the run.
    assert len(calls(merged(plan))) == 2
    for query, count in (("select random() as r", 6), ("select 1 as r", 1), ("select r", 1), ("select 'open", 6)):
        assert run_plan(plan, [{"key": query}] * 3, folder=shop).report.calls == count


def test_constant_queries_of_one_step_are_known_before_the_run(shop: Path) -> None:
    for query, count in (("select random() as r", 2), ("select 1 as r", 1)):
        assert len(calls(merged(asking(query, query)))) == count


def test_a_model_that_writes_queries(shop: Path) -> None:
    plan = plan_of(f"""
workflow w(key: text)
{ASK}query = llm {{ user "{{{{ key }}}}" }}
a = ask(query)
output a
""")
    engine = ScriptedEngine(reply=lambda request: "SELECT random() AS r")
    ran = run_plan(plan, [{"key": "one"}, {"key": "two"}, {"key": "two"}], engine=engine, folder=shop)
    assert len({row["a"][0]["r"] for row in ran.rows}) == 3


# --- all rules together -------------------------------------------------------------------------------------------

FIXED: Mapping[str, str] = {
    "by_customer": "select Id, total from orders where customer=:key",
    "again": "SELECT Id, total FROM orders WHERE (customer = :key)",
    "by_id": "select * from orders where Id = :key and total > 1",
    "count": "select count(*) as n from orders where customer = :key",
    "first": "select Id from orders where customer = :key order by Id desc limit 1",
    "wrong": "select abs(id - 9223372036854775807 - 2) as x from orders where customer = :key",
    "much": "select Id from orders where customer >= :key",
}


WRITTEN = [
    "select total from orders where customer=:key",
    "SELECT total  FROM orders WHERE customer = :key",
    "select nothing at all",
    "select 1 as one where :key is not null",
]


def random_workflow(dice: Random) -> str:
    """A workflow of SQL steps, equal ones among them, over rows, items and branches."""
    lines = ["workflow w(key: text, more: list[text])", ASK]
    for name, query in FIXED.items():
        cap = ", max_rows 6" if name == "much" else ""
        lines.append(f'tool {name}(key: text) -> table from sql "sqlite:shop.db" query {json.dumps(query)}{cap}')
    names: list[str] = []

    def call(key: str) -> str:
        if dice.random() < 0.3:
            return f"ask({json.dumps(dice.choice(WRITTEN))}, {key})"
        return f"{dice.choice(list(FIXED))}({key})"

    for number in range(dice.randint(2, 6)):
        name = f"s{number}"
        shape = dice.random()
        key = dice.choice(["key", "key", "lower(key)", '"c1"'])
        if shape < 0.6:
            lines.append(f"{name} = {call(key)}")
        elif shape < 0.8:
            lines.append(f"{name} = for item in more {{\n  inner{number} = {call('item')}\n  yield inner{number}\n}}")
        else:
            lines.append(f'if key > "c1" {{\n  {name} = {call(key)}\n}} else {{\n  {name} = {call(key)}\n}}')
        if dice.random() < 0.2:
            lines.append(f"keep when len(text({name})) > 5")
        names.append(name)
    return "\n".join([*lines, f"output {', '.join(['key', *names])}"])


@pytest.mark.parametrize("seed", range(60))
def test_all_rules_together_change_no_row(shop: Path, seed: int) -> None:
    dice = Random(seed)
    plan = plan_of(random_workflow(dice))
    keys = ["c0", "c1", "c2", "C1", "c9", "1", "", "3"]
    rows: list[dict[str, Any]] = [
        {"key": dice.choice(keys), "more": [dice.choice(keys) for _ in range(dice.randrange(4))]} for _ in range(12)
    ]
    better = optimize(plan, None, choose_rules()).plan
    settings: dict[str, Any] = {"concurrency": dice.choice([1, 4]), "merge": dice.random() < 0.8}
    plain_run, better_run = (run_plan(each, rows, folder=shop, **settings) for each in (plan, better))
    assert better_run.rows == plain_run.rows
    assert better_run.report.calls <= plain_run.report.calls
