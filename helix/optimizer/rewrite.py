"""Changing plans: nodes are immutable, so a change rebuilds what reads the changed node and shares all else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from operator import attrgetter, is_
from types import MappingProxyType
from typing import Any

from helix.expr import Arg
from helix.logical import (
    UNHASHED,
    Apply,
    Body,
    Const,
    LogicalPlan,
    Node,
    Parameters,
    Project,
    PromptPart,
    Relation,
    Sink,
    Truncate,
    Value,
    bodies,
    body_nodes,
    content_id,
    topological,
)
from helix.types import Type

Change = Callable[[Node], Node]


def rewrite(plan: LogicalPlan, change: Change, *, inside: bool = True) -> LogicalPlan:
    """The plan with `change` applied to every node after its inputs; the same plan where nothing changed.

    `inside` also goes into sub-plans, before the operator that holds them.
    """
    changed = False

    def noted(node: Node) -> Node:
        nonlocal changed
        fresh = change(node)
        changed = changed or fresh is not node
        return fresh

    sink = rewrite_node(plan.sink, noted, inside=inside)
    assert isinstance(sink, Sink)
    # Equal operators that were two objects are one in the new sink, though nothing has changed.
    return replace(plan, sink=sink) if changed else plan


def rewrite_node(root: Node, change: Change, *, inside: bool = True) -> Node:
    """The node with `change` applied to it and all that it reads, inputs first."""
    done: dict[str, Node] = {}
    for node in topological(root):
        fresh = with_inputs(node, done)
        if inside and bodies(fresh):
            fresh = with_bodies(fresh, lambda body: rewrite_body(body, change))
        done[node.id] = change(fresh)
    return done[root.id]


def rewrite_body(body: Body, change: Change) -> Body:
    """A sub-plan with `change` applied to all its nodes but its parameters."""

    def inner(node: Node) -> Node:
        return node if isinstance(node, Parameters) else change(node)

    done: dict[str, Node] = {}
    for _, value in body.results:
        for node in topological(value):
            if node.id not in done:
                fresh = with_inputs(node, done)
                if bodies(fresh):
                    fresh = with_bodies(fresh, lambda held: rewrite_body(held, change))
                done[node.id] = inner(fresh)
    results = tuple((name, _value(done[value.id])) for name, value in body.results)
    if all(new is old for (_, new), (_, old) in zip(results, body.results, strict=True)):
        return body
    return Body(parameters=body.parameters, results=results)


def marked(plan: LogicalPlan, marks: Callable[[Node], Mapping[str, Any]]) -> LogicalPlan:
    """The plan with fields of operators changed that hold no operators; `marks` gives those of one as it stands there.

    The same plan comes back where there are none.
    """
    sink = _marked((plan.sink,), marks).get(plan.sink.id, plan.sink)
    assert isinstance(sink, Sink)
    return plan if sink is plan.sink else replace(plan, sink=sink)


def _marked(roots: Iterable[Node], marks: Callable[[Node], Mapping[str, Any]]) -> dict[str, Node]:
    """The new node for each node that the roots read and that is another now."""
    done: dict[str, Node] = {}
    seen: set[str] = set()
    for root in roots:
        for node in topological(root):
            if node.id in seen:
                continue
            seen.add(node.id)
            changed = dict(marks(node))
            for part, body in bodies(node):
                inner = _marked((value for _, value in body.results), marks)
                if inner:
                    results = tuple((name, _value(inner.get(value.id, value))) for name, value in body.results)
                    changed[part] = Body(parameters=body.parameters, results=results)
            fresh = with_inputs(node, done, changed)
            if fresh is not node:
                done[node.id] = fresh
    return done


def with_inputs(node: Node, done: Mapping[str, Node], others: Mapping[str, Any] = MappingProxyType({})) -> Node:
    """The node reading the new versions of its inputs; the same node where they are the same.

    `others` are fields to be changed too, by name.
    """
    if not done and not others:
        return node
    reads = node.inputs
    inputs = tuple([done.get(read.id, read) for read in reads])
    if all(map(is_, inputs, reads)):
        return replace(node, **others) if others else node
    changed: dict[str, Any] = dict(others)
    for name in _holding(type(node)):
        old = getattr(node, name)
        fresh = _mapped(old, done)
        if fresh is not old:
            changed[name] = fresh
    alike = not others and [new.id for new in inputs] == [read.id for read in reads]
    made = relinked(node, changed)
    object.__setattr__(made, "_inputs", inputs)
    if not alike:
        object.__setattr__(made, "_traits", None)
        object.__setattr__(made, "id", content_id(made))
    return made


def relinked(node: Node, changed: Mapping[str, Any]) -> Node:
    """The operator with fields changed that leave it what it is: a label, or inputs that are equal by their ids."""
    fresh: Node = object.__new__(type(node))
    names, values = _slots(type(node))
    put = object.__setattr__
    for name, value in zip(names, values(node), strict=True):
        put(fresh, name, value)
    for name, value in changed.items():
        put(fresh, name, value)
    put(fresh, "_inputs", None)
    return fresh


_SLOTS: dict[type, tuple[tuple[str, ...], Callable[[Node], tuple[Any, ...]]]] = {}
_HOLDING: dict[type, tuple[str, ...]] = {}
_HELD = ("Node", "Relation", "Value", "PromptPart", "Truncate")


def _slots(kind: type[Node]) -> tuple[tuple[str, ...], Callable[[Node], tuple[Any, ...]]]:
    """The fields of an operator, and what reads them all at once."""
    known = _SLOTS.get(kind)
    if known is None:
        names = tuple(each.name for each in fields(kind))
        known = _SLOTS[kind] = names, attrgetter(*names)
    return known


def _holding(kind: type[Node]) -> tuple[str, ...]:
    """The fields that may hold operators, by what they are declared to hold."""
    known = _HOLDING.get(kind)
    if known is None:
        named = (each for each in fields(kind) if any(name in str(each.type) for name in _HELD))
        known = _HOLDING[kind] = tuple(each.name for each in named if each.name not in UNHASHED)
    return known


def with_bodies(node: Node, change: Callable[[Body], Body]) -> Node:
    """The operator with its sub-plans changed; the same operator where they are the same."""
    changed: dict[str, Any] = {name: new for name, body in bodies(node) if (new := change(body)) is not body}
    return replace(node, **changed) if changed else node


def _mapped(value: Any, done: Mapping[str, Node]) -> Any:
    """A field with its nodes replaced. The same object comes back where nothing changed."""
    if isinstance(value, Node):
        return done.get(value.id, value)
    if isinstance(value, tuple):
        items = tuple([done.get(item.id, item) if isinstance(item, Node) else _mapped(item, done) for item in value])
        return value if all(map(is_, items, value)) else items
    if isinstance(value, PromptPart):
        content = _mapped(value.content, done)
        if content is value.content:
            return value
        return PromptPart(role=value.role, content=content, unordered=value.unordered)
    if isinstance(value, Truncate):
        inner = _mapped(value.value, done)
        return value if inner is value.value else replace(value, value=inner)
    return value


def _value(node: Node) -> Value:
    assert isinstance(node, Value)
    return node


def instantiate(
    body: Body,
    given: Mapping[str, Value],
    rows: Relation,
    rename: Callable[[str], str] = lambda step: step,
    roots: Iterable[Value] | None = None,
) -> dict[str, Value]:
    """Values of a sub-plan put in place: its parameters replaced by values from outside, its calls made over `rows`.

    Gives its results, or other values of it (`roots`), by their ids there. `rename` gives steps and labels new names.
    """

    def change(node: Node) -> Node:
        if isinstance(node, Project) and isinstance(node.source, Parameters):
            return typed_as(given[node.field], node.type)
        node = _renamed(node, rename)
        node = with_bodies(node, lambda held: rewrite_body(held, lambda inner: _renamed(inner, rename)))
        if isinstance(getattr(node, "rows", None), Parameters):
            moved: dict[str, Any] = {"rows": rows}
            node = replace(node, **moved)
        return node

    wanted = tuple(value for _, value in body.results) if roots is None else tuple(roots)
    done: dict[str, Node] = {}
    for value in wanted:
        for node in topological(value):
            if node.id not in done:
                done[node.id] = change(with_inputs(node, done))
    return {value.id: _value(done[value.id]) for value in wanted}


def _renamed(node: Node, rename: Callable[[str], str]) -> Node:
    """The node under other names; the same one where they are the same. Its sub-plans keep theirs."""
    changed: dict[str, Any] = {}
    for name in ("step", "label"):
        old = getattr(node, name, "")
        new = rename(old) if old else old
        if new != old:
            changed[name] = new
    return replace(node, **changed) if changed else node


def typed_as(value: Value, kind: Type) -> Value:
    """The value under a type that it fits: whoever reads it was checked against that one."""
    if value.type == kind:
        return value
    if isinstance(value, Const):
        return replace(value, type=kind)
    return Apply(type=kind, expr=Arg(index=0), args=(value,), label=value.label, span=value.span)


def trim(node: Node) -> Node:
    """The operator without captures that its sub-plans do not read; the same operator where they read all."""
    held = bodies(node)
    if not held:
        return node
    used = {
        part.field
        for _, body in held
        for part in body_nodes(body)
        if isinstance(part, Project) and part.source == body.parameters
    }
    columns = held[0][1].parameters.columns
    first = len(columns) - len(node.captures)  # type: ignore[attr-defined]
    kept = [place for place, (name, _) in enumerate(columns) if place < first or name in used]
    if len(kept) == len(columns):
        return node
    fresh = Parameters(columns=tuple(columns[place] for place in kept))
    captures = tuple(node.captures[place - first] for place in kept if place >= first)  # type: ignore[attr-defined]
    changed: dict[str, Any] = {name: over_parameters(body, fresh) for name, body in held} | {"captures": captures}
    return replace(node, **changed)


def over_parameters(body: Body, parameters: Parameters) -> Body:
    """The sub-plan over other parameters, which have all names that it reads."""
    if parameters == body.parameters:
        return body
    done: dict[str, Node] = {body.parameters.id: parameters}
    for _, value in body.results:
        for part in topological(value):
            if part.id not in done:
                done[part.id] = with_inputs(part, done)
    return Body(parameters=parameters, results=tuple((name, _value(done[value.id])) for name, value in body.results))


def reading(root: Node) -> dict[str, list[Node]]:
    """For each node the nodes that read it directly, in plan order."""
    found: dict[str, list[Node]] = {}
    for node in topological(root):
        for read in node.inputs:
            found.setdefault(read.id, []).append(node)
    return found
