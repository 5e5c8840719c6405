"""Tools in Python beside their text form: all kinds and traits, through `helix fmt` and plan files."""

from __future__ import annotations

import json

import pytest
from dsl_same import same

import helix as hx
from helix import api
from helix.grammar.format import format_workflow
from helix.grammar.parse import parse
from helix.logical import Invoke, every_node
from helix.plan_json import from_json, to_json
from helix.services import Tool

TEXT = """workflow w(city: text, n: int)
tool weather(city: text, days: int) -> json from http "GET https://api.example.org/{city}" effects read,
  header "Authorization: Bearer ${TOKEN}", header "Accept: application/json", hosts "cdn.example.org, b.example.org",
  freshness "5m", speculate true, fee 0.5, max_bytes 1000
tool search(query: text) -> list[text] from mcp "docs:search-pages" lane "docs", concurrency 3, open_world false
tool sales(query: text) -> table from sql "duckdb:shop.duckdb" reads "orders, shop.items", freshness until_write,
  rate_group "db", cancellable true, description "All sales."
a = weather(city, n)
b = search(city)
c = sales("SELECT 1 AS a")
output a, b, c"""


def test_all_kinds_and_traits() -> None:
    weather = hx.http_tool(
        "weather",
        "GET https://api.example.org/{city}",
        {"city": str, "days": int},
        effects="read",
        header=["Authorization: Bearer ${TOKEN}", "Accept: application/json"],
        hosts=["cdn.example.org", "b.example.org"],
        freshness="5m",
        speculate=True,
        fee=0.5,
        max_bytes=1000,
    )
    search = hx.mcp_tool(
        "search", "docs:search-pages", {"query": str}, returns=list[str], lane="docs", concurrency=3, open_world=False
    )
    sales = hx.sql_tool(
        "sales",
        "duckdb:shop.duckdb",
        reads=["orders", "shop.items"],
        freshness="until_write",
        rate_group="db",
        cancellable=True,
        description="All sales.",
    )

    @hx.workflow
    def w(city: str, n: int):
        a = weather(city, n)
        b = search(city)
        c = sales("SELECT 1 AS a")
        return hx.output(a, b, c)

    same(w, TEXT)


def tools(text: str) -> dict[str, Tool]:
    """The tools of a workflow, as its plan file gives them back."""
    plan = api.check(hx.loads(text)).plan
    back = from_json(json.loads(json.dumps(to_json(plan))))
    assert back.sink.id == plan.sink.id
    return {node.tool.name: node.tool for node in every_node(back.sink) if isinstance(node, Invoke)}


def test_what_the_plan_knows() -> None:
    found = tools(TEXT)
    weather, search, sales = found["weather"], found["search"], found["sales"]
    assert weather.headers == ("Authorization: Bearer ${TOKEN}", "Accept: application/json")
    assert weather.hosts == ("cdn.example.org", "b.example.org")
    assert (weather.open_world, weather.may_be_guessed, weather.holds, weather.fee) == (True, True, 300, 0.5)
    assert (search.open_world, search.hinted, search.effects, search.may_be_guessed) == (False, True, "unknown", False)
    assert (sales.reads, sales.freshness, sales.rate_group) == (("orders", "shop.items"), Tool.UNTIL_WRITE, "db")
    assert (sales.effects, sales.cancellable, sales.may_be_guessed) == ("read", True, True)


def test_the_layout_is_stable_and_the_plan_the_same() -> None:
    once = format_workflow(parse(TEXT))
    assert format_workflow(parse(once)) == once
    assert max(map(len, once.splitlines())) <= 120
    assert api.check(hx.loads(once)).plan.sink.id == api.check(hx.loads(TEXT)).plan.sink.id


def test_open_worlds_are_guessed_only_where_a_tool_says_so() -> None:
    def guessed(traits: str, origin: str = 'http "GET https://a.example.org/"') -> bool:
        text = f"workflow w(a: text)\ntool t(a: text) -> json from {origin}   {traits}\nx = t(a)\noutput x"
        return tools(text)["t"].may_be_guessed

    assert not guessed("effects read")
    assert guessed("effects read, speculate true")
    assert guessed("effects read, open_world false")
    assert not guessed("effects read, speculate true, freshness 0")
    assert not guessed("effects idempotent_write, speculate true")
    assert not guessed("speculate true")
    assert guessed("effects read", 'python "m:f"')
    assert not guessed("effects read, speculate false", 'python "m:f"')
    assert not guessed("effects read", 'mcp "s:t"')


def test_a_tool_that_is_no_function_is_called_in_workflows_alone() -> None:
    made = hx.http_tool("weather", "GET https://api.example.org/")
    with pytest.raises(hx.HelixError, match="HTTP tool `weather` is called only inside a function marked"):
        made()
