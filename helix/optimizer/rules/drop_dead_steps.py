"""The rule `drop_dead_steps`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from helix.logical import (
    Body,
    Choose,
    LogicalPlan,
    Map,
    Node,
    Parameters,
    Project,
    Repeat,
    Sink,
    bodies,
    body_nodes,
)
from helix.optimizer.lifting import given
from helix.optimizer.rewrite import over_parameters, trim, with_inputs
from helix.optimizer.rule import RuleContext, rule
from helix.optimizer.scopes import Scope, acts, body_of, matched, scope_of, settled


@rule()
def drop_dead_steps(plan: LogicalPlan, context: RuleContext) -> LogicalPlan:
    """A step that nobody reads is not there.

    Sound: steps whose tools may act (anything but pure and read) are kept; the failure of a step that nobody reads is
    no row's error. Names that branches and loops set for nobody go too, and what is passed into them for nobody.
    Pays: calls that nobody wants are not made.

    >>> show('''
    ... workflow demo(text: text)
    ... mood = llm { user "Mood of {{ text }}" }
    ... reply = llm { user "{{ text }}" }
    ... output reply
    ... ''', drop_dead_steps)
    Sink reply
      Generate reply
        user "{text}"
      Scan text: text
    """
    scope = scope_of(plan)
    live = replace(plan.sink, also=())
    done = _alive(scope, _wanted(scope, live.inputs))
    sink = done.get(plan.sink.id, plan.sink)
    assert isinstance(sink, Sink)
    alive = settled(scope, replace(sink, also=()), done)
    return plan if alive.id == plan.sink.id else replace(plan, sink=alive)


def _alive(scope: Scope, wanted: Mapping[str, set[str]]) -> dict[str, Node]:
    """The nodes of a scope that are others without what their sub-plans compute or read for nobody."""
    done: dict[str, Node] = {}
    for node in scope.nodes:
        fresh = with_inputs(node, done)
        changed: dict[str, Body] = {}
        for part, body in bodies(node):
            inside = scope.inside(node, part, body)
            names = _results(node, wanted.get(node.id, set()))
            kept = [value for name, value in body.results if name in names]
            changed[part] = body_of(body, _alive(inside, _wanted(inside, kept)), inside, names)
        if any(changed[part] is not body for part, body in bodies(node)):
            given: dict[str, Any] = matched(changed)
            fresh = replace(fresh, **given)
        if isinstance(fresh, Repeat):
            fresh = _without_idle(fresh)
        fresh = trim(fresh)
        if fresh is not node:
            done[node.id] = fresh
    return done


def _wanted(scope: Scope, roots: Iterable[Node]) -> dict[str, set[str]]:
    """For each branch and loop of a scope the names that somebody reads who is read himself, or who acts."""
    live = {root.id for root in roots}
    wanted: dict[str, set[str]] = {}
    for node in reversed(scope.nodes):
        if node.id not in live and not acts(node):
            continue
        if isinstance(node, Project) and isinstance(node.source, Choose | Repeat):
            wanted.setdefault(node.source.id, set()).add(node.field)
        if isinstance(node, Map | Choose | Repeat):
            live.update(read.id for read in _read_by(node, _results(node, wanted.get(node.id, set()))))
        else:
            live.update(read.id for read in node.inputs)
    return wanted


def _results(holder: Node, read: set[str]) -> set[str]:
    """The results of a sub-plan that are of use, where those in `read` are read outside.

    All of them where nobody reads any: then the holder goes by itself.
    """
    if isinstance(holder, Map):
        return {"yield"}
    if isinstance(holder, Choose):
        return read or {name for name, _ in holder.then.results}
    assert isinstance(holder, Repeat)
    if not read:
        return {name for name, _ in holder.body.results}
    # What the next round reads of this one is of use too.
    results = dict(holder.body.results)
    carried = {name for name, _ in holder.carried}
    found = read | ({Repeat.UNTIL} & results.keys())
    # What acts stays, under the name that it has: then that is carried on too.
    found |= {name for name in carried if name in results and acts(results[name])}
    while more := (_parameters(holder.body, found) & carried) - found:
        found |= more
    return found


def _parameters(body: Body, names: Collection[str]) -> set[str]:
    """The parameters that some results of a sub-plan are made of, and what acts in it."""
    found: set[str] = set()
    seen: set[str] = set()
    stack: list[Node] = [value for name, value in body.results if name in names]
    stack += [node for node in body_nodes(body) if acts(node)]
    while stack:
        node = stack.pop()
        if node.id not in seen:
            seen.add(node.id)
            stack.extend(node.inputs)
            if isinstance(node, Project) and node.source == body.parameters:
                found.add(node.field)
    return found


def _read_by(holder: Map | Choose | Repeat, names: set[str]) -> list[Node]:
    """What a holder reads for the sake of some results."""
    used: set[str] = set()
    for _, body in bodies(holder):
        used |= _parameters(body, names)
    captured = given(holder, bodies(holder)[0][1])
    read: list[Node] = [holder.rows, *(value for name, value in captured.items() if name in used)]
    if isinstance(holder, Map):
        read.append(holder.over)
    elif isinstance(holder, Choose):
        read.append(holder.condition)
    else:
        read += [value for name, value in holder.carried if name in names]
    return read


def _without_idle(loop: Repeat) -> Repeat:
    """The loop without carried names that are no results of it any more."""
    results = {name for name, _ in loop.body.results}
    idle = {name for name, _ in loop.carried if name not in results}
    if not idle:
        return loop
    columns = tuple(column for column in loop.body.parameters.columns if column[0] not in idle)
    carried = tuple((name, value) for name, value in loop.carried if name not in idle)
    return replace(loop, carried=carried, body=over_parameters(loop.body, Parameters(columns=columns)))
