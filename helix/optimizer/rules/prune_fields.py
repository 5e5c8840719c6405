"""The rule `prune_fields`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from helix.logical import (
    Body,
    Choose,
    GroupReduce,
    LogicalPlan,
    Map,
    Node,
    Parameters,
    Project,
    Repeat,
    Sink,
    Value,
    bodies,
    body_nodes,
)
from helix.optimizer.fallible import Fates
from helix.optimizer.field_uses import Kind, inside_kinds, uses_of
from helix.optimizer.rewrite import with_inputs
from helix.optimizer.rule import RuleContext, rule
from helix.optimizer.scopes import Scope, scope_of, settled
from helix.types import ListOf, Record, Type


@rule()
def prune_fields(plan: LogicalPlan, context: RuleContext) -> LogicalPlan:
    """A group keeps of its rows the columns alone that are read.

    Sound: a column goes only where it fails on no row that would not fail the group anyway; where the records are
    shown or passed on as a whole, all columns stay.
    Pays: less is held until the last row of a group has come.

    >>> show('''
    ... workflow demo(product: text, text: text, note: text)
    ... group by product {
    ...   gist = llm { user "{% for r in rows %}{{ r.text }};{% endfor %}" }
    ... }
    ... output product, gist
    ... ''', prune_fields)
    Sink product, gist
      Generate gist
        user "{% for r in rows %}{{ r.text }};{% endfor %}"
      GroupReduce by product rows text
        Scan product: text, text: text, note: text
    """
    scope = scope_of(plan)
    if not scope.holds(GroupReduce):
        return plan
    for node in scope.nodes:
        if isinstance(node, GroupReduce):
            uses = uses_of(node, scope.nodes)
            kept = node.columns if uses.all else _kept(scope.fates, node, uses.fields)
            if len(kept) < len(node.columns):
                return _pruned(plan, scope, node, kept)
    return plan


def _kept(fates: Fates, group: GroupReduce, read: set[str]) -> tuple[tuple[str, Value], ...]:
    """The columns that are read, and those whose failures no other column tells."""
    kept = list(group.columns)
    known = fates.control(group.rows)
    for _, key in group.keys:
        known |= fates.of(key)
    for column in group.columns:
        others = known
        for each in kept:
            if each is not column:
                others |= fates.of(each[1])
        if column[0] not in read and not fates.of(column[1]) & ~others:
            kept.remove(column)
    return tuple(kept)


def _pruned(plan: LogicalPlan, scope: Scope, group: GroupReduce, kept: tuple[tuple[str, Value], ...]) -> LogicalPlan:
    record = Record(tuple((name, value.type) for name, value in kept))
    kinds: dict[str, Kind] = {}
    done: dict[str, Node] = {}
    for node in scope.nodes:
        fresh = with_inputs(node, done)
        if node == group and isinstance(fresh, GroupReduce):
            names = {name for name, _ in kept}
            fresh = replace(fresh, columns=tuple(column for column in fresh.columns if column[0] in names))
        elif isinstance(node, Project) and node.source == group and node.field == "rows":
            kinds[node.id] = "list"
            fresh = replace(fresh, type=ListOf(record))  # type: ignore[call-arg]
        elif isinstance(fresh, Map | Choose | Repeat) and any(read.id in kinds for read in node.inputs):
            assert isinstance(node, Map | Choose | Repeat)
            fresh = _retyped(node, fresh, kinds, record)
        done[node.id] = fresh
    sink = done[plan.sink.id]
    assert isinstance(sink, Sink)
    return replace(plan, sink=settled(scope, sink, done))


def _retyped(old: Map | Choose | Repeat, node: Node, kinds: dict[str, Kind], record: Record) -> Node:
    """The operator with the rows of the group under their new type in its sub-plans."""
    changed: dict[str, Any] = {}
    for part, body in bodies(old):
        changed[part] = _retyped_body(body, inside_kinds(old, body, kinds), record)
    return replace(node, **changed)


def _retyped_body(body: Body, given: dict[str, Kind], record: Record) -> Body:
    types: dict[str, Type] = {name: record if kind == "record" else ListOf(record) for name, kind in given.items()}
    columns = tuple((name, types.get(name, kind)) for name, kind in body.parameters.columns)
    done: dict[str, Node] = {body.parameters.id: Parameters(columns=columns)}
    kinds: dict[str, Kind] = {}
    for node in body_nodes(body):
        if node.id in done:
            continue
        fresh = with_inputs(node, done)
        if isinstance(node, Project) and isinstance(node.source, Parameters) and node.field in types:
            kinds[node.id] = given[node.field]
            fresh = replace(fresh, type=types[node.field])  # type: ignore[call-arg]
        elif isinstance(node, Map | Choose | Repeat) and any(read.id in kinds for read in node.inputs):
            fresh = _retyped(node, fresh, kinds, record)
        done[node.id] = fresh
    results: Any = tuple((name, done[value.id]) for name, value in body.results)
    parameters: Any = done[body.parameters.id]
    return Body(parameters=parameters, results=results)
