"""The optimized plan of any workflow gives what the plain one gives: rows, order, values, errors in place.

Random workflows run twice on the scripted engine, where some prompts and tools fail. Calls and prompt tokens are never
more. Rules that are wrong on purpose are caught by the same comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from compared import Asked, Outcome, difference, run_plan, shop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_workflows import TOOLS, Case, case
from wellbound import WellBound, rows_for, wellbound

from helix.errors import PlanError
from helix.grammar.bind import bind
from helix.grammar.parse import parse
from helix.logical import Filter, Generate, Limit, LogicalPlan, Node, spine
from helix.optimizer.driver import Optimized, optimize
from helix.optimizer.rewrite import rewrite
from helix.optimizer.rule import RuleContext, RuleFunction
from helix.optimizer.rules import RULES
from helix.optimizer.stats import table_stats
from helix.optimizer.table import Chain
from helix.optimizer.tokens import estimate
from helix.plan_json import from_json, to_json
from helix.show import plan_text
from helix.traits import traits
from helix.types import INT, TEXT, ListOf

SEEDS = st.integers(0, 2**32 - 1)


def plan_of(subject: WellBound) -> LogicalPlan:
    modules = {path: parse(module, path) for path, module in subject.modules.items()}
    return bind(parse(subject.text, "w.helix"), modules=modules).plan


def some_rules(seed: int, *, every: bool = True) -> Sequence[RuleFunction]:
    """All rules, where `every` allows it, or some of them: one alone shows what others would hide."""
    dice = Random(seed)
    drawn = dice.random()
    if every and drawn < 0.5:
        return RULES
    if drawn < (0.75 if every else 0.5):
        return [dice.choice(RULES)]
    return [function for function in RULES if dice.random() < 0.4]


def some_context(seed: int, found: Case) -> RuleContext:
    """What rules may know: nothing, the table, what a store has, or both."""
    dice = Random(seed + 1)
    names = [name for name, _, _ in found.workflow.inputs]
    stats = table_stats(found.rows, estimate(), names) if dice.random() < 0.3 else None
    known = Asked(failing=found.failing, salt=0) if dice.random() < 0.3 else None
    return RuleContext(stats=stats, known=known)


def check(found: Case, rules: Sequence[RuleFunction], context: RuleContext | None = None) -> Optimized:
    """Runs a workflow plain and optimized, and fails with both plans where they differ."""
    return Checked(found).by(rules, context)


class Checked:
    """A workflow that runs plain once, and by sets of rules."""

    def __init__(self, found: Case, *, plan_files: bool = True) -> None:
        self._found = found
        self._plan = plan_of(found.workflow)
        self._plain: Outcome | None = None
        self._plan_files = plan_files

    def by(self, rules: Sequence[RuleFunction], context: RuleContext | None = None) -> Optimized:
        """The plan by some rules; fails where its run differs from the plain one."""
        made = optimize(self._plan, context, rules)
        if not made.fired:
            return made
        if self._plan_files:
            assert from_json(to_json(made.plan)) == made.plan
        if self._plain is None:
            self._plain = outcome(self._plan, self._found)
        problem = compared(made, self._found, self._plain)
        if problem is not None:
            fired = ", ".join(each.rule.name for each in made.fired)
            raise AssertionError(
                f"{problem}\n{self._found.workflow.text}{self._found.rows} {self._found.failing}\n{fired}\n"
                f"{plan_text(self._plan)}\n{plan_text(made.plan)}"
            )
        return made


def outcome(plan: LogicalPlan, found: Case) -> Outcome:
    return run_plan(plan, found.rows, failing=found.failing, folder=shop())


def compared(made: Optimized, found: Case, plain: Outcome | None = None) -> str | None:
    counted = is_counted(found, made.plan)
    return difference(
        plain or outcome(made.plain, found),
        outcome(made.plan, found),
        calls=counted and all(each.rule.fewer_calls for each in made.fired),
        tokens=counted and all(each.rule.fewer_tokens for each in made.fired),
        effects=not has_limit(made.plain),
    )


def has_limit(plan: LogicalPlan) -> bool:
    return any(isinstance(relation, Limit) for relation in spine(plan.sink.rows))


def is_counted(found: Case, plan: LogicalPlan) -> bool:
    """Whether the number of calls is settled by the plan alone.

    Rows on their way when a limit is reached are called or not as it happens; and the slot of a text that may be cut
    takes part in what makes two calls equal.
    """
    chain = Chain(plan)
    limits = [level for level, relation in enumerate(chain.relations) if isinstance(relation, Limit)]
    early = any(traits(node).is_call and chain.level(node) < max(limits, default=-1) for node in chain.scope.nodes)
    return not early and "on_overflow" not in found.workflow.text


@settings(max_examples=150)
@given(SEEDS)
def test_random_workflows_give_the_same(seed: int) -> None:
    found = case(seed)
    check(found, some_rules(seed), some_context(seed, found))


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_workflows_of_all_kinds_give_the_same(data: st.DataObject) -> None:
    subject: WellBound = data.draw(wellbound(tools=TOOLS))
    rows = data.draw(rows_for(subject))
    check(Case(workflow=subject, rows=rows, failing=data.draw(st.sampled_from([0.0, 0.2]))), RULES)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(8))
def test_many_random_workflows_give_the_same(block: int) -> None:
    """Two thousand workflows, each by all rules and by some of them: a second time there is nothing left to do."""
    for seed in range(250 * block, 250 * (block + 1)):
        found = case(seed)
        context = some_context(seed, found)
        subject = Checked(found, plan_files=seed % 10 == 0)
        for rules in (RULES, some_rules(seed, every=False)):
            try:
                made = subject.by(rules, context)
                again = optimize(made.plan, context, rules)
                assert again.plan.id == made.plan.id, [each.rule.name for each in again.fired]
            except BaseException as error:
                error.add_note(f"seed {seed}")
                raise


def test_every_rule_fires_on_random_workflows() -> None:
    """What is compared above is not only plans that no rule changed."""
    fired: set[str] = set()
    for seed in range(150):
        fired |= {each.rule.name for each in optimize(plan_of(case(seed).workflow)).fired}
    expected = {
        "drop_dead_steps",
        "fold_constants",
        "fuse_filters",
        "hoist_invariants",
        "inline_text",
        "merge_equal_steps",
        "order_filters",
        "prune_fields",
        "push_down_filters",
        "push_down_limits",
        "simplify_branches",
        "simplify_loops",
        "start_certain_tools_early",
        "unroll_constant_maps",
    }
    assert expected <= fired


# What random workflows have found, for all rules together: each once gave something else.
FOUND = {
    "a name that is set before a loop and in it, and an expression that fails under it": """
