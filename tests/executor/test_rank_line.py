"""The line of a rank holds the calls that wait, and none that have gone."""

from __future__ import annotations

from typing import Any, cast

from helix.executor.policies.rank import STALE, Rank, Ticket


def line() -> Rank:
    return Rank(0, 8, None, bounded=False)


def waiting(number: int) -> Ticket:
    return Ticket(cast(Any, object()), (number,), 10, level=float(number % 7))


def test_calls_that_leave_by_one_order_leave_the_other_too() -> None:
    rank = line()
    for wide in (False, True):
        for number in range(5_000):
            rank.push(waiting(number))
            first = rank.first(wide=wide)
            assert first is not None
            rank.remove(first)
            assert len(rank._heap) <= STALE + 2
            assert len(rank._levels) <= STALE + 2
    assert len(rank) == 0


def test_the_orders_stay_what_they_are() -> None:
    rank = line()
    tickets = [waiting(number) for number in range(700)]
    for ticket in tickets:
        rank.push(ticket)
    for ticket in tickets[::2]:
        rank.remove(ticket)
    # More calls come until what has left is cleared away.
    for number in range(700, 1_100):
        rank.push(waiting(number))
    left: list[Any] = []
    while (ticket := rank.first()) is not None:
        left.append(ticket.key[0])
        rank.remove(ticket)
    assert left == [*range(1, 700, 2), *range(700, 1_100)]
