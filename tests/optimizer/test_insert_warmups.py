"""The first of the calls that begin alike goes alone; then all others, as many at once as the run allows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from plan_runs import run_plan
from rules_support import plan_of, seen

from helix.errors import EngineError
from helix.executor.engines.scripted import ScriptedEngine
from helix.logical import Generate, LogicalPlan, Node, every_node
from helix.optimizer.driver import optimize
from helix.optimizer.rewrite import rewrite
from helix.optimizer.rule import RuleContext
from helix.optimizer.rules.insert_warmups import insert_warmups
from helix.optimizer.rules.merge_equal_steps import merge_equal_steps

RULES = "Mind this rule. " * 100
OTHER = "Think of that one. " * 100
ONE = f'workflow w(text: text)\nx = llm {{ system "{RULES}" user "{{{{ text }}}}" }}\noutput x'


def warmed(text: str, context: RuleContext | None = None) -> LogicalPlan:
    return optimize(plan_of(text), context, [insert_warmups]).plan


def leading(plan: LogicalPlan) -> list[str]:
    """The steps that have a call go first."""
    return [node.step for node in every_node(plan.sink) if isinstance(node, Generate) and node.lead]


class Watch:
    """An engine that takes a moment for each call, and notes how many were on their way when each began."""

    def __init__(self, fails: Callable[[Any], bool] = lambda request: False) -> None:
        self.at_once: list[tuple[str, int]] = []
        self._fails = fails
        self.engine = ScriptedEngine(reply=self._reply)

    async def _reply(self, request: Any) -> Any:
        self.at_once.append((request.step, self.engine.in_flight))
        await asyncio.sleep(0.01)
        if self._fails(request):
            return EngineError("no", status=400)
        return None

    @property
    def counts(self) -> list[int]:
        return [count for _, count in self.at_once]


def watched(plan: LogicalPlan, count: int = 12, watch: Watch | None = None, **settings: Any) -> Watch:
    watch = watch or Watch()
    rows = [{"text": f"text {number}"} for number in range(count)]
    run_plan(plan, rows, engine=watch.engine, **{"concurrency": 6, **settings})
    return watch


# --- which steps --------------------------------------------------------------------------------------------------


def test_a_long_beginning_that_many_calls_share_leads() -> None:
    assert leading(warmed(ONE)) == ["x"]
    assert leading(warmed(ONE, seen(2, text=(2, 5)))) == ["x"]


@pytest.mark.parametrize(
    "prompt",
    [
        'system "Be brief." user "{{ text }}"',
        f'user "{{{{ text }}}} {RULES}"',
        f'history [{{ role: "user", content: text }}] system "{RULES}"',
        # The same prompt for all rows is one call.
        f'system "{RULES}" user "Go on."',
    ],
)
def test_what_calls_do_not_share_does_not_lead(prompt: str) -> None:
    plan = plan_of(f"workflow w(text: text)\nx = llm {{ {prompt} }}\noutput x")
    assert insert_warmups(plan, RuleContext()) is plan


def test_one_row_makes_one_call() -> None:
    plan = plan_of(ONE)
    assert insert_warmups(plan, seen(1, text=(1, 5))) is plan
    sampled = ONE.replace("llm {", "llm(temperature: 1, sample: 3) {")
    assert leading(warmed(sampled, seen(1, text=(1, 5)))) == ["x"]
    again = f'workflow w(text: text)\nx = llm(cache: off) {{ system "{RULES}" user "Go on." }}\noutput x'
    assert leading(warmed(again)) == ["x"]


def test_the_items_of_a_loop_are_many_calls() -> None:
    text = f"""
workflow w(names: list[text])
xs = for name in names {{
  x = llm {{ system "{RULES}" user "{{{{ name }}}}" }}
  yield x
}}
output xs
"""
    assert leading(warmed(text, seen(1, names=(1, 5)))) == ["xs.x"]


def test_steps_that_begin_alike_lead_for_one_another() -> None:
    roles = "\n".join(
        f'x{number} = llm {{ user "{RULES} You are number {number}. {{{{ text }}}}" }}' for number in range(3)
    )
    alone = f'y = llm {{ user "{OTHER} {{{{ text }}}}" }}\nz = llm(temperature: 1) {{ user "{{{{ x0 }}}}" }}'
    text = f"workflow w(text: text)\n{roles}\n{alone}\noutput x0, x1, x2, y, z"
    assert sorted(leading(warmed(text, seen(1, text=(1, 5))))) == ["x0", "x1", "x2"]


def test_a_chain_of_steps_is_marked_at_once() -> None:
    steps = [f'x0 = llm {{ system "{RULES}" user "{{{{ text }}}}" }}']
    steps += [f'x{n} = llm {{ system "{RULES}" user "{{{{ x{n - 1} }}}}" }}' for n in range(1, 60)]
    found = optimize(plan_of("workflow w(text: text)\n" + "\n".join(steps) + "\noutput x59"), None, [insert_warmups])
    assert len(found.fired) == 1
    assert len(leading(found.plan)) == 60


def test_equal_steps_that_lead_still_merge() -> None:
    text = ONE.replace("output x", f'y = llm {{ system "{RULES}" user "{{{{ text }}}}" }}\noutput x, y')
    plan = optimize(warmed(text), None, [merge_equal_steps]).plan
    assert leading(plan) == ["x"]


# --- what the run does --------------------------------------------------------------------------------------------


def test_the_first_call_goes_alone_and_then_all_others() -> None:
    assert watched(plan_of(ONE)).counts == [1, 2, 3, 4, 5, 6] + [6] * 6
    assert watched(warmed(ONE)).counts == [1, 1, 2, 3, 4, 5, 6] + [6] * 5


def test_the_first_row_leads() -> None:
    watch = watched(warmed(ONE))
    assert [request.row for request in watch.engine.requests] == list(range(12))


def test_results_and_calls_are_those_of_the_plain_run() -> None:
    text = f"""
