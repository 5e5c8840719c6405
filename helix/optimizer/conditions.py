"""How many rows a filter keeps, what its condition costs, and which filters stand side by side."""

from __future__ import annotations

from math import prod

from helix.expr import Arg, Binary, Call, Expr, ListExpr, Literal, Unary, walk
from helix.logical import Apply, Filter, Project, Scan, Value, topological
from helix.optimizer.rule import RuleContext
from helix.optimizer.table import Chain

# What comparing two numbers costs; reading a text from end to end costs more, a call of a declared function far more.
_TEXT_FUNCTIONS = frozenset(["split", "join", "replace", "lower", "upper", "trim", "json", "text", "unique", "sort"])
_TEXT_COST = 20.0
_DECLARED_COST = 1000.0


def cost_of(value: Value) -> float:
    """What it takes to compute a condition, in comparisons."""
    total = 0.0
    for node in topological(value):
        if isinstance(node, Apply):
            total += sum(_part_cost(part) for part in walk(node.expr))
        elif hasattr(node, "rows"):
            total += _TEXT_COST
    return total


def _part_cost(part: Expr) -> float:
    if isinstance(part, Call):
        from helix.functions import FUNCTIONS

        return _TEXT_COST if part.function in _TEXT_FUNCTIONS else 1.0 if part.function in FUNCTIONS else _DECLARED_COST
    return _TEXT_COST if isinstance(part, Binary) and part.op in ("in", "not in") else 1.0


def kept_by(value: Value, context: RuleContext) -> float:
    """The share of rows for which a condition holds, from 0 to 1: from the table where it has been looked at."""
    if isinstance(value, Apply):
        return _kept(value.expr, value.args, context)
    return context.selectivity


def _kept(expr: Expr, args: tuple[Value, ...], context: RuleContext) -> float:
    match expr:
        case Literal(value=value):
            return 1.0 if value else 0.0
        case Unary(op="not", operand=operand):
            return 1.0 - _kept(operand, args, context)
        case Binary(op="and", left=left, right=right):
            return _kept(left, args, context) * _kept(right, args, context)
        case Binary(op="or", left=left, right=right):
            missed = [1.0 - _kept(side, args, context) for side in (left, right)]
            return 1.0 - prod(missed)
        case Binary(op="==" | "!=" as op, left=left, right=right):
            shares = [share for side in (left, right) if (share := _share(side, args, context)) is not None]
            if not shares:
                return context.selectivity
            return min(shares) if op == "==" else 1.0 - min(shares)
        case Binary(op="in" | "not in" as op, left=left, right=ListExpr(items=items)):
            share = _share(left, args, context)
            if share is None:
                return context.selectivity
            return min(1.0, share * len(items)) if op == "in" else max(0.0, 1.0 - share * len(items))
    return context.selectivity


def _share(expr: Expr, args: tuple[Value, ...], context: RuleContext) -> float | None:
    """The share of rows that hold one value of a column."""
    value = args[expr.index] if isinstance(expr, Arg) else None
    if context.stats is None or not isinstance(value, Project) or not isinstance(value.source, Scan):
        return None
    column = context.stats.columns.get(value.field)
    return None if column is None else 1.0 / max(1, column.distinct)


def runs_of_filters(chain: Chain) -> list[list[int]]:
    """The levels of filters that stand right above each other, fail no row, and have no step between them."""
    found: list[list[int]] = []
    for level, relation in enumerate(chain.relations):
        if not isinstance(relation, Filter) or not chain.fates.passes(relation):
            continue
        if found and found[-1][-1] == level - 1 and not chain.runners(level - 1):
            found[-1].append(level)
        else:
            found.append([level])
    return [run for run in found if len(run) > 1]
