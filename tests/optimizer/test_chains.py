"""Chains of calls that follow on one another, by hand."""

from __future__ import annotations

import sys
from array import array
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from plans_support import plan_of

from helix.optimizer.bounds import held_together
from helix.optimizer.chains import LINES, Chains, Spent
from helix.optimizer.driver import optimize
from helix.optimizer.tree import TokenTrie
from helix.optimizer.tree.resolve import resolve_plan


def chains(text: str) -> Chains:
    return Chains(resolve_plan(plan_of(text)))


LOOPS = """
    workflow w(q: text, items: list[text])
    a = llm { user "{{ q }}" }
    views = for item in items {
      v = llm { user "{{ item }}{{ a }}" }
      words = for part in items { u = llm { user "{{ part }}{{ v }}" } yield u }
      t = llm { user "{{ v }}{{ words }}" }
      yield t
    }
    r = llm { user "{{ a }}{{ views }}" }
    output r
"""


# The item with the long `v` has the short `t`.
OF_ITEMS: list[Spent] = [
    (0, "a", 1.0),
    (0, "views[0].v", 50.0),
    (0, "views[1].v", 10.0),
    (0, "views[0].t", 20.0),
    (0, "views[1].t", 40.0),
    (0, "r", 3.0),
]


def test_steps_of_a_loop_follow_on_one_another_for_one_item() -> None:
    calls = OF_ITEMS
    assert chains(LOOPS).of_row(calls) == 1 + 50 + 20 + 3
    # Nobody knows whose these are: the longest call counts, and what is around the loop.
    unknown = [(row, step.replace("[0]", "").replace("[1]", ""), spent) for row, step, spent in calls]
    assert chains(LOOPS).of_row(unknown) == 1 + 50 + 3
    # Of one call the item is known, of the other not: it may be that of another item.
    mixed = [calls[0], calls[1], (0, "views.t", 90.0), calls[5]]
    assert chains(LOOPS).of_row(mixed) == 1 + 90 + 3


def test_loops_in_loops() -> None:
    calls: list[Spent] = [
        (0, "views[0].v", 5.0),
        (0, "views[1].v", 6.0),
        (0, "views[0].words[0].u", 7.0),
        (0, "views[0].words[3].u", 9.0),
        (0, "views[1].words[0].u", 1.0),
        (0, "views[1].t", 4.0),
        (0, "views[0].t", 2.0),
    ]
    assert chains(LOOPS).of_row(calls) == 5 + 9 + 2
    assert chains(LOOPS).of_row(calls[1:]) == 9 + 2
    assert chains(LOOPS).of_row([*calls[:2], calls[4], calls[5]]) == 6 + 1 + 4


def test_an_unrolled_loop_has_the_same_chains() -> None:
    plan = plan_of("""
        workflow w(q: text)
        let roles = ["x", "y"]
        views = for role in roles {
          v = llm { user "{{ role }}{{ q }}" }
          t = llm { user "{{ v }}" }
          yield t
        }
        r = llm { user "{{ views }}" }
        output r
    """)
    calls: list[Spent] = [
        (0, "views[0].v", 30.0),
        (0, "views[1].v", 1.0),
        (0, "views[0].t", 2.0),
        (0, "views[1].t", 25.0),
        (0, "r", 4.0),
    ]
    unrolled = optimize(plan).plan
    assert len(resolve_plan(unrolled).calls) > len(resolve_plan(plan).calls)
    assert [Chains(resolve_plan(each)).of_row(calls) for each in (plan, unrolled)] == [36.0, 36.0]


def test_rounds_and_turns_of_an_item_are_made_one_after_the_other_and_samples_are_not() -> None:
    text = """
        workflow w(items: list[text])
        tool look(key: text) -> text from python "lib:look" effects read
        views = for item in items {{
          a = agent {{ tools [look] user "{{{{ item }}}}" }}
          r = a
          repeat up to 3 {{ r = llm{sample} {{ user "{{{{ r }}}}" }}{first} }}
          yield r
        }}
        output views
    """
    turns: list[Spent] = [(0, "views[0].a", 2.0), (0, "views[0].a", 3.0), (0, "views[1].a", 4.0)]
    rounds: list[Spent] = [(0, "views[0].r", 5.0), (0, "views[0].r", 6.0), (0, "views[1].r", 10.0)]
    one = chains(text.format(sample="", first=""))
    assert one.of_row(turns) == 5
    assert one.of_row(rounds) == 11
    assert one.of_row(turns + rounds) == 16
    # A call of a tool of the agent counts where it alone is longer than all turns of its item.
    assert one.of_row(turns, [(0, "views[0].a", 9.0), (0, "views[1].a", 1.0)]) == 9


def test_samples_of_a_step_in_rounds_run_beside_each_other() -> None:
    found = chains("""
        workflow w(q: text)
        r = [q]
        repeat up to 3 { r = llm(sample: 2) { user "{{ r }}" } }
        output r
    """)
    assert found.of_row([(0, "r", 5.0), (0, "r", 6.0)]) == 6


def test_nobody_waits_for_what_a_call_needs_that_is_not_made() -> None:
    found = chains("""
        workflow w(q: text, items: list[text], short: bool)
        a = llm { user "{{ q }}" }
        if short { c = llm { user "{{ a }}" } } else { c = q }
        views = for item in items {
          v = llm { user "{{ item }}{{ a }}" }
          u = llm { user "{{ v }}" }
          yield u
        }
        d = llm { user "{{ c }}{{ views }}" }
        output d, a
    """)
    assert found.of_row([(0, "a", 5.0), (0, "d", 2.0)]) == 5
    assert found.of_row([(0, "a", 5.0), (0, "c", 1.0), (0, "d", 2.0)]) == 8
    assert found.of_row([(0, "a", 5.0), (0, "views[0].v", 1.0), (0, "views[0].u", 1.0), (0, "d", 2.0)]) == 9
    # Of whatever item it is: the other step of that item comes before what follows on the loop.
    assert found.of_row([(0, "views.v", 7.0), (0, "views.u", 1.0), (0, "d", 2.0)]) == 9


