"""Looks for a better order of the steps than the first one, by what orders cost over a few rows.

The price of a trial is fixed, so that a budget in seconds is a number of trials and a plan comes out the same on every
machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from helix.optimizer.lowering.exact import MOST_CALLS, best_order
from helix.optimizer.lowering.few import NODE_PRICE
from helix.optimizer.lowering.fixity import ROW, Fixity
from helix.optimizer.lowering.ops import Op
from helix.optimizer.lowering.order import Phase
from helix.optimizer.lowering.recurrence import Call, timeline
from helix.optimizer.sizes import Sizes
from helix.optimizer.tree.shape import bits
from helix.optimizer.tree.trie import Paths
from helix.physical import OrderCost

# What a call of a trial is taken to cost in seconds, and the calls that a trial is made of at most.
PRICE = 4e-6
_CALLS = 96
_ROWS = 8
_BETTER = 1e-3
# Orders begun that are looked at in any case, to tell how far the best one is.
_NODES = 1000


class OrderSearch:
    """The calls of a few rows of one group, and what orders of the steps make of them on one worker.

    Where a block has more rows than are looked at, the worker is as much smaller: it waits as long for a reply as the
    rest of the block takes.
    """

    def __init__(
        self, paths: Paths, fixity: Fixity, sizes: Sizes, ops: Sequence[Op], *, rows: float, block: int, capacity: int
    ) -> None:
        self._ops = [op for op in ops if op.calls > 0]
        wanted = max(2, _CALLS // max(1, len(self._ops)))
        self.rows = int(max(1, min(rows, block, _ROWS, wanted)))
        self._number = {op.index: at for at, op in enumerate(self._ops)}
        self._capacity = max(1.0, capacity * self.rows / max(block, self.rows))
        self.calls = [call for row in range(self.rows) for call in self._of_row(paths, fixity, sizes, row)]

    def _of_row(self, paths: Paths, fixity: Fixity, sizes: Sizes, row: int) -> Iterator[Call]:
        keys = list(paths.keys)
        for op in self._ops:
            path = tuple(
                (
                    place * (_ROWS + 1) + (row + 1 if fixity.places[place] == ROW else 0),
                    paths.literal[place] + (sizes.mean(keys[paths.holes[place]]) if paths.holes[place] >= 0 else 0.0),
                )
                for place in paths.paths[op.index]
            )
            needs = tuple(
                row * len(self._ops) + self._number[other] for other in bits(op.needs) if other in self._number
            )
            yield Call(path=path, output=max(1.0, op.length.mean), needs=needs)

    def order(self, phases: Sequence[Phase]) -> list[int]:
        """The calls in the order in which phases release them."""
        count = len(self._ops)
        return [
            row * count + self._number[op]
            for phase in phases
            for row in range(self.rows)
            for op in phase.ops
            if op in self._number
        ]

    def cost(self, phases: Sequence[Phase]) -> float:
        """When the last call ends, in token steps."""
        return timeline(self.calls, [self.order(phases)], [self._capacity]).makespan

    def improved(self, phases: Sequence[Phase], budget: float) -> tuple[tuple[Phase, ...], OrderCost]:
        """Phases at least as good, found within a budget of seconds, and what was found."""
        best = tuple(phases)
        first = cost = self.cost(best)
        left = int(budget / (PRICE * max(1, len(self.calls))))
        tried = 0
        found = True
        while found and left > 0:
            found = False
            for trial in _neighbours(best, self._ops):
                if left <= 0:
                    break
                left -= 1
                tried += 1
                new = self.cost(trial)
                if new < cost * (1 - _BETTER):
                    best, cost, found = trial, new, True
                    break
        exact, proven = None, False
        if 0 < len(self.calls) <= MOST_CALLS and budget > 0:
            nodes = max(_NODES, int(budget / (NODE_PRICE * len(self.calls))))
            known = best_order(self.calls, self._capacity, self.order(best), most=nodes)
            exact, proven = known.makespan, known.proven
        return best, OrderCost(first=first, now=cost, rows=self.rows, tried=tried, exact=exact, proven=proven)


def _neighbours(phases: tuple[Phase, ...], ops: Sequence[Op]) -> Iterator[tuple[Phase, ...]]:
    """Orders that differ by one change: a phase elsewhere, two phases as one, steps of a phase the other way round."""
    needs = {op.index: op.needs for op in ops}
    for at in range(len(phases) - 1):
        one, other = phases[at], phases[at + 1]
        if one.unit >= 0 and other.unit >= 0:
            yield (*phases[:at], Phase(one.unit, (*one.ops, *other.ops)), *phases[at + 2 :])
    for at, phase in enumerate(phases):
        for step in range(len(phase.ops) - 1):
            one_op, other_op = phase.ops[step : step + 2]
            if not needs.get(other_op, 0) >> one_op & 1:
                turned = (*phase.ops[:step], other_op, one_op, *phase.ops[step + 2 :])
                yield (*phases[:at], Phase(phase.unit, turned), *phases[at + 1 :])
    for at, phase in enumerate(phases):
        rest = (*phases[:at], *phases[at + 1 :])
        for to in range(len(phases)):
            if to != at and _may_stand(phase, rest, to, needs):
                yield (*rest[:to], phase, *rest[to:])


def _may_stand(phase: Phase, rest: Sequence[Phase], to: int, needs: dict[int, int]) -> bool:
    """Whether a phase comes after all that it needs, and before all that need it, at a place among the others."""
    own = needed = 0
    for op in phase.ops:
        own |= 1 << op
        needed |= needs.get(op, 0)
    before = 0
    for other in rest[:to]:
        for op in other.ops:
            before |= 1 << op
            if needs.get(op, 0) & own:
                return False
    return not needed & ~(before | own)
