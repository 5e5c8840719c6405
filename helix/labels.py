"""What plan text calls each value: the name of its step or column, or the expression itself where one reader needs it.

A scope is what one name means one thing in: the operators of a sub-plan, or those of a plan between two groupings.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping

from helix.expr import Arg, Expr, Field, Index, Literal, Name, RecordExpr, literal, transform
from helix.logical import (
    Apply,
    Choose,
    Const,
    Fetch,
    Generate,
    GroupReduce,
    Invoke,
    Map,
    Node,
    Project,
    Relation,
    Render,
    Repeat,
    Sink,
    Value,
    bodies,
    readable,
)
from helix.places import is_name
from helix.templates.template import Block, Slot, Template, Text
from helix.types import quote
from helix.unparse import jinja_expr, unparse_expr

# An expression that holds expressions deeper than this is shown in several lines.
_MAX_DEPTH = 8
# A text that several operators read and that has no more characters than this stands with each of them.
_SHORT = 40

Piece = tuple[bool, str]
"""A stretch of a text: whether it is literal (and may be shortened), and how it is shown."""


class Labels:
    """The labels of one scope or, for a whole plan, of each scope between two groupings.

    `nodes` come inputs before readers; `readers` are what reads them from outside: the columns of a sink, the results
    of a sub-plan. `relations` are the rows they run over, from the first (`Scan`, `Parameters`) on.
    """

    def __init__(
        self, nodes: Iterable[Node], readers: Iterable[Iterable[tuple[str, Value]]], relations: tuple[Relation, ...]
    ) -> None:
        self._nodes = tuple(nodes)
        self._level = _levels(self._nodes, relations)
        self._grouped = [isinstance(relation, GroupReduce) for relation in relations]
        self._named: dict[str, str] = {}
        self._taken: Counter[tuple[int, str]] = Counter()
        self._outputs: dict[str, dict[str, str]] = {}
        for node in self._nodes:
            if isinstance(node, Project):
                self._outputs.setdefault(node.source.id, {})[node.field] = node.id
        outside = [tuple(each) for each in readers]
        hints = _hints(self._nodes, outside)
        shared = self._shared(outside)
        ordered = sorted(self._nodes, key=lambda node: self._level.get(node.id, 0))
        for node in ordered:
            name = _own_name(node)
            if name is not None:
                self._name(node, name)
        self.lined = {node.id for node in self._nodes if _has_line(node) or node.id in shared}
        anonymous = 0
        for node in ordered:
            if node.id not in shared:
                continue
            if node.id in hints:
                self._name(node, hints[node.id])
            else:
                self._name(node, f"r{anonymous}")
                anonymous += 1

    def level(self, node: Node) -> int:
        """Which relation of the scope an operator runs over: 0 is the one that reads nothing."""
        return self._level.get(node.id, 0)

    def name(self, node: Node) -> str | None:
        """The name of an operator that has one, alone in its scope: a second of the same name is `name#2`."""
        return self._named.get(node.id)

    def names(self, node: Node) -> tuple[str, ...]:
        """The names that an operator with several outputs gives, in its order."""
        given = [each for _, body in bodies(node) for each, _ in body.results if readable(each)]
        outputs = self._outputs.get(node.id, {})
        return tuple(self._named[outputs[each]] if each in outputs else each for each in dict.fromkeys(given))

    def expr(self, value: Value) -> Expr:
        """A value as an expression over names."""
        name = self._named.get(value.id)
        if name is not None:
            return Name(name=name)
        match value:
            case Const(json=text):
                return literal(json.loads(text))
            case Apply(expr=expr, args=args):
                return self._over(expr, args)
            case Render():
                return Name(name=f'"{"".join(text for _, text in self.pieces(value))}"')
        return Name(name=f"{type(value).__name__}:{value.id[:6]}")

    def text(self, value: Value) -> str:
        """A value as text: its name, or its expression."""
        return unparse_expr(self.expr(value))

    def pieces(self, value: Value) -> tuple[Piece, ...]:
        """A text as it is shown between quotes: literal stretches escaped, braces doubled, `{slot}` for a value."""
        match value:
            case Render(template=template, args=args) if value.id not in self._named:
                return tuple(self._pieces(template, args))
            case Const(json=text) if isinstance(found := json.loads(text), str):
                return ((True, escaped(found)),)
        return ((False, f"{{{self.text(value)}}}"),)

    def template(self, render: Render) -> tuple[Piece, ...]:
        """The pieces of a text that has a line of its own."""
        return tuple(self._pieces(render.template, render.args))

    def apply(self, apply: Apply) -> str:
        """The expression of a value that has a line of its own."""
        return unparse_expr(self._over(apply.expr, apply.args))

    def _over(self, expr: Expr, args: tuple[Value, ...]) -> Expr:
        return transform(expr, lambda leaf: self.expr(args[leaf.index]) if isinstance(leaf, Arg) else leaf)

    def _pieces(self, template: Template, args: tuple[Value, ...]) -> Iterable[Piece]:
        for segment in template.segments:
            match segment:
                case Text(text=text):
                    yield True, escaped(text)
                case Slot(value=value):
                    yield False, f"{{{jinja_expr(self._over(value, args))}}}"
                case Block(source=source, names=names, inputs=inputs):
                    given = [jinja_expr(self._over(value, args)) for value in inputs]
                    other = [f"{name}={text}" for name, text in zip(names, given, strict=True) if name != text]
                    # A slot that only Jinja2 can say looks like any other slot.
                    slot = source.startswith("{{")
                    shown = f"{{{source[2:-2].strip(' -')}}}" if slot else source
                    yield not slot, quote(shown)[1:-1].replace('\\"', '"')
                    if other:
                        yield False, f"{{with {', '.join(other)}}}"

    def _is_short(self, node: Apply | Render) -> bool:
        """Whether an operator is easier to read in the lines of its readers than in one of its own."""
        if isinstance(node, Render):
            return sum(len(text) for _, text in self._pieces(node.template, node.args)) <= _SHORT
        return _is_path(node)

    def _name(self, node: Node, name: str) -> None:
        scope = sum(self._grouped[: self.level(node) + 1])
        self._taken[scope, name] += 1
        count = self._taken[scope, name]
        self._named[node.id] = name if count == 1 else f"{name}#{count}"

    def _shared(self, outside: list[tuple[tuple[str, Value], ...]]) -> set[str]:
        """The expressions and texts that several operators read: each is shown once, on a line of its own."""
        counts: Counter[str] = Counter()
        for node in self._nodes:
            counts.update({read.id for read in node.inputs})
        for values in outside:
            counts.update({value.id for _, value in values})
        shared: set[str] = set()
        depths: dict[str, int] = {}
        for node in self._nodes:
            if not isinstance(node, Apply | Render) or (counts[node.id] == 1 and isinstance(node, Render)):
                continue
            depth = 1 + max((depths.get(read.id, 0) for read in node.inputs), default=0)
            if (counts[node.id] > 1 and not self._is_short(node)) or _is_named_record(node) or depth > _MAX_DEPTH:
                shared.add(node.id)
            else:
                depths[node.id] = depth
        return shared


def _levels(nodes: tuple[Node, ...], relations: tuple[Relation, ...]) -> dict[str, int]:
    """The relation that each operator runs over; a pure one runs over the highest that it reads from."""
    levels = {relation.id: level for level, relation in enumerate(relations)}
    for node in nodes:
        if node.id in levels:
            continue
        rows = getattr(node, "rows", None)
        if isinstance(rows, Relation):
            levels[node.id] = levels.get(rows.id, 0)
        else:
            levels[node.id] = max((levels.get(read.id, 0) for read in node.inputs), default=0)
    return levels


def _own_name(node: Node) -> str | None:
    match node:
        case Generate(step=name) | Invoke(step=name) | Map(step=name) | Fetch(step=name) | Project(field=name):
            return name
    return None


def _has_line(node: Node) -> bool:
    return not isinstance(node, Apply | Render | Const | Project | Relation | Sink)


def _is_path(node: Node) -> bool:
    """Whether an operator only reaches into a value: `review.note`, `drafts[0]`."""
    if not isinstance(node, Apply):
        return False
    part = node.expr
    while isinstance(part, Field | Index):
        if isinstance(part, Index) and not isinstance(part.index, Literal):
            return False
        part = part.base
    return isinstance(part, Arg)


def _is_named_record(node: Apply | Render) -> bool:
    """Whether an operator only collects values under a name: the result of a sub-workflow."""
    return isinstance(node, Apply) and isinstance(node.expr, RecordExpr) and is_name(node.label)


def _hints(nodes: tuple[Node, ...], outside: list[tuple[tuple[str, Value], ...]]) -> dict[str, str]:
    """The names of values that have no step: the workflow's own, else what a reader calls them."""
    found = {node.id: node.label for node in nodes if isinstance(node, Value) and is_name(node.label)}
    for values in outside:
        for name, value in values:
            found.setdefault(value.id, name)
    for node in nodes:
        for name, value in captured(node).items():
            found.setdefault(value.id, name)
        if isinstance(node, GroupReduce):
            for name, value in (*node.keys, *node.columns):
                found.setdefault(value.id, name)
    return found


def captured(node: Node) -> Mapping[str, Value]:
    """What an operator with sub-plans passes into them, by the name that each has inside."""
    match node:
        case Map(captures=captures, body=body):
            return dict(zip((name for name, _ in body.parameters.columns[1:]), captures, strict=False))
        case Repeat(captures=captures, carried=carried, body=body):
            return dict(zip((name for name, _ in body.parameters.columns[len(carried) :]), captures, strict=False))
        case Choose(captures=captures, then=then):
            return dict(zip((name for name, _ in then.parameters.columns), captures, strict=False))
    return {}


def escaped(text: str) -> str:
    """A literal text as it stands between quotes, its braces doubled: `{` alone begins a value."""
    return quote(text)[1:-1].replace("{", "{{").replace("}", "}}")
