"""Groups of rows and the ranks that take them: counted by hand, and what must hold for any table."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
from lowering_support import lowered
from plans_support import plan_of

from helix.executor.row_order import GroupedRows
from helix.executor.tables import Row
from helix.logical import Scan
from helix.optimizer.lowering.assign import Assigner, release_order
from helix.optimizer.lowering.table import Group
from helix.optimizer.rewrite import rewrite
from helix.physical import PhysicalPlan

BY_POLICY = """
    workflow w(policy: text, q: text)
    model m { max_tokens: 20 }
    a = llm m { system "By this policy: {{ policy }}" user "{{ q }}" }
    output a
"""
NESTED = """
    workflow w(policy: text, product: text, q: text)
    model m { max_tokens: 20 }
    a = llm m { system "By this policy: {{ policy }}" user "{{ product }} {{ q }}" }
    output a
"""


def table(sizes: dict[str, int], length: int = 100, seed: int = 1) -> list[dict[str, Any]]:
    """Rows in a shuffled order: so many of each policy, whose text has so many characters."""
    rows = [
        {"policy": name.ljust(length, "."), "q": f"{name}{number}".ljust(30, "?")}
        for name, count in sizes.items()
        for number in range(count)
    ]
    random.Random(seed).shuffle(rows)
    return rows


def by_key(made: PhysicalPlan) -> dict[str, Any]:
    """The groups by the first letter of their key."""
    return {json.loads(group.key[0])[0]: group for group in made.groups}


def test_groups_are_counted() -> None:
    made = lowered(BY_POLICY, table({"a": 4, "b": 6, "c": 2}), rules=True)
    assert made.group_by == ("policy",)
    groups = by_key(made)
    assert {name: group.rows for name, group in groups.items()} == {"a": 4, "b": 6, "c": 2}
    assert [group.first for group in made.groups] == [0, 4, 10]
    for group in made.groups:
        # "By this policy: " is the same for all rows, the policy for those of the group; each row adds its question.
        assert group.shared_tokens == 100
        assert group.row_tokens == 30
        assert group.ranks == (0,)
        # A millisecond for a token of prefill, a hundred for the ten tokens of a reply.
        assert group.work == pytest.approx((100 + group.rows * (30 + 9 * 10)) / 1000)
    assert made.loads == pytest.approx([sum(group.work for group in made.groups)])


def test_rows_with_the_same_list_share_its_items() -> None:
    rows = [
        {"chunks": [name * 80, (name * 120).upper()], "q": f"{name}{number}".ljust(30, "?")}
        for number in range(4)
        for name in ("a", "b", "c")
    ]
    text = """
        workflow w(chunks: list[text], q: text)
        notes = for chunk in chunks {
          note = llm(max_tokens: 20) { user "{{ chunk }}{{ q }}" }
          yield note
        }
        output notes
    """
    made = lowered(text, rows, rules=True)
    assert made.group_by == ("chunks",)
    assert [(group.rows, group.first) for group in made.groups] == [(4, 0), (4, 4), (4, 8)]
    # The items of each list come to 200 tokens, by an estimate; a row adds its question behind each of them.
    assert [group.shared_tokens for group in made.groups] == pytest.approx([200] * 3, rel=0.03)
    assert [group.row_tokens for group in made.groups] == pytest.approx([60] * 3)


def test_groups_go_to_the_rank_with_the_least_work_the_longest_first() -> None:
    made = lowered(BY_POLICY, table({"a": 40, "b": 30, "c": 20, "d": 30}), rules=True, ranks=2)
    groups = by_key(made)
    # 40, then 30 and 30 to the other, then 20 to the first: 60 and 60.
    assert groups["a"].ranks == groups["c"].ranks != groups["b"].ranks == groups["d"].ranks
    assert made.loads[0] == pytest.approx(made.loads[1])


def test_rows_are_released_for_all_ranks_side_by_side() -> None:
    made = lowered(BY_POLICY, table(dict.fromkeys("abcdefgh", 10)), rules=True, ranks=2)
    order = [group.ranks for group in made.groups]
    assert Counter(order) == {(0,): 4, (1,): 4}
    assert order[::2] == [(0,)] * 4
    for rank in (0, 1):
        keys = [group.key for group in made.groups if group.ranks == (rank,)]
        assert keys == sorted(keys)
    starts = [group.first for group in made.groups]
    assert starts == [10 * place for place in range(8)]


def test_a_group_is_shared_out_only_where_that_is_sooner() -> None:
    # 130 ms a row: half of 40 rows is 2.6 s, more than a policy of 100 tokens costs (0.1 s), less than one of 4,000.
    short = lowered(BY_POLICY, table({"a": 40}), rules=True, ranks=2, stats=None)
    assert short.group_by == ()
    rows = table({"a": 40, "b": 1})
    assert by_key(lowered(BY_POLICY, rows, rules=True, ranks=2))["a"].ranks == (0, 1)
    long = table({"a": 40, "b": 1}, length=6000)
    assert len(by_key(lowered(BY_POLICY, long, rules=True, ranks=2))["a"].ranks) == 1


def nested(sizes: dict[tuple[str, str], int], policy: int) -> list[dict[str, Any]]:
    return [
        {"policy": one.ljust(policy, "."), "product": other.ljust(200, "."), "q": f"{one}{other}{number:03}?"}
        for (one, other), count in sizes.items()
        for number in range(count)
    ]


def test_nested_groups_stay_together_unless_parting_them_pays() -> None:
    sizes = {("a", "x"): 20, ("a", "y"): 20, ("b", "x"): 4, ("b", "z"): 4}
    cheap = lowered(NESTED, nested(sizes, 300), rules=True, ranks=2)
    assert cheap.group_by == ("policy", "product")
    by = {tuple(json.loads(part)[0] for part in group.key): group.ranks for group in cheap.groups}
    assert by["a", "x"] != by["a", "y"]
    dear = lowered(NESTED, nested(sizes, 20_000), rules=True, ranks=2)
    by = {tuple(json.loads(part)[0] for part in group.key): group.ranks for group in dear.groups}
    assert by["a", "x"] == by["a", "y"]
    # The policy, the product, and the space behind it.
    assert {group.shared_tokens for group in dear.groups} == {20_000 + 200 + 1}


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_the_rows_does_not_matter(seed: int) -> None:
    sizes = {"a": 9, "b": 5, "c": 7, "d": 2, "e": 1}
    one = lowered(BY_POLICY, table(sizes, seed=0), rules=True, ranks=3, kv_tokens=4000)
    other = lowered(BY_POLICY, table(sizes, seed=seed), rules=True, ranks=3, kv_tokens=4000)
    assert [(g.key, g.rows, g.first, g.ranks) for g in one.groups] == [
        (g.key, g.rows, g.first, g.ranks) for g in other.groups
    ]
    assert [(step.step, step.phase) for step in one.steps] == [(step.step, step.phase) for step in other.steps]
    assert one.block == other.block
    assert one.advice == other.advice


def test_rows_that_were_not_bound_are_counted_too() -> None:
    rows = table({"a": 40, "b": 60})
    made = lowered(BY_POLICY, rows, rules=True, bound_calls=10)
    assert {name: group.rows for name, group in by_key(made).items()} == {"a": 40, "b": 60}
    assert made.rows == 100
    whole = lowered(BY_POLICY, rows, rules=True)
    assert by_key(made)["b"].row_tokens == pytest.approx(by_key(whole)["b"].row_tokens)
    assert sum(step.calls for step in made.steps) == pytest.approx(100)


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.floats(-3, 3), st.text("abß", max_size=2),
    st.lists(st.integers(0, 1), max_size=2),
)  # fmt: skip


@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=25))
@settings(max_examples=60, deadline=None)
def test_every_row_is_in_one_group_and_groups_come_as_rows_do(values: list[tuple[Any, Any]]) -> None:
    plan = plan_of('workflow w(a: json?, b: json?, q: text)\nx = llm { user "{{ a }} {{ b }} {{ q }}" }\noutput x')
    plan = rewrite(plan, lambda node: replace(node, order=("a", "b")) if isinstance(node, Scan) else node, inside=False)
    rows = [{"a": one, "b": other, "q": "what"} for one, other in values]
    made = lowered(plan, rows)
    assert sum(group.rows for group in made.groups) == len(rows)
    assert len({group.key for group in made.groups}) == len(made.groups)
    spent = 0
    for group in made.groups:
        assert group.first == spent
        spent += group.rows
    counted = Counter(tuple(_json(row[name]) for name in ("a", "b")) for row in rows)
    assert {group.key: group.rows for group in made.groups} == counted
    source = [Row(index, row, None) for index, row in enumerate(rows)]
    given_out = [tuple(_json(row.values[name]) for name in ("a", "b")) for row in GroupedRows(source, ("a", "b"))]
    places = {group.key: place for place, group in enumerate(made.groups)}
    order = [places[key] for key in given_out]
    # Keys that sort alike (1 and 1.0, false and 0) may stand in each other's way; all others come in this order.
    assert all(one <= other or _alike(made.groups[one].key, made.groups[other].key) for one, other in pairwise(order))


def _alike(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    return any(a != b and json.loads(a) == json.loads(b) for a, b in zip(one, other, strict=True))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


WORK = st.lists(st.integers(1, 1000), min_size=1, max_size=40)


@given(WORK, st.integers(1, 6), st.integers(0, 200))
@settings(max_examples=150, deadline=None)
def test_loads_are_balanced_and_every_group_is_placed_once(work: list[int], ranks: int, prefix: int) -> None:
    groups = [
        Group(key=(f"{place:03}",), place=(place,), rows=7, seconds=float(seconds), shared=(float(prefix),))
        for place, seconds in enumerate(work)
    ]
    assigner = Assigner(groups, ranks, lambda tokens: tokens)
    placed = assigner.place()
    covered = [at for part in placed.parts for at in range(part.first, part.end)]
    assert sorted(covered) == list(range(len(groups)))
    assert all(
        len(set(taken)) == len(taken) == part.share for part, taken in zip(placed.parts, placed.ranks, strict=True)
    )
    assert placed.loads == pytest.approx(assigner.loads(placed.parts, placed.ranks))
    # Graham's bound for lists: no rank is above the mean by more than the largest piece of work.
    pieces = [part.own / part.share + (prefix if part.share > 1 else 0) for part in placed.parts]
    assert placed.makespan <= sum(placed.loads) / ranks + max(pieces) + 1e-6
    better, _ = assigner.improved(placed, 500)
    assert better.makespan <= placed.makespan + 1e-9
    assert sorted(release_order(better, groups, ranks)) == list(range(len(groups)))


def test_moves_and_swaps_mend_what_the_longest_first_leaves() -> None:
    # Longest first gives 7+4+4 and 7... : 8, 7 | 6, 5, 4 -> 8+5+4 = 17 and 7+6 = 13; 15 and 15 is there.
    groups = [
        Group(key=(str(place),), place=(place,), rows=1, seconds=float(seconds), shared=(0.0,))
        for place, seconds in enumerate((8, 7, 6, 5, 4))
    ]
    assigner = Assigner(groups, 2, lambda tokens: tokens)
    placed = assigner.place()
    better, left = assigner.improved(placed, 100)
    assert placed.makespan == 17
    assert better.makespan == 15
    assert 0 <= left < 100
    assert assigner.improved(placed, 0)[0] is placed
