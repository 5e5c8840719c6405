"""The rule `drop_dead_steps`."""

from __future__ import annotations

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
from helix.optimizer.rewrite import over_parameters, trim, with_inputs
from helix.optimizer.rule import RuleContext, rule
from helix.optimizer.scopes import Scope, body_of, matched, settled


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
    scope = Scope((plan.sink,))
    done = _alive(scope)
    sink = done.get(plan.sink.id, plan.sink)
    assert isinstance(sink, Sink)
    alive = settled(scope, replace(sink, also=()), done)
    return plan if alive.id == plan.sink.id else replace(plan, sink=alive)


def _alive(scope: Scope) -> dict[str, Node]:
    """The nodes of a scope that are others without what their sub-plans compute or read for nobody."""
    done: dict[str, Node] = {}
    for node in scope.nodes:
        fresh = with_inputs(node, done)
        changed: dict[str, Body] = {}
        for part, body in bodies(node):
            inside = scope.inside(node, part, body)
            changed[part] = body_of(body, _alive(inside), inside, _wanted(scope, node, body))
        if any(changed[part] is not body for part, body in bodies(node)):
            given: dict[str, Any] = matched(changed)
            fresh = replace(fresh, **given)
        if isinstance(fresh, Repeat):
            fresh = _without_idle(fresh, _read(scope, node))
        fresh = trim(fresh)
        if fresh is not node:
            done[node.id] = fresh
    return done


def _wanted(scope: Scope, holder: Node, body: Body) -> set[str]:
    """The results of a sub-plan that somebody reads. All of them where nobody does: then the holder goes by itself."""
    if isinstance(holder, Map):
        return {"yield"}
    read = _read(scope, holder)
    if not read:
        return {name for name, _ in body.results}
    if isinstance(holder, Choose):
        return read
    assert isinstance(holder, Repeat)
    idle = _idle(holder, read)
    return read | {Repeat.UNTIL} | {name for name, _ in holder.carried if name not in idle}


def _read(scope: Scope, node: Node) -> set[str]:
    return {reader.field for reader in scope.readers.get(node.id, ()) if isinstance(reader, Project)}


def _idle(loop: Repeat, read: set[str]) -> set[str]:
    """The carried names that are read neither after the loop nor in its next round."""
    body = loop.body
    inside = {part.field for part in body_nodes(body) if isinstance(part, Project) and part.source == body.parameters}
    return {name for name, _ in loop.carried if name not in read and name not in inside}


def _without_idle(loop: Repeat, read: set[str]) -> Repeat:
    """The loop without carried names that are no results of it any more."""
    results = {name for name, _ in loop.body.results}
    idle = {name for name in _idle(loop, read) if name not in results}
    if not idle:
        return loop
    columns = tuple(column for column in loop.body.parameters.columns if column[0] not in idle)
    carried = tuple((name, value) for name, value in loop.carried if name not in idle)
    return replace(loop, carried=carried, body=over_parameters(loop.body, Parameters(columns=columns)))
