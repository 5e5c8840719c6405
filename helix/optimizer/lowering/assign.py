"""Which worker takes which groups of rows: longest first, and groups cut only where that pays.

Groups are nested by their columns: those that agree in the first column share what it adds to their prompts, and so
on. A group goes to one rank with all that is nested in it, unless the time won is more than that to compute its
beginning again on another rank.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from helix.optimizer.lowering.table import Group

# Of a rank's parts so many of the largest are tried elsewhere.
_TRIED = 64
# Parts that are looked at in one step of the search.
_STEP = 500


@dataclass(slots=True)
class Part:
    """Groups next to one another in the order of keys that stay together: those from `first` up to `end`.

    `own` are the seconds for the rows and for the beginnings inside it, `edges` those for the beginnings that it
    shares with others around it, by depth, which each rank that takes such a part computes once. `share` is how many
    ranks share its one group.
    """

    first: int
    end: int
    depth: int
    own: float
    edges: tuple[tuple[tuple[int, int], float], ...] = ()
    share: int = 1


@dataclass(slots=True)
class Placed:
    """Where parts go: the parts, the ranks of each, and what each rank has to do in seconds."""

    parts: list[Part]
    ranks: list[tuple[int, ...]]
    loads: list[float] = field(default_factory=list)

    @property
    def makespan(self) -> float:
        """What the rank with the most work has to do."""
        return max(self.loads, default=0.0)


class Assigner:
    """Places the groups of a table. `groups` stand in the order of their keys; `prefill` gives seconds from tokens."""

    def __init__(self, groups: Sequence[Group], ranks: int, prefill: Callable[[float], float]) -> None:
        self._groups = groups
        self._ranks = ranks
        self._prefill = prefill
        self._depths = len(groups[0].key) if groups else 0

    def place(self) -> Placed:
        """The first placement: parts too large for a fair share cut where that pays, then the longest first."""
        parts = self._cut(self._nested(0, len(self._groups), 0, ()))
        return self.assigned(parts)

    # --- cutting ---

    def _nested(self, first: int, end: int, depth: int, edges: tuple[tuple[tuple[int, int], float], ...]) -> list[Part]:
        """The parts of a range of groups by the next column, whose first `depth` columns agree."""
        if depth >= self._depths:
            return [Part(first, end, depth, self._seconds(first, end), edges)]
        made: list[Part] = []
        at = first
        while at < end:
            until = at + 1
            while until < end and self._groups[until].key[depth] == self._groups[at].key[depth]:
                until += 1
            made.append(Part(at, until, depth + 1, self._work(at, until, depth), edges))
            at = until
        return made

    def _seconds(self, first: int, end: int) -> float:
        return sum(group.seconds for group in self._groups[first:end])

    def _work(self, first: int, end: int, depth: int) -> float:
        """The seconds for a range of groups that agree in `depth` columns: rows, and each beginning inside it once."""
        total = self._seconds(first, end)
        for level in range(depth, self._depths):
            before: tuple[str, ...] | None = None
            for group in self._groups[first:end]:
                if group.key[: level + 1] != before:
                    before = group.key[: level + 1]
                    total += self._prefill(group.shared[level])
        return total

    def _edge(self, part: Part) -> float:
        """The seconds for the beginning that the groups of a part share by its last column."""
        return self._prefill(self._groups[part.first].shared[part.depth - 1])

    def _children(self, part: Part) -> list[Part]:
        """A part taken apart by the next column; its own beginning is then shared by what it becomes."""
        edges = (*part.edges, ((part.first, part.depth), self._edge(part)))
        return self._nested(part.first, part.end, part.depth, edges)

    def _cut(self, parts: list[Part]) -> list[Part]:
        """Parts that are more than a fair share, taken apart or shared out while that saves more than it costs."""
        fair = sum(part.own for part in parts) / self._ranks
        stack, made = parts[::-1], list[Part]()
        while stack:
            part = stack.pop()
            saved = part.own - fair
            if self._ranks > 1 and saved > 0 and part.end - part.first > 1 and saved > self._edge(part):
                stack.extend(reversed(self._children(part)))
            elif self._ranks > 1 and saved > 0 and part.end - part.first == 1:
                made.append(self._shared_out(part, fair))
            else:
                made.append(part)
        return made

    def _shared_out(self, part: Part, fair: float) -> Part:
        """One group over as many ranks as its work asks for: `work (1 - 1/k)` is more than its beginning costs."""
        group = self._groups[part.first]
        prefix = self._prefill(sum(group.shared))
        wanted = min(self._ranks, group.rows, -int(-part.own // fair) if fair else 1)
        for count in range(wanted, 1, -1):
            if part.own * (1 - 1 / count) > prefix:
                return Part(part.first, part.end, part.depth, part.own, part.edges, count)
        return part

    # --- placing ---

    def assigned(self, parts: list[Part]) -> Placed:
        """The parts with the most work first, each to the rank that has the least so far."""
        order = sorted(range(len(parts)), key=lambda at: (-parts[at].own / parts[at].share, parts[at].first))
        heap = [(0.0, rank) for rank in range(self._ranks)]
        ranks: list[tuple[int, ...]] = [()] * len(parts)
        known: list[set[tuple[int, int]]] = [set() for _ in range(self._ranks)]
        for at in order:
            part = parts[at]
            taken = [heapq.heappop(heap) for _ in range(part.share)]
            for load, rank in taken:
                heapq.heappush(heap, (load + self._cost(part, known[rank]), rank))
                known[rank].update(edge for edge, _ in part.edges)
            ranks[at] = tuple(sorted(rank for _, rank in taken))
        return Placed(parts, ranks, self.loads(parts, ranks))

    def _cost(self, part: Part, known: set[tuple[int, int]]) -> float:
        """What a part adds to a rank that has computed some beginnings already."""
        whole = part.own / part.share
        if part.share > 1:
            prefix = self._prefill(self._groups[part.first].shared[-1])
            whole += prefix * (1 - 1 / part.share)
        return whole + sum(cost for edge, cost in part.edges if edge not in known)

    def loads(self, parts: Sequence[Part], ranks: Sequence[tuple[int, ...]]) -> list[float]:
        """What each rank has to do in seconds."""
        made = [0.0] * self._ranks
        known: list[set[tuple[int, int]]] = [set() for _ in range(self._ranks)]
        for part, taken in zip(parts, ranks, strict=True):
            for rank in taken:
                made[rank] += self._cost(part, known[rank])
                known[rank].update(edge for edge, _ in part.edges)
        return made

    # --- improving ---

    def improved(self, placed: Placed, steps: int) -> tuple[Placed, int]:
        """A placement at least as good, found by moves and swaps from the rank with the most work; with the steps that
        are left of those given. Each trial is a step.
        """
        while steps > 0 and self._ranks > 1:
            fullest = max(range(self._ranks), key=lambda rank: (placed.loads[rank], -rank))
            better, steps = self._relieved(placed, fullest, steps)
            if better is None:
                break
            placed = better
        return placed, steps

    def _relieved(self, placed: Placed, rank: int, steps: int) -> tuple[Placed | None, int]:
        """The first change found that takes work off the fullest rank without filling another as much."""
        mine = [at for at, taken in enumerate(placed.ranks) if taken == (rank,)]
        mine = sorted(mine, key=lambda at: (-placed.parts[at].own, at))[:_TRIED]
        price = 1 + len(placed.parts) // _STEP
        emptiest = min(range(self._ranks), key=lambda other: (placed.loads[other], other))
        theirs = [at for at, taken in enumerate(placed.ranks) if taken == (emptiest,)]
        theirs = sorted(theirs, key=lambda at: (-placed.parts[at].own, at))[:_TRIED]
        gap = placed.loads[rank] - placed.loads[emptiest]
        for at in mine:
            own = placed.parts[at].own
            if own < gap:
                steps -= price
                if (moved := self._tried(placed, {at: (emptiest,)})) is not None:
                    return moved, steps
            for other in theirs:
                if steps <= 0:
                    return None, 0
                if 0 < own - placed.parts[other].own < gap:
                    steps -= price
                    if (moved := self._tried(placed, {at: (emptiest,), other: (rank,)})) is not None:
                        return moved, steps
        for at in mine:
            if steps <= 0:
                return None, 0
            part = placed.parts[at]
            if part.end - part.first > 1 and gap / 2 > self._edge(part):
                steps -= price
                apart = self._children(part)
                parts = [*placed.parts[:at], *apart, *placed.parts[at + 1 :]]
                ranks = [*placed.ranks[:at], *[(rank,)] * len(apart), *placed.ranks[at + 1 :]]
                for child in range(at, at + len(apart)):
                    if steps <= 0:
                        return None, 0
                    steps -= price
                    made = Placed(parts, ranks, self.loads(parts, ranks))
                    trial = self._tried(made, {child: (emptiest,)}, placed.makespan)
                    if trial is not None:
                        return trial, steps
        return None, steps

    def _tried(self, placed: Placed, moves: dict[int, tuple[int, ...]], most: float | None = None) -> Placed | None:
        """A placement with some parts elsewhere, where that lowers the makespan by more than rounding."""
        ranks = [moves.get(at, taken) for at, taken in enumerate(placed.ranks)]
        loads = self.loads(placed.parts, ranks)
        worst = placed.makespan if most is None else most
        return Placed(placed.parts, ranks, loads) if max(loads) < worst * (1 - 1e-9) else None


def release_order(placed: Placed, groups: Sequence[Group], ranks: int) -> list[int]:
    """The groups in the order in which their rows are released: each rank's by their keys, the ranks side by side.

    The next group is always one of the rank that has been given the least work so far.
    """
    queues: list[list[tuple[int, float]]] = [[] for _ in range(ranks)]
    for part, taken in zip(placed.parts, placed.ranks, strict=True):
        for rank in taken:
            queues[rank].extend((at, groups[at].seconds / len(taken)) for at in range(part.first, part.end))
    for queue in queues:
        queue.sort()
    at = [0] * ranks
    heap = [(0.0, rank) for rank in range(ranks) if queues[rank]]
    order: list[int] = []
    given = bytearray(len(groups))
    while heap:
        spent, rank = heapq.heappop(heap)
        group, seconds = queues[rank][at[rank]]
        at[rank] += 1
        if not given[group]:
            given[group] = 1
            order.append(group)
        if at[rank] < len(queues[rank]):
            heapq.heappush(heap, (spent + seconds, rank))
    return order
