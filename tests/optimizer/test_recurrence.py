"""The cost of an order in token steps: by hand, and the best order against all orders."""

from __future__ import annotations

from itertools import permutations
from random import Random

import pytest

from helix.optimizer.lowering.exact import best_order
from helix.optimizer.lowering.recurrence import Call, fresh_after, timeline

# Two prompts of 10 + 5 and 10 + 20 tokens that share ten, and one that shares nothing.
ONE = Call(path=((1, 10), (2, 5)), output=4)
TWO = Call(path=((1, 10), (3, 20)), output=2)
OTHER = Call(path=((9, 7),), output=1)


def test_the_tokens_below_what_two_prompts_share() -> None:
    assert fresh_after(ONE, None) == 15
    assert fresh_after(TWO, ONE) == 20
    assert fresh_after(ONE, OTHER) == 15
    assert fresh_after(ONE, ONE) == 0
    # An edge below another one is another one, whatever its number says: sharing ends at the first difference.
    assert fresh_after(Call(path=((5, 3), (2, 5)), output=1), ONE) == 8


def test_one_worker_by_hand() -> None:
    made = timeline([ONE, TWO, OTHER], [[0, 1, 2]], [100])
    first = (4 * 15 + 4 * 5 / 2) / 100
    second = (2 * 20 + 2 * 3 / 2) / 100
    third = (1 * 7 + 1) / 100
    assert made.ends == pytest.approx((first, first + second, first + second + third))
    assert made.makespan == pytest.approx(0.7 + 0.43 + 0.08)


def test_what_waits_begins_a_reply_later() -> None:
    waiting = Call(path=((1, 10), (3, 20)), output=2, needs=(0,))
    made = timeline([ONE, waiting], [[0, 1]], [100])
    assert made.starts[1] == pytest.approx(0.7 + 4)
    assert made.makespan == pytest.approx(0.7 + 4 + 0.43)
    # Another call fits into the wait and costs nothing: then the last one shares nothing with the call before.
    between = timeline([ONE, waiting, OTHER], [[0, 2, 1]], [100])
    assert between.makespan == pytest.approx(0.7 + 4 + (2 * 30 + 3) / 100)


def test_two_workers_of_two_sizes() -> None:
    waiting = Call(path=((1, 10), (3, 20)), output=2, needs=(0,))
    made = timeline([ONE, waiting, OTHER], [[0], [2, 1]], [100, 50])
    assert made.ends[0] == pytest.approx(0.7)
    assert made.ends[2] == pytest.approx((1 * 7 + 1) / 50)
    # The prompt is the first of its kind on that worker: all of it is computed.
    assert made.ends[1] == pytest.approx(0.7 + 4 + (2 * 30 + 3) / 50)


def test_what_a_worker_has_seen_stays_with_resident() -> None:
    order = [[0, 2, 1]]
    assert timeline([ONE, TWO, OTHER], order, [100]).makespan == pytest.approx(0.7 + 0.08 + 0.63)
    assert timeline([ONE, TWO, OTHER], order, [100], resident=True).makespan == pytest.approx(0.7 + 0.08 + 0.43)


def test_an_order_that_cannot_be_kept_is_an_error() -> None:
    with pytest.raises(ValueError, match="before one that it waits for"):
        timeline([ONE, Call(path=TWO.path, output=2, needs=(0,))], [[1, 0]], [100])


def drawn(dice: Random, count: int) -> list[Call]:
    """Calls over a few prompts that share beginnings, some of which wait for earlier ones."""
    made: list[Call] = []
    for number in range(count):
        path = [(dice.randrange(1, 3), 100.0)]
        path += [(10 + dice.randrange(3), 40.0)] * dice.randrange(2) + [(100 + number, float(dice.randrange(1, 30)))]
        needs = tuple(sorted({dice.randrange(number) for _ in range(dice.randrange(2))})) if number else ()
        made.append(Call(path=tuple(path), output=float(dice.randrange(1, 9)), needs=needs))
    return made


@pytest.mark.parametrize("seed", range(30))
def test_the_best_order_is_the_best_of_all(seed: int) -> None:
    dice = Random(seed)
    calls = drawn(dice, dice.randrange(1, 7))
    capacity = dice.choice((50.0, 500.0, 20_000.0))
    least = float("inf")
    for order in permutations(range(len(calls))):
        try:
            least = min(least, timeline(calls, [order], [capacity]).makespan)
        except ValueError:
            continue
    best = best_order(calls, capacity)
    assert best.proven
    assert best.makespan == pytest.approx(least)
    assert timeline(calls, [best.order], [capacity]).makespan == pytest.approx(best.makespan)


def test_a_given_order_is_not_made_worse_where_time_is_up() -> None:
    calls = drawn(Random(5), 10)
    start = list(range(10))
    stopped = best_order(calls, 100.0, start, most=3)
    assert not stopped.proven
    assert stopped.makespan <= timeline(calls, [start], [100.0]).makespan
    whole = best_order(calls, 100.0, start)
    assert whole.makespan <= stopped.makespan


def test_too_many_calls_are_refused() -> None:
    with pytest.raises(ValueError, match="17 calls are too many"):
        best_order([OTHER] * 17, 100.0)
