"""Parts whose order the author left free are laid out so that prompts begin alike; no other part ever moves."""

from __future__ import annotations

import re
from typing import Any

import pytest
from plan_runs import run_plan
from prefixes import cached_share
from rules_support import plan_of, seen

from helix.executor.engines.scripted import ScriptedEngine
from helix.logical import Generate, LogicalPlan, every_node
from helix.optimizer.driver import optimize
from helix.optimizer.rule import RuleContext
from helix.optimizer.rules.lay_out_prompts import lay_out_prompts
from helix.show import plan_text

ANY = RuleContext()


def laid_out(text: str, context: RuleContext = ANY) -> LogicalPlan:
    return optimize(plan_of(text), context, [lay_out_prompts]).plan


def parts(plan: LogicalPlan) -> list[str]:
    """The unordered parts of a plan's prompts, in their order."""
    return re.findall(r'part "(.*)"', plan_text(plan))


def asking(*given: str, inputs: str = "a: text, b: text, c: text", more: str = "") -> str:
    shown = " ".join(f'part "{part}"' for part in given)
    return f"workflow w({inputs})\n{more}\nx = llm {{ user unordered {{ {shown} }} }}\noutput x"


# --- without a look at the table ----------------------------------------------------------------------------------


def test_what_no_row_changes_comes_first_then_what_has_fewer_holes() -> None:
    plan = laid_out(asking("{{ a }} and {{ b }}", "{{ c }}", "Be brief.", "{{ a }}"))
    assert parts(plan) == ["Be brief.", "{c}", "{a}", "{a} and {b}"]


def test_constants_and_known_texts_are_what_no_row_changes() -> None:
    plan = laid_out(asking("{{ a }}", "{{ upper(tone) }} {{ tone }}", more='let tone = "kind"'))
    assert parts(plan)[1] == "{a}"


def test_equal_parts_keep_the_authors_order() -> None:
    text = asking("{{ b }}", "{{ a }}", "{{ c }}")
    plan = plan_of(text)
    assert lay_out_prompts(plan, ANY) is plan
    assert lay_out_prompts(laid_out(text), ANY).id == plan.id


@pytest.mark.parametrize(
    "prompt",
    [
        'user "{{ a }}" user "Be brief."',
        'system "{{ a }}" user "Be brief."',
        'user "{{ a }} Be brief."',
        'user unordered { part "Be brief." part "{{ a }}" }',
        'user unordered { part "{{ a }}" }',
        'user "{{ a }}" user unordered { part "Be brief." part "{{ b }}" }',
    ],
)
def test_parts_that_the_author_ordered_stay(prompt: str) -> None:
    plan = plan_of(f"workflow w(a: text, b: text)\nx = llm {{ {prompt} }}\noutput x")
    assert lay_out_prompts(plan, ANY) is plan
    assert lay_out_prompts(plan, seen(9, a=(9, 50), b=(1, 5))) is plan


def test_prompts_inside_loops_and_branches_are_laid_out() -> None:
    plan = laid_out("""
workflow w(a: text, names: list[text])
views = for name in names {
  view = llm { user unordered { part "{{ name }} {{ a }}" part "{{ a }}" part "Be brief." } }
  yield view
}
if a == "x" {
  y = llm { user unordered { part "{{ a }}" part "Be kind." } }
}
output views, y
""")
    assert parts(plan) == ["Be kind.", "{a}", "Be brief.", "{a}", "{name} {a}"]


# --- with one -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("context", "order"),
    [
        (seen(100, a=(100, 50), b=(2, 50), c=(10, 50)), "bca"),
        # Many tokens that seldom change are worth more than few that change less.
        (seen(100, a=(100, 50), b=(2, 1), c=(10, 500)), "cba"),
        (seen(100, a=(1, 5), b=(2, 50), c=(100, 50)), "abc"),
        # What a column decides changes with it.
        (seen(100, (("b", "a"),), a=(20, 300), b=(20, 5), c=(4, 300)), "cab"),
        (seen(100, (("b", "a"),), a=(20, 300), b=(20, 5), c=(19, 90)), "abc"),
        # Nothing repeats: nothing is won.
        (seen(100, a=(100, 50), b=(100, 5), c=(100, 500)), "abc"),
        (seen(0), "abc"),
    ],
)
def test_what_seldom_changes_and_takes_many_tokens_comes_first(context: RuleContext, order: str) -> None:
    plan = laid_out(asking("{{ a }}", "{{ b }}", "{{ c }}"), context)
    assert parts(plan) == [f"{{{name}}}" for name in order]


