"""Expressions: conditions, arguments, fields, slots of prompts. One tree for workflow text, Python and templates.

Before binding an expression refers to values by `Name`; the binder replaces each by `Arg`, a position in the inputs of
the operator that holds the expression, so that an operator's meaning does not depend on how its inputs were called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from helix.span import Span

Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expr:
    """The base of all expressions. The span takes no part in equality."""

    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal(Expr):
    """A text, number, bool or null."""

    value: Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Name(Expr):
    """A value by its name in the workflow."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Arg(Expr):
    """A value by its position among the inputs of the operator that holds the expression."""

    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Field(Expr):
    """A field of a record; null of null."""

    base: Expr
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Index(Expr):
    """An item of a list by its position from 0 (negative: from the end), or of a record by a text; null of null."""

    base: Expr
    index: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class ListExpr(Expr):
    """A list."""

    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordExpr(Expr):
    """A record with its fields in the order written."""

    fields: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unary(Expr):
    """`not x` or `-x`."""

    op: str
    operand: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary(Expr):
    """Two operands: `and or == != < <= > >= in "not in" + - * /`."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Expr):
    """A built-in or declared function, a tool, or a sub-workflow; `named` holds the arguments given by name."""

    function: str
    args: tuple[Expr, ...] = ()
    named: tuple[tuple[str, Expr], ...] = ()


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct parts of an expression, from left to right."""
    match expr:
        case Field(base=base):
            return (base,)
        case Index(base=base, index=index):
            return (base, index)
        case ListExpr(items=items):
            return items
        case RecordExpr(fields=fields):
            return tuple(value for _, value in fields)
        case Unary(operand=operand):
            return (operand,)
        case Binary(left=left, right=right):
            return (left, right)
        case Call(args=args, named=named):
            return (*args, *(value for _, value in named))
    return ()


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and all its parts, outermost first, from left to right."""
    stack = [expr]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(children(top)))


def transform(expr: Expr, leaf: Callable[[Expr], Expr]) -> Expr:
    """The expression with `leaf` applied to each name, argument and literal."""
    match expr:
        case Field(base=base):
            return replace(expr, base=transform(base, leaf))
        case Index(base=base, index=index):
            return replace(expr, base=transform(base, leaf), index=transform(index, leaf))
        case ListExpr(items=items):
            return replace(expr, items=tuple(transform(item, leaf) for item in items))
        case RecordExpr(fields=fields):
            return replace(expr, fields=tuple((name, transform(value, leaf)) for name, value in fields))
        case Unary(operand=operand):
            return replace(expr, operand=transform(operand, leaf))
        case Binary(left=left, right=right):
            return replace(expr, left=transform(left, leaf), right=transform(right, leaf))
        case Call(args=args, named=named):
            return replace(
                expr,
                args=tuple(transform(arg, leaf) for arg in args),
                named=tuple((name, transform(value, leaf)) for name, value in named),
            )
    return leaf(expr)


def literal(value: object) -> Expr:
    """The expression that stands for a JSON value."""
    match value:
        case list() | tuple():
            return ListExpr(items=tuple(literal(item) for item in value))
        case dict():
            return RecordExpr(fields=tuple((str(name), literal(item)) for name, item in value.items()))
        case str() | bool() | int() | float() | None:
            return Literal(value=value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")
