"""How far each stretch of a prompt is fixed: for all rows, for the rows of a group, or for one row alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from helix.optimizer.rule import TableStats
from helix.optimizer.tree.refs import Resolution
from helix.optimizer.tree.shape import Hole, Tree, bits
from helix.optimizer.tree.trie import Paths
from helix.optimizer.variation import closure

# Deeper than any number of columns to group by: what a row alone fixes.
ROW = 1_000


class Fixity:
    """Of holes, places and nodes how far they are fixed with all before them on the path.

    0: for all rows. n: for rows that agree in the first n columns of `group_by`. ROW: for one row, or less.
    """

    def __init__(
        self, found: Resolution, tree: Tree, paths: Paths, group_by: Sequence[str], stats: TableStats | None
    ) -> None:
        facts = stats or TableStats(rows=0)
        # Of a single row every column has one value; that says nothing of others.
        alike = closure((), facts) if facts.rows > 1 else frozenset()
        covered = [closure(group_by[:count], facts) if count else alike for count in range(len(group_by) + 1)]
        self.holes = {
            key: _of_roots(found, source.roots, covered) if source.hole.scope.level else 0
            for key, source in found.holes.items()
        }
        keys = list(paths.keys)
        self.places = [0] * len(paths.holes)
        for path in paths.paths:
            reached = 0
            for place in path:
                hole = paths.holes[place]
                reached = max(reached, self.holes[keys[hole]] if hole >= 0 else 0)
                self.places[place] = reached
        # Of nodes: at their end.
        self.nodes = [0] * len(tree)
        for node in range(1, len(tree)):
            reached = self.nodes[tree.parents[node]]
            for segment in tree.label(node):
                if isinstance(segment, Hole):
                    reached = max(reached, self.holes[segment.key])
            self.nodes[node] = reached


def _of_roots(found: Resolution, roots: int, covered: Sequence[frozenset[str]]) -> int:
    """How far what these values decide is fixed."""
    columns: set[str] = set()
    for root in _without_items(found, roots):
        ref = found.refs[root]
        if ref.kind != "column" or ref.random or found.places[ref.frame].kind not in ("rows", "filter"):
            return ROW
        columns.add(ref.field)
    return next((count for count, known in enumerate(covered) if columns <= known), ROW)


def _without_items(found: Resolution, roots: int) -> Iterator[int]:
    """The same with what decides its list for each item of a `for`: rows that have the list have all its items."""
    stack = list(bits(roots))
    while stack:
        root = stack.pop()
        place = found.places[found.refs[root].frame]
        if root == place.item and place.kind == "items" and place.value is not None:
            stack.extend(bits(found.refs[place.value].roots))
        else:
            yield root
