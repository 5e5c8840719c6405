"""What a rule did is read off two plans: each kind of change, from workflows that stand for before and after."""

from __future__ import annotations

from dataclasses import replace

import pytest
from explain_support import plan_of

from helix.explain.changes import Change, changes, listed, together
from helix.logical import Generate, LogicalPlan, Sink, every_node
from helix.optimizer.driver import choose_rules, optimize


def said(before: str, after: str) -> list[str]:
    return [change.text() for change in changes(plan_of(before), plan_of(after))]


def workflow(body: str, output: str, columns: str = "a: text, n: int") -> str:
    return f"workflow w({columns})\n\n{body}\n\noutput {output}\n"


A = 'x = llm { user "One: {{ a }}" }'
SAME = 'y = llm { user "One: {{ a }}" }'
OTHER = 'y = llm { user "Two: {{ a }}" }'


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (workflow(f"{A}\n\n{SAME}", "x, y"), workflow(A, "x, x as y"), ["merges y into x"]),
        (workflow(f"{A}\n\n{OTHER}", "x"), workflow(A, "x"), ["drops y"]),
        (workflow(A, "x"), workflow(f"{A}\n\n{OTHER}", "x, y"), ["adds y"]),
        (
            workflow(f"{A}\n\nkeep when n > 1\n\n{OTHER}", "x, y"),
            workflow(f"keep when n > 1\n\n{A}\n\n{OTHER}", "x, y"),
            ["runs x only after keep when n > 1"],
        ),
        (
            workflow(f"keep when n > 1\n\n{A}", "x"),
            workflow(f"{A}\n\nkeep when n > 1", "x"),
            ["runs x before keep when n > 1"],
        ),
        (
            workflow(f"{A}\n\nsort by n\n\nlimit 3", "x"),
            workflow(f"sort by n\n\nlimit 3\n\n{A}", "x"),
            ["runs x only after limit 3"],
        ),
        (
            workflow(f"limit 3\n\nlimit 5\n\n{A}", "x"),
            workflow(f"limit 3\n\n{A}", "x"),
            ["makes 2 limits 1"],
        ),
        (
            workflow(f"if n > 1 {{\n  {A}\n}}", "x"),
            workflow(A, "x"),
            ["takes x out of if n > 1", "takes away a branch"],
        ),
        (
            workflow('let who = "Ann"\n\nx = llm { user "{{ who }}: {{ a }}" }', "x"),
            workflow('x = llm { user "Ann: {{ a }}" }', "x"),
            ["puts a constant where it is read"],
        ),
        (
            workflow('x = llm { user "{{ a }}, {{ n }}" }', "x"),
            workflow('x = llm { user "{{ a }}, number {{ n }}" }', "x"),
            ["spells out text in prompts: x"],
        ),
        (
            workflow('x = llm { user "One {{ a }} two {{ n }}" }', "x"),
            workflow('x = llm { user "One {{ n }}" }', "x"),
            ["rewrites prompts: x"],
        ),
        (
            workflow("keep when n > 1\n\nkeep when n < 9", "a"),
            workflow("keep when n > 1 and n < 9", "a"),
            ["makes 2 filters 1"],
        ),
        (
            workflow("keep when n > 1\n\nkeep when n < 9", "a"),
            workflow("keep when n < 9\n\nkeep when n > 1", "a"),
            ["puts filters in another order"],
        ),
    ],
)
def test_what_is_said(before: str, after: str, expected: list[str]) -> None:
    found = said(before, after)
    assert found == expected


@pytest.mark.parametrize(
    ("rule", "loop", "expected"),
    [
        ("hoist_invariants", "a", ["takes y.x out of for y"]),
        ("unroll_constant_maps", "i", ["unrolls for y into y[0].x, y[1].x"]),
    ],
)
def test_what_rules_do_to_loops(rule: str, loop: str, expected: list[str]) -> None:
    body = f'y = for i in ["p", "q"] {{\n  x = llm {{ user "{{{{ {loop} }}}}" }}\n  yield x + i\n}}'
    done = optimize(plan_of(workflow(body, "y")), rules=choose_rules([rule]))
    assert [change.text() for change in changes(done.plain, done.plan)] == expected


def test_copies_of_one_loop_are_told_apart() -> None:
    """Two items ask the same: after the loop is unrolled the second is merged into the first."""
    body = 'y = for i in ["p", "q"] {\n  x = llm { user "{{ a }}" }\n  yield x + i\n}'
    unrolled = optimize(plan_of(workflow(body, "y")), rules=choose_rules(["unroll_constant_maps"])).plan
    merged = optimize(unrolled, rules=choose_rules(["merge_equal_steps"])).plan
    assert [change.text() for change in changes(unrolled, merged)] == ["merges y[1].x into y[0].x"]


def test_equal_steps_over_other_rows_are_merged_not_dropped() -> None:
    text = workflow(f"{A}\n\nkeep when n > 1\n\n{SAME}", "x, y")
    done = optimize(plan_of(text), rules=choose_rules(["merge_equal_steps"]))
    assert [change.text() for change in changes(done.plain, done.plan)] == ["merges y into x"]


def test_filters_that_become_one_move_no_step() -> None:
    before = workflow(f"keep when n > 1\n\nkeep when n < 9\n\n{A}", "x")
    after = workflow(f"keep when n > 1 and n < 9\n\n{A}", "x")
    assert said(before, after) == ["makes 2 filters 1"]


def _with(plan: LogicalPlan, **changed: object) -> LogicalPlan:
    """The plan with its one llm step changed."""
    (step,) = [node for node in every_node(plan.sink) if isinstance(node, Generate)]
    made = replace(step, **changed)
    columns = tuple((name, made if value.id == step.id else value) for name, value in plan.sink.columns)
    return replace(plan, sink=Sink(rows=plan.sink.rows, columns=columns))


def test_leading_calls_and_grouped_rows() -> None:
    plan = plan_of(workflow(A, "x"))
    assert [each.text() for each in changes(plan, _with(plan, lead=True))] == ["lets the first call of x go ahead"]


def test_a_step_that_stands_in_two_branches_is_counted_apart() -> None:
    arms = 'if n > 1 {\n  x = llm { user "One: {{ a }}" }\n} else {\n  x = llm { user "Two: {{ a }}" }\n}'
    found = said(workflow(arms, "x"), workflow(A, "x"))
    assert "drops 1 of 2 x" in found


def test_long_lists_end_in_a_number() -> None:
    names = [f"s{number}" for number in range(9)]
    assert listed(names) == "s0, s1, s2, s3 and 5 more"
    assert listed(names, None) == ", ".join(names)
    assert Change(kind="dropped", steps=tuple(names)).text() == "drops s0, s1, s2, s3 and 5 more"


def test_changes_of_one_kind_are_told_once() -> None:
    found = [
        Change(kind="constants", count=2),
        Change(kind="dropped", steps=("a",)),
        Change(kind="constants", count=3),
        Change(kind="dropped", steps=("a", "b")),
        Change(kind="merged", steps=("c",), detail="d"),
    ]
    told = [each.text() for each in together(found)]
    assert told == ["puts 5 constants where they are read", "drops a, b", "merges c into d"]
