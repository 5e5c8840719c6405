"""The chain of relations of a plan, from the input table to the result, and the steps that run over each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from helix.logical import (
    Filter,
    Limit,
    LogicalPlan,
    Node,
    Relation,
    Sink,
    Sort,
    spine,
    topological,
)
from helix.optimizer.fallible import Fates
from helix.optimizer.rewrite import with_inputs
from helix.optimizer.scopes import certainly_read, scope_of, settled
from helix.traits import traits


class Chain:
    """A plan's relations from the table on, with what runs over each. A level is a relation's place in the chain."""

    def __init__(self, plan: LogicalPlan) -> None:
        self.plan = plan
        self.scope = scope_of(plan)
        self.relations = spine(plan.sink.rows)
        self._place = {relation.id: level for level, relation in enumerate(self.relations)}
        self._levels: dict[str, int] = {}
        self._runners: list[list[Node]] = [[] for _ in self.relations]
        for node in self.scope.nodes:
            level = self._levels[node.id] = self._found_level(node)
            if not isinstance(node, Relation | Sink) and isinstance(getattr(node, "rows", None), Relation):
                self._runners[level].append(node)

    @property
    def fates(self) -> Fates:
        """What makes each value and each row fail."""
        return self.scope.fates

    def level(self, node: Node) -> int:
        """The level at which a node's value is there; -1 for what belongs to no row."""
        return self._levels[node.id]

    def _found_level(self, node: Node) -> int:
        if node.id in self._place:
            return self._place[node.id]
        rows = getattr(node, "rows", None)
        if isinstance(rows, Relation):
            return self._place[rows.id]
        return max((self._levels[read.id] for read in node.inputs), default=-1)

    def runners(self, level: int) -> list[Node]:
        """The steps, branches and loops that run over the rows of a level."""
        return self._runners[level]

    # --- steps further up ---

    def lifted(self, kind: type[Relation]) -> LogicalPlan:
        """The plan with steps moved above relations of a kind, as far up as their readers and their errors allow.

        A call moves past filters, sorts and limits whose rows fail only where the call is not made anyway. The rows
        that are left have the same value then, and for the others it is not called.
        """
        targets: dict[str, Relation] = {}
        bounds: dict[str, int] = {}
        top = len(self.relations) - 1
        for node in reversed(self.scope.nodes):
            bound = bounds.get(node.id, top)
            if isinstance(node, Relation):
                bound = self._place[node.id] - 1
            elif isinstance(getattr(node, "rows", None), Relation) and not isinstance(node, Sink):
                bound = self._lifted_to(node, bound, kind)
                if bound != self.level(node):
                    targets[node.id] = self.relations[bound]
            for read in node.inputs:
                bounds[read.id] = min(bounds.get(read.id, top), bound)
        if not targets:
            return self.plan
        done: dict[str, Node] = {}
        for node in self.scope.nodes:
            fresh = with_inputs(node, done)
            if node.id in targets:
                rows: dict[str, Any] = {"rows": done[targets[node.id].id]}
                fresh = replace(fresh, **rows)
            done[node.id] = fresh
        return self._with_sink(done)

    def _lifted_to(self, node: Node, bound: int, kind: type[Relation]) -> int:
        level = best = self.level(node)
        if not may_move(node):
            return level
        unmade = 0
        for read in certainly_read(node):
            unmade |= self.fates.of_node(read)
        for place in range(level + 1, bound + 1):
            relation = self.relations[place]
            if not isinstance(relation, Filter | Sort | Limit) or self.fates.control(relation) & ~unmade:
                break
            if isinstance(relation, kind):
                best = place
        return best

    # --- relations in another order ---

    def reordered(self, order: Sequence[int]) -> LogicalPlan:
        """The plan with its relations in another order, given as levels of this one, the table first.

        Only filters may come further down. What runs over a relation runs, in the new order, over the last of those
        that were not above it here.
        """
        last = [max(order.index(below) for below in range(level + 1)) for level in range(len(order))]
        done: dict[str, Node] = {}
        made: list[Relation] = []
        for place, level in enumerate(order):
            relation = self.relations[level]
            for value in relation.inputs:
                if value.id not in self._place:
                    self._build(value, done)
            rows: dict[str, Any] = {"rows": made[-1]} if made else {}
            fresh = replace(with_inputs(relation, done), **rows) if rows else relation
            assert isinstance(fresh, Relation)
            made.append(fresh)
            for other, newest in enumerate(last):
                if newest == place:
                    done[self.relations[other].id] = fresh
        self._build(self.plan.sink, done)
        return self._with_sink(done)

    def _build(self, root: Node, done: dict[str, Node]) -> None:
        for node in topological(root):
            if node.id not in done and node.id not in self._place:
                done[node.id] = with_inputs(node, done)

    def _with_sink(self, done: dict[str, Node]) -> LogicalPlan:
        sink = done[self.plan.sink.id]
        assert isinstance(sink, Sink)
        return replace(self.plan, sink=settled(self.scope, sink, done))


def may_move(node: Node) -> bool:
    """Whether a step may run over fewer rows: its result depends on its inputs alone, and it does nothing else."""
    own = traits(node)
    return own.deterministic and own.effects in ("pure", "read")
