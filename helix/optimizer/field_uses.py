"""Which fields of the records of a list are read: by expressions, by templates, and by blocks that Jinja2 renders.

A value is followed as a list of records or as one record. Where it is used in any other way than to reach into it,
all fields count as read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from helix.expr import Arg, Call, Expr, Field, Index, children
from helix.expr import Literal as LiteralExpr
from helix.logical import (
    Apply,
    Body,
    Choose,
    GroupReduce,
    Map,
    Node,
    Parameters,
    Project,
    Render,
    Repeat,
    bodies,
    body_nodes,
)
from helix.templates.template import Block, Slot

if TYPE_CHECKING:
    from jinja2 import nodes

Kind = Literal["list", "record"]
_COUNTING = ("len", "length", "count")
_REORDERING = ("reverse", "take", "selectattr", "rejectattr")


class Uses:
    """The fields that were seen to be read; `all` where the records themselves are used."""

    def __init__(self) -> None:
        self.fields: set[str] = set()
        self.all = False

    def whole(self, kind: Kind | None) -> None:
        """Notes the use of a value as it is."""
        self.all = self.all or kind is not None

    # --- nodes ---

    def scope(self, nodes: Sequence[Node], kinds: dict[str, Kind]) -> None:
        """Follows values, by node id, through the readers of a scope; inputs come before readers."""
        for node in nodes:
            if self.all:
                return
            if any(read.id in kinds for read in node.inputs):
                self._reader(node, kinds)

    def _reader(self, node: Node, kinds: Mapping[str, Kind]) -> None:
        match node:
            case Apply(expr=expr, args=args):
                self.whole(self.expr(expr, [kinds.get(arg.id) for arg in args]))
            case Render(template=template, args=args):
                known = [kinds.get(arg.id) for arg in args]
                for segment in template.segments:
                    if isinstance(segment, Slot):
                        self.whole(self.expr(segment.value, known))
                    elif isinstance(segment, Block):
                        given = {
                            name: self.expr(value, known)
                            for name, value in zip(segment.names, segment.inputs, strict=True)
                        }
                        self.block(segment.source, {name: kind for name, kind in given.items() if kind is not None})
            case Map() | Choose() | Repeat():
                self._holder(node, kinds)
            case _:
                self.all = True

    def _holder(self, node: Map | Choose | Repeat, kinds: Mapping[str, Kind]) -> None:
        direct = {read.id for read in node.inputs if read.id in kinds}
        for _, body in bodies(node):
            given = inside_kinds(node, body, kinds)
            inner = {
                part.id: given[part.field]
                for part in body_nodes(body)
                if isinstance(part, Project) and isinstance(part.source, Parameters) and part.field in given
            }
            if any(value.id in inner for _, value in body.results):
                self.all = True
            self.scope(body_nodes(body), inner)
        passed = {value.id for value in node.captures}
        if isinstance(node, Map) and kinds.get(node.over.id) == "list":
            passed.add(node.over.id)
        self.all = self.all or bool(direct - passed) or self._also_else(node, kinds)

    def _also_else(self, node: Map | Choose | Repeat, kinds: Mapping[str, Kind]) -> bool:
        """Whether a captured value is used by the holder itself in another way too."""
        if isinstance(node, Map):
            return kinds.get(node.over.id) == "record"
        if isinstance(node, Choose):
            return node.condition.id in kinds
        return any(value.id in kinds for _, value in node.carried)

    # --- expressions ---

    def expr(self, expr: Expr, kinds: Sequence[Kind | None]) -> Kind | None:
        """What an expression gives of the values followed; notes the fields that it reads on the way."""
        match expr:
            case Arg(index=index):
                return kinds[index]
            case Field(base=base, name=name):
                self._field(self.expr(base, kinds), name)
                return None
            case Index(base=base, index=index):
                inner = self.expr(base, kinds)
                if isinstance(index, LiteralExpr) and isinstance(index.value, str):
                    self._field(inner, index.value)
                    return None
                self.whole(self.expr(index, kinds))
                if inner == "record":
                    self.all = True
                return "record" if inner == "list" else None
            case Call(function=name, args=(first, *rest)):
                inner = self.expr(first, kinds)
                for each in rest:
                    self.whole(self.expr(each, kinds))
                return self._through(name, inner)
        for part in children(expr):
            self.whole(self.expr(part, kinds))
        return None

    def _field(self, base: Kind | None, name: str) -> None:
        if base == "record":
            self.fields.add(name)
        else:
            self.whole(base)

    def _through(self, function: str, kind: Kind | None) -> Kind | None:
        """What a function makes of a value."""
        if kind == "list":
            if function in _COUNTING:
                return None
            if function in ("first", "last"):
                return "record"
            if function in _REORDERING:
                return "list"
        self.whole(kind)
        return None

    # --- blocks ---

    def block(self, source: str, kinds: Mapping[str, Kind]) -> None:
        """Follows variables of a block, by name."""
        if not kinds or self.all:
            return
        if "\r" in source:
            # Jinja2 would read a carriage return in a name as a line break.
            self.all = True
        else:
            from helix.templates.jinja import environment

            self._statements(environment().parse(source).body, dict(kinds))

    def _statements(self, body: Sequence[nodes.Node], kinds: dict[str, Kind]) -> None:
        from jinja2 import nodes

        for node in body:
            match node:
                case nodes.For(target=target, iter=listed, body=inner, else_=otherwise, test=test):
                    kind = self._jinja(listed, kinds)
                    names = _names(target)
                    known = {name: kind for name, kind in kinds.items() if name not in names}
                    if kind == "list" and isinstance(target, nodes.Name):
                        known[target.name] = "record"
                    else:
                        self.whole(kind)
                    if test is not None:
                        self._test(test, known)
                    self._statements(inner, known)
                    self._statements(otherwise, kinds)
                case nodes.If(test=test, body=inner, elif_=others, else_=otherwise):
                    self._test(test, kinds)
                    self._statements([*inner, *others, *otherwise], dict(kinds))
                case nodes.Assign(target=target, node=value):
                    self.whole(self._jinja(value, kinds))
                    for name in _names(target):
                        # Behind it the name may still be the old value, on another way through the block.
                        self.all = self.all or name in kinds
                case nodes.Output(nodes=shown):
                    for each in shown:
                        self.whole(self._jinja(each, kinds))
                case _:
                    for part in node.iter_child_nodes():
                        self.whole(self._jinja(part, kinds))

    def _test(self, test: nodes.Node, kinds: Mapping[str, Kind]) -> None:
        """A condition: whether a list is empty says nothing of its records."""
        if self._jinja(test, kinds) == "record":
            self.all = True

    def _jinja(self, node: nodes.Node, kinds: Mapping[str, Kind]) -> Kind | None:
        from jinja2 import nodes

        match node:
            case nodes.Name(name=name):
                return kinds.get(name)
            case nodes.Getattr(node=base, attr=name):
                self._field(self._jinja(base, kinds), name)
                return None
            case nodes.Getitem(node=base, arg=arg):
                inner = self._jinja(base, kinds)
                if isinstance(arg, nodes.Const) and isinstance(arg.value, str):
                    self._field(inner, arg.value)
                    return None
                self.whole(self._jinja(arg, kinds))
                if inner == "record":
                    self.all = True
                return inner if isinstance(arg, nodes.Slice) else "record" if inner == "list" else None
            case nodes.Filter(node=base) if base is not None:
                return self._filter(node, self._jinja(base, kinds), kinds)
        for part in node.iter_child_nodes():
            self.whole(self._jinja(part, kinds))
        return None

    def _filter(self, node: nodes.Filter, kind: Kind | None, kinds: Mapping[str, Kind]) -> Kind | None:
        from jinja2 import nodes

        given: list[nodes.Node] = [*node.args, *(each.value for each in node.kwargs)]
        for each in given:
            self.whole(self._jinja(each, kinds))
        if kind != "list":
            self.whole(kind)
            return None
        named: dict[str, nodes.Node] = {str(each.key): each.value for each in node.kwargs}
        first = node.args[0] if node.args else None
        attribute: nodes.Node | None = named.get("attribute") if node.name == "map" else first
        if node.name in ("map", "selectattr", "rejectattr"):
            if not isinstance(attribute, nodes.Const) or not isinstance(attribute.value, str):
                self.all = True
                return None
            self.fields.add(attribute.value.partition(".")[0])
            return None if node.name == "map" else "list"
        return self._through(node.name, kind)


def _names(target: nodes.Node) -> set[str]:
    from jinja2 import nodes

    found = {each.name for each in target.find_all(nodes.Name)}
    return found | {target.name} if isinstance(target, nodes.Name) else found


def inside_kinds(node: Map | Choose | Repeat, body: Body, kinds: Mapping[str, Kind]) -> dict[str, Kind]:
    """What the values followed are called inside a sub-plan, and what they are there."""
    names = [name for name, _ in body.parameters.columns]
    captured = names[len(names) - len(node.captures) :]
    found = {name: kinds[value.id] for name, value in zip(captured, node.captures, strict=True) if value.id in kinds}
    if isinstance(node, Map) and kinds.get(node.over.id) == "list":
        found[names[0]] = "record"
    return found


def uses_of(group: GroupReduce, nodes: Sequence[Node]) -> Uses:
    """The fields that are read of a group's rows. `nodes` are those of the group's scope."""
    found = Uses()
    kinds: dict[str, Kind] = {
        node.id: "list" for node in nodes if isinstance(node, Project) and node.source == group and node.field == "rows"
    }
    found.scope(nodes, kinds)
    return found
