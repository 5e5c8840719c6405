"""The calls of a table that is so small that their order can be chosen call by call."""

from __future__ import annotations

from collections.abc import Sequence

from helix.optimizer.lowering.exact import MOST_CALLS, Best, best_order, better_order
from helix.optimizer.lowering.recurrence import Call, Edge
from helix.optimizer.tree.bind import Instance
from helix.optimizer.tree.shape import Tree, bits
from helix.optimizer.tree.trie import Paths

# What moving a call, and going on with an order that has begun, is taken to cost in seconds for each of the calls.
MOVE_PRICE, NODE_PRICE = 1e-6, 5e-6


class FewCalls:
    """Takes the bound instances of a table in turn. `whole`: they are few, and each is one call that is surely made.

    `calls` have the lengths `outputs` of their ops; `places` say of each its row, from 0, and its op.
    """

    def __init__(self, tree: Tree, paths: Paths, outputs: Sequence[float], most: int = MOST_CALLS) -> None:
        self.calls: list[Call] = []
        self.places: list[tuple[int, int]] = []
        self.whole = True
        self._tree = tree
        self._paths = paths
        self._outputs = outputs
        self._most = most
        self._edges: dict[tuple[int, int, int], int] = {}

    def take(self, here: Instance) -> None:
        """Takes what is called in one run of a frame."""
        if not self.whole or not here.order:
            return
        once = not here.frame and here.weight >= 1 and all(self._tree.ops[op].sample == 1 for op, _ in here.order)
        if not once or len(self.calls) + len(here.order) > self._most:
            self.whole = False
            self.calls, self.places, self._edges = [], [], {}
            return
        paths = self._paths
        number = {op: len(self.calls) + at for at, op in enumerate(sorted(op for op, _ in here.order))}
        for op in number:
            path: list[Edge] = []
            above = 0
            for place in paths.paths[op]:
                hole = paths.holes[place]
                key = (above, place, here.numbers[hole] if hole >= 0 else 0)
                above = self._edges.setdefault(key, len(self._edges) + 1)
                path.append((above, paths.literal[place] + (here.tokens[hole] if hole >= 0 else 0.0)))
            needs = tuple(number[other] for other in bits(self._tree.ops[op].needs) if other in number)
            self.calls.append(Call(path=tuple(path), output=max(1.0, self._outputs[op]), needs=needs))
            self.places.append((here.row, op))


def best_calls(calls: Sequence[Call], capacity: float, start: Sequence[int], budget: float) -> Best:
    """The best order of calls that is found within a budget of seconds, each try at a fixed price: from one that is
    known by moves of single calls, then by branch and bound.
    """
    count = max(1, len(calls))
    better = better_order(calls, capacity, start, most=int(budget / 2 / (MOVE_PRICE * count)))
    left = budget - better.tried * MOVE_PRICE * count
    return best_order(calls, capacity, better.order, most=int(left / (NODE_PRICE * count)))