def test_replies_change_with_what_they_were_asked_and_samples_always() -> None:
    steps = 'first = llm { user "{{ b }}" }\nsecond = llm(temperature: 1) { user "{{ b }}" }'
    context = seen(100, a=(20, 64), b=(2, 64), c=(100, 64))
    plan = laid_out(asking("{{ second }}", "{{ a }}", "{{ first }}", more=steps), context)
    assert parts(plan) == ["{first}", "{a}", "{second}"]


def test_many_parts_are_laid_out_one_after_the_other() -> None:
    names = "abcdefgh"
    inputs = ", ".join(f"{name}: text" for name in names)
    found = {name: (2 ** (8 - number), 40.0) for number, name in enumerate(names)}
    plan = laid_out(asking(*(f"{{{{ {name} }}}}" for name in names), inputs=inputs), seen(10**15, (), **found))
    assert parts(plan) == [f"{{{name}}}" for name in reversed(names)]


def test_what_stands_before_counts_too() -> None:
    # After the system message each prompt is unlike the others already: nothing is won by moving parts.
    text = 'workflow w(a: text, b: text)\nx = llm { system "{{ a }}" user unordered { part "{{ a }}" part "{{ b }}" } }'
    plan = plan_of(f"{text}\noutput x")
    assert lay_out_prompts(plan, seen(100, a=(100, 5), b=(2, 500))) is plan


def test_the_same_parts_are_laid_out_alike_wherever_they_stand() -> None:
    # Inside the loop the reply is the row's own, after it that of the last round: to the run both may be equal calls.
    text = """
workflow w(a: text, b: text)
s = "none"
repeat up to 2 {
  s = llm { user "{{ b }}" }
  x = llm { user unordered { part "{{ a }}" part "{{ s }} and more" } }
}
y = llm { user unordered { part "{{ a }}" part "{{ s }} and more" } }
output x, y
"""
    context = seen(100, a=(30, 50), b=(10, 50))
    assert parts(laid_out(text, context)) in (["{a}", "{s} and more"] * 2, ["{s} and more", "{a}"] * 2)


# --- what comes out -----------------------------------------------------------------------------------------------

POLICIES = [f"policy {number} " * 30 for number in range(4)]
ROWS = [{"a": f"question {number}", "b": POLICIES[number * 7 % 4], "c": "x" * (number % 3)} for number in range(60)]


def careless(request: Any) -> str:
    """A model that does not look at the order of the parts."""
    content = request.messages[-1].content
    return "; ".join(sorted(part[:20] for part in content.split("\n\n")))


def test_a_model_that_does_not_mind_gives_the_same_results_from_longer_prefixes() -> None:
    plan = plan_of(asking("{{ a }}", "Policy: {{ b }}", "{{ c }}", "Answer by the policy, in one sentence."))
    better = optimize(plan, seen(60, a=(60, 4), b=(4, 90), c=(3, 1)), [lay_out_prompts]).plan
    runs = [run_plan(each, ROWS, engine=ScriptedEngine(reply=careless), concurrency=1) for each in (plan, better)]
    assert runs[1].rows == runs[0].rows
    assert runs[1].report.calls == runs[0].report.calls
    assert sorted(map(len, runs[1].prompts())) == sorted(map(len, runs[0].prompts()))
    shares = [cached_share(run.prompts(), 8_000) for run in runs]
    assert shares[0] < 0.05
    assert shares[1] > 0.85


def test_only_the_order_changes() -> None:
    plan = plan_of(asking("{{ a }}", "Be brief.", "{{ b }} {{ c }}"))
    better = laid_out(asking("{{ a }}", "Be brief.", "{{ b }} {{ c }}"))
    (old,), (new,) = ([node for node in every_node(each.sink) if isinstance(node, Generate)] for each in (plan, better))
    assert sorted(value.id for value in new.prompt[0].content) == sorted(value.id for value in old.prompt[0].content)
    assert new.prompt[0].unordered
