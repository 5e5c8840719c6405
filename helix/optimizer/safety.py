"""Which expressions have a value for all values of their inputs' types.

An expression is taken to be safe only where its types prove it: a comparison of declared numbers, the length of a
declared list. Whatever reads json, divides, indexes or calls a declared function can fail.
"""

from __future__ import annotations

from collections.abc import Sequence

from helix.expr import Arg, Binary, Call, Expr, Field, Index, ListExpr, Literal, RecordExpr, Unary
from helix.functions import FUNCTIONS
from helix.types import (
    BOOL,
    INT,
    JSON,
    TEXT,
    ListOf,
    Optional,
    Record,
    Table,
    Type,
    is_textual,
    join,
    required,
    type_of,
)

# Ints with more bits may have no place in a sum (`helix.evaluate`); a length in memory has far fewer.
_MOST_BITS = 4096
_LENGTH_BITS = 64


def safe_type(expr: Expr, kinds: Sequence[Type]) -> Type | None:
    """The type of an expression that cannot fail, from the types of its inputs; None where it can."""
    match expr:
        case Literal(value=value):
            return type_of(value)
        case Arg(index=index):
            return kinds[index]
        case ListExpr(items=items):
            return _list(items, kinds)
        case RecordExpr(fields=fields):
            parts = [(name, safe_type(value, kinds)) for name, value in fields]
            known = tuple((name, kind) for name, kind in parts if kind is not None)
            return Record(known) if len(known) == len(parts) else None
        case Field(base=base, name=name):
            return _field(safe_type(base, kinds), name)
        case Unary(op="not", operand=operand):
            return None if safe_type(operand, kinds) is None else BOOL
        case Unary(operand=operand):
            return INT if safe_type(operand, kinds) == INT else None
        case Binary(left=left, right=right):
            first, second = safe_type(left, kinds), safe_type(right, kinds)
            return None if first is None or second is None else _binary(expr, first, second)
        case Call():
            return _call(expr, kinds)
    return None


def _list(items: tuple[Expr, ...], kinds: Sequence[Type]) -> Type | None:
    found: Type | None = None
    for item in items:
        kind = safe_type(item, kinds)
        if kind is None:
            return None
        found = kind if found is None else join(found, kind)
    return ListOf(found or JSON)


def _field(base: Type | None, name: str) -> Type | None:
    """A field of a record is there where its type does not let it be absent; null has null fields."""
    inner = None if base is None else required(base)
    found = inner.field(name) if isinstance(inner, Record) else None
    if found is None or isinstance(found, Optional) or found == JSON:
        return None
    return Optional(found) if isinstance(base, Optional) else found


def _binary(expr: Binary, left: Type, right: Type) -> Type | None:
    op = expr.op
    first, second = required(left), required(right)
    if op in ("==", "!="):
        return BOOL
    if op in ("and", "or"):
        return join(left, right)
    if op in ("<", "<=", ">", ">="):
        numbers = _is_number(first) and _is_number(second)
        return BOOL if numbers or (is_textual(first) and is_textual(second)) else None
    if op in ("in", "not in"):
        holds = isinstance(second, ListOf | Table | Record)
        return BOOL if holds or (is_textual(left) and is_textual(second)) else None
    if left != first or right != second:
        return None
    if op == "+" and is_textual(first) and is_textual(second):
        return TEXT
    if op == "+" and isinstance(first, ListOf) and isinstance(second, ListOf):
        return join(first, second)
    # Numbers from outside may be so large that their sum has no place.
    return INT if first == second == INT and _bits(expr) <= _MOST_BITS else None


def _bits(expr: Expr) -> int:
    """The most bits that an int can have; too many where it comes from outside."""
    match expr:
        case Literal(value=int() as value):
            return value.bit_length()
        case Unary(op="-", operand=operand):
            return _bits(operand)
        case Binary(op="+" | "-", left=left, right=right):
            return max(_bits(left), _bits(right)) + 1
        case Binary(op="*", left=left, right=right):
            return _bits(left) + _bits(right)
        case Call(function="len"):
            return _LENGTH_BITS
    return _MOST_BITS + 1


def _is_number(kind: Type) -> bool:
    return str(kind) in ("int", "float")


def _call(expr: Call, kinds: Sequence[Type]) -> Type | None:
    name = expr.function
    if name not in FUNCTIONS or not expr.args:
        return None
    subject = _maybe_missing(expr.args[0], kinds) if name == "default" else safe_type(expr.args[0], kinds)
    rest = [safe_type(arg, kinds) for arg in expr.args[1:]]
    if subject is None or any(kind is None for kind in rest):
        return None
    given = (subject, *(kind for kind in rest if kind is not None))
    if not _always_fits(name, given, expr):
        return None
    return FUNCTIONS[name].result(given)


def _always_fits(name: str, given: tuple[Type, ...], expr: Call) -> bool:
    """Whether a built-in function has a value for all arguments of these types."""
    subject, rest = given[0], given[1:]
    texts = all(is_textual(kind) for kind in rest)
    match name:
        case "len":
            return is_textual(required(subject)) or isinstance(required(subject), ListOf | Table | Record)
        case "text" | "json" | "default":
            return True
        case "join":
            return isinstance(subject, ListOf | Table) and texts
        case "lower" | "trim" | "upper" | "replace":
            return is_textual(subject) and texts
        case "split":
            separator = expr.args[1] if len(expr.args) > 1 else Literal(value=" ")
            return is_textual(subject) and isinstance(separator, Literal) and bool(separator.value) and texts
        case "reverse" | "unique":
            return isinstance(subject, ListOf)
        case "take":
            return (isinstance(subject, ListOf) or is_textual(subject)) and rest == (INT,)
    return False


def _maybe_missing(expr: Expr, kinds: Sequence[Type]) -> Type | None:
    """The type of an expression whose only fault can be that a field or an item is not there: `default` catches it."""
    if isinstance(expr, Field):
        base = _maybe_missing(expr.base, kinds)
        inner = None if base is None else required(base)
        found = inner.field(expr.name) if isinstance(inner, Record) else None
        return None if found is None else Optional(required(found))
    if isinstance(expr, Index):
        base, position = _maybe_missing(expr.base, kinds), safe_type(expr.index, kinds)
        inner = None if base is None else required(base)
        if position != INT or not (isinstance(inner, ListOf) or (inner is not None and is_textual(inner))):
            return None
        return Optional(required(inner.item) if isinstance(inner, ListOf) else TEXT)
    return safe_type(expr, kinds)
