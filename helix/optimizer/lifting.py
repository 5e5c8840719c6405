"""Moves what does not change out of sub-plans: which nodes stand alone, and how their values come in again."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from helix.logical import (
    Apply,
    Body,
    Choose,
    Const,
    Fetch,
    Generate,
    Invoke,
    Map,
    Node,
    Parameters,
    Project,
    Render,
    Repeat,
    Value,
    bodies,
    body_nodes,
)
from helix.optimizer.rewrite import instantiate, typed_as, with_inputs
from helix.optimizer.scopes import Scope
from helix.traits import traits

Holder = Map | Choose | Repeat


def standing_alone(scope: Scope, varying: Collection[str], *, certain: bool) -> dict[str, Node]:
    """The nodes of a sub-plan that read none of the `varying` parameters, nothing that acts, samples or is uncached.

    With `certain` only those whose failure always comes to light: for a step that runs several times under several
    names the first one's must be right.
    """
    found: dict[str, Node] = {}
    for node in scope.nodes:
        if isinstance(node, Parameters):
            continue
        if any(read.id not in found and not isinstance(read, Parameters) for read in node.inputs):
            continue
        if _stands(scope, node, varying) and (not certain or _is_certain(scope, node)):
            found[node.id] = node
    return found


def _stands(scope: Scope, node: Node, varying: Collection[str]) -> bool:
    match node:
        case Project(source=Parameters(), field=field):
            return field not in varying
        case Const() | Project() | Apply() | Render() | Fetch():
            return True
        case Generate() | Invoke() | Map() | Choose() | Repeat():
            own = traits(node)
            return own.deterministic and own.effects in ("pure", "read")
    return False


def _is_certain(scope: Scope, node: Node) -> bool:
    if isinstance(node, Choose | Repeat):
        readers = scope.readers.get(node.id, ())
        return all(scope.comes_to_light(each, each) for each in readers if isinstance(each, Project))
    if isinstance(node, Apply | Render) and not scope.fates.may_begin_in(node):
        return True
    return scope.comes_to_light(node, node)


def border(scope: Scope, moved: Mapping[str, Node]) -> list[Value]:
    """The calls among the nodes that may move, or what branches and loops of calls give, as far as the rest reads them.

    What is made of them without a call stays inside, where it is read.
    """
    found: list[Value] = []
    seen: set[str] = set()
    stack: list[Node] = list(reversed(scope.roots))
    while stack:
        node = stack.pop()
        if node.id in seen:
            continue
        seen.add(node.id)
        holder = node.source if isinstance(node, Project) else node
        if node.id in moved and isinstance(node, Value) and traits(holder).is_call:
            found.append(node)
        else:
            stack.extend(reversed(node.inputs))
    return found


def steps_of(values: Sequence[Value]) -> set[str]:
    """The names of the steps that values are made of, those of their own scope."""
    found: set[str] = set()
    stack: list[Node] = list(values)
    seen: set[str] = set()
    while stack:
        node = stack.pop()
        if node.id not in seen:
            seen.add(node.id)
            stack.extend(node.inputs)
            if step := getattr(node, "step", ""):
                found.add(step)
    return found


def given(holder: Holder, body: Body) -> dict[str, Value]:
    """What an operator passes into its sub-plan from outside, by the names there: its captures."""
    names = [name for name, _ in body.parameters.columns]
    return dict(zip(names[len(names) - len(holder.captures) :], holder.captures, strict=True))


def passed_in(holder: Holder, values: Sequence[tuple[Value, Value]]) -> Holder:
    """The operator with values from outside, the second of each pair, in place of the first in its sub-plans."""
    held = bodies(holder)
    columns = held[0][1].parameters.columns
    taken = {name for name, _ in columns}
    added: list[tuple[str, Value]] = []
    for inner, _ in values:
        name = fresh_name(inner, taken)
        taken.add(name)
        added.append((name, inner))
    parameters = Parameters(columns=(*columns, *((name, inner.type) for name, inner in added)))
    changed: dict[str, Any] = {"captures": (*holder.captures, *(outer for _, outer in values))}
    for part, body in held:
        done: dict[str, Node] = {body.parameters.id: parameters}
        for name, inner in added:
            done[inner.id] = Project(source=parameters, field=name, type=inner.type, label=inner.label)
        scope = Scope((body.parameters, *(value for _, value in body.results)))
        for node in scope.nodes:
            if node.id not in done:
                done[node.id] = with_inputs(node, done)
        results: Any = tuple((name, done[value.id]) for name, value in body.results)
        changed[part] = Body(parameters=parameters, results=results)
    return replace(holder, **changed)


def copied_in(holder: Holder, texts: Mapping[str, Apply]) -> Holder:
    """The operator with expressions computed inside its sub-plans, from what they read, in place of those passed in.

    `texts` are captured expressions by the names that they have inside.
    """
    held = bodies(holder)
    columns = list(held[0][1].parameters.columns)
    names = {value.id: name for name, value in given(holder, held[0][1]).items()}
    added: list[Value] = []
    taken = {name for name, _ in columns}
    for text in texts.values():
        for arg in text.args:
            if arg.id not in names and not isinstance(arg, Const):
                names[arg.id] = fresh_name(arg, taken)
                taken.add(names[arg.id])
                columns.append((names[arg.id], arg.type))
                added.append(arg)
    parameters = Parameters(columns=tuple(columns))
    changed: dict[str, Any] = {"captures": (*holder.captures, *added)}
    for part, body in held:
        done: dict[str, Node] = {body.parameters.id: parameters}
        for node in body_nodes(body):
            if node.id in done:
                continue
            fresh = with_inputs(node, done)
            if isinstance(node, Project) and node.source == body.parameters and node.field in texts:
                text = texts[node.field]
                inside = tuple(
                    arg
                    if isinstance(arg, Const)
                    else Project(source=parameters, field=names[arg.id], type=arg.type, label=arg.label)
                    for arg in text.args
                )
                fresh = typed_as(replace(text, args=inside), node.type)
            done[node.id] = fresh
        results: Any = tuple((name, done[value.id]) for name, value in body.results)
        changed[part] = Body(parameters=parameters, results=results)
    return replace(holder, **changed)


def fresh_name(value: Value, taken: Collection[str]) -> str:
    """A name for a value inside a sub-plan: its own, as short as it can be told from the others."""
    own = value.field if isinstance(value, Project) else getattr(value, "step", "") or value.label
    base = own.rpartition(".")[2].partition("[")[0].lstrip("@#") or "value"
    name, number = base, 2
    while name in taken:
        name, number = f"{base}_{number}", number + 1
    return name


def put_in_place(
    scope: Scope, old: Project, node: Project, outside: Mapping[str, Value], body: Body, before: int
) -> Value:
    """What a sub-plan that runs exactly once gives, in place of the output of its holder; the output where not exact.

    `before` are the events that make the holder fail by itself. A row on which one of them happens must not get a value
    now. Where steps sample, all outputs are put in place or none, so that none runs twice; where a step has a name that
    is taken, none is.
    """
    holder: Any = node.source
    known = scope.outputs(old.source)
    made = instantiate(body, outside, holder.rows, roots=[body.result(each.field) for each in known])
    inexact = {
        each.id for each in known if before & ~(scope.fates.of(made[body.result(each.field).id]) | scope.ambient(each))
    }
    if old.id in inexact or (inexact and not traits(holder).deterministic):
        return node
    if not scope.claim(steps_of([body.result(each.field) for each in known]), old.source.id):
        return node
    return typed_as(made[body.result(node.field).id], node.type)