tool find(key: text) -> json from python "lib:find" effects read
s1 = find(reverse(xs)[-1]) when true
repeat up to 2 {
  repeat up to 3 until false {
    s3 = find(reverse(xs)[-1])
  }
  s5 = find(reverse(xs)[-1])
  s1 = find(reverse(xs)[-1])
}
output s3, s5
""",
    "a step that samples beside one whose name is taken": """
x = llm(temperature: 0.9) { user "1 {{ a }}" }
repeat up to 1 until "a" == text("b") {
  y = llm(sample: 3, temperature: 0.9) { user "2 {{ a }}" }
  x = llm(sample: 3, temperature: 0.9) { user "3 {{ a }}" }
}
output x, y
""",
    "a tool that acts in a branch which only a dead step of a loop reads": """
tool save(items: list[text]) -> list[text] from python "lib:save" effects write
if n > 3 {
  t = n / 2
  s = save([a])
}
ys = for x in xs {
  dead = llm { user "{{ t }} {{ x }}" }
  yield "red"
}
output ys
""",
    "a name that a branch sets, and a loop sets again by a tool that acts, for nobody": """
tool save(items: list[text]) -> list[text] from python "lib:save" effects write
if n > 2 {
  t = a
  s = xs
} else {
  t = a
  s = null
}
repeat up to 2 until false {
  if n > 5 {
    t = t
  }
  s = save([t])
}
output t
""",
    "unordered parts that fail of themselves and of a step of the same name": """
s = llm { user "{{ xs[1] }}" }
repeat up to 1 until false {
  s = llm { user unordered { part "{{ s }} {{ n }} {{ a }}" part "{{ xs[0] }}" } }
}
output a, s
""",
    "limits around a tool that acts": """
