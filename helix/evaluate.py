"""Turns a bound expression into a Python function of its inputs: built once per plan, called once per row."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

from helix.errors import ToolError
from helix.expr import Arg, Binary, Call, Expr, Field, Index, ListExpr, Literal, RecordExpr, Unary
from helix.functions import FUNCTIONS, ExpressionError, MissingValue
from helix.types import found

_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod,
}  # fmt: skip
# Python writes no int of more than 4300 digits as text.
_MOST_BITS = 4096

Evaluator = Callable[[Sequence[Any]], Any]
Callables = Mapping[str, Callable[..., Any]]


def evaluator(expr: Expr, callables: Callables | None = None) -> Evaluator:
    """The function that computes an expression from the values of its inputs. `callables` holds declared functions.

    The function raises ExpressionError where a row has no value for the expression, ToolError where a declared
    function raised.
    """
    declared = callables or {}
    match expr:
        case Literal(value=value):
            return lambda args: value
        case Arg(index=index):
            return lambda args: args[index]
        case Field(base=base, name=name):
            return _field(evaluator(base, declared), name)
        case Index(base=base, index=position):
            return _index(evaluator(base, declared), evaluator(position, declared))
        case ListExpr(items=items):
            parts = [evaluator(item, declared) for item in items]
            return lambda args: [part(args) for part in parts]
        case RecordExpr(fields=fields):
            named = [(name, evaluator(value, declared)) for name, value in fields]
            return lambda args: {name: part(args) for name, part in named}
        case Unary(op="not", operand=operand):
            inner = evaluator(operand, declared)
            return lambda args: not inner(args)
        case Unary(operand=operand):
            return _negate(evaluator(operand, declared))
        case Binary(op=op, left=left, right=right):
            return _binary(op, evaluator(left, declared), evaluator(right, declared))
        case Call(function=name, args=args):
            return _call(name, [evaluator(arg, declared) for arg in args], declared)
    raise TypeError(f"unbound expression {expr!r}")


def field_of(value: Any, name: str) -> Any:
    """A field of a record; null of null. Raises MissingValue where the record has no such field."""
    if value is None:
        return None
    if value.__class__ is not dict:
        raise ExpressionError(f"`.{name}` needs a record, found {found(value)}")
    try:
        return value[name]
    except KeyError:
        known = ", ".join(list(value)[:8]) or "no fields"
        raise MissingValue(f"the record has no field `{name}`; it has {known}") from None


def item_of(value: Any, position: Any) -> Any:
    """An item of a list, a character of a text or a field of a record; null of null."""
    if value is None:
        return None
    if value.__class__ is dict and position.__class__ is str:
        return field_of(value, position)
    if value.__class__ not in (list, str) or position.__class__ is not int:
        raise ExpressionError(f"`[...]` needs a list and an int, found {found(value)} and {found(position)}")
    try:
        return value[position]
    except IndexError:
        what = "text" if isinstance(value, str) else "list"
        raise MissingValue(f"index {position} is outside a {what} of {len(value)}") from None


def same(left: Any, right: Any) -> bool:
    """JSON equality: 1 equals 1.0, true does not equal 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    return bool(left == right)


def contains(container: Any, item: Any) -> bool:
    """`item in container`: a part of a text, an item of a list, a field of a record; never in null."""
    match container:
        case None:
            return False
        case list():
            return any(same(item, member) for member in container)
        case dict():
            return isinstance(item, str) and item in container
        case str() if isinstance(item, str):
            return item in container
    raise ExpressionError(f"`in` needs a list, a record or two texts, found {found(item)} and {found(container)}")


def _field(base: Evaluator, name: str) -> Evaluator:
    return lambda args: field_of(base(args), name)


def _index(base: Evaluator, position: Evaluator) -> Evaluator:
    return lambda args: item_of(base(args), position(args))


def _negate(inner: Evaluator) -> Evaluator:
    def run(args: Sequence[Any]) -> Any:
        value = inner(args)
        if value is None:
            return None
        if value.__class__ not in (int, float):
            raise ExpressionError(f"`-` needs a number, found {found(value)}")
        return -value

    return run


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether a value is a number; a bool is none."""
    return value.__class__ is int or value.__class__ is float


def _order(op: str, left: Any, right: Any) -> bool:
    if left is None or right is None:
        return False
    both_numbers = is_number(left) and is_number(right)
    if not both_numbers and not (isinstance(left, str) and isinstance(right, str)):
        raise ExpressionError(f"`{op}` needs two numbers or two texts, found {found(left)} and {found(right)}")
    match op:
        case "<":
            return bool(left < right)
        case "<=":
            return bool(left <= right)
        case ">":
            return bool(left > right)
    return bool(left >= right)


def arithmetic(op: str, left: Any, right: Any) -> Any:
    """`left op right` of numbers, or `+` of two texts or two lists; null where an operand is null."""
    if left is None or right is None:
        return None
    if op == "+" and left.__class__ is right.__class__ and left.__class__ in (str, list):
        return left + right
    run = _ARITHMETIC.get(op)
    if run is None or not (is_number(left) and is_number(right)):
        raise ExpressionError(f"`{op}` does not fit {found(left)} and {found(right)}")
    try:
        result = run(left, right)
    except (ZeroDivisionError, OverflowError) as error:
        raise ExpressionError(f"`{left} {op} {right}`: {error}") from None
    if result.__class__ is float and result - result != 0:
        raise ExpressionError(f"`{left} {op} {right}` is not a finite number")
    if result.__class__ is int and result.bit_length() > _MOST_BITS:
        raise ExpressionError(f"`{op}` gives an int of more than {_MOST_BITS} bits")
    return result


def compare(op: str, left: Any, right: Any) -> bool:
    """`left op right` for `== != < <= > >= in` and `not in`."""
    match op:
        case "==":
            return same(left, right)
        case "!=":
            return not same(left, right)
        case "in":
            return contains(right, left)
        case "not in":
            return not contains(right, left)
    return _order(op, left, right)


def _binary(op: str, left: Evaluator, right: Evaluator) -> Evaluator:
    match op:
        case "and":
            return lambda args: left(args) and right(args)
        case "or":
            return lambda args: left(args) or right(args)
        case "+" | "-" | "*" | "/":
            return lambda args: arithmetic(op, left(args), right(args))
    return lambda args: compare(op, left(args), right(args))


def _call(name: str, args: list[Evaluator], declared: Callables) -> Evaluator:
    if name == "default":
        return _default(args)
    if name in declared:
        return _declared(name, declared[name], args)
    run = FUNCTIONS[name].run
    if len(args) == 1:
        only = args[0]
        return lambda values: run(only(values))
    return lambda values: run(*[arg(values) for arg in args])


def _default(args: list[Evaluator]) -> Evaluator:
    run = FUNCTIONS["default"].run
    value, rest = args[0], args[1:]

    def default(values: Sequence[Any]) -> Any:
        try:
            present = value(values)
        except MissingValue:
            present = None
        return run(present, *[arg(values) for arg in rest])

    return default


def _declared(name: str, function: Callable[..., Any], args: list[Evaluator]) -> Evaluator:
    def call(values: Sequence[Any]) -> Any:
        given = [arg(values) for arg in args]
        try:
            return function(*given)
        except Exception as error:
            import traceback

            raise ToolError(f"{name}: {type(error).__name__}: {error}", traceback=traceback.format_exc()) from None

    return call
