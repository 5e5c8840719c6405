"""Prompts read off a plan are those that a run sends, on random workflows: branches, loops, groups, tools, failures."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
from compared import Tools
from plans_support import asked_of, matches, plan_of
from random_workflows import case

from helix.errors import SourceErrors
from helix.grammar.bind import bind
from helix.grammar.parse import parse
from helix.logical import Agent, Limit, LogicalPlan, every_node, spine
from helix.optimizer.prompts import Unknown, bind_prompts
from helix.optimizer.tokens import estimate
from helix.optimizer.tree import build_tree
from helix.places import static_name

# Most workflows drawn end in rows that failed on purpose; a block holds enough of the others.
SEEDS = 360


def plan_of_case(seed: int) -> tuple[LogicalPlan, list[dict[str, Any]]] | None:
    """The plan and rows of a random workflow; None for one of the few that are no workflow."""
    made = case(seed)
    try:
        modules = {path: parse(text) for path, text in made.workflow.modules.items()}
        return bind(parse(made.workflow.text), modules=modules).plan, made.rows
    except SourceErrors:
        return None


def _goes_on(request: Any, first: Any) -> bool:
    size = len(first.messages)
    return (
        request.step == first.step
        and len(request.messages) > size
        and request.messages[:size] == first.messages
        and request.messages[size][0] == "assistant"
    )


@pytest.mark.parametrize("block", range(4))
def test_random_workflows(block: int) -> None:
    size = SEEDS // 4
    requests = bound = 0
    for seed in range(block * size, (block + 1) * size):
        drawn = plan_of_case(seed)
        if drawn is None:
            continue
        plan, rows = drawn
        tree = build_tree(plan, estimate())
        asked, made = asked_of(plan, rows)
        paths: dict[str, list[Any]] = {}
        for op in tree.ops:
            paths.setdefault(op.step, []).append(tree.path(op))
        agents = {static_name(node.step) for node in every_node(plan.sink) if isinstance(node, Agent)}
        begun: list[Any] = []
        for request in asked:
            requests += 1
            if request.step in agents and any(_goes_on(request, first) for first in begun):
                # A later turn of an agent: what it began with is a path, and what came then hangs on it.
                continue
            begun.append(request)
            found = [path for path in paths.get(request.step, []) if matches(path, request.messages)]
            assert found, f"workflow {seed}: no path of `{request.step}` is {request.messages}"
        # A limit ends the run before all rows are in, an error the row before all its calls.
        if any(isinstance(relation, Limit) for relation in spine(plan.sink.rows)):
            continue
        well = {row["_row"] for row in made} - {row["_row"] for row in made if row["_error"]}
        sent = {request.messages for request in asked}
        for prompt in bind_prompts(plan, rows, callables=Tools().callables):
            if prompt.row not in well or any(role == "history" for role, _ in prompt.messages):
                continue
            if prompt.known and prompt.weight == 1:
                bound += 1
                assert prompt.texts() in sent, f"workflow {seed}: `{prompt.step}` was not asked {prompt.texts()}"
    assert requests > 200
    assert bound > 60


def test_known_prompts_are_made_exactly() -> None:
    plan = plan_of("""
        workflow w(doc: text, parts: list[text], kind: choice["x", "y"] = "x")
        keep when doc != "skip"
        if kind == "x" { a = llm { system "Kind {{ kind }}" user "{{ doc | upper }}" } }
        else { a = llm { user "No {{ kind }}" } }
        each = for part in parts { v = llm { user "{{ part }} of {{ parts | len }}" } yield v }
        last = llm { user "{{ a }} and {{ each | len }}" }
        output last
    """)
    rows: list[dict[str, Any]] = [
        {"doc": "one", "parts": ["p", "q"]},
        {"doc": "skip", "parts": ["r"]},
        {"doc": "two", "parts": [], "kind": "y"},
        {"doc": "  ", "parts": ["blank"]},
        {"doc": "three", "parts": None},
    ]
    made = list(bind_prompts(plan, rows))
    known = [(prompt.row, prompt.step, prompt.texts()) for prompt in made if prompt.known]
    assert sorted(known) == [
        (0, "a", (("system", "Kind x"), ("user", "ONE"))),
        (0, "each.v", (("user", "p of 2"),)),
        (0, "each.v", (("user", "q of 2"),)),
        (2, "a", (("user", "No y"),)),
    ]
    (first, other) = [prompt for prompt in made if not prompt.known]
    assert [first.row, other.row] == [0, 2]
    ((_, (reply, text, count)),) = first.messages
    assert isinstance(reply, Unknown)
    assert isinstance(count, Unknown)
    assert (reply.name, text, count.name) == ("a", " and ", "each | len")
    with pytest.raises(ValueError, match="`last`"):
        first.texts()


def test_equal_inputs_give_equal_unknowns_and_samples_do_not() -> None:
    plan = plan_of("""
        workflow w(doc: text, note: text)
        model warm { temperature: 0.9 }
        model cold { temperature: 0 }
        a = llm cold { user "{{ doc }}" }
        b = llm warm { user "{{ doc }}" }
        c = llm cold { user "{{ a }}" }
        d = llm cold { user "{{ b }}" }
        output c, d, note
    """)
    rows = [{"doc": "same", "note": "1"}, {"doc": "same", "note": "2"}, {"doc": "other", "note": "2"}]
    numbers: dict[str, list[int]] = {"c": [], "d": []}
    for prompt in bind_prompts(plan, rows):
        for _, (part, *_) in prompt.messages:
            if isinstance(part, Unknown):
                numbers[prompt.step].append(part.number)
    assert numbers["c"][0] == numbers["c"][1] != numbers["c"][2]
    assert len(set(numbers["d"])) == 3


def test_unknown_conditions_bind_both_branches_with_their_chances() -> None:
    plan = plan_of("""
        workflow w(doc: text)
        kind = llm -> choice["a", "b", "c", "d"] { user "{{ doc }}" }
        keep when kind != "d"
        if kind == "a" { x = llm { user "A {{ doc }}" } } else { x = llm { user "B {{ doc }}" } }
        output x
    """)
    weights = {prompt.messages[0][1][0][:1]: prompt.weight for prompt in bind_prompts(plan, [{"doc": "d"}])}  # type: ignore[index]
    assert weights == {"d": 1.0, "A": 0.125, "B": 0.375}


def test_groups_are_bound_after_the_rows() -> None:
    plan = plan_of("""
        workflow w(product: text, review: text)
        mood = llm { user "{{ review }}" }
        group by product { s = llm { user "{{ product }}: {{ rows | len }}" } }
        output s
    """)
    rows = [{"product": "p", "review": "1"}, {"product": "q", "review": "2"}, {"product": "p", "review": "3"}]
    made = [(prompt.row, prompt.step, prompt.messages) for prompt in bind_prompts(plan, rows)]
    assert [step for _, step, _ in made] == ["mood", "mood", "mood", "s", "s"]
    assert [(row, messages[0][1][0]) for row, step, messages in made if step == "s"] == [(0, "p: "), (1, "q: ")]


def test_rounds_carry_values_of_their_own() -> None:
    plan = plan_of("""
        workflow w(doc: text)
        text = doc
        repeat up to 3 { text = llm { user "Better: {{ text }}" } }
        output text
    """)
    made = [prompt.messages[0][1][1] for prompt in bind_prompts(plan, [{"doc": "same"}, {"doc": "same"}])]
    numbers = [part.number for part in made if isinstance(part, Unknown)]
    assert len(numbers) == 6
    assert len(set(numbers)) == 3
