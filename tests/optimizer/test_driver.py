"""The driver: rules in their order to a fixpoint, each change checked, and one clear error for what is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rules_support import plan_of

from helix.errors import OptionError, PlanError
from helix.expr import Arg, ListExpr
from helix.logical import Apply, Const, Filter, Generate, Limit, LogicalPlan, Node, Project, Sink
from helix.optimizer.driver import MAX_ROUNDS, choose_rules, optimize
from helix.optimizer.rewrite import rewrite
from helix.optimizer.rule import RuleContext, RuleFunction, describe, rule
from helix.optimizer.rules import RULES
from helix.optimizer.rules.drop_dead_steps import drop_dead_steps
from helix.optimizer.rules.merge_equal_steps import merge_equal_steps
from helix.types import INT, TEXT, ListOf

DEMO = """
workflow demo(a: text, n: int)
x = llm { user "{{ a }}" }
y = llm { user "{{ a }}" }
keep when n > 3
output x, y
"""


def changing(change: Callable[[Node], Node], name: str) -> RuleFunction:
    """A rule that changes nodes one by one."""

    def made(plan: LogicalPlan, context: RuleContext) -> LogicalPlan:
        return rewrite(plan, change)

    made.__name__ = name
    made.__doc__ = f"The rule {name}.\n\n    Sound: no.\n    Pays: no."
    return made


def limited(count: int) -> Callable[[Node], Node]:
    return lambda node: replace(node, count=count) if isinstance(node, Limit) else node


def test_rules_run_until_none_changes_the_plan() -> None:
    plan = plan_of(DEMO)
    made = optimize(plan)
    assert made.plain is plan
    assert made.plan.id != plan.id
    again = optimize(made.plan)
    assert again.fired == ()
    assert again.plan is made.plan


def test_the_trace_leads_from_the_plain_plan_to_the_last() -> None:
    made = optimize(plan_of(DEMO))
    assert [fired.rule.name for fired in made.fired][:1] == ["merge_equal_steps"]
    assert made.fired[0].before.id == made.plain.id
    for one, next_one in zip(made.fired, made.fired[1:], strict=False):
        assert one.after is next_one.before
    assert made.fired[-1].after.id == made.plan.id


def test_no_rules_change_nothing() -> None:
    plan = plan_of(DEMO)
    made = optimize(plan, rules=[])
    assert made.plan is plan
    assert made.fired == ()


def test_rules_are_chosen_by_name_and_keep_their_order() -> None:
    names = [function.__name__ for function in RULES]
    assert [each.__name__ for each in choose_rules()] == [
        n for n, r in zip(names, RULES, strict=True) if not describe(r).lossy
    ]
    assert choose_rules(["drop_dead_steps", "merge_equal_steps"]) == (merge_equal_steps, drop_dead_steps)
    assert drop_dead_steps not in choose_rules(without=["drop_dead_steps"])
    assert choose_rules(["drop_dead_steps"], without=["drop_dead_steps"]) == ()


@pytest.mark.parametrize("arguments", [{"only": ["drop_ded_steps"]}, {"without": ["drop_ded_steps"]}])
def test_an_unknown_rule_is_told_with_the_one_that_was_meant(arguments: dict[str, list[str]]) -> None:
    with pytest.raises(OptionError) as caught:
        choose_rules(**arguments)
    assert "there is no rule `drop_ded_steps`" in str(caught.value)
    assert "did you mean `drop_dead_steps`?" in str(caught.value)


def test_lossy_rules_run_only_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    @rule(lossy=True)
    def guess(plan: LogicalPlan, context: RuleContext) -> LogicalPlan:
        """x is about x.

        Sound: no.
        Pays: yes.
        """
        return plan

    monkeypatch.setattr("helix.optimizer.driver.RULES", (*RULES, guess))
    assert guess not in choose_rules()
    assert choose_rules(["guess"]) == (guess,)
    assert describe(guess).lossy
    assert describe(guess).law == "x is about x."


def test_rules_that_undo_each_other_do_not_converge() -> None:
    rules = [changing(limited(1), "to_one"), changing(limited(2), "to_two")]
    with pytest.raises(PlanError) as caught:
        optimize(plan_of("workflow demo(a: text)\nlimit 2\noutput a"), rules=rules)
    assert str(caught.value) == "the rules do not converge: to_two gives back the plan itself"


def test_rules_that_come_back_to_an_earlier_plan_do_not_converge() -> None:
    rules = [changing(limited(1), "to_one"), changing(limited(2), "to_two")]
    with pytest.raises(PlanError) as caught:
        optimize(plan_of("workflow demo(a: text)\nlimit 3\noutput a"), rules=rules)
    assert str(caught.value) == "the rules do not converge: to_one gives back the plan that to_one made before"


def test_a_rule_that_never_ends_does_not_converge() -> None:
    def more(node: Node) -> Node:
        return replace(node, count=node.count + 1) if isinstance(node, Limit) else node

    with pytest.raises(PlanError) as caught:
        optimize(plan_of("workflow demo(a: text)\nlimit 3\noutput a"), rules=[changing(more, "one_more")])
    message = f"the rules do not converge: after {MAX_ROUNDS} rounds these still change the plan: one_more"
    assert str(caught.value) == message


def test_a_rule_that_breaks_the_plan_is_named() -> None:
    def break_it(node: Node) -> Node:
        return replace(node, expr=Arg(index=7)) if isinstance(node, Apply) else node

    with pytest.raises(PlanError) as caught:
        optimize(plan_of(DEMO), rules=[changing(break_it, "break_it")])
    assert str(caught.value).startswith("rule break_it broke the plan: Apply (")
    assert "it reads input 7 of 1" in str(caught.value)


def test_a_rule_that_lets_a_step_read_later_rows_breaks_the_plan() -> None:
    def too_early(plan: LogicalPlan, context: RuleContext) -> LogicalPlan:
        return rewrite(plan, lambda node: replace(node, rows=plan.scan) if isinstance(node, Generate) else node)

    text = 'workflow demo(xs: list[text])\nspread xs as x\ny = llm { user "{{ x }}" }\noutput y'
    with pytest.raises(PlanError, match=r"rule too_early broke the plan: .*which is there only in later rows"):
        optimize(plan_of(text), rules=[too_early])


def test_a_rule_that_drops_a_column_changes_the_result() -> None:
    def drop(node: Node) -> Node:
        return replace(node, columns=node.columns[:1]) if isinstance(node, Sink) else node

    with pytest.raises(PlanError) as caught:
        optimize(plan_of(DEMO), rules=[changing(drop, "drop_column")])
    assert str(caught.value) == "rule drop_column changed the result's columns from x, y to x"


def test_a_rule_that_changes_a_type_changes_the_result() -> None:
    def retype(node: Node) -> Node:
        if not isinstance(node, Sink):
            return node
        made = Apply(type=ListOf(TEXT), expr=ListExpr(items=(Arg(index=0),)), args=(node.columns[0][1],))
        return replace(node, columns=(("x", made), *node.columns[1:]))

    with pytest.raises(PlanError) as caught:
        optimize(plan_of(DEMO), rules=[changing(retype, "retype")])
    assert str(caught.value) == "rule retype changed the type of column `x` from text to list[text]"


def test_a_change_that_would_give_an_error_the_wrong_name_is_not_taken() -> None:
    """Two steps compute the same, which may fail: as one they would have one name in errors."""

    def take_first(plan: LogicalPlan, context: RuleContext) -> LogicalPlan:
        return rewrite(
            plan, lambda node: replace(node, args=(first(plan), *node.args[1:])) if is_second(node) else node
        )

    def first(plan: LogicalPlan) -> Project:
        return next(node for node in plan.sink.columns[0][1].inputs if isinstance(node, Project))

    def is_second(node: Node) -> bool:
        return isinstance(node, Apply) and node.label == "y"

    plan = plan_of("workflow demo(j: json, k: json)\nx = j.f\ny = k.f\noutput x, y")
    made = optimize(plan, rules=[take_first])
    assert made.fired == ()
    assert made.plan is plan


def test_a_rule_may_give_back_an_equal_plan() -> None:
    copied = changing(lambda node: replace(node) if isinstance(node, Const | Filter) else node, "copied")
    plan = plan_of(DEMO)
    assert optimize(plan, rules=[copied]).plan is plan


def test_rules_do_not_change_the_plan_they_are_given() -> None:
    plan = plan_of(DEMO)
    before = plan_of(DEMO)
    optimize(plan)
    assert plan == before
    assert [node.label for node in before.sink.inputs if isinstance(node, Generate)] == [
        node.label for node in plan.sink.inputs if isinstance(node, Generate)
    ]
    assert plan.sink.columns[0][1].type == TEXT != INT


_PRINT = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[1:]
from random_workflows import case
from helix.grammar.bind import bind
from helix.grammar.parse import parse
from helix.optimizer.driver import optimize
from helix.show import plan_text
for seed in range(40):
    subject = case(seed).workflow
    modules = {path: parse(text, path) for path, text in subject.modules.items()}
    made = optimize(bind(parse(subject.text), modules=modules).plan)
    print(made.plan.id, [fired.rule.name for fired in made.fired], plan_text(made.plan))
"""


def test_two_processes_make_the_same_plans() -> None:
    here = Path(__file__).parent
    printed: list[bytes] = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"}
        command = [sys.executable, "-c", _PRINT, str(here), str(here.parent)]
        run = subprocess.run(command, capture_output=True, env=environment, check=False)
        assert run.returncode == 0, run.stderr.decode()
        printed.append(run.stdout)
    assert printed[0] == printed[1]
    assert printed[0].count(b"Sink ") == 40
