"""Helium's order of the steps: its worked example, and each of its rules by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from lowering_support import GOLDEN, lowered, phases, questions

from helix.physical import PhysicalPlan, Planner

BOTH: list[Planner] = ["helium-code", "helium-paper"]
LENGTHS = {"op1": 30, "op2": 5, "op3": 5}


def planned(text: str, count: int, planner: Planner = "helium-code", **options: object) -> PhysicalPlan:
    options = {"max_running": 256, **options}
    return lowered(text, questions(count), planner=planner, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("planner", BOTH)
@pytest.mark.parametrize("count", [2, 20, 300])
def test_the_worked_example(count: int, planner: Planner) -> None:
    """op1 for all rows, then op2 and op3 row by row, which share the question behind their system prompt."""
    made = planned(GOLDEN, count, planner, lengths=LENGTHS, theta=5)
    assert phases(made) == [["op1"], ["op2", "op3"]]
    assert made.block == count
    assert made.groups == ()
    assert {step.step: len(step.needs) for step in made.steps} == {"op1": 0, "op2": 0, "op3": 1}
    assert [prefix.steps for prefix in made.warm] == [("op1",), ("op2", "op3")]


@pytest.mark.parametrize("planner", BOTH)
def test_the_longest_way_to_the_end_in_hops_comes_first(planner: Planner) -> None:
    text = """
    workflow w(q: text)
    plain = llm { system "AAAA" user "{{ q }}" }
    one = llm { system "BBBB" user "{{ q }}" }
    two = llm { system "CCCC" user "{{ one }}" }
    three = llm { system "DDDD" user "{{ two }}" }
    output plain, three
    """
    # However long the step alone takes: hops count, not time.
    made = planned(text, 9, planner, lengths={"plain": 900, "one": 5, "two": 5, "three": 5}, kv_tokens=1)
    assert phases(made)[:2] == [["one"], ["two"]]


def test_what_is_not_ready_by_the_clock_waits_for_what_is() -> None:
    text = """
    workflow w(q: text)
    one = llm { system "BBBB" user "{{ q }}" }
    two = llm { system "CCCC" user "{{ one }}" }
    three = llm { system "DDDD" user "{{ two }}" }
    plain = llm { system "AAAA" user "{{ q }}" }
    output plain, three
    """
    # A call of `one` takes 50 * 30 + 1,275 = 2,775 token steps. `two` may begin 50 M after the first row's, the clock
    # stands at nine of them: before or after that, by the size of the worker.
    lengths = {"one": 50, "two": 5, "three": 5, "plain": 5}
    assert phases(planned(text, 9, lengths=lengths, kv_tokens=450))[:2] == [["one"], ["plain"]]
    assert phases(planned(text, 9, lengths=lengths, kv_tokens=440))[:2] == [["one"], ["two"]]
    # Where only three calls run at once, their replies take longer than all the prompts.
    assert phases(planned(text, 9, lengths=lengths, kv_tokens=450, max_running=3))[:2] == [["one"], ["two"]]


def test_the_paper_counts_what_is_not_shared_with_the_call_before() -> None:
    text = """
    workflow w(q: text)
    one = llm { system "BBBB" user "{{ q }}" }
    more = llm { system "BBBB" user "{{ q }} and more" }
    two = llm { system "CCCC" user "{{ one }}" }
    three = llm { system "DDDD" user "{{ two }}" }
    plain = llm { system "AAAA" user "{{ q }}" }
    output plain, more, three
    """
    # `one` and `more` are a unit. By the whole prompts its nine rows take the clock past 50 M, by what is new they do
    # not: then `plain`, which can begin, goes first.
    lengths = {"one": 50, "more": 50, "two": 5, "three": 5, "plain": 5}
    code = 50 * 30 + 1275 + 50 * 39 + 1275
    paper = 50 * 30 + 1275 + 50 * 9 + 1275
    worker = (8 * paper // 50 + 8 * code // 50) // 2
    assert phases(planned(text, 9, "helium-code", lengths=lengths, kv_tokens=worker))[1] == ["two"]
    assert phases(planned(text, 9, "helium-paper", lengths=lengths, kv_tokens=worker))[1] == ["plain"]


def test_branches_that_wait_for_each_other_are_come_back_to() -> None:
    text = """
    workflow w(q: text)
    draft = llm { system "DDDDDDDDDD" user "{{ q }}" }
    critic = llm { system "CCCCC" user "{{ draft }}" }
    final = llm { system "DDDDDDDDDD" user "{{ q }} {{ critic }}" }
    output final
    """
    for planner in BOTH:
        assert phases(planned(text, 9, planner)) == [["draft"], ["critic"], ["final"]]


def test_of_equal_branches_the_one_that_waits_for_a_sibling_comes_first() -> None:
    text = """
    workflow w(q: text)
    one = llm { system "AAAA" user "{{ q }}" }
    left = llm { system "BBBB" user "{{ q }}" }
    right = llm { system "CCCC" user "{{ q }}" }
    last = llm { system "CCCC" user "{{ one }} {{ q }}" }
    output left, right, last
    """
    # After `one` for 300 rows, `left` and `right` can begin since the start, with nothing behind them. The branch of
    # `right` waits for that of `one`; by the order of the workflow `left` would be first.
    made = planned(text, 300, lengths={"one": 1, "left": 1, "right": 1, "last": 1}, kv_tokens=1)
    assert phases(made)[0] == ["one"]
    assert phases(made)[1][0] in ("right", "last")


def test_an_outline_is_the_steps_and_their_needs() -> None:
    made = planned(GOLDEN, 20, "outline", lengths=LENGTHS)
    assert {step.step: len(step.needs) for step in made.steps} == {"op1": 0, "op2": 0, "op3": 1}
    assert (made.groups, made.order, made.calls) == ((), None, ())