def test_steps_of_one_name_count_once() -> None:
    # Of which arm a call is nobody knows: it follows on what both follow on.
    found = chains("""
        workflow w(q: text, short: bool)
        a = llm { user "{{ q }}" }
        b = llm { user "B{{ q }}" }
        if short { c = llm { user "{{ a }}" } } else { c = llm { user "{{ b }}" } }
        d = llm { user "{{ c }}" }
        output d, a, b
    """)
    assert found.of_row([(0, "a", 5.0), (0, "b", 4.0), (0, "c", 3.0), (0, "d", 2.0)]) == 5


def test_rows_are_apart_and_unknown_steps_count_for_nothing() -> None:
    found = chains(LOOPS)
    assert found.longest([(0, "a", 1.0), (1, "r", 2.0), (1, "a", 3.0), (2, "other", 9.0)]) == 5
    assert found.longest([]) == 0.0


@pytest.mark.parametrize(("steps", "passes"), [(("a", "b"), 5 + 7), (("b", "c"), 8)])
def test_what_calls_share_is_held_by_each_of_those_that_follow_on_one_another(
    steps: tuple[str, str], passes: float
) -> None:
    found = chains("""
        workflow w(q: text)
        a = llm { user "{{ q }}" }
        b = llm { user "{{ q }}{{ a }}" }
        c = llm { user "{{ q }}{{ a }}!" }
        output b, c
    """)
    took = {"a": 5.0, "b": 7.0, "c": 8.0}
    trie = TokenTrie()
    # Both begin with the same three tokens, and a further row has one of them.
    handles = [trie.insert(array("I", [1, 2, 3, 10 + number])) for number in range(2)]
    handles.append(trie.insert(array("I", [1, 9])))
    decoded: list[Spent] = [*((0, step, took[step]) for step in steps), (1, "a", 6.0)]
    assert held_together(trie, handles, decoded, found) == 3 * passes


def test_what_decoding_has_left_is_held_by_the_call_that_goes_on_from_it() -> None:
    found = chains("""
        workflow w(q: text)
        a = llm { user "{{ q }}" }
        b = llm { user "{{ q }}" assistant "{{ a }}" user "more" }
        output b
    """)
    trie = TokenTrie()
    handles = [trie.insert(array("I", [1, 2]), array("I", [3, 4, 5])), trie.insert(array("I", [1, 2, 3, 4, 5, 6]))]
    decoded: list[Spent] = [(0, "a", 2.0), (0, "b", 10.0)]
    assert trie.private_tokens(handles[1]) == 1
    assert held_together(trie, handles, decoded, found) == 2 * (2 + 10) + 3 * 10


def lines(text: str, calls: list[Spent], contexts: list[float] | None = None) -> list[tuple[float, float]]:
    return sorted(chains(text).lines(calls, contexts or [spent for _, _, spent in calls]))


def test_lines_of_calls_that_follow_on_one_another() -> None:
    calls = OF_ITEMS
    # `r` comes after both items and goes on the longer line; the other item begins one of its own.
    assert lines(LOOPS, calls) == [(50.0, 40.0), (74.0, 50.0)]
    assert lines(LOOPS, calls, [9.0, 1.0, 1.0, 1.0, 2.0, 1.0]) == [(50.0, 2.0), (74.0, 9.0)]
    # Rows have lines of their own, whatever the order of the calls.
    again = [*reversed(calls), *[(1, step, spent) for _, step, spent in calls]]
    assert lines(LOOPS, again) == [(50.0, 40.0), (50.0, 40.0), (74.0, 50.0), (74.0, 50.0)]


def test_calls_of_which_nobody_knows_whether_they_follow_have_lines_of_their_own() -> None:
    unknown: list[Spent] = [(0, "a", 1.0), (0, "views.v", 50.0), (0, "views.v", 10.0), (0, "views.t", 20.0)]
    assert lines(LOOPS, unknown) == [(10.0, 10.0), (20.0, 20.0), (51.0, 50.0)]
    assert lines(LOOPS, [(0, "other", 4.0), (0, "a", 1.0)]) == [(1.0, 1.0), (4.0, 4.0)]


@pytest.mark.parametrize(
    ("sample", "found"), [("", [(22.0, 7.0)]), ("(sample: 2)", [(4.0, 4.0), (5.0, 5.0), (13.0, 7.0)])]
)
def test_rounds_are_one_line_and_samples_are_not(sample: str, found: list[tuple[float, float]]) -> None:
    text = f"""
        workflow w(q: text)
        r = {"[q]" if sample else "q"}
        repeat up to 3 {{ r = llm{sample} {{ user "{{{{ r }}}}" }} }}
        y = llm {{ user "{{{{ r }}}}" }}
        output y
    """
    calls: list[Spent] = [(0, "r", 4.0), (0, "r", 5.0), (0, "r", 6.0), (0, "y", 7.0)]
    assert lines(text, calls) == found


def test_rows_of_many_items_have_lines_that_are_begun_anew() -> None:
    """A line in two is still a line: of no row all its lines are looked at for each call."""
    calls: list[Spent] = [(0, f"views[{at}].{step}", 2.0) for step in "vt" for at in range(LINES + 6)]
    assert lines(LOOPS, calls) == [(2.0, 2.0)] * 12 + [(4.0, 2.0)] * LINES
