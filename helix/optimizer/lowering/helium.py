"""Helium's order of the steps (arXiv 2603.16104), to be compared with: a greedy walk through the templated radix tree.

At each node the walk goes into the branch whose steps that can begin have the longest way to the end of the workflow in
hops, of these into the one that could begin earliest, then into the one that waits for most of its siblings. A step can
begin once the clock has come to where the replies that it waits for are there; where no branch has such a step, one is
forced, once: the one that can begin earliest, then the deepest. What lies below the first value of a row is a unit,
gone through row by row.

The clock counts token steps. A call with a prompt of p tokens and a reply of L takes `u = L p + L (L + 1) / 2`, and
what waits for it begins no earlier than `M L` after that of the first row, on a worker that holds M tokens. A unit
moves the clock to

    max(clock + rows * sum(u), floor(rows / max_seqs) * M * min(L))

In the form `code` p is the whole prompt; in the form `paper` only what lies below the part that the prompt shares with
that of the call before. Ties go by the number of the step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from helix.optimizer.lowering.fixity import Fixity
from helix.optimizer.lowering.ops import Op
from helix.optimizer.lowering.order import Phase, units_of
from helix.optimizer.sizes import Sizes
from helix.optimizer.tree.shape import Tree, bits
from helix.optimizer.tree.trie import Paths

if TYPE_CHECKING:
    import networkx


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A worker: the rows that it is given, the tokens that it holds, the calls that it runs at once."""

    rows: float
    capacity: float
    running: int


def helium_phases(
    tree: Tree, paths: Paths, fixity: Fixity, sizes: Sizes, ops: Sequence[Op], worker: Worker, *, paper: bool = False
) -> tuple[Phase, ...]:
    """The phases in the order of release: every op once, after all that it needs."""
    keys = list(paths.keys)
    tokens = [
        paths.literal[place] + (sizes.mean(keys[hole]) if hole >= 0 else 0.0) for place, hole in enumerate(paths.holes)
    ]
    walk = _Walk(tree, fixity, ops, worker, [[tokens[place] for place in path] for path in paths.paths], paths, paper)
    walk.enter(0, forced=False)
    return tuple(walk.made)


