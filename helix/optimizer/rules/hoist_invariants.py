"""The rule `hoist_invariants`."""

from __future__ import annotations

import json
from collections.abc import Mapping

from helix.expr import Arg, Binary, Call, ListExpr, Literal
from helix.logical import (
    Apply,
    Body,
    Choose,
    Const,
    LogicalPlan,
    Map,
    Node,
    Parameters,
    Project,
    Repeat,
    Value,
)
from helix.optimizer.lifting import border, fresh_name, given, passed_in, standing_alone, steps_of
from helix.optimizer.rewrite import instantiate, trim
from helix.optimizer.rule import RuleContext, rule
from helix.optimizer.rules.unroll_constant_maps import naming
from helix.optimizer.scopes import Scope, rewrite_scopes
from helix.types import BOOL, NULL, ListOf, Table, optional, required


@rule()
def hoist_invariants(plan: LogicalPlan, context: RuleContext) -> LogicalPlan:
    """for x in xs { f(a) } calls f(a) once, before the loop.

    Sound: only deterministic steps that read neither the item nor what is carried round, and stand in no branch of the
    loop. A loop over a list that may be empty or fail keeps them under a condition, so that they run where an item
    would have run them; the step has the name of the first item, where its failure always comes to light.
    Pays: one call where there was one for each item or round, or one look-up of its result; it can begin earlier.

    >>> show('''
    ... workflow demo(text: text)
    ... repeat up to 3 {
    ...   rules = llm { user "Rules for {{ text }}" }
    ...   draft = llm(temperature: 1) { user "{{ rules }}: {{ text }}" }
    ... }
    ... output draft
    ... ''', hoist_invariants)
    Sink draft
      Repeat rules, draft up to 3
        body -> rules, draft
          Generate draft temperature=1.0
            user "{rules}: {text}"
      Generate rules
        user "Rules for {text}"
      Scan text: text
    """
    return rewrite_scopes(plan, _hoist, Map, Repeat)


def _hoist(scope: Scope, old: Node, node: Node) -> Node:
    if isinstance(node, Map):
        return _out_of_map(scope, node)
    if isinstance(node, Repeat):
        return _out_of_repeat(scope, node)
    return node


def _out_of_repeat(scope: Scope, node: Repeat) -> Node:
    inner = scope.inside(node, "body", node.body)
    moved = standing_alone(inner, {name for name, _ in node.carried}, certain=False)
    values = border(inner, moved)
    if not values or not scope.claim(steps_of(values), node.id):
        return node
    outside = instantiate(node.body, given(node, node.body), node.rows, roots=values)
    return trim(passed_in(node, [(value, outside[value.id]) for value in values]))


def _out_of_map(scope: Scope, node: Map) -> Node:
    inner = scope.inside(node, "body", node.body)
    variable = node.body.parameters.columns[0][0]
    values = border(inner, standing_alone(inner, {variable}, certain=True))
    if not values:
        return node
    rename = naming(node.step, 0)
    if _surely_runs(scope, node):
        outside: Mapping[str, Value] = instantiate(node.body, given(node, node.body), node.rows, rename, values)
    elif isinstance(required(node.over.type), ListOf | Table) and scope.fates.typed(node.over):
        outside = _guarded(node, values)
    else:
        return node
    return trim(passed_in(node, [(value, outside[value.id]) for value in values]))


def _surely_runs(scope: Scope, node: Map) -> bool:
    """Whether the loop has an item in every row that has not failed before."""
    if scope.fates.of(node.over) & ~scope.fates.control(node.rows):
        return False
    if isinstance(node.over, Const):
        return bool(json.loads(node.over.json))
    return isinstance(node.over, Apply) and isinstance(node.over.expr, ListExpr) and bool(node.over.expr.items)


def _guarded(node: Map, values: list[Value]) -> dict[str, Value]:
    """The values under the condition that the list has an item, by the ids that they have inside."""
    captured = given(node, node.body)
    parameters = Parameters(columns=tuple((name, value.type) for name, value in captured.items()))
    inside = {name: Project(source=parameters, field=name, type=value.type) for name, value in captured.items()}
    made = instantiate(node.body, inside, parameters, naming(node.step, 0), values)
    names: dict[str, Value] = {}
    for value in values:
        names[fresh_name(value, names)] = value
    counted = Call(function="len", args=(Arg(index=0),))
    condition = Apply(type=BOOL, expr=Binary(op=">", left=counted, right=Literal(value=0)), args=(node.over,))
    guard = Choose(
        rows=node.rows,
        condition=condition,
        captures=tuple(captured.values()),
        then=Body(parameters=parameters, results=tuple((name, made[value.id]) for name, value in names.items())),
        otherwise=Body(parameters=parameters, results=tuple((name, Const(type=NULL, json="null")) for name in names)),
        span=node.span,
    )
    trimmed = trim(guard)
    return {
        value.id: Project(source=trimmed, field=name, type=optional(value.type), label=made[value.id].label)
        for name, value in names.items()
    }
