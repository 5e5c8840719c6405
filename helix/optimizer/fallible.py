"""Whether a value can fail on a row whose inputs are there: what a rule must know before it moves a row's fate around.

An expression is taken to be safe only where its types prove it: a comparison of a declared number, the length of a
declared list. Whatever reads json, divides, indexes or calls a declared function can fail.
"""

from __future__ import annotations

from helix.expr import Arg, Binary, Call, Expr, Field, ListExpr, Literal, RecordExpr, Unary
from helix.logical import Apply, Choose, Const, Generate, Node, Project, Relation, Render, Value
from helix.template import Slot, Text
from helix.types import BOOL, INT, JSON, TEXT, ListOf, Optional, Record, Table, Type, is_textual, required, type_of

_TEXT_FUNCTIONS = ("lower", "trim", "upper")


def can_fail(node: Node) -> bool:
    """Whether the value of a node can be a failure where the row itself has none."""
    match node:
        case Const() | Relation():
            return False
        case Apply(expr=expr, args=args):
            return any(can_fail(arg) for arg in args) or not safe(expr, args)
        case Render(template=template, args=args):
            return any(can_fail(arg) for arg in args) or not all(
                isinstance(segment, Text) or (isinstance(segment, Slot) and safe(segment.value, args))
                for segment in template.segments
            )
        case Project(source=Relation()):
            return False
        case Project(source=Choose() as source, field=field):
            results = (source.then.result(field), source.otherwise.result(field))
            # A body reads what it captures through its parameters, which cannot fail by themselves.
            return any(can_fail(each) for each in (source.condition, *source.captures, *results))
        case Generate(on_error=on_error):
            # A call that was not started fails whatever the step says.
            return on_error == "fail" or True
    return True


def safe(expr: Expr, args: tuple[Value, ...]) -> bool:
    """Whether an expression has a value for all values of its inputs' types."""
    return _typed(expr, args) is not None


def _typed(expr: Expr, args: tuple[Value, ...]) -> Type | None:
    """The type of a safe expression; None where it can fail."""
    match expr:
        case Literal(value=value):
            return type_of(value)
        case Arg(index=index):
            return args[index].type
        case ListExpr(items=items):
            kinds = [_typed(item, args) for item in items]
            return None if None in kinds else ListOf(JSON)
        case RecordExpr(fields=fields):
            parts = [(name, _typed(value, args)) for name, value in fields]
            known = tuple((name, kind) for name, kind in parts if kind is not None)
            return Record(known) if len(known) == len(parts) else None
        case Field(base=base, name=name):
            return _field(_typed(base, args), name)
        case Unary(op="not", operand=operand):
            return None if _typed(operand, args) is None else BOOL
        case Unary(operand=operand):
            return INT if _typed(operand, args) == INT else None
        case Binary(op=op, left=left, right=right):
            first, second = _typed(left, args), _typed(right, args)
            return None if first is None or second is None else _binary(op, first, second)
        case Call():
            return _call(expr, args)
    return None


def _field(base: Type | None, name: str) -> Type | None:
    """A field of a record is there where its type does not let it be absent; null has null fields."""
    inner = None if base is None else required(base)
    found = inner.field(name) if isinstance(inner, Record) else None
    if found is None or isinstance(found, Optional) or found == JSON:
        return None
    return Optional(found) if isinstance(base, Optional) else found


def _binary(op: str, left: Type, right: Type) -> Type | None:
    first, second = required(left), required(right)
    if op in ("==", "!="):
        return BOOL
    if op in ("and", "or"):
        return left if left == right else JSON
    if op in ("<", "<=", ">", ">="):
        numbers = _is_number(first) and _is_number(second)
        return BOOL if numbers or (is_textual(first) and is_textual(second)) else None
    if op in ("in", "not in"):
        lists = isinstance(second, ListOf | Table)
        return BOOL if lists or (is_textual(left) and is_textual(second)) else None
    if left != first or right != second:
        return None
    if op == "+" and is_textual(first) and is_textual(second):
        return TEXT
    return INT if op in ("+", "-", "*") and first == second == INT else None


def _is_number(kind: Type) -> bool:
    return str(kind) in ("int", "float")


def _call(expr: Call, args: tuple[Value, ...]) -> Type | None:
    kinds = [_typed(arg, args) for arg in expr.args]
    if not kinds or any(kind is None for kind in kinds):
        # A missing value inside `default` is caught by it; whatever else can fail there can fail here.
        return None
    subject = kinds[0]
    assert subject is not None
    match expr.function:
        case "len" if is_textual(required(subject)) or isinstance(required(subject), ListOf | Table | Record):
            return INT
        case "text" | "json":
            return TEXT
        case "default":
            return JSON
        case "join" if isinstance(subject, ListOf | Table) and all(is_textual(kind) for kind in kinds[1:] if kind):
            return TEXT
        case name if name in _TEXT_FUNCTIONS and is_textual(subject):
            return TEXT
    return None
