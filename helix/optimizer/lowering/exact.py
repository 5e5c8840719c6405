"""The best order of a few calls on one worker: moves of single calls, then branch and bound over the recurrence.

What is left of an order that has begun ends no earlier than Jackson's preemptive schedule of it: each call with the
least time that it takes behind any other, from when it can begin at the earliest, with the chain that waits for it
after it (Carlier, "The one-machine sequencing problem", 1982).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from helix.optimizer.lowering.recurrence import Call, fresh_after, steps_of

# More calls than that are not tried.
MOST_CALLS = 16
# Orders begun, at most; beyond that the best one found is not known to be the best there is.
MOST_NODES = 200_000
# Orders that end less than this share earlier are no better.
_BETTER = 1e-9


@dataclass(frozen=True, slots=True)
class Best:
    """An order, when its last call ends in token steps, and whether no other order ends earlier. `tried` counts the
    orders that were looked at, whole or begun.
    """

    order: tuple[int, ...]
    makespan: float
    proven: bool
    tried: int = 0


class Bench:
    """Calls on one worker, with what each takes behind each other one worked out. `count` stands for the beginning."""

    def __init__(self, calls: Sequence[Call], capacity: float) -> None:
        alpha = 1.0 / capacity
        self.calls = calls
        self.count = count = len(calls)
        self.spent = [
            [steps_of(calls[number], fresh_after(calls[number], calls[before]), alpha) for before in range(count)]
            + [steps_of(calls[number], calls[number].prompt, alpha)]
            for number in range(count)
        ]
        self.least = [
            min(cost for before, cost in enumerate(self.spent[number]) if before != number) for number in range(count)
        ]
        self.needed = [sum(1 << other for other in set(call.needs)) for call in calls]
        self.sorted = _ready_first(self.needed)
        self.readers: list[list[int]] = [[] for _ in range(count)]
        for number, call in enumerate(calls):
            for other in call.needs:
                self.readers[other].append(number)
        # For each call the least time from its beginning to the end of the longest chain that waits for it.
        self.tails = [0.0] * count
        for number in reversed(self.sorted):
            after = max((self.tails[other] for other in self.readers[number]), default=0.0)
            self.tails[number] = self.least[number] + (calls[number].output + after if self.readers[number] else 0.0)

    def makespan(self, order: Sequence[int]) -> float:
        """When the last call of an order ends. Raises ValueError where one comes before one that it waits for."""
        free: list[float | None] = [None] * self.count
        clock, last = 0.0, self.count
        for number in order:
            for other in self.calls[number].needs:
                after = free[other]
                if after is None:
                    raise ValueError("an order puts a call before one that it waits for")
                clock = max(clock, after)
            clock += self.spent[number][last]
            free[number] = clock + self.calls[number].output
            last = number
        return clock

    def ready_first(self, order: Sequence[int]) -> tuple[int, ...]:
        """The order in which the worker takes the calls that does not wait for one while another one is ready."""
        place = {number: at for at, number in enumerate(order)}
        free = [0.0] * self.count
        made, clock, last = 0, 0.0, self.count
        found: list[int] = []
        while len(found) < self.count:
            begins = [
                (max((free[other] for other in self.calls[number].needs), default=0.0), place[number], number)
                for number in order
                if not made >> number & 1 and not self.needed[number] & ~made
            ]
            clock = max(clock, min(begins)[0])
            _, number = min((at, number) for begin, at, number in begins if begin <= clock)
            clock += self.spent[number][last]
            free[number] = clock + self.calls[number].output
            made |= 1 << number
            last = number
            found.append(number)
        return tuple(found)

    def moved(self, order: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """The orders in which one call stands elsewhere, each after all that it waits for."""
        for at, number in enumerate(order):
            rest = order[:at] + order[at + 1 :]
            needed, bit = self.needed[number], 1 << number
            first = max((place + 1 for place, other in enumerate(rest) if needed >> other & 1), default=0)
            last = next((place for place, other in enumerate(rest) if self.needed[other] & bit), len(rest))
            for to in range(first, last + 1):
                if to != at:
                    yield (*rest[:to], number, *rest[to:])


def better_order(calls: Sequence[Call], capacity: float, start: Sequence[int], *, most: int) -> Best:
    """An order that no move of a single call makes end earlier, from one that is known or from the one in which the
    worker does not wait, whichever is better; at most so many are tried.
    """
    bench = Bench(calls, capacity)
    best, tried = tuple(start), 0
    makespan = bench.makespan(best)
    eager = bench.ready_first(best)
    if bench.makespan(eager) < makespan:
        best, makespan = eager, bench.makespan(eager)
    found = True
    while found and tried < most:
        found = False
        for trial in bench.moved(best):
            tried += 1
            ends = bench.makespan(trial)
            if ends < makespan * (1 - _BETTER):
                best, makespan, found = trial, ends, True
                break
            if tried >= most:
                break
    return Best(order=best, makespan=makespan, proven=False, tried=tried)


def best_order(
    calls: Sequence[Call], capacity: float, start: Sequence[int] | None = None, *, most: int = MOST_NODES
) -> Best:
    """The order that ends first. `start` is one that is known already. Raises ValueError for more than MOST_CALLS.

    Two beginnings of the same calls with the same last one are compared: the one that is nowhere earlier is dropped.
    """
    if len(calls) > MOST_CALLS:
        raise ValueError(f"{len(calls)} calls are too many for the exact order: {MOST_CALLS} at most")
    bench = Bench(calls, capacity)
    count = bench.count
    best = tuple(bench.sorted if start is None else start)
    makespan = bench.makespan(best)
    everything = (1 << count) - 1
    seen: dict[tuple[int, int], list[tuple[float, ...]]] = {}
    # Each entry: the calls made as bits, the last one, the clock, when each call's dependents may start, the order.
    stack: list[tuple[int, int, float, tuple[float, ...], tuple[int, ...]]] = [(0, count, 0.0, (0.0,) * count, ())]
    nodes = 0
    while stack and nodes < most:
        made, last, clock, free, order = stack.pop()
        nodes += 1
        if made == everything:
            if clock < makespan * (1 - _BETTER):
                best, makespan = order, clock
            continue
        state = (clock, *(max(clock, free[number]) if bench.readers[number] else 0.0 for number in range(count)))
        known = seen.setdefault((made, last), [])
        if any(all(one <= other for one, other in zip(before, state, strict=True)) for before in known):
            continue
        known.append(state)
        following: list[tuple[float, int]] = []
        for number in range(count):
            if made >> number & 1 or bench.needed[number] & ~made:
                continue
            begin = max([clock, *(free[other] for other in calls[number].needs)])
            end = begin + bench.spent[number][last]
            then = made | 1 << number
            later = (*free[:number], end + calls[number].output, *free[number + 1 :])
            if _least_end(bench, then, end, later) < makespan * (1 - _BETTER):
                following.append((end, number))
        # The stack gives the last one first: the one that ends earliest.
        for end, number in sorted(following, reverse=True):
            freed = (*free[:number], end + calls[number].output, *free[number + 1 :])
            stack.append((made | 1 << number, number, end, freed, (*order, number)))
    return Best(order=best, makespan=makespan, proven=not stack, tried=nodes)


def _least_end(bench: Bench, made: int, clock: float, free: Sequence[float]) -> float:
    """No order that goes on from here ends before this."""
    heads: list[float] = [0.0] * bench.count
    arrivals: list[tuple[float, float, int]] = []
    for number in bench.sorted:
        if made >> number & 1:
            continue
        begins = clock
        for other in bench.calls[number].needs:
            after = free[other] if made >> other & 1 else heads[other] + bench.least[other] + bench.calls[other].output
            begins = max(begins, after)
        heads[number] = begins
        arrivals.append((begins, -(bench.tails[number] - bench.least[number]), number))
    if not arrivals:
        return clock
    arrivals.sort()
    # At each time the call with the longest rest behind it is worked on; what is cut short goes on later.
    ends, now, at = clock, clock, 0
    waiting: list[tuple[float, int, float]] = []
    while at < len(arrivals) or waiting:
        if not waiting:
            now = max(now, arrivals[at][0])
        while at < len(arrivals) and arrivals[at][0] <= now:
            heapq.heappush(waiting, (arrivals[at][1], arrivals[at][2], bench.least[arrivals[at][2]]))
            at += 1
        rest, number, left = heapq.heappop(waiting)
        until = now + left if at == len(arrivals) else min(now + left, arrivals[at][0])
        if until < now + left:
            heapq.heappush(waiting, (rest, number, left - (until - now)))
        else:
            ends = max(ends, until - rest)
        now = until
    return ends


def _ready_first(needed: Sequence[int]) -> list[int]:
    """Some order in which each call comes after all that it waits for."""
    made = 0
    order: list[int] = []
    while len(order) < len(needed):
        number = next(each for each in range(len(needed)) if not made >> each & 1 and not needed[each] & ~made)
        made |= 1 << number
        order.append(number)
    return order
