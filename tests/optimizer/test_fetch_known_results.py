"""Replies that the store knows take the place of their calls, for the rows of the step and for no others."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from plan_runs import Ran, run_plan
from rules_support import knowing, plan_of

from helix.executor.engines.base import Message, Request
from helix.executor.engines.scripted import ScriptedEngine
from helix.executor.prompts import reply_schema
from helix.logical import Fetch, Generate, LogicalPlan, every_node
from helix.optimizer.driver import optimize
from helix.optimizer.rule import RuleContext
from helix.optimizer.rules.fetch_known_results import fetch_known_results
from helix.plan_json import from_json, to_json
from helix.prefixes import literal_messages
from helix.show import plan_text
from helix.summary import plan_summary, summarize
from helix.verify import verify


class Asked:
    """A store that knows what the scripted engine would say to a prompt of literal text."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def reply(self, step: Generate) -> str | None:
        self.steps.append(step.step)
        messages = tuple(Message(role=role, content=text) for role, text in literal_messages(step) or ())
        request = Request(model=step.model.name, messages=messages, schema=reply_schema(step.returns))
        return asyncio.run(ScriptedEngine().generate(request)).text


def known(plan: LogicalPlan) -> LogicalPlan:
    return optimize(plan, RuleContext(known=Asked()), [fetch_known_results]).plan


def both(text: str, rows: list[dict[str, Any]], **settings: Any) -> tuple[LogicalPlan, Ran, Ran]:
    plan = plan_of(text)
    better = known(plan)
    return better, run_plan(plan, rows, **settings), run_plan(better, rows, **settings)


ROWS = [{"text": "one"}, {"text": None}, {"text": "two"}, {"text": "three"}]


@pytest.mark.parametrize(
    "text",
    [
        # Read by a prompt, by the result, by nobody.
        """
        workflow w(text: text)
        plan = llm { user "How?" }
        verdict = llm { user "{{ plan }} {{ text }}" }
        output plan, verdict
        """,
        # Typed, with a failing expression over it.
        """
        workflow w(text: text)
        limits = llm -> { low: int, words: list[text] } { user "Which limits?" }
        share = 10 / (limits.low - limits.low)
        output text, limits, share
        """,
        """
        workflow w(text: text)
        kind = llm(on_error: null) -> choice["a", "b"] { user "Which?" }
        output kind
        """,
        # After a filter that drops rows, and after one that fails.
        """
        workflow w(text: text)
        keep when len(text) > 3
        plan = llm { user "How?" }
        output text, plan
        """,
        """
        workflow w(text: text)
        keep when split(text, "e")[1] != "x"
        plan = llm { user "How?" }
        output text, plan
        """,
        # Inside a loop, a branch and rounds.
        """
        workflow w(text: text)
        views = for role in ["a", text] {
          plan = llm { user "How?" }
          view = llm { user "{{ role }} {{ plan }}" }
          yield view
        }
        if len(text) > 3 {
          long = llm { user "Long?" }
        }
        note = "none"
        repeat up to 2 {
          hint = llm { user "Hint?" }
          note = llm { user "{{ note }} {{ hint }}" }
        }
        output views, long, note
        """,
        """
        workflow w(text: text)
        group by text {
          plan = llm { user "How?" }
          name = llm { user "{{ plan }} {{ len(rows) }}" }
        }
        output text, plan, name
        """,
    ],
)
def test_results_are_those_of_the_calls(text: str) -> None:
    plan, plain, better = both(text, ROWS)
    assert any(isinstance(node, Fetch) for node in every_node(plan.sink))
    assert better.rows == plain.rows
    assert better.report.calls < plain.report.calls
    assert set(better.report.steps) == set(plain.report.steps)


def test_each_row_gets_a_value_of_its_own() -> None:
    _, plain, better = both(
        """
        workflow w(text: text)
        words = llm -> list[text] { user "Which?" }
        output words
        """,
        [{"text": "a"}, {"text": "b"}],
    )
    assert better.rows == plain.rows
    assert better.report.calls == 0
    first, second = (row["words"] for row in better.rows)
    assert first == second
    assert first is not second


@pytest.mark.parametrize(
    "step",
    [
        'llm { user "How to judge {{ text }}?" }',
        'llm(temperature: 0.7) { user "How?" }',
        'llm(cache: off) { user "How?" }',
        'llm(sample: 2) { user "How?" }',
        "llm { user \"How?\" history [{ role: 'user', content: text }] }".replace("'", '"'),
        'llm { user "How? {{ 1 / 0 }}" }',
    ],
)
def test_what_a_row_or_chance_changes_is_called(step: str) -> None:
    plan = plan_of(f"workflow w(text: text)\nplan = {step}\noutput plan")
    store = Asked()
    assert fetch_known_results(plan, RuleContext(known=store)) is plan
    assert store.steps == []


def test_without_a_store_nothing_changes() -> None:
    plan = plan_of('workflow w(text: text)\nplan = llm { user "How?" }\noutput plan')
    assert fetch_known_results(plan, RuleContext()) is plan
    assert fetch_known_results(plan, knowing(other="By clarity.")) is plan


@pytest.mark.parametrize("reply", ["by clarity", "", '{"low": "x"}', "[1"])
def test_a_reply_that_the_step_would_not_accept_is_asked_for_again(reply: str) -> None:
    plan = plan_of('workflow w(text: text)\nlimits = llm -> { low: int } { user "Which?" }\noutput limits')
    assert fetch_known_results(plan, knowing(reply)) is plan
    fetched = fetch_known_results(plan, knowing('So: ```json\n{"low": 3}\n```'))
    assert run_plan(fetched, [{"text": "a"}]).rows[0]["limits"] == {"low": 3}


def test_a_plan_with_a_known_reply_is_shown_kept_and_summed_up() -> None:
    plan = known(
        plan_of(
            """
            workflow w(text: text)
            plan = llm { user "How?" }
            verdict = llm { user "{{ plan }} {{ text }}" }
            output verdict
            """
        )
    )
    verify(plan)
    assert from_json(json.loads(json.dumps(to_json(plan)))) == plan
    found = summarize(plan)
    assert (found.known, str(found.calls)) == (("plan",), "1")
    assert "replies known already: plan\n" in plan_summary(plan)
    assert '  Fetch plan known "scripted ' in plan_text(plan)


def test_a_step_that_is_known_still_names_what_it_skips() -> None:
    # A row whose filter failed has no value of the step, as it would have none of its call.
    _, plain, better = both(
        """
        workflow w(text: text)
        keep when split(text, "e")[1] == ""
        plan = llm { user "How?" }
        output plan
        """,
        [{"text": "one"}, {"text": "two"}],
    )
    assert better.rows == plain.rows
    assert [row["plan"] is None for row in better.rows] == [False, True]
    assert better.rows[1]["_error"]["kind"] == "expression"
