"""Agents in process: turns, calls of tools, limits, mistakes of the model, and the transcript that only grows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from agents_support import BOTH, ROWS, calls, go, tail, workflow
from caching_engine import CachingEngine
from running import run

from helix import agents
from helix.errors import EngineError, OptionError
from helix.executor.agent_prompt import MOST_SHOWN
from helix.executor.engines.base import Reply, Request
from helix.executor.engines.scripted import ScriptedEngine
from helix.grammar.bind import bind
from helix.grammar.parse import parse
from helix.types import TEXT

# --- turns ---


@BOTH
def test_an_agent_calls_a_tool_and_answers(shop: Path, native: bool) -> None:
    rules = [
        {"turn": 1, "match": r"customer (\w+)", "calls": calls(("orders", {"customer": r"\1"}))},
        {"turn": 2, "answer": "You have one order."},
    ]
    ran = go(workflow("max_turns 4"), rules, shop, native=native)
    assert ran.column("answer") == ["You have one order."]
    step = ran.report.steps["answer"]
    assert (step.turns, step.tool_calls, step.tool_errors, step.at_limit, step.calls) == (2, 1, 0, 0, 3)
    assert tail(ran.engine, 2) == '{"tool": "orders", "result": [{"id": 7, "customer": "ann"}]}'
    first = ran.engine.requests[0]
    assert bool(first.tools) == native
    assert (first.schema is None) == native


@BOTH
def test_a_prompt_is_the_one_before_with_more_at_its_end(shop: Path, native: bool) -> None:
    rules = [
        {"turn": [1, 2, 3], "calls": calls(("orders", {"customer": "ann"}), ("orders", {"customer": "nobody"}))},
        {"turn": 4, "answer": "done"},
    ]
    ran = go(workflow("max_turns 6"), rules, shop, native=native)
    requests = ran.engine.requests
    assert len(requests) == 4
    for before, after in pairwise(requests):
        assert after.messages[: len(before.messages)] == before.messages
        assert after.messages[len(before.messages)].role == "assistant"
        assert (after.tools, after.model, after.temperature) == (before.tools, before.model, before.temperature)
    said = requests[1].messages[len(requests[0].messages)]
    assert bool(said.calls) == native


@BOTH
@pytest.mark.parametrize(
    ("returns", "answer"),
    [("text", "hm"), ("{ ok: bool, n: int }", {"ok": True, "n": 3}), ('choice["yes", "no"]', "no"), ("list[int]", [1])],
)
def test_an_answer_has_the_type_of_the_step(shop: Path, native: bool, returns: str, answer: Any) -> None:
    ran = go(workflow("max_turns 3", returns=returns), [{"answer": answer}], shop, native=native)
    assert ran.column("answer") == [answer]


@BOTH
def test_an_answer_that_does_not_fit_is_asked_for_again(shop: Path, native: bool) -> None:
    rules = [{"turn": 1, "answer": {"n": "three"}}, {"turn": 2, "answer": {"n": 3}}]
    ran = go(workflow("max_turns 3", returns="{ n: int }"), rules, shop, native=native)
    assert ran.column("answer") == [{"n": 3}]
    assert ran.report.steps["answer"].reasks == 1
    assert "expected int" in tail(ran.engine, 2)
    again = go(workflow("max_turns 3", returns="{ n: int }", options="(reask: 0)"), rules, shop, native=native)
    assert again.errors == [("schema", "answer")]


def test_what_the_model_knows_of_its_tools_is_the_same_for_all_rows_and_comes_first(shop: Path) -> None:
    text = workflow('max_turns 2 assistant "Noted."').replace('"Be kind."', '"Be kind to {{ ticket }}."')
    ran = go(text, [{"answer": "x"}], shop, rows=[{"ticket": "a"}, {"ticket": "b"}])
    prompts = [request.messages for request in ran.engine.requests]
    assert [message.role for message in prompts[0]] == ["system", "user", "assistant"]
    plan = bind(parse(text, "w.helix")).plan
    told = agents.protocol(next(iter(_agents(plan))).tools, TEXT)
    assert [prompt[0].content for prompt in prompts] == [f"{told}\n\nBe kind to {each}." for each in "ab"]
    assert '"parameters": {"type": "object", "properties": {"customer": {"type": "string"}}' in told


def _agents(plan: Any) -> list[Any]:
    from helix.logical import Agent, every_node

    return [node for node in every_node(plan.sink) if isinstance(node, Agent)]


def test_the_trace_of_an_agent_is_part_of_its_value(shop: Path) -> None:
    text = workflow("max_turns 3 trace on").replace(
        "output answer", "output answer.answer as answer, answer.trace as t"
    )
    rules = [
        {"turn": 1, "calls": calls(("orders", {"customer": "ann"}), ("nope", {}))},
        {"turn": 2, "answer": "done"},
    ]
    ran = go(text, rules, shop)
    assert ran.column("answer") == ["done"]
    (trace,) = ran.column("t")
    assert [(turn["turn"], turn["calls"]) for turn in trace] == [
        (
            1,
            [
                {"tool": "orders", "args": {"customer": "ann"}, "result": [{"id": 7, "customer": "ann"}]},
                {"tool": "nope", "args": {}, "error": "there is no tool `nope`; tools: orders, pay"},
            ],
        ),
        (2, []),
    ]
    assert json.loads(trace[1]["text"]) == {"answer": "done"}
    assert all(turn["prompt_tokens"] > 0 for turn in trace)


# --- calls of tools ---


@BOTH
def test_mistakes_of_the_model_are_told_to_it_and_cost_no_row(shop: Path, native: bool) -> None:
    asked = [
        ("oders", {"customer": "ann"}),
        ("orders", {"custmer": "ann"}),
        ("orders", {"customer": 3}),
        ("orders", {}),
        ("orders", [1]),
        ("orders", {"customer": "nobody"}),
    ]
    rules = [{"turn": 1, "calls": [{"tool": t, "args": a} for t, a in asked]}, {"turn": 2, "answer": "sorry"}]
    ran = go(workflow("max_turns 3"), rules, shop, native=native)
    assert ran.column("answer") == ["sorry"]
    errors = [json.loads(line)["error"] for line in tail(ran.engine, 2).split("\n")]
    assert errors == [
        "there is no tool `oders`; did you mean `orders`? tools: orders, pay",
        "orders has no parameter `custmer`; did you mean `customer`? parameters: customer",
        "`customer` of orders does not fit: expected text, found int 3",
        "orders needs `customer`, a text",
        "arguments are a JSON object, found list [1]",
        "orders raised LookupError: no such customer",
    ]
    step = ran.report.steps["answer"]
    assert (step.tool_calls, step.tool_errors, step.failed) == (6, 6, 0)


def test_arguments_that_are_no_json_are_told_to_the_model(shop: Path) -> None:
    from helix.executor.engines.base import ToolUse

    def reply(request: Request) -> Reply:
        if len(request.messages) > 2:
            return Reply(text="ok")
        return Reply(text="", calls=(ToolUse(id="a", name="orders", arguments="{customer"),))

    ran = run(workflow("max_turns 3"), ROWS, reply=reply, settings={"tool_calls": True}, folder=shop)
    assert ran.column("answer") == ["ok"]
    assert "the arguments are not JSON" in ran.engine.requests[1].messages[-1].content


def test_defaults_are_filled_in(shop: Path) -> None:
    rules = [{"turn": 1, "calls": calls(("pay", {"amount": 3}))}, {"turn": 2, "answer": "paid"}]
    go(workflow("max_turns 3"), rules, shop)
    assert (shop / "paid.txt").read_text() == "3 none\n"


def test_calls_that_only_read_run_together_and_calls_that_act_in_order(shop: Path) -> None:
    import helix.dsl as hx

    log: list[str] = []

    async def noted(key: str) -> str:
        log.append(f"{key} begins")
        await asyncio.sleep(0.005)
        log.append(f"{key} ends")
        return key

    look = hx.tool(effects="read", name="look")(noted)
    act = hx.tool(effects="idempotent_write", name="act")(noted)

    @hx.workflow
    def w(ticket: str) -> hx.Output:
        return hx.output(answer=hx.agent(ticket, tools=[look, act]))

    for tool, expected in (("look", ["a begins", "b begins", "a ends"]), ("act", ["a begins", "a ends", "b begins"])):
        log.clear()
        rules = [{"turn": 1, "calls": calls((tool, {"key": "a"}), (tool, {"key": "b"}))}, {"turn": 2, "answer": "x"}]
        ran = run(w, ROWS, rules=rules)
        assert ran.column("answer") == ["x"]
        assert log[:3] == expected


@BOTH
def test_after_a_call_that_failed_no_further_one_of_a_turn_acts(shop: Path, native: bool) -> None:
    rules = [
        {"turn": 1, "calls": calls(("pay", {"amount": 1}), ("pay", {"amount": 500}), ("pay", {"amount": 2}))},
        {"turn": 2, "answer": "x"},
    ]
    ran = go(workflow("max_turns 3"), rules, shop, native=native)
    assert (shop / "paid.txt").read_text() == "1 none\n500 none\n"
    assert [json.loads(line).get("error") for line in tail(ran.engine, 2).split("\n")] == [
        None,
        "pay raised ValueError: too much",
        "not called, since a call of the same turn before it failed",
    ]


def test_equal_agents_share_turns_and_reads_but_each_acts_for_itself(shop: Path) -> None:
    rules = [
        {"turn": 1, "calls": calls(("orders", {"customer": "ann"}))},
        {"turn": 2, "calls": calls(("pay", {"amount": 3}))},
        {"turn": 3, "answer": "x"},
    ]
    ran = go(workflow("max_turns 4"), rules, shop, rows=ROWS * 3)
    assert ran.column("answer") == ["x"] * 3
    assert ran.engine.calls == 3
    assert (shop / "paid.txt").read_text() == "3 none\n" * 3
    step = ran.report.steps["answer"]
    assert (step.turns, step.tool_calls, step.merged) == (9, 6, 8)


def test_a_long_result_is_cut_where_the_model_can_see_it(shop: Path) -> None:
    rules = [{"turn": 1, "calls": calls(("long", {"size": 1_000_000}))}, {"turn": 2, "answer": "x"}]
    ran = go(workflow("max_turns 3", tools="long"), rules, shop)
    told = json.loads(tail(ran.engine, 2))
    assert told["note"] == "this is the beginning of 1,000,002 characters; ask for less"
    assert len(told["result_begins"]) == MOST_SHOWN


def test_a_tool_that_takes_too_long_is_an_error_that_the_model_reads(shop: Path) -> None:
    rules = [{"turn": 1, "calls": calls(("slow", {"seconds": 30.0}))}, {"turn": 2, "answer": "x"}]
    ran = go(workflow("max_turns 3", tools="slow"), rules, shop)
    assert ran.column("answer") == ["x"]
    assert json.loads(tail(ran.engine, 2))["error"] == "no result within 0.05 s"


def test_a_turn_asks_for_a_bounded_number_of_calls(shop: Path) -> None:
    many = calls(*(("orders", {"customer": f"c{number}"}) for number in range(agents.MOST_CALLS + 2)))
    ran = go(workflow("max_turns 3"), [{"turn": 1, "calls": many}, {"turn": 2, "answer": "x"}], shop)
    told = [json.loads(line) for line in tail(ran.engine, 2).split("\n")]
    assert [("error" in each) for each in told] == [False] * agents.MOST_CALLS + [True] * 2
    assert ran.report.steps["answer"].tool_errors == 2


# --- engines ---


class Probed(ScriptedEngine):
    """An engine that has to be asked whether it calls tools."""

    def __init__(self, able: bool | Exception, **settings: Any) -> None:
        super().__init__(**settings)
        self.able = able
        self.asked = 0

    async def open(self, *, concurrency: int) -> Any:
        from dataclasses import replace

        return replace(await super().open(concurrency=concurrency), tool_calls=None)

    async def calls_tools(self) -> bool:
        self.asked += 1
        if isinstance(self.able, Exception):
            raise self.able
        return self.able


@pytest.mark.parametrize("able", [True, False])
def test_an_engine_is_asked_once_whether_it_calls_tools(shop: Path, able: bool) -> None:
    engine = Probed(able, rules=[{"answer": "x"}])
    text = workflow("max_turns 3").replace("output", 'other = agent { tools [pay] user "b" }\noutput other,')
    ran = run(text, ROWS, engine=engine, folder=shop)
    assert ran.column("answer") == ["x"]
    assert engine.asked == 1
    assert all(bool(request.tools) == able for request in engine.requests)


def test_what_a_workflow_says_of_tool_calls_needs_no_question(shop: Path) -> None:
    for said, native in (("native", True), ("schema", False)):
        engine = Probed(EngineError("not asked"), rules=[{"answer": "x"}])
        ran = run(workflow(f"tool_calls {said}"), ROWS, engine=engine, folder=shop)
        assert (engine.asked, bool(ran.engine.requests[0].tools)) == (0, native)
    with pytest.raises(OptionError, match="asks for native tool calls, which scripted has not"):
        go(workflow("tool_calls native"), [], shop)


def caching(said: Callable[[Request], str], **options: Any) -> CachingEngine:
    """The engine with a cache, with replies of its own."""

    class Saying(CachingEngine):
        seen: list[tuple[int, int, str]]

        async def generate(self, request: Request) -> Reply:
            from dataclasses import replace

            reply = await super().generate(request)
            text = said(request)
            self._keep("".join(f"\n{m.role}:{m.content}" for m in request.messages) + f"\nassistant:{text}", 0)
            seen.append((request.row, reply.prompt_tokens or 0, reply.cached_tokens or 0))
            return replace(reply, text=text)

    seen: list[tuple[int, int, int]] = []
    engine = Saying(**options)
    engine.seen = seen  # type: ignore[assignment]
    return engine


@pytest.mark.parametrize("policy", ["helix", "fcfs"])
def test_each_turn_computes_only_what_is_new(shop: Path, policy: str) -> None:
    """On an engine with a cache each turn finds the whole prompt of the turn before it."""

    def said(request: Request) -> str:
        turn = sum(message.role == "assistant" for message in request.messages)
        asked = {"tool": "orders", "args": {"customer": f"c{request.row} {turn}"}}
        return json.dumps(asked if turn < 4 else {"answer": f"row {request.row}"})

    engine = caching(said)
    rows = [{"ticket": f"customer {number}"} for number in range(6)]
    ran = run(workflow("max_turns 8"), rows, engine=engine, folder=shop, policy=policy)
    assert ran.column("answer") == [f"row {number}" for number in range(6)]
    prompts: dict[int, list[tuple[int, int]]] = {}
    for row, prompt, cached in engine.seen:  # type: ignore[misc]
        prompts.setdefault(row, []).append((prompt, cached))
    for turns in prompts.values():
        assert len(turns) == 5
        for (before, _), (_, cached) in pairwise(turns):
            assert cached >= before - 1


@BOTH
def test_what_was_read_is_read_again_after_a_call_that_acts(shop: Path, native: bool) -> None:
    look, pay = ("orders", {"customer": "ann"}), ("pay", {"amount": 1})
    rules = [
        {"turn": [1, 3], "calls": calls(look)},
        {"turn": 2, "calls": calls(pay)},
        {"turn": 4, "calls": calls(("long", {"size": 3}), ("long", {"size": 3}))},
        {"turn": 5, "answer": "done"},
    ]
    ran = go(workflow("max_turns 6", tools="orders, pay, long"), rules, shop, native=native)
    step = ran.report.steps["answer"]
    assert ran.column("answer") == ["done"]
    assert (step.tool_calls, step.merged) == (5, 1)  # only what depends on its arguments alone is taken over
    reading = [{"turn": [1, 2, 3], "calls": calls(look)}, {"turn": 4, "answer": "done"}]
    assert go(workflow("max_turns 6"), reading, shop, native=native).report.steps["answer"].merged == 2
