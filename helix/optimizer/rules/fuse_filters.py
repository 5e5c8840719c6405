"""The rule `fuse_filters`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from helix.expr import Arg, Binary, Expr, transform, walk
from helix.logical import Apply, Filter, LogicalPlan, Node, Value
from helix.optimizer.conditions import runs_of_filters
from helix.optimizer.rule import RuleContext, rule
from helix.optimizer.scopes import Scope, rewrite_scopes, scope_of
from helix.optimizer.table import Chain
from helix.types import BOOL, join

MOST_PARTS = 200


@rule()
def fuse_filters(plan: LogicalPlan, context: RuleContext) -> LogicalPlan:
    """keep when a, keep when b is keep when a and b.

    Sound: only filters whose conditions cannot fail, with no step between them.
    Pays: a row is looked at once; a condition that stands twice is computed once.

    >>> show('''
    ... workflow demo(text: text, n: int)
    ... keep when n > 3
    ... keep when text != "x"
    ... output text
    ... ''', fuse_filters)
    Sink text
      Filter when n > 3 and text != "x"
        Scan text: text, n: int
    """
    if not scope_of(plan).holds(Filter):
        return plan
    chain = Chain(plan)
    tops: dict[str, list[Filter]] = {}
    for run in runs_of_filters(chain):
        filters: Any = [chain.relations[level] for level in run]
        for group in _groups(filters):
            if len(group) > 1:
                tops[group[-1].id] = group
    if not tops:
        return plan
    return rewrite_scopes(plan, lambda scope, old, node: _fused(scope, old, node, tops))


def _groups(filters: list[Filter]) -> list[list[Filter]]:
    """Filters side by side in groups whose conditions together are not too large for one expression."""
    found: list[list[Filter]] = []
    size = 0
    for each in filters:
        parts = _parts(each.condition)
        if not found or size + parts + len(found[-1]) > MOST_PARTS:
            found.append([])
            size = 0
        found[-1].append(each)
        size += parts
    return found


def _fused(scope: Scope, old: Node, node: Node, tops: dict[str, list[Filter]]) -> Node:
    if old.id not in tops or not isinstance(node, Filter):
        return node
    below: Any = node
    conditions: list[Value] = []
    for _ in tops[old.id]:
        conditions.append(below.condition)
        below = below.rows
    distinct = list(dict.fromkeys(reversed(conditions)))
    span = tops[old.id][0].span
    return replace(node, rows=below, condition=_both(distinct), span=span)


def _both(conditions: list[Value]) -> Value:
    made = conditions[0]
    for other in conditions[1:]:
        args: list[Value] = []
        left, right = (_over(condition, args) for condition in (made, other))
        kind = BOOL if made.type == other.type == BOOL else join(made.type, other.type)
        made = Apply(type=kind, expr=Binary(op="and", left=left, right=right), args=tuple(args), span=made.span)
    return made


def _over(condition: Value, args: list[Value]) -> Expr:
    """A condition as an expression over inputs that are shared with others."""

    def place(value: Value) -> int:
        if value not in args:
            args.append(value)
        return args.index(value)

    if not isinstance(condition, Apply):
        return Arg(index=place(condition))
    inputs = condition.args
    return transform(
        condition.expr,
        lambda leaf: Arg(index=place(inputs[leaf.index]), span=leaf.span) if isinstance(leaf, Arg) else leaf,
    )


def _parts(value: Value) -> int:
    return sum(1 for _ in walk(value.expr)) if isinstance(value, Apply) else 1
