"""The rule `simplify_loops`."""

from __future__ import annotations

import json
from dataclasses import replace

from helix.logical import (
    Body,
    Const,
    LogicalPlan,
    Node,
    Parameters,
    Project,
    Repeat,
    Value,
    body_nodes,
)
from helix.optimizer.lifting import given, put_in_place
from helix.optimizer.rewrite import instantiate
from helix.optimizer.rule import RuleContext, rule
from helix.optimizer.scopes import Scope, rewrite_scopes
from helix.traits import traits


@rule()
def simplify_loops(plan: LogicalPlan, context: RuleContext) -> LogicalPlan:
    """A loop whose rounds are all alike has one round; a loop of one round is its body.

    Sound: rounds are alike where nothing is read that is carried round, and all steps are deterministic; `until true`
    ends the first. The body takes the loop's place where its `until` cannot fail by itself, none of its steps has the
    name of a step outside, and a row that has failed before gets no value. Loops that act on the world stay.
    Pays: rounds that change nothing are not run, and what is in the body can be merged with what is outside.

    >>> show('''
    ... workflow demo(text: text)
    ... repeat up to 3 until true {
    ...   draft = llm(temperature: 1) { user "{{ text }}" }
    ... }
    ... output draft
    ... ''', simplify_loops)
    Sink draft
      Generate draft temperature=1.0
        user "{text}"
      Scan text: text
    """
    return rewrite_scopes(plan, _simplify, Repeat)


def _simplify(scope: Scope, old: Node, node: Node) -> Node:
    if isinstance(node, Repeat) and traits(node).effects in ("pure", "read"):
        return _shorter(node)
    if isinstance(node, Project) and isinstance(node.source, Repeat) and node.source.times == 1:
        assert isinstance(old, Project)
        return _in_place(scope, old, node, node.source)
    return node


def _shorter(node: Repeat) -> Repeat:
    """The loop with fewer rounds, and without a condition that says nothing."""
    until = dict(node.body.results).get(Repeat.UNTIL)
    if isinstance(until, Const):
        results = tuple(result for result in node.body.results if result[0] != Repeat.UNTIL)
        times = 1 if json.loads(until.json) else node.times
        node = replace(node, times=times, body=Body(parameters=node.body.parameters, results=results))
    if node.times > 1 and _alike(node):
        node = replace(node, times=1)
    return node


def _alike(node: Repeat) -> bool:
    carried = {name for name, _ in node.carried}
    return traits(node).deterministic and not any(
        isinstance(part, Project) and isinstance(part.source, Parameters) and part.field in carried
        for part in body_nodes(node.body)
    )


def _in_place(scope: Scope, old: Project, node: Project, loop: Repeat) -> Value:
    """The value that the only round gives, in place of the loop."""
    if traits(loop).effects not in ("pure", "read"):
        return node
    body, fates = loop.body, scope.fates
    outside = dict(loop.carried) | given(loop, body)
    before = fates.control(loop.rows)
    until = dict(body.results).get(Repeat.UNTIL)
    if until is not None:
        before |= fates.of(instantiate(body, outside, loop.rows, roots=(until,))[until.id])
    return put_in_place(scope, old, node, outside, body, before)