class _Walk:
    def __init__(
        self, tree: Tree, fixity: Fixity, ops: Sequence[Op], worker: Worker, tokens: Sequence[Sequence[float]],
        paths: Paths, paper: bool,
    ) -> None:  # fmt: skip
        self.made: list[Phase] = []
        self._tree = tree
        self._ops = ops
        # By op the places of its prompt, and the tokens of each in the mean, values included.
        self._paths = paths.paths
        self._tokens = tokens
        self._worker = worker
        self._paper = paper
        count = len(tree)
        self._below = [0] * count
        for op in ops:
            self._below[tree.ops[op.index].end] |= 1 << op.index
        for node in range(count - 1, 0, -1):
            self._below[tree.parents[node]] |= self._below[node]
        units = units_of(tree, fixity)
        # The topmost nodes in which a row's own value lies; what ends above them is a unit of its own.
        self._is_unit = [False] * count
        for unit in units:
            if unit >= 0:
                self._is_unit[unit] = True
        self._hops = _hops(ops)
        self._clock = 0.0
        self._done = 0
        # From when each op could begin; infinite while one that it needs has no place in the order.
        self._from = [math.inf if op.needs else 0.0 for op in ops]
        self._ended = [0.0] * len(ops)
        self._last: int | None = None

    def enter(self, node: int, *, forced: bool) -> bool:
        """Goes through a node as far as it can; whether anything was released."""
        if self._is_unit[node]:
            return self._unit(node)
        moved = False
        while left := self._below[node] & ~self._done:
            own = [op for op in self._tree.ends(node) if left >> op & 1 and self._from[op] <= self._clock]
            for op in sorted(own, key=lambda op: (-self._hops[op], op)):
                self._release(node, [op])
                moved = True
            depths = self._depths(node)
            children = [child for child in self._tree.children(node) if self._below[child] & ~self._done]
            free = [child for child in children if self._free(child)]
            if free:
                child = min(free, key=lambda child: self._key(child, depths))
                moved |= self.enter(child, forced=False)
                continue
            if node and (moved or not forced):
                return moved
            # Nothing can begin by now: what can begin first does, and the walk goes on from there.
            late = [(self._earliest(child), -depths[child], child) for child in children]
            late += [(self._from[op], 0, node) for op in self._tree.ends(node) if left >> op & 1]
            begins, _, child = min(late, default=(math.inf, 0, 0))
            if begins == math.inf:
                return moved
            self._clock = max(self._clock, begins)
            if child != node:
                moved |= self.enter(child, forced=True)
        return moved

    # --- what a branch is chosen by ---

    def _free(self, node: int) -> list[int]:
        """The ops below a node that can begin now."""
        return [op for op in bits(self._below[node] & ~self._done) if self._from[op] <= self._clock]

    def _earliest(self, node: int) -> float:
        return min(self._from[op] for op in bits(self._below[node] & ~self._done))

    def _key(self, node: int, depths: dict[int, int]) -> tuple[float, float, int, int]:
        free = self._free(node)
        return -max(self._hops[op] for op in free), self._earliest(node), -depths[node], free[0]

    def _depths(self, node: int) -> dict[int, int]:
        """For each branch how many of its siblings wait for one another before it, those of a circle as one."""
        import networkx  # when used: no other order needs it, and importing takes 0.2 s

        children = list(self._tree.children(node))
        graph: networkx.DiGraph[int] = networkx.DiGraph()
        graph.add_nodes_from(children)
        for child in children:
            needed = 0
            for op in bits(self._below[child]):
                needed |= self._ops[op].needs
            graph.add_edges_from((other, child) for other in children if other != child and needed & self._below[other])
        whole = networkx.condensation(graph)
        depth: dict[int, int] = {}
        for part in networkx.topological_sort(whole):
            depth[part] = max((depth[before] + 1 for before in whole.predecessors(part)), default=0)
        return {child: depth[whole.graph["mapping"][child]] for child in children}

    # --- releasing ---

    def _unit(self, node: int) -> bool:
        """Releases all of a unit whose producers have a place in the order, or get one in it, row by row."""
        found: list[int] = []
        done = self._done
        while True:
            ready = [op for op in bits(self._below[node] & ~done) if not self._ops[op].needs & ~done]
            if not ready:
                break
            # Depth first: what ends highest in the tree, then by the longest way to the end.
            op = min(ready, key=lambda op: (self._tree.ops[op].end, -self._hops[op], op))
            found.append(op)
            done |= 1 << op
        if found:
            self._release(node, found)
        return bool(found)

    def _release(self, unit: int, found: Sequence[int]) -> None:
        rows, capacity = self._worker.rows, self._worker.capacity
        steps = sum(self._ops[op].often * self._steps(op) for op in found)
        least = min(self._ops[op].length.mean for op in found)
        full = math.floor(rows / self._worker.running) * capacity * least
        for op in found:
            self._done |= 1 << op
            # The first row's call: what waits for it can begin while those of other rows go on.
            self._ended[op] = self._clock + steps
        self._clock = max(self._clock + rows * steps, full)
        for each in self._ops:
            if each.needs and not each.needs & ~self._done and self._from[each.index] == math.inf:
                self._from[each.index] = max(
                    self._ended[other] + capacity * self._ops[other].length.mean for other in bits(each.needs)
                )
        number = unit if self._is_unit[unit] else -1
        if self.made and self.made[-1].unit == number and number >= 0:
            self.made[-1] = Phase(number, (*self.made[-1].ops, *found))
        else:
            self.made.append(Phase(number, tuple(found)))

    def _steps(self, op: int) -> float:
        """The token steps of a call, which is the one before the next from now on."""
        length = self._ops[op].length.mean
        fresh = self._fresh(op) if self._paper else self._ops[op].prompt
        self._last = op
        return length * fresh + length * (length + 1) / 2

    def _fresh(self, op: int) -> float:
        """The tokens below what a prompt shares with the one before it."""
        path, common = self._paths[op], 0
        before = () if self._last is None else self._paths[self._last]
        while common < min(len(path), len(before)) and path[common] == before[common]:
            common += 1
        return sum(self._tokens[op][common:])


def _hops(ops: Sequence[Op]) -> list[int]:
    """How many ops follow one another at most after each."""
    made = [0] * len(ops)
    for op in sorted(ops, key=lambda op: -op.index):
        for other in bits(op.needs):
            made[other] = max(made[other], made[op.index] + 1)
    return made
