"""The best order of a few calls on one worker, by branch and bound over the recurrence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from helix.optimizer.lowering.recurrence import Call, fresh_after, steps_of, timeline

# More calls than that are not tried.
MOST_CALLS = 12
# Orders begun, at most; beyond that the best one found is not known to be the best there is.
MOST_NODES = 200_000


@dataclass(frozen=True, slots=True)
class Best:
    """An order, when its last call ends in token steps, and whether no other order ends earlier."""

    order: tuple[int, ...]
    makespan: float
    proven: bool


def best_order(
    calls: Sequence[Call], capacity: float, start: Sequence[int] | None = None, *, most: int = MOST_NODES
) -> Best:
    """The order that ends first. `start` is one that is known already. Raises ValueError for more than MOST_CALLS.

    Two beginnings of the same calls with the same last one are compared: the one that is nowhere earlier is dropped.
    """
    if len(calls) > MOST_CALLS:
        raise ValueError(f"{len(calls)} calls are too many for the exact order: {MOST_CALLS} at most")
    alpha = 1.0 / capacity
    count = len(calls)
    spent = [
        [steps_of(calls[number], fresh_after(calls[number], calls[before]), alpha) for before in range(count)]
        + [steps_of(calls[number], calls[number].prompt, alpha)]
        for number in range(count)
    ]
    least = [min(cost for before, cost in enumerate(spent[number]) if before != number) for number in range(count)]
    tails = _tails(calls, least)
    needed = [sum(1 << other for other in call.needs) for call in calls]
    awaited = [any(number in call.needs for call in calls) for number in range(count)]
    first = tuple(_ready_first(needed) if start is None else start)
    best, makespan = first, timeline(calls, [first], [capacity]).makespan
    everything = (1 << count) - 1
    seen: dict[tuple[int, int], list[tuple[float, ...]]] = {}
    # Each entry: the calls made as bits, the last one, the clock, when each call's dependents may start, the order.
    stack: list[tuple[int, int, float, tuple[float, ...], tuple[int, ...]]] = [(0, count, 0.0, (0.0,) * count, ())]
    nodes = 0
    while stack and nodes < most:
        made, last, clock, free, order = stack.pop()
        nodes += 1
        if made == everything:
            if clock < makespan:
                best, makespan = order, clock
            continue
        rest = sum(least[number] for number in range(count) if not made >> number & 1)
        if clock + rest >= makespan:
            continue
        state = (clock, *(max(clock, free[number]) if awaited[number] else 0.0 for number in range(count)))
        known = seen.setdefault((made, last), [])
        if any(all(one <= other for one, other in zip(before, state, strict=True)) for before in known):
            continue
        known.append(state)
        following: list[tuple[float, int, float]] = []
        for number in range(count):
            if made >> number & 1 or needed[number] & ~made:
                continue
            begin = max([clock, *(free[other] for other in calls[number].needs)])
            end = begin + spent[number][last]
            if begin + max(spent[number][last], tails[number]) < makespan:
                following.append((end, number, begin))
        # The stack gives the last one first: the one that ends earliest.
        for end, number, _ in sorted(following, reverse=True):
            freed = (*free[:number], end + calls[number].output, *free[number + 1 :])
            stack.append((made | 1 << number, number, end, freed, (*order, number)))
    return Best(order=best, makespan=makespan, proven=not stack)


def _ready_first(needed: Sequence[int]) -> list[int]:
    """Some order in which each call comes after all that it waits for."""
    made = 0
    order: list[int] = []
    while len(order) < len(needed):
        number = next(each for each in range(len(needed)) if not made >> each & 1 and not needed[each] & ~made)
        made |= 1 << number
        order.append(number)
    return order


def _tails(calls: Sequence[Call], least: Sequence[float]) -> list[float]:
    """For each call the least time from its start to the end of the longest chain that waits for it."""
    found = [0.0] * len(calls)
    for number in reversed(_ready_first([sum(1 << other for other in call.needs) for call in calls])):
        after = [found[other] for other, call in enumerate(calls) if number in call.needs]
        found[number] = least[number] + (calls[number].output + max(after) if after else 0.0)
    return found