workflow w(text: text)
x = llm {{ system "{RULES}" user "{{{{ text }}}}" }}
keep when x != "text 3"
views = for role in ["a", text] {{
  view = llm {{ system "{RULES}" user "{{{{ role }}}} {{{{ x }}}}" }}
  yield view
}}
drafts = llm(temperature: 1, sample: 2) {{ system "{OTHER}" user "{{{{ x }}}}" }}
sort by text desc
output x, views, drafts
"""
    rows = [{"text": f"text {number % 9}"} for number in range(20)]
    rows[2] = {"text": ""}
    plan = plan_of(text)
    for settings in ({"concurrency": 1}, {"concurrency": 5}, {"concurrency": 5, "merge": False}):
        plain, better = (run_plan(each, rows, **settings) for each in (plan, warmed(text)))
        assert better.rows == plain.rows
        if settings["concurrency"] == 1:
            assert sorted(better.prompts()) == sorted(plain.prompts())


def test_a_call_that_fails_lets_another_lead_and_at_last_all_go() -> None:
    watch = watched(warmed(ONE), watch=Watch(lambda request: request.row == 0))
    assert watch.counts == [1, 1, 1, 2, 3, 4, 5, 6] + [6] * 4
    watch = watched(warmed(ONE), watch=Watch(lambda request: True))
    assert watch.counts == [1, 1, 1, 1, 2, 3, 4, 5, 6] + [6] * 3


def test_steps_that_begin_alike_share_a_leader() -> None:
    names = ["x0", "x1", "x2", "x3"]
    roles = "\n".join(f'{name} = llm {{ user "{RULES} You are {name}. {{{{ text }}}}" }}' for name in names)
    text = f"workflow w(text: text)\n{roles}\noutput {', '.join(names)}"
    watch = watched(warmed(text), 1)
    # One call for what all share, then the other three at once.
    assert watch.counts == [1, 1, 2, 3]
    watch = watched(warmed(text), 6)
    # Then one of each step goes first for what is its own.
    begun = [step for step, _ in watch.at_once]
    assert begun[0] == "x0"
    assert sorted(set(begun[1:7])) == names
    assert [begun[:7].count(name) for name in names[1:]] == [1, 1, 1]
    assert watch.counts[:2] == [1, 1]
    assert max(watch.counts) == 6
    assert len(watch.counts) == 24


def test_other_steps_do_not_wait() -> None:
    text = f'workflow w(text: text)\ny = llm {{ user "{{{{ text }}}}" }}\n{ONE.partition(chr(10))[2]}, y'
    watch = watched(warmed(text), 4)
    first = [step for step, _ in watch.at_once[:5]]
    assert sorted(first) == ["x", "y", "y", "y", "y"]


@pytest.mark.parametrize("settings", [{"concurrency": 1}, {"max_calls": 3}, {"max_failed": 1}, {"run_timeout": 0.03}])
def test_no_limit_leaves_anybody_waiting(settings: dict[str, Any]) -> None:
    watch = Watch(lambda request: request.row in (0, 1, 2))
    watched(warmed(ONE), watch=watch, **settings)
    assert watch.engine.in_flight == 0


def test_calls_before_a_limit_keep_their_order() -> None:
    text = f"""
workflow w(text: text)
y = llm {{ system "{RULES}" user "{{{{ text }}}}" }}
limit 1
x = llm {{ system "{RULES}" user "{{{{ y }}}}" }}
output x
"""
    plan = plan_of(text)
    assert insert_warmups(plan, RuleContext()) is plan


def test_rows_that_nobody_wants_any_more_let_others_lead() -> None:
    text = f"""
workflow w(text: text)
y = llm {{ system "{RULES}" user "{{{{ text }}}}" }}
limit 2
x = llm {{ system "{OTHER}" user "{{{{ y }}}}" }}
output x
"""
    plan = plan_of(text)

    def lead(node: Node) -> Node:
        return replace(node, lead=True) if isinstance(node, Generate) else node

    watch = watched(rewrite(plan, lead))
    assert [step for step, _ in watch.at_once].count("x") == 2
    assert watch.engine.in_flight == 0
