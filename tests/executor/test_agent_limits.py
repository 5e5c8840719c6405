"""Agents in process: their limits, replies that cannot be used, and engines that fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from agents_support import BOTH, ROWS, calls, go, workflow
from running import run

from helix import agents
from helix.executor.engines.base import Message
from helix.types import TEXT

# --- limits ---


@BOTH
def test_in_the_last_turn_a_model_may_only_answer(shop: Path, native: bool) -> None:
    rules = [{"turn": [1, 2], "calls": calls(("orders", {"customer": "ann"}))}, {"turn": 3, "answer": "at last"}]
    ran = go(workflow("max_turns 3"), rules, shop, native=native)
    assert ran.column("answer") == ["at last"]
    assert ran.report.steps["answer"].at_limit == 1
    last = ran.engine.requests[2]
    assert last.answers_only
    assert "No more calls can be made" in last.messages[-1].content
    assert not any(request.answers_only for request in ran.engine.requests[:2])
    if not native:
        assert last.schema == agents.turn_schema((), TEXT, last=True)


@BOTH
def test_a_model_that_goes_on_calling_in_its_last_turn_fails_the_row(shop: Path, native: bool) -> None:
    ran = go(workflow("max_turns 2"), [{"calls": calls(("pay", {"amount": 1}))}], shop, native=native)
    assert ran.errors == [("limit", "answer")]
    assert ran.report.failed_rows == 1
    assert ran.report.stopped is None
    assert (shop / "paid.txt").read_text() == "1 none\n"
    assert ran.engine.calls == 2


def test_a_limit_may_fail_the_row_instead(shop: Path) -> None:
    rules = [{"calls": calls(("orders", {"customer": "ann"}))}]
    ran = go(workflow("max_turns 3 at_limit fail"), rules, shop)
    assert ran.errors == [("limit", "answer")]
    assert ran.rows[0]["_error"]["message"] == "no answer within 3 turns"
    assert ran.engine.calls == 3
    nothing = go(workflow("max_turns 3 at_limit fail", options="(on_error: null)"), rules, shop)
    assert nothing.column("answer") == [None]
    assert nothing.errors == [None]


def test_a_row_without_an_answer_is_a_failed_row_after_a_sort_too(shop: Path) -> None:
    text = workflow("max_turns 2 at_limit fail").replace("output", "sort by answer\noutput")
    rules = [{"row": 1, "answer": "b"}, {"row": 2, "answer": "a"}, {"calls": calls(("orders", {"customer": "ann"}))}]
    rows = [{"ticket": ticket} for ticket in ("x", "y", "z")]
    ran = go(text, rules, shop, rows=rows, max_failed=1)
    assert [(row["_row"], row["answer"]) for row in ran.rows] == [(2, "a"), (1, "b"), (0, None)]
    assert ran.errors == [None, None, ("limit", "answer")]
    assert (ran.report.failed_rows, ran.report.steps["answer"].failed, ran.report.stopped) == (1, 1, None)


def test_tokens_bound_an_agent(shop: Path) -> None:
    rules = [{"call": [1, 2, 3, 4], "calls": calls(("orders", {"customer": "ann"}))}, {"answer": "x"}]
    free = go(workflow("max_turns 9"), rules, shop)
    assert free.engine.calls == 5
    spent = [-(-sum(len(message.content) for message in request.messages) // 4) for request in free.engine.requests[:3]]
    bound = go(workflow(f"max_turns 9 max_total_tokens {sum(spent)}"), rules[1:], shop)
    assert bound.engine.calls == 1
    stopped = go(workflow(f"max_turns 9 max_total_tokens {sum(spent)} at_limit fail"), rules[:1], shop)
    assert stopped.rows[0]["_error"]["message"] == f"no answer within {sum(spent)} tokens"
    assert stopped.engine.calls == 3


def test_time_bounds_an_agent(shop: Path) -> None:
    rules = [{"call": 1, "delay": 30, "calls": calls(("orders", {"customer": "ann"}))}, {"answer": "x"}]
    ran = go(workflow("max_turns 9 max_time 20ms"), rules, shop)
    assert ran.column("answer") == ["x"]
    assert ran.engine.requests[1].answers_only
    assert ran.report.steps["answer"].at_limit == 1


def test_budgets_of_the_run_count_turns_and_calls_of_tools(shop: Path) -> None:
    rules = [{"turn": 1, "calls": calls(("orders", {"customer": "ann"}))}, {"turn": 2, "answer": "x"}]
    for budget, errors in ((3, [None]), (2, [("limit", "answer")]), (1, [("limit", "answer")])):
        ran = go(workflow("max_turns 3"), rules, shop, max_calls=budget)
        assert ran.errors == errors
        assert ran.report.calls == min(budget, 3)


# --- the model's mistakes ---


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("I will look at it.", "the reply is not JSON"),
        ("[1]", "found list [1]"),
        ('{"tool": 3}', 'a call is {"tool", "args"}'),
        ('{"calls": []}', "found record {"),
        ('{"answer": 3}', "the answer is a text, found int 3"),
        ('{"answer": "a", "tool": "orders"}', "found record {"),
        ("", "the reply is empty"),
    ],
)
def test_a_reply_that_says_nothing_usable_is_asked_for_again(shop: Path, said: str, found: str) -> None:
    ran = go(workflow("max_turns 3"), [{"turn": 1, "call": 1, "reply": said}, {"answer": "good"}], shop)
    assert ran.column("answer") == ["good"]
    told = ran.engine.requests[1].messages[-1]
    assert told.role == "user"
    assert found in told.content
    assert told.content.endswith("Reply with one JSON object in one of the forms above.")


def test_replies_that_cannot_be_used_are_bounded(shop: Path) -> None:
    ran = go(workflow("max_turns 9"), [{"reply": "hm"}], shop)
    assert ran.errors == [("schema", "answer")]
    assert ran.engine.calls == 2
    assert ran.rows[0]["_error"]["raw"] == "hm"
    more = go(workflow("max_turns 9", options="(reask: 3)"), [{"reply": "hm"}], shop)
    assert more.engine.calls == 4
    last = go(workflow("max_turns 1"), [{"reply": "hm"}], shop)
    assert last.engine.calls == 1


def test_a_reply_that_was_cut_off_is_an_error_at_once(shop: Path) -> None:
    ran = go(workflow("max_turns 9"), [{"reply": '{"answer": "I th', "finish": "length"}], shop)
    assert ran.errors == [("truncated", "answer")]
    assert ran.engine.calls == 1


def test_json_among_prose_is_found(shop: Path) -> None:
    said = 'Let me see.\n```json\n{"tool": "orders", "args": {"customer": "ann"}}\n```'
    ran = go(workflow("max_turns 3"), [{"turn": 1, "reply": said}, {"answer": "good"}], shop)
    assert ran.column("answer") == ["good"]
    assert ran.engine.requests[1].messages[-2] == Message(role="assistant", content=said)


def test_an_engine_that_fails_fails_the_row(shop: Path) -> None:
    rules = [
        {"turn": 1, "calls": calls(("orders", {"customer": "ann"}))},
        {"turn": 2, "row": 0, "error": 400, "message": "no"},
        {"turn": 2, "answer": "x"},
    ]
    rows = [*ROWS, {"ticket": "customer bob"}]
    ran = go(workflow("max_turns 3"), rules, shop, rows=rows)
    assert ran.errors == [("engine", "answer"), None]
    assert ran.column("answer") == [None, "x"]


def test_a_prompt_that_grew_too_long_is_found_before_the_call(shop: Path) -> None:
    rules = [{"turn": 1, "calls": calls(("long", {"size": 30_000}))}, {"answer": "x"}]
    ran = run(workflow("max_turns 3", tools="long"), ROWS, rules=rules, settings={"max_context": 4000}, folder=shop)
    assert ran.errors == [("prompt.too_long", "answer")]
    assert ran.engine.calls == 1
