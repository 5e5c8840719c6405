"""Contract 2 and 17 for agents, from the command line: what a model or a tool does wrong, limits, and what is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from running import Folder

TOOLS = """def orders(customer):
    if customer == "flood":
        return "x" * 3_000_000
    if customer == "nan":
        return float("nan")
    if customer == "set":
        return {1, 2}
    if customer == "raise":
        raise RuntimeError("down \\x1b[31m for now")
    if customer == "exit":
        raise SystemExit(3)
    return [{"id": 7}]
"""
TEXT = """workflow w(ticket: text)
tool orders(customer: text) -> json from python "shop:orders" effects read
answer = agent -> { text: text } { tools [orders] max_turns 3 system "Be kind." user "{{ ticket }}" trace on }
output answer.answer.text as text, answer.trace
"""


@pytest.fixture
def shop(folder: Folder) -> Folder:
    """A folder with the workflow, its tool, and a model that asks for the customer whom its ticket names."""
    folder.workflow(TEXT)
    folder.write("shop.py", TOOLS)
    folder.rules(
        {"turn": 1, "match": "^bad tool", "calls": [{"tool": "rm", "args": {"path": "/"}}]},
        {"turn": 1, "match": "^bad args", "calls": [{"tool": "orders", "args": {"customer": ["a"], "x": 1}}]},
        {"turn": 1, "match": "^prose", "reply": "Sure! I will look that up for you."},
        {"match": "^always", "calls": [{"tool": "orders", "args": {"customer": "a"}}]},
        {"prompt_contains": "always", "calls": [{"tool": "orders", "args": {"customer": "a"}}]},
        {"turn": 1, "match": "^customer (\\w+)", "calls": [{"tool": "orders", "args": {"customer": "\\1"}}]},
        {"answer": {"text": "good"}},
    )
    return folder


def test_17_what_a_model_or_a_tool_does_wrong_harms_no_row(shop: Folder, quick: Callable[..., Any]) -> None:
    tickets = [
        "bad tool",
        "bad args",
        "prose",
        *(f"customer {each}" for each in ("flood", "nan", "set", "raise", "exit")),
    ]
    shop.rows(*({"ticket": ticket} for ticket in tickets))
    done = quick("-o", "out.jsonl")
    assert done.returncode == 0, done.stderr
    rows = shop.read()
    assert [row["text"] for row in rows] == ["good"] * len(tickets)
    first = [row["trace"][0] for row in rows]
    assert first[2]["problem"].startswith("the reply is not JSON")
    told = [turn["calls"][0].get("error", "") if turn["calls"] else "" for turn in first]
    assert told[0] == "there is no tool `rm`; tools: orders"
    assert told[1] == "orders has no parameter `x`; parameters: customer"
    assert told[3] == ""
    assert len(first[3]["calls"][0]["result"]) == 3_000_000
    assert ["not JSON" in each for each in told[4:6]] == [True, True]
    assert told[6].startswith("orders raised RuntimeError: down")
    assert told[7] == "orders raised SystemExit: 3"
    assert "Traceback" not in done.stderr


def test_02_an_agent_without_an_answer_is_an_error_of_its_row(shop: Folder, quick: Callable[..., Any]) -> None:
    shop.rows({"ticket": "customer a"}, {"ticket": "always"}, {"ticket": "customer b"})
    done = quick("-o", "out.jsonl")
    assert done.returncode == 3
    rows = shop.read()
    assert [row["text"] for row in rows] == ["good", None, "good"]
    error = rows[1]["_error"]
    assert (error["step"], error["kind"], error["attempts"]) == ("answer", "limit", 3)
    assert error["message"] == "it asks for calls in its last turn, the 3. of 3"
    assert json.loads(error["raw"])["tool"] == "orders"
    assert "1 agent of step answer came to a limit before it had an answer" in done.stderr
    assert "stopped early" not in done.stderr


def test_17_native_calls_and_calls_in_json_come_to_the_same(shop: Folder, quick: Callable[..., Any]) -> None:
    shop.rows({"ticket": "customer a"}, {"ticket": "bad tool"})
    assert quick("-o", "out.jsonl").returncode == 0
    text = (shop.path / "replies.toml").read_text()
    shop.write("replies.toml", text.replace("[engine]\n", "[engine]\ntool_calls = true\n"))
    assert quick("-o", "native.jsonl").returncode == 0

    def results(name: str) -> list[Any]:
        return [(row["text"], [turn["calls"] for turn in row["trace"]]) for row in shop.read(name)]

    assert results("native.jsonl") == results("out.jsonl")
