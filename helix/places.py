"""Where a value stands in the workflow: what messages call it, and which of two failures comes first.

Both follow the workflow as it was written and not the plan, so that a rewritten plan fails in the same words and with
the same error first. A step inside a `for` is told with the position of its item: `opinions[1].view`.

A value without a name of its own is told by the first of its readers. Before rules change who reads it, its place is
pinned: written into its label, after a mark that no name can hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from helix.logical import Fetch, Generate, Invoke, Map, Node, Relation, Sink, Unnest, Value, topological

Order = tuple[int, ...]

_ITEM = re.compile(r"^(.*)\[(\d+)\]$", re.DOTALL)
_EXACT = re.compile(r"#(-?\d+(?:\.-?\d+)*):(.*)", re.DOTALL)
# After everything that has a name.
_LAST = 1 << 30
PIN = "@"


class Place:
    """A place with gaps where the positions of items go: `order` and `name` fill them in.

    `label` is the text that `Places.named` makes the same place of, where the same `for`s are around it.
    """

    __slots__ = ("_name", "_order", "label")

    def __init__(self, name: Sequence[str | None], order: Sequence[int | None], label: str | None = None) -> None:
        self._name = tuple(name)
        self._order = tuple(order)
        self.label = f"#{'.'.join(str(part or 0) for part in order)}:{self.name(())}" if label is None else label

    def order(self, items: Sequence[int]) -> Order:
        """The rank of the place: smaller is earlier in the workflow."""
        given = iter(items)
        return tuple(next(given, 0) if part is None else part for part in self._order)

    def name(self, items: Sequence[int]) -> str:
        """What messages call the place."""
        given = iter(items)
        return "".join(f"[{next(given, 0)}]" if part is None else part for part in self._name)

    @property
    def rank(self) -> Order:
        """The order with all gaps at 0, to compare places by."""
        return self.order(())

    def item(self) -> Place:
        """The place of what a `for` at this place yields."""
        return Place((*self._name, None), (*self._order, None, _LAST), self.label)

    def before(self, name: str) -> Place:
        """A place of another name just before this one: a filter before the first step that it lets through."""
        return Place((name,), ((self._order[0] or 0) - 1, _LAST + 1))


# The place of what comes from elsewhere and cannot fail by itself.
NOWHERE = Place(("",), (_LAST,))


class Places:
    """The places of one plan. `steps` are the names of its steps in the order of the workflow."""

    def __init__(self, steps: Iterable[str], columns: Iterable[str] = ()) -> None:
        self._ranks = {name: rank for rank, name in enumerate(steps)}
        self._columns = {name: len(self._ranks) + rank for rank, name in enumerate(columns)}

    def named(self, label: str, maps: Sequence[str] = ()) -> Place:
        """The place of a step. `maps` are the labels of the `for`s around it: their items are known at run time."""
        exact = _EXACT.match(label)
        if exact:
            return Place((exact[2],), tuple(int(part) for part in exact[1].split(".")), label)
        parts: list[str | None] = []
        order: list[int | None] = []
        static, so_far = "", ""
        pieces = label.split(".")
        for number, piece in enumerate(pieces):
            found = _ITEM.match(piece)
            name = found[1] if found else piece
            static = f"{static}.{name}" if static else name
            so_far = f"{so_far}.{piece}" if so_far else piece
            parts.append(f".{piece}" if number else piece)
            rank = self._ranks.get(static, len(self._ranks) + len(self._columns))
            if so_far in maps:
                parts.append(None)
                order += [rank, None]
            elif found:
                order += [rank, int(found[2])]
            elif number + 1 == len(pieces):
                order.append(rank)
        if order and (order[-1] is None or _ITEM.match(pieces[-1])):
            order.append(_LAST)
        return Place(parts, order, label)

    def column(self, name: str) -> Place:
        """The place of a column of the result that is not itself a step."""
        return Place((name,), (self._columns[name],))

    def plan(self, sink: Sink) -> dict[str, Place]:
        """The places of the outermost scope. What only unread steps read does not name what others read too."""
        roots: dict[str, Place] = {}
        for name, value in sink.columns:
            roots.setdefault(value.id, self.column(name))
        live = Sink(rows=sink.rows, columns=sink.columns)
        return self.scope(topological(sink), {}, ()) | self.scope(topological(live), roots, ())

    def scope(self, nodes: Sequence[Node], roots: Mapping[str, Place], maps: Sequence[str]) -> dict[str, Place]:
        """The place of each node of a scope, inputs before readers. `roots` are those of values read from outside.

        A node without a name of its own is told by the first of its readers.
        """
        found: dict[str, Place] = dict(roots)
        own = {node.id: self.named(label.removeprefix(PIN), maps) for node in nodes if (label := label_of(node))}
        for node in reversed(nodes):
            place = own.get(node.id) or found.get(node.id)
            if place is None:
                place = self.column_after()
            if isinstance(node, Unnest) and node.span is not None:
                # Its item is a name of the workflow: where that stands does not depend on who reads it.
                place = self.named(node.name).before(f"line {node.span.line}")
            elif isinstance(node, Relation) and node.span is not None:
                place = place.before(f"line {node.span.line}")
            found[node.id] = place
            for read in node.inputs:
                known = found.get(read.id)
                if known is None or place.rank < known.rank:
                    found[read.id] = place
        return found | own

    def column_after(self) -> Place:
        """The place of what nothing reads."""
        return Place(("the result",), (len(self._ranks) + len(self._columns),))


def static_name(name: str) -> str:
    """The name of a step without the positions of items: what reports count by."""
    return re.sub(r"\[\d+\]", "", name)


def is_name(label: str) -> bool:
    """Whether a label is a name of the workflow's own: neither empty nor a place that was pinned."""
    return bool(label) and not label.startswith(PIN)


def label_of(node: Node) -> str:
    """What the workflow calls a node; empty where it has no name."""
    if isinstance(node, Generate | Invoke | Map | Fetch):
        return node.step
    return node.label if isinstance(node, Value) else ""
