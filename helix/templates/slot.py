"""Slots of prompts as expressions of the workflow language, read off Jinja2's own syntax tree."""

from __future__ import annotations

import re
from collections.abc import Callable

from jinja2 import nodes

from helix.errors import TemplateError
from helix.evaluate import is_number
from helix.expr import Binary, Call, Expr, Field, Index, ListExpr, Literal, Name, RecordExpr, Unary
from helix.functions import ALIASES, FUNCTIONS
from helix.span import Span
from helix.templates.jinja import COMPARISONS, all_nodes, check, parse

Place = Callable[[int, int], Span | None]

_ARITHMETIC: dict[type[nodes.Node], str] = {nodes.Add: "+", nodes.Sub: "-", nodes.Mul: "*", nodes.Div: "/"}
_PARAMETERS = {name: function.parameters for name, function in FUNCTIONS.items()}


def slot_expression(source: str, place: Place) -> Expr | None:
    """The expression of a `{{ ... }}`; None where only Jinja2 can say it. Raises TemplateError."""
    whole = place(0, len(source))
    if not source[2:-2].strip("- \t\r\n"):
        raise TemplateError("an empty slot", whole, "a literal `{{` is written `{{ '{{' }}`")
    tree = parse(source, whole)
    output = tree.body[0] if len(tree.body) == 1 else None
    if not isinstance(output, nodes.Output) or len(output.nodes) != 1 or not isinstance(output.nodes[0], nodes.Expr):
        raise TemplateError("a slot holds one value", whole, "a literal `{{` is written `{{ '{{' }}`")
    return _Converter(source, place).convert(output.nodes[0])


class _Converter:
    """Turns Jinja2's tree of one slot into an expression; `None` where the workflow language has no such form."""

    def __init__(self, source: str, place: Place) -> None:
        self._source = source
        self._place = place

    def convert(self, node: nodes.Expr) -> Expr | None:
        span = self._place(0, len(self._source))
        _check_slot(node, span)
        return self._expr(node)

    def _name_span(self, name: str) -> Span | None:
        found = re.search(rf"(?<![\w.]){re.escape(name)}\b", self._source)
        return self._place(found.start(), found.end()) if found else self._place(0, len(self._source))

    def _all(self, parts: list[nodes.Expr]) -> tuple[Expr, ...] | None:
        converted = [self._expr(part) for part in parts]
        return (
            None if any(part is None for part in converted) else tuple(part for part in converted if part is not None)
        )

    def _expr(self, node: nodes.Node) -> Expr | None:
        match node:
            case nodes.Const(value=value) if isinstance(value, str | int | float | bool | None):
                return Literal(value=value)
            case nodes.Name(name="null"):
                return Literal(value=None)
            case nodes.Name(name=name):
                return Name(name=name, span=self._name_span(name))
            case nodes.Getattr(node=base, attr=attr):
                inner = self._expr(base)
                return None if inner is None else Field(base=inner, name=attr, span=self._name_span_of_field(attr))
            case nodes.Getitem(node=base, arg=arg):
                return self._item(base, arg)
            case nodes.List(items=items):
                parts = self._all(items)
                return None if parts is None else ListExpr(items=parts)
            case nodes.Dict(items=items):
                return self._record(items)
            case nodes.Filter():
                return self._filter(node)
            case nodes.Call(node=nodes.Name(name=name), args=args, kwargs=kwargs, dyn_args=None, dyn_kwargs=None):
                parts, given = self._all(args), self._all([keyword.value for keyword in kwargs])
                if parts is None or given is None:
                    return None
                named = tuple((str(keyword.key), value) for keyword, value in zip(kwargs, given, strict=True))
                return Call(function=name, args=parts, named=named, span=self._name_span(name))
        return self._operation(node)

    def _name_span_of_field(self, name: str) -> Span | None:
        found = re.search(rf"\.\s*({re.escape(name)})\b", self._source)
        return self._place(found.start(1), found.end(1)) if found else self._place(0, len(self._source))

    def _item(self, base: nodes.Node, arg: nodes.Node) -> Expr | None:
        inner, position = self._expr(base), self._expr(arg)
        if inner is None or position is None:
            return None
        if isinstance(position, Literal) and isinstance(position.value, str):
            return Field(base=inner, name=position.value)
        return Index(base=inner, index=position)

    def _record(self, pairs: list[nodes.Pair]) -> Expr | None:
        fields: list[tuple[str, Expr]] = []
        for pair in pairs:
            value = self._expr(pair.value)
            if value is None or not isinstance(pair.key, nodes.Const) or not isinstance(pair.key.value, str):
                return None
            fields.append((pair.key.value, value))
        return RecordExpr(fields=tuple(fields))

    def _filter(self, node: nodes.Filter) -> Expr | None:
        name = ALIASES.get(node.name, node.name)
        if name not in FUNCTIONS or node.node is None or node.dyn_args or node.dyn_kwargs:
            return None
        parts = self._all([node.node, *node.args])
        if parts is None:
            return None
        named: dict[str, Expr] = {}
        for keyword in node.kwargs:
            value = self._expr(keyword.value)
            key = {"default_value": "fallback", "d": "separator"}.get(str(keyword.key), str(keyword.key))
            if value is None or key not in _PARAMETERS[name][len(parts) :]:
                return None
            named[key] = value
        expected = _PARAMETERS[name][len(parts) : len(parts) + len(named)]
        if set(named) != set(expected):
            return None
        return Call(function=name, args=(*parts, *(named[key] for key in expected)), span=self._name_span(node.name))

    def _operation(self, node: nodes.Node) -> Expr | None:
        match node:
            case nodes.Compare(expr=left, ops=[nodes.Operand(op=op, expr=right)]):
                return self._binary(COMPARISONS[op], left, right)
            case nodes.And(left=left, right=right):
                return self._binary("and", left, right)
            case nodes.Or(left=left, right=right):
                return self._binary("or", left, right)
            case nodes.Not(node=operand):
                inner = self._expr(operand)
                return None if inner is None else Unary(op="not", operand=inner)
            case nodes.Neg(node=operand):
                inner = self._expr(operand)
                if isinstance(inner, Literal) and is_number(inner.value):
                    return Literal(value=-inner.value)
                return None if inner is None else Unary(op="-", operand=inner)
            case nodes.BinExpr(left=left, right=right) if type(node) in _ARITHMETIC:
                return self._binary(_ARITHMETIC[type(node)], left, right)
        return None

    def _binary(self, op: str, left: nodes.Node, right: nodes.Node) -> Expr | None:
        first, second = self._expr(left), self._expr(right)
        return None if first is None or second is None else Binary(op=op, left=first, right=second)


def _check_slot(root: nodes.Expr, span: Span | None) -> None:
    """As `_check`, but a slot may call a function by name: the binder knows whether it is one."""
    for node in (root, *all_nodes(root, span)):
        if not (isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name)):
            check(node, span)
