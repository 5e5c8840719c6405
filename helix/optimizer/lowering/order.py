"""The order in which the steps of a plan are released: a walk through the templated radix tree, deepest first.

Above the first hole that rows fill differently the walk goes step by step: each for all rows of a block. What lies
below such a hole is a *unit*, gone through row by row, so that what a row's prompts share is computed once. Of the
branches of a node the walk enters one that can be gone through to its end, all that it waits for being done or inside
it; where there is none, the one that can begin earliest, once. Steps that wait for others of an open branch, or for
what is done by then, are taken before the branch is left. Of branches that can be entered the one with the longest rest
of the workflow behind it comes first; below a row's own hole, where all of them follow at once, the one that could
begin earliest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from helix.optimizer.lowering.fixity import ROW, Fixity
from helix.optimizer.lowering.ops import Op
from helix.optimizer.tree.shape import Tree, bits


@dataclass(frozen=True, slots=True)
class Phase:
    """Ops that are released together, row by row, in this order for one row. `unit` is the node they lie below."""

    unit: int
    ops: tuple[int, ...]


def phases_of(tree: Tree, fixity: Fixity, ops: Sequence[Op]) -> tuple[Phase, ...]:
    """The phases of a plan in the order of release: every op once, after all that it needs."""
    units = units_of(tree, fixity)
    made: list[Phase] = []
    for op in _Walk(tree, ops, fixity).run():
        unit = units[op]
        if made and made[-1].unit == unit and unit >= 0:
            made[-1] = Phase(unit, (*made[-1].ops, op))
        else:
            made.append(Phase(unit, (op,)))
    return tuple(made)


def units_of(tree: Tree, fixity: Fixity) -> list[int]:
    """For each op the topmost node on its path in which a row's own hole lies; -1 where there is none."""
    unit = [-1] * len(tree)
    for node in range(1, len(tree)):
        above = unit[tree.parents[node]]
        unit[node] = above if above >= 0 else node if fixity.nodes[node] == ROW else -1
    return [unit[op.end] for op in tree.ops]


@dataclass(slots=True)
class _Open:
    """A node that the walk is in. `forced`: it could not be gone through to its end when it was entered."""

    node: int
    forced: bool
    moved: bool = False


class _Walk:
    def __init__(self, tree: Tree, ops: Sequence[Op], fixity: Fixity) -> None:
        self._tree = tree
        self._inside = [depth == ROW for depth in fixity.nodes]
        self._ops = ops
        count = len(tree)
        self._below = [0] * count
        self._needs = [0] * count
        for op in ops:
            self._below[tree.ops[op.index].end] |= 1 << op.index
            self._needs[tree.ops[op.index].end] |= op.needs
        for node in range(count - 1, 0, -1):
            self._below[tree.parents[node]] |= self._below[node]
            self._needs[tree.parents[node]] |= self._needs[node]
        self._children = [[child for child in tree.children(node) if self._below[child]] for node in range(count)]
        # Estimates that differ by the order of a sum alone must not decide.
        self._rank = [-round(op.rank_up, 9) for op in ops]
        self._drain = [round(op.private + op.length.mean, 6) for op in ops]
        self._done = 0
        self._order: list[int] = []
        # The ops that can be released, as bits, and the place in the order from which each could be.
        self._free = 0
        self._begins = [0] * len(ops)
        self._missing = [op.needs.bit_count() for op in ops]
        self._readers: list[list[int]] = [[] for _ in ops]
        for op in ops:
            for other in bits(op.needs):
                self._readers[other].append(op.index)
            self._free |= (not op.needs) << op.index

    def run(self) -> list[int]:
        stack = [_Open(0, forced=False)]
        while stack:
            here = stack[-1]
            for op in sorted(bits(self._own(here.node) & self._free), key=lambda op: (self._rank[op], op)):
                self._take(op)
                here.moved = True
            child = self._child(here)
            if child is not None:
                stack.append(child)
                continue
            stack.pop()
            if stack and here.moved:
                stack[-1].moved = True
        return self._order

    def _own(self, node: int) -> int:
        own = 0
        for op in self._tree.ends(node):
            own |= 1 << op
        return own

    def _take(self, op: int) -> None:
        self._done |= 1 << op
        self._free &= ~(1 << op)
        self._order.append(op)
        for reader in self._readers[op]:
            self._missing[reader] -= 1
            self._begins[reader] = len(self._order)
            self._free |= (not self._missing[reader]) << reader

    def _child(self, here: _Open) -> _Open | None:
        """The branch to enter next; None where the node is to be left."""
        left = self._children[here.node] = [
            child for child in self._children[here.node] if self._below[child] & ~self._done
        ]
        open_ = [child for child in left if not self._needs[child] & ~(self._done | self._below[child])]
        if open_:
            return _Open(min(open_, key=self._key), forced=False)
        if here.forced and here.moved:
            return None
        ready = [
            (min(self._begins[op] for op in bits(self._below[child] & self._free)), child)
            for child in left
            if self._below[child] & self._free
        ]
        if not ready:
            return None
        first = min(begins for begins, _ in ready)
        return _Open(min((child for begins, child in ready if begins == first), key=self._key), forced=True)

    def _key(self, node: int) -> tuple[float, float, float, int]:
        """The longest rest of the workflow, the earliest beginning, the least to do, the order of the workflow."""
        left = list(bits(self._below[node] & ~self._done))
        rank = min(self._rank[op] for op in left)
        begins = min((self._begins[op] for op in bits(self._below[node] & self._free)), default=len(self._ops))
        inside = self._inside[self._tree.parents[node]]
        return (begins if inside else rank, rank if inside else begins, sum(self._drain[op] for op in left), left[0])
