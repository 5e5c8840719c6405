"""The exact optimum of small cases against all orders, and how far the orders of policies are from it."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("scipy")

from helix.bench.milp import Gaps, gaps, optimum, solve
from helix.bench.orders import ORDERS, Worker, fcfs, released, token_steps
from helix.bench.plots import write_plot
from helix.bench.results import Results
from helix.bench.small import CAPACITY, CELLS, case, small_case
from helix.bench.table5 import gap_plot
from helix.bench.tables import OPTIMA, TABLES, Wish, blocks_of
from helix.optimizer.lowering.recurrence import Call, timeline


def drawn(dice: Random, count: int) -> list[Call]:
    """Calls over a few prompts that share beginnings, some of which wait for earlier ones."""
    made: list[Call] = []
    for number in range(count):
        path = [(dice.randrange(1, 3), 100.0)]
        path += [(10 + dice.randrange(3), 40.0)] * dice.randrange(2) + [(100 + number, float(dice.randrange(1, 30)))]
        needs = tuple(sorted({dice.randrange(number) for _ in range(dice.randrange(2))})) if number else ()
        made.append(Call(path=tuple(path), output=float(dice.randrange(1, 9)), needs=needs))
    return made


@pytest.mark.parametrize("seed", range(12))
def test_the_optimum_is_the_best_of_all_orders(seed: int) -> None:
    dice = Random(seed)
    calls = drawn(dice, dice.randrange(1, 7))
    capacity = dice.choice((50.0, 500.0, 20_000.0))
    least = float("inf")
    for order in permutations(range(len(calls))):
        try:
            least = min(least, timeline(calls, [order], [capacity]).makespan)
        except ValueError:
            continue
    # From a poor order too: it has to find the best one itself.
    found = optimum(calls, capacity, tuple(range(len(calls))))
    assert found.proven
    assert found.makespan == pytest.approx(least * capacity)
    assert timeline(calls, [found.order], [capacity]).makespan * capacity == pytest.approx(found.makespan)


def test_where_it_is_stopped_it_tells_how_far_it_may_be() -> None:
    subject = case("W2 TAT-QA", 0)
    start = fcfs(subject)
    stopped = optimum(subject.calls, CAPACITY, start, nodes=1)
    assert stopped.makespan <= token_steps(subject, start)
    assert 0 < stopped.bound <= stopped.makespan
    assert stopped.gap == pytest.approx(1 - stopped.bound / stopped.makespan)


TWO = """
workflow w(q: text)
a = llm { system "SSSS" user "{{ q }}" }
b = llm { system "TTTT" user "{{ q }} {{ a }}" }
output b
"""


def test_the_calls_of_a_case_by_hand() -> None:
    subject = small_case("two", TWO, [{"q": "12345"}, {"q": "67"}], {"a": 3, "b": 2})
    assert [call.prompt for call in subject.calls] == [4 + 5, 4 + 5 + 1 + 3, 4 + 2, 4 + 2 + 1 + 3]
    assert [call.needs for call in subject.calls] == [(), (0,), (), (2,)]
    assert (subject.ops, subject.rows) == ((0, 1, 0, 1), (0, 0, 1, 1))
    # a: 3 (9 + 2), then only the 2 that are not shared; b waits 3 M for its reply.
    order = (0, 2, 1, 3)
    a0, a1 = 3 * 9 + 6, 3 * 2 + 6
    b0 = 2 * 13 + 3
    b1 = 2 * 6 + 3
    begins = max(a0 + a1, a0 + 3 * CAPACITY)
    begins = max(begins + b0, a0 + a1 + 3 * CAPACITY)
    assert token_steps(subject, order) == pytest.approx(begins + b1)
    assert fcfs(subject) == order


def test_a_worker_waits_for_the_first_call_that_gets_ready() -> None:
    calls = [Call(path=((1, 10),), output=2), Call(path=((1, 10), (2, 5)), output=1, needs=(0,))]
    worker = Worker(calls)
    assert worker.ready([0, 1]) == [0]
    worker.make(0)
    assert worker.ready([0, 1]) == [1]
    assert worker.clock == pytest.approx((2 * 10 + 3) / CAPACITY + 2)
    assert worker.cached(1) == 10


@pytest.mark.parametrize("name", CELLS)
def test_cases_repeat_and_every_policy_makes_all_calls(name: str) -> None:
    one, two = case(name, 3), case(name, 3)
    assert one.calls == two.calls
    assert 2 <= len(one.table) <= 4
    assert 2 <= len(one.nodes) <= 4
    for policy, make in ORDERS.items():
        for order in make(one):
            assert sorted(order) == list(range(len(one.calls))), policy
        assert make(one) == make(two)


def check(found: Gaps) -> None:
    """Helix's mean gap is at most 0.5 %, its largest at most 2 %, and no policy is closer."""
    rows = {row.policy: row for row in found.rows()}
    mean, _, most = rows["helix"].gap
    assert mean <= 0.5
    assert most <= 2.0
    assert mean == min(row.gap[0] for row in rows.values())
    for each in found.solved:
        assert all(steps >= each.optimum.makespan * (1 - 1e-9) for of in each.steps.values() for steps in of)


def test_helix_is_near_the_optimum_in_small_cells() -> None:
    found = gaps(("W1 MMLU", "W3 TAT-QA", "W4"), (0,))
    check(found)
    for each in found.solved:
        # Both ways to the optimum come to one.
        assert each.by_milp.proven
        assert each.by_milp.makespan == pytest.approx(each.optimum.makespan)


@pytest.mark.slow
def test_helix_is_near_the_optimum_in_all_cells() -> None:
    found = gaps(nodes=200)
    check(found)
    assert not found.unproven
    assert len({each.cell for each in found.solved}) == 7
    assert len(found.solved) == 35


def test_orders_come_from_what_is_ready() -> None:
    subject = case("W3 TAT-QA", 1)
    order = released(subject, lambda worker, ready: ready[-1])
    place = {call: at for at, call in enumerate(order)}
    assert all(place[needed] < place[each] for each, call in enumerate(subject.calls) for needed in call.needs)
    assert solve(subject).gaps("helix")[0] == pytest.approx(0, abs=0.02)


def test_cases_are_kept_and_shown(tmp_path: Path) -> None:
    """In the file of results, each with a digest; they are not solved again, and have their table and their plot."""
    results = Results(tmp_path / "runs.json")
    results.optima = list(gaps(["W4"], [2, 3]).solved)
    results.save()
    kept = Results(tmp_path / "runs.json")
    assert kept.optima == results.optima
    assert gaps(["W4"], [2, 3], known=kept.optima, nodes=0).solved == tuple(kept.optima)
    written = json.loads((tmp_path / "runs.json").read_text("utf-8"))["optima"]
    assert len({each["log"] for each in written}) == 2
    first, cells = blocks_of(TABLES[OPTIMA], kept, [], Wish())
    assert [row[0] for row in first.rows] == list(ORDERS)
    assert cells.rows[0][:2] == ("W4", "2")
    drawn = write_plot(tmp_path, OPTIMA, gap_plot(Gaps(solved=tuple(kept.optima)))).read_text("utf-8")
    assert drawn.startswith("<svg")
    assert all(policy in drawn for policy in ("query-wise", "helix"))