tool save(items: list[text]) -> list[text] from python "lib:save" effects write
limit 3
repeat up to 1 {
  s = save([a])
}
limit 5
if 1 >= 1 or a == "x" {
  y = llm { user "{{ a }}" }
}
output y
""",
}


@pytest.mark.parametrize("body", FOUND.values(), ids=FOUND)
def test_what_was_found_stays_found(body: str) -> None:
    inputs = (("a", TEXT, False), ("n", INT, False), ("xs", ListOf(TEXT), False))
    subject = WellBound(text=f"workflow w(a: text, n: int, xs: list[text]){body}", inputs=inputs)
    rows = [{"a": f"text {number}", "n": number, "xs": ["p"] * (number % 3)} for number in range(6)]
    for failing in (0.0, 0.3):
        for count in range(1, len(RULES) + 1):
            check(Case(workflow=subject, rows=rows, failing=failing), RULES[:count])
            check(Case(workflow=subject, rows=rows, failing=failing), RULES[count - 1 : count])
        check(Case(workflow=subject, rows=[*rows, {"a": "", "n": 1, "xs": []}], failing=failing), RULES)


# --- rules that are wrong on purpose ------------------------------------------------------------------------------


def merge_sampled_steps(plan: LogicalPlan, context: RuleContext) -> LogicalPlan:
    """x = sample(a), y = sample(a) is x = sample(a), y = x: wrong, since each draws its own."""
    first: dict[tuple[object, ...], Node] = {}

    def change(node: Node) -> Node:
        if not isinstance(node, Generate) or node.deterministic:
            return node
        return first.setdefault((node.prompt, node.model, node.rows, node.returns, node.sample), node)

    return rewrite(plan, change)


def push_filter_over_limit(plan: LogicalPlan, context: RuleContext) -> LogicalPlan:
    """The first three of those that hold are those that hold of the first three: wrong."""

    def change(node: Node) -> Node:
        if isinstance(node, Filter) and isinstance(node.rows, Limit):
            return replace(node.rows, rows=replace(node, rows=node.rows.rows))
        return node

    return rewrite(plan, change, inside=False)


def drop_a_filter(plan: LogicalPlan, context: RuleContext) -> LogicalPlan:
    """Those that hold are all: wrong."""
    return rewrite(plan, lambda node: node.rows if isinstance(node, Filter) else node, inside=False)


def rename_a_step(plan: LogicalPlan, context: RuleContext) -> LogicalPlan:
    """x is y: the values are right, but an error has the wrong name."""
    change = {"x": "z"}
    return rewrite(
        plan,
        lambda node: (
            replace(node, step=change[node.step], label=change[node.step])
            if isinstance(node, Generate) and node.step in change
            else node
        ),
    )


def call_early(plan: LogicalPlan, context: RuleContext) -> LogicalPlan:
    """f(kept rows) is f(all rows): the values are right, but calls are made for nobody."""
    return rewrite(plan, lambda node: replace(node, rows=plan.scan) if isinstance(node, Generate) else node)


WRONG: list[tuple[RuleFunction, str, str]] = [
    (
        merge_sampled_steps,
        'x = llm(temperature: 0.9) { user "{{ a }}" }\ny = llm(temperature: 0.9) { user "{{ a }}" }\noutput x, y',
        "",
    ),
    (push_filter_over_limit, "limit 3\nkeep when n > 3\noutput a, n", "the rows differ"),
    (drop_a_filter, "keep when n > 3\noutput a", "the rows differ"),
    (rename_a_step, 'x = llm { user "{{ a }}" }\noutput x', "the rows differ"),
    (call_early, 'keep when n > 3\nx = llm { user "{{ a }}" }\noutput x', "calls instead of"),
]


@pytest.mark.parametrize(("wrong", "body", "message"), WRONG, ids=[each[0].__name__ for each in WRONG])
def test_a_wrong_rule_is_caught(wrong: RuleFunction, body: str, message: str) -> None:
    subject = WellBound(text=f"workflow w(a: text, n: int)\n{body}\n", inputs=(("a", TEXT, False), ("n", INT, False)))
    rows = [{"a": f"text {number}", "n": number} for number in (1, 5, 2, 7, 9, 3)]
    found = Case(workflow=subject, rows=rows, failing=0.6)
    made = optimize(plan_of(subject), rules=[wrong])
    assert [each.rule.name for each in made.fired] == [wrong.__name__]
    problem = compared(made, found)
    assert problem is not None
    assert message in problem


@pytest.mark.parametrize("wrong", [merge_sampled_steps, push_filter_over_limit, drop_a_filter])
def test_a_wrong_rule_is_caught_by_random_workflows(wrong: RuleFunction) -> None:
    """The same comparison finds it in workflows that nobody wrote for it."""

    def is_caught(seed: int) -> bool:
        found = case(seed)
        try:
            made = optimize(plan_of(found.workflow), rules=[wrong])
        except PlanError:
            # A step runs over the relation that went: the driver finds the rule out by itself.
            return False
        return bool(made.fired) and compared(made, found) is not None

    assert any(is_caught(seed) for seed in range(1000))
