"""What an order of calls costs, in token steps: the recurrence that orders are compared by.

A call j with a reply of L tokens that follows call i on a worker of capacity M takes

    u = alpha (L u_p + L (L + 1) / 2)        u_p: the tokens of j's prompt below what it shares with i

and a call that waits for it starts no earlier than `alpha M L` after its end. `alpha` is 1 / M, so that workers of
different sizes compare. The cost of an order is when its last call ends (Helium, arXiv 2603.16104). With `resident`
the tokens of all calls before on the same worker count as shared, not only those of the call just before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# A stretch of a prompt: what it is (equal only where the text and all before it are), and its tokens.
Edge = tuple[int, float]


@dataclass(frozen=True, slots=True)
class Call:
    """A call: its prompt as edges from the root, the tokens of its reply, and the calls that it waits for."""

    path: tuple[Edge, ...]
    output: float
    needs: tuple[int, ...] = ()

    @property
    def prompt(self) -> float:
        """The tokens of the whole prompt."""
        return sum(tokens for _, tokens in self.path)


@dataclass(frozen=True, slots=True)
class Timeline:
    """When each call starts and ends, in token steps, and when the last one ends."""

    starts: tuple[float, ...]
    ends: tuple[float, ...]
    makespan: float


def fresh_after(call: Call, before: Call | None) -> float:
    """The tokens of a prompt below what it shares with that of the call before; all of it for a first call."""
    if before is None:
        return call.prompt
    common = 0
    for one, other in zip(call.path, before.path, strict=False):
        if one[0] != other[0]:
            break
        common += 1
    return sum(tokens for _, tokens in call.path[common:])


def steps_of(call: Call, fresh: float, alpha: float) -> float:
    """The token steps of a call that has so many tokens to compute."""
    return alpha * (call.output * fresh + call.output * (call.output + 1) / 2)


def timeline(
    calls: Sequence[Call], orders: Sequence[Sequence[int]], capacities: Sequence[float], *, resident: bool = False
) -> Timeline:
    """The times of calls that workers make in given orders, one list of calls for each worker.

    Raises ValueError where a call waits for one that never comes before it.
    """
    starts, ends = [0.0] * len(calls), [0.0] * len(calls)
    free = [0.0] * len(calls)
    done = bytearray(len(calls))
    at = [0] * len(orders)
    clock = [0.0] * len(orders)
    known: list[set[int]] = [set() for _ in orders]
    left = sum(len(order) for order in orders)
    while left:
        moved = False
        for worker, order in enumerate(orders):
            alpha = 1.0 / capacities[worker]
            while at[worker] < len(order):
                number = order[at[worker]]
                call = calls[number]
                if any(not done[other] for other in call.needs):
                    break
                if resident:
                    fresh = sum(tokens for edge, tokens in call.path if edge not in known[worker])
                    known[worker].update(edge for edge, _ in call.path)
                else:
                    fresh = fresh_after(call, calls[order[at[worker] - 1]] if at[worker] else None)
                start = max([clock[worker], *(free[other] for other in call.needs)])
                starts[number] = start
                ends[number] = clock[worker] = start + steps_of(call, fresh, alpha)
                free[number] = ends[number] + alpha * capacities[worker] * call.output
                done[number] = 1
                at[worker] += 1
                left -= 1
                moved = True
        if not moved:
            raise ValueError("an order puts a call before one that it waits for")
    return Timeline(tuple(starts), tuple(ends), max(clock, default=0.0))
