"""The line of a rank holds the calls that wait, and none that have gone."""

from __future__ import annotations

from typing import Any, cast

from test_baselines import a_call, end, place, taken

from helix.executor.policies.cache_aware import CacheAwareQueue
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


def test_a_call_that_goes_to_another_rank_is_in_no_line_but_that_one() -> None:
    ranks = CacheAwareQueue(place(ranks=2))._ranks
    for number in range(5):
        ranks[0].push(waiting(number))
    for number in range(4):
        ranks[1].push(waiting(10 + number))
    # Counted by each rank for itself it would have the same place in both.
    ranks[1].push(ranks[0].take_last())
    gone: list[list[int]] = [[], []]
    for rank, found in zip(ranks, gone, strict=True):
        while (ticket := rank.first_of(1)) is not None:
            assert ticket is rank.first()
            rank.remove(ticket)
            found.append(ticket.key[0])
    assert gone == [[0, 1, 2, 3], [4, 10, 11, 12, 13]]
    assert [len(rank) for rank in ranks] == [0, 0]


def test_a_rank_without_work_takes_over_what_has_no_room_on_another() -> None:
    # One call fits into a cache at a time, though each rank runs four.
    queue = CacheAwareQueue(place(kv=1000, ranks=2, slots=8), warm_ups=False)
    for row in range(6):
        queue.put(a_call(row, "step", f"{row}" * 2400))
    running = taken(queue)
    assert [(call.row, call.rank) for call in running] == [(0, 0), (1, 1)]
    quick = running[0]
    for wanted in (2, 4, 5):
        end(queue, quick, prompt=600)
        queue.row_ended(quick.instance)
        (quick,) = taken(queue)
        assert (quick.row, quick.rank) == (wanted, 0)
    # What is left goes where it was, as soon as there is room.
    end(queue, running[1], prompt=600)
    assert [(call.row, call.rank) for call in taken(queue)] == [(3, 1)]


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
