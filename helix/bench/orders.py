"""The orders in which policies make the calls of a small case on one worker, scored by one recurrence.

A policy takes a call whenever the worker is free and one is ready: those that it needs have ended, and the time that a
worker full of replies takes has passed (`alpha M L`, see `helix.optimizer.lowering.recurrence`). What a policy does
beside that, pausing rows or telling the cache what to keep, has no place in this model: CONCUR, ThunderAgent and KVFlow
come to first come, first served there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from helix.bench.small import CAPACITY, CHARACTERS, Case, sample_of
from helix.optimizer.lowering import LowerContext, lower
from helix.optimizer.lowering.recurrence import Call, fresh_after, steps_of, timeline
from helix.optimizer.stats import table_stats
from helix.physical import PhysicalPlan, Planner

Order = tuple[int, ...]
# Orders at random whose mean counts.
DRAWS = 5


def token_steps(case: Case, order: Sequence[int]) -> float:
    """When the last call of an order ends, in token steps: those of the published tables, without `alpha`."""
    return timeline(case.calls, [order], [CAPACITY]).makespan * CAPACITY


class Worker:
    """One worker that makes calls as a policy picks them among those that are ready."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.calls = calls
        self.order: list[int] = []
        self.clock = 0.0
        self.known: set[int] = set()
        self._free = [0.0] * len(calls)
        self._done = bytearray(len(calls))

    def ready(self, among: Sequence[int]) -> list[int]:
        """Which of some calls are ready, in the order in which they have become so; waits for the first of them."""
        left = [each for each in among if not self._done[each]]
        begins = {
            each: max((self._free[other] for other in self.calls[each].needs), default=0.0)
            for each in left
            if all(self._done[other] for other in self.calls[each].needs)
        }
        if not begins:
            return []
        self.clock = max(self.clock, min(begins.values()))
        return sorted((each for each in begins if begins[each] <= self.clock), key=lambda each: (begins[each], each))

    def make(self, number: int) -> None:
        """Makes a call."""
        call = self.calls[number]
        before = self.calls[self.order[-1]] if self.order else None
        self.clock += steps_of(call, fresh_after(call, before), 1 / CAPACITY)
        self._free[number] = self.clock + call.output
        self._done[number] = 1
        self.known.update(edge for edge, _ in call.path)
        self.order.append(number)

    def cached(self, number: int) -> float:
        """The tokens of a call's prompt that have been computed before, while nothing is evicted."""
        found = 0.0
        for edge, tokens in self.calls[number].path:
            if edge not in self.known:
                break
            found += tokens
        return found


def released(case: Case, pick: Callable[[Worker, list[int]], int], parts: Sequence[Sequence[int]] = ()) -> Order:
    """The order that comes of picking among the ready calls; `parts` are gone through one after the other."""
    worker = Worker(case.calls)
    for part in parts or [range(len(case.calls))]:
        while ready := worker.ready(part):
            worker.make(pick(worker, ready))
    return tuple(worker.order)


def by_key(key: Callable[[int], Any]) -> Callable[[Worker, list[int]], int]:
    """Picks the ready call with the smallest key."""
    return lambda worker, ready: min(ready, key=lambda each: (key(each), each))


# --- the policies -------------------------------------------------------------------------------------------------


def query_wise(case: Case) -> Order:
    """Row by row, each to its end."""
    parts = [[each for each, of in enumerate(case.rows) if of == row] for row in sorted(set(case.rows))]
    return released(case, by_key(lambda each: case.ops[each]), parts)


def operator_wise(case: Case) -> Order:
    """Step by step, each for all rows."""
    parts = [[each for each, of in enumerate(case.ops) if of == op] for op in sorted(set(case.ops))]
    return released(case, by_key(lambda each: case.rows[each]), parts)


def fcfs(case: Case) -> Order:
    """Calls as they become ready."""
    return released(case, lambda worker, ready: ready[0])


def random_order(case: Case, seed: int) -> Order:
    """Ready calls in no order."""
    dice = Random(f"order {seed}")  # a seeded draw  # nosec B311
    return released(case, lambda worker, ready: dice.choice(ready))


def longest_prefix(case: Case) -> Order:
    """The ready call of which most has been computed before."""
    return released(case, lambda worker, ready: max(ready, key=worker.cached))


def parrot(case: Case) -> Order:
    """Calls that nobody reads first, then those of one row that are read together, in the order in which they came."""
    read = {needed for call in case.calls for needed in call.needs}
    gangs: dict[tuple[Any, ...], int] = {}

    def pick(worker: Worker, ready: list[int]) -> int:
        last = [each for each in ready if each not in read]
        if last:
            return last[0]
        for each in ready:
            readers = tuple(case.ops[other] for other, call in enumerate(case.calls) if each in call.needs)
            gangs.setdefault((case.rows[each], readers), len(gangs))
        return min(
            ready,
            key=lambda each: (
                gangs[
                    case.rows[each],
                    tuple(case.ops[other] for other, call in enumerate(case.calls) if each in call.needs),
                ],
                each,
            ),
        )

    return released(case, pick)


def planned(case: Case, planner: Planner, *, budget: float = 1.0) -> PhysicalPlan:
    """What a planner makes of a case."""
    stats = table_stats(case.table, CHARACTERS)
    context = LowerContext(
        stats=stats, rows=case.table, tokenizer=CHARACTERS, lengths=sample_of(case.lengths), kv_tokens=CAPACITY,
        max_running=256, budget=budget, planner=planner,
    )  # fmt: skip
    return lower(case.plan, context)


def by_plan(case: Case, planner: Planner, *, budget: float = 1.0) -> Order:
    """The calls as a plan releases them: block by block, phase by phase, row by row, unless it names the calls."""
    physical = planned(case, planner, budget=budget)
    if physical.calls:
        turns = {place: turn for turn, place in enumerate(physical.calls)}
        return released(case, by_key(lambda each: turns[case.rows[each], case.nodes[case.ops[each]]]))
    phase = {step.node: step.phase for step in physical.steps}
    block = max(1, physical.block)

    def key(each: int) -> Any:
        row, op = case.rows[each], case.ops[each]
        return row // block, phase[case.nodes[op]], row, op

    return released(case, by_key(key))


# Name, what it does, and whose figures stand beside it in the published table.
ORDERS: Mapping[str, Callable[[Case], Sequence[Order]]] = {
    "query-wise": lambda case: [query_wise(case)],
    "operator-wise": lambda case: [operator_wise(case)],
    "fcfs": lambda case: [fcfs(case)],
    "random": lambda case: [random_order(case, seed) for seed in range(DRAWS)],
    "lspf": lambda case: [longest_prefix(case)],
    "parrot": lambda case: [parrot(case)],
    "helium:code": lambda case: [by_plan(case, "helium-code")],
    "helium:paper": lambda case: [by_plan(case, "helium-paper")],
    # As larger tables are ordered: by the steps alone, without a search.
    "helix, by step": lambda case: [by_plan(case, "helix", budget=0)],
    "helix": lambda case: [by_plan(case, "helix")],
}
PUBLISHED_AS = {
    "query-wise": "QueryWise",
    "operator-wise": "OpWise",
    "random": "Random",
    "lspf": "LSPF",
    "helium:code": "Helium",
}


def scores(case: Case, name: str) -> list[float]:
    """The token steps of a policy's orders of a case."""
    return [token_steps(case, order) for order in ORDERS[name](case)]
