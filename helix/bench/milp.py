"""The exact optimum of small cases, by mixed integer programming, and how far the orders of policies are from it.

After Helium (arXiv 2603.16104, its table 5). On one worker that holds M tokens, with x_ij = 1 where call i comes right
before call j (0 stands for the beginning and the end), b_j and c_j the begin and the end of a call in token steps:

    u_ij = L_j p_ij + L_j (L_j + 1) / 2       p_ij: tokens of j below what its prompt shares with that of i
    c_j  = b_j + sum_i x_ij u_ij
    b_j >= c_i - B (1 - x_ij)                 B: an order that is known
    b_j >= c_i + M L_i                        where j needs i
    minimise T >= c_j, T >= sum_ij x_ij u_ij

Solved by HiGHS through `scipy.optimize.milp`. What it is stopped by is a number of nodes and not a time, so that the
same case gives the same answer everywhere; where it stops early, the best order found, the bound and the gap between
them are told. With 12 calls it often does; there the planner's own branch and bound, which needs some thousand orders
begun, gives the proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any

from helix.bench.orders import ORDERS, PUBLISHED_AS, token_steps
from helix.bench.published import TABLE_5
from helix.bench.small import CAPACITY, CELLS, Case, case
from helix.errors import OptionError
from helix.optimizer.lowering.exact import best_order
from helix.optimizer.lowering.recurrence import Call, fresh_after, steps_of, timeline

if TYPE_CHECKING:
    import numpy as np

SEEDS = tuple(range(5))
# Nodes of HiGHS and orders begun by our own branch and bound that a case may take.
NODES, BEGUN = 2000, 400_000
# Relative differences that are rounding.
_SAME = 1e-6
_EXTRA = "the exact optimum needs scipy; install helix-workflows[bench]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """The best order known of some calls, when its last one ends in token steps, and what no order ends before."""

    order: tuple[int, ...]
    makespan: float
    bound: float

    @property
    def gap(self) -> float:
        """How far the best order may be from the optimum, as a share of its own; 0 where it is proven."""
        return max(0.0, 1 - self.bound / self.makespan) if self.makespan else 0.0

    @property
    def proven(self) -> bool:
        """Whether no order is better."""
        return self.gap <= _SAME


def optimum(calls: Sequence[Call], capacity: float, start: Sequence[int], *, nodes: int = NODES) -> Optimum:
    """The order of calls on one worker that ends first. `start` is one that is known.

    Raises OptionError where scipy is not installed.
    """
    try:
        from scipy.optimize import milp
    except ImportError:
        raise OptionError(_EXTRA) from None
    known = timeline(calls, [start], [capacity]).makespan
    model = _Model(calls, 1 / capacity, known)
    options = {"node_limit": nodes, "mip_rel_gap": 0.0, "presolve": True}
    found = milp(
        model.objective,
        constraints=model.constraints(),
        integrality=model.whole,
        bounds=model.bounds(),
        options=options,
    )
    bound = known if found.status == 2 else max(model.least, getattr(found, "mip_dual_bound", None) or 0.0)
    order, makespan = tuple(start), known
    if found.x is not None:
        better = model.order(found.x)
        steps = timeline(calls, [better], [capacity]).makespan
        if steps < makespan:
            order, makespan = better, steps
    return Optimum(order=order, makespan=makespan * capacity, bound=min(makespan, bound) * capacity)


class _Model:
    """The programme of some calls. Variables: x by pairs (the row n of `at` is the beginning), b, then T."""

    def __init__(self, calls: Sequence[Call], alpha: float, known: float) -> None:
        import numpy as np

        self._np = np
        self._calls = calls
        count = self._count = len(calls)
        self._known = known
        after = _all_needs(calls)
        # A call comes not right after one that waits for it, nor right before one that it waits for through another.
        self._at: dict[tuple[int, int], int] = {}
        for before in range(count + 1):
            for then in range(count + 1):
                if before == then or (before < count and then < count and before in _behind(after, then)):
                    continue
                if before == count and then < count and calls[then].needs:
                    continue
                if then == count and before < count and any(before in call.needs for call in calls):
                    continue
                self._at[before, then] = len(self._at)
        self._steps = {
            (before, then): steps_of(
                calls[then], fresh_after(calls[then], calls[before] if before < count else None), alpha
            )
            for before, then in self._at
            if then < count
        }
        self._begin = len(self._at)
        self._end = self._begin + count
        size = self._end + 1
        self.objective = np.zeros(size)
        self.objective[self._end] = 1.0
        self.whole = np.zeros(size)
        self.whole[: self._begin] = 1
        least = [min(cost for (_, then), cost in self._steps.items() if then == each) for each in range(count)]
        self._heads = self._head_times(least)
        self._tails = self._tail_times(least)
        # What no order ends before.
        self.least = max(head + tail for head, tail in zip(self._heads, self._tails, strict=True))
        self._rows: list[tuple[dict[int, float], float, float]] = []
        self._constrain()

    def _head_times(self, least: Sequence[float]) -> list[float]:
        """When each call can begin at the earliest."""
        found = [0.0] * self._count
        for each in _topological(self._calls):
            needs = self._calls[each].needs
            found[each] = max((found[other] + least[other] + self._calls[other].output for other in needs), default=0.0)
        return found

    def _tail_times(self, least: Sequence[float]) -> list[float]:
        """For each call the time from its beginning to the end of what waits for it, at least."""
        found = [0.0] * self._count
        for each in reversed(_topological(self._calls)):
            after = [found[other] for other, call in enumerate(self._calls) if each in call.needs]
            found[each] = least[each] + (self._calls[each].output + max(after) if after else 0.0)
        return found

    def _constrain(self) -> None:
        count, at, steps, calls = self._count, self._at, self._steps, self._calls
        begin, end = self._begin, self._end
        infinite = self._np.inf
        for each in range(count + 1):
            into = {at[pair]: 1.0 for pair in at if pair[1] == each}
            out = {at[pair]: 1.0 for pair in at if pair[0] == each}
            self._rows += [(into, 1.0, 1.0), (out, 1.0, 1.0)]
        own = [{at[pair]: cost for pair, cost in steps.items() if pair[1] == each} for each in range(count)]
        for each in range(count):
            # T >= c_j
            self._rows.append(({end: 1.0, begin + each: -1.0} | _scaled(own[each], -1.0), 0.0, infinite))
            for needed in calls[each].needs:
                row = {begin + each: 1.0, begin + needed: -1.0} | _scaled(own[needed], -1.0)
                self._rows.append((row, calls[needed].output, infinite))
        for (before, then), column in at.items():
            if before < count and then < count:
                # b_j >= c_i - B (1 - x_ij), with no larger B than it takes.
                big = self._known - self._tails[before] + max(own[before].values()) - self._heads[then]
                big = max(big, max(own[before].values()))
                row = {begin + then: 1.0, begin + before: -1.0} | _scaled(own[before], -1.0)
                row[column] = row.get(column, 0.0) - big
                self._rows.append((row, -big, infinite))
        total = {end: 1.0}
        for spent in own:
            total |= _scaled(spent, -1.0)
        self._rows.append((total, 0.0, infinite))

    def constraints(self) -> Any:
        """All of them, as scipy takes them."""
        from scipy.optimize import LinearConstraint
        from scipy.sparse import csr_matrix

        places = [(number, column) for number, (row, _, _) in enumerate(self._rows) for column in row]
        values = [value for row, _, _ in self._rows for value in row.values()]
        shape = (len(self._rows), self._end + 1)
        matrix = csr_matrix((values, tuple(zip(*places, strict=True))), shape=shape)
        return LinearConstraint(matrix, [low for _, low, _ in self._rows], [high for _, _, high in self._rows])

    def bounds(self) -> Any:
        """Between what each call can begin at and what an order better than the one that is known leaves it."""
        from scipy.optimize import Bounds

        low = self._np.zeros(self._end + 1)
        high = self._np.ones(self._end + 1)
        for each in range(self._count):
            low[self._begin + each] = self._heads[each]
            high[self._begin + each] = max(self._heads[each], self._known - self._tails[each])
        low[self._end] = self.least
        high[self._end] = max(self.least, self._known)
        return Bounds(low, high)

    def order(self, values: np.ndarray[Any, Any]) -> tuple[int, ...]:
        """The calls as a solution orders them."""
        following = {before: then for (before, then), column in self._at.items() if values[column] > 0.5}
        found: list[int] = []
        each = following[self._count]
        while each != self._count:
            found.append(each)
            each = following[each]
        return tuple(found)


def _scaled(row: Mapping[int, float], by: float) -> dict[int, float]:
    return {column: by * value for column, value in row.items()}


def _topological(calls: Sequence[Call]) -> list[int]:
    """The calls, each after all that it needs."""
    made: dict[int, None] = {}
    while len(made) < len(calls):
        for each, call in enumerate(calls):
            if each not in made and all(other in made for other in call.needs):
                made[each] = None
    return list(made)


def _all_needs(calls: Sequence[Call]) -> list[set[int]]:
    """For each call all that it waits for, also through others."""
    found: list[set[int]] = [set() for _ in calls]
    for each in _topological(calls):
        for other in calls[each].needs:
            found[each] |= {other} | found[other]
    return found


def _behind(needs: Sequence[set[int]], call: int) -> set[int]:
    """The calls that cannot come right before one: those that wait for it."""
    return {each for each, needed in enumerate(needs) if call in needed}


# --- how far policies are from it ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """A case with its optimum, what HiGHS made of it (`by_milp`), and the token steps of each policy's orders."""

    case: str
    cell: str
    seed: int
    calls: int
    optimum: Optimum
    by_milp: Optimum
    steps: Mapping[str, tuple[float, ...]]

    def gaps(self, policy: str) -> list[float]:
        """How much longer a policy's orders take than the best one, as shares."""
        return [max(0.0, steps / self.optimum.makespan - 1) for steps in self.steps[policy]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A policy over all cases: token steps and gaps in per cent as mean, least and most; what is published of it."""

    policy: str
    steps: tuple[float, float, float]
    gap: tuple[float, float, float]
    published_steps: tuple[float, float, float] | None = None
    published_gap: tuple[float, float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """The policies over some cases."""

    solved: tuple[Solved, ...] = field(default=())

    @property
    def unproven(self) -> tuple[Solved, ...]:
        """The cases whose optimum was not proven."""
        return tuple(each for each in self.solved if not each.optimum.proven)

    def rows(self) -> list[Row]:
        """A row for each policy, in the order of `ORDERS`. Of several orders of a case the mean counts."""
        made: list[Row] = []
        for policy in ORDERS:
            steps = [fmean(each.steps[policy]) for each in self.solved]
            gaps = [100 * fmean(each.gaps(policy)) for each in self.solved]
            told = TABLE_5.get(PUBLISHED_AS.get(policy, ""))
            made.append(
                Row(
                    policy=policy,
                    steps=(fmean(steps), min(steps), max(steps)),
                    gap=(fmean(gaps), min(gaps), max(gaps)),
                    published_steps=None if told is None else (told[0] * 1e6, told[1] * 1e6, told[2] * 1e6),
                    published_gap=None if told is None else (told[3], told[4], told[5]),
                )
            )
        return made


def solve(subject: Case, *, nodes: int = NODES) -> Solved:
    """The optimum of a case and the policies' scores. Raises OptionError where scipy is not installed."""
    orders = {name: list(make(subject)) for name, make in ORDERS.items()}
    steps = {name: tuple(token_steps(subject, order) for order in made) for name, made in orders.items()}
    first = min((order for made in orders.values() for order in made), key=lambda order: token_steps(subject, order))
    by_milp = optimum(subject.calls, CAPACITY, first, nodes=nodes)
    found = best_order(subject.calls, CAPACITY, by_milp.order, most=BEGUN)
    best = by_milp
    if found.proven:
        makespan = found.makespan * CAPACITY
        best = Optimum(order=found.order, makespan=makespan, bound=makespan)
    return Solved(
        case=subject.title,
        cell=subject.name,
        seed=subject.seed,
        calls=len(subject.calls),
        optimum=best,
        by_milp=by_milp,
        steps=steps,
    )


def gaps(
    cells: Iterable[str] = tuple(CELLS),
    seeds: Iterable[int] = SEEDS,
    *,
    nodes: int = NODES,
    known: Iterable[Solved] = (),
) -> Gaps:
    """All cases of some cells and seeds; those that are known are not solved again."""
    seeds = tuple(seeds)
    there = {(each.cell, each.seed): each for each in known}
    made = (
        there[name, seed] if (name, seed) in there else solve(case(name, seed), nodes=nodes)
        for name in cells
        for seed in seeds
    )
    return Gaps(solved=tuple(made))
