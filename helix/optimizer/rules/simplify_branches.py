"""The rule `simplify_branches`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from helix.logical import Apply, Body, Choose, Const, LogicalPlan, Node, Project, Render, Value, body_nodes, topological
from helix.optimizer.lifting import given
from helix.optimizer.rewrite import instantiate, typed_as, with_inputs
from helix.optimizer.rule import RuleContext, rule
from helix.optimizer.scopes import Scope, is_blurred, rewrite_scopes
from helix.traits import traits


@rule()
def simplify_branches(plan: LogicalPlan, context: RuleContext) -> LogicalPlan:
    """if c { x } else { x } = x, and inside `if c` a second `if c` is its first arm.

    Sound: where both arms give one value without a call of their own, and that value fails wherever the condition
    does. The condition inside is the same expression of the same values. Branches that act on the world stay.
    Pays: what does not depend on a condition need not wait for it; arms that are never taken are not planned.

    >>> show('''
    ... workflow demo(text: text, urgent: bool)
    ... if urgent {
    ...   reply = llm { user "Now: {{ text }}" }
    ...   note = llm { user "Why now: {{ text }}" } when urgent
    ... } else {
    ...   reply = "later"
    ...   note = null
    ... }
    ... output reply, note
    ... ''', simplify_branches)
    Sink reply, note
      Choose reply, note if urgent
        then -> reply, note
          Generate note
            user "Why now: {text}"
          Generate reply
            user "Now: {text}"
        otherwise -> reply="later", note=null
      Scan text: text, urgent: bool
    """
    return rewrite_scopes(plan, _simplify, Choose)


def _simplify(scope: Scope, old: Node, node: Node) -> Node:
    if isinstance(node, Project) and isinstance(node.source, Choose):
        return _same_in_both(scope, old, node, node.source)
    if isinstance(node, Choose) and traits(node).effects in ("pure", "read"):
        return _without_second_question(scope, node)
    return node


def _same_in_both(scope: Scope, old: Node, node: Project, choose: Choose) -> Value:
    """The value that both arms give, in place of the branch."""
    results = (choose.then.result(node.field), choose.otherwise.result(node.field))
    if traits(choose).effects not in ("pure", "read"):
        # Reading one output runs all of the arm.
        return node
    if choose.then.parameters != choose.otherwise.parameters or results[0] != results[1]:
        return node
    if not all(
        isinstance(part, Project | Apply | Render | Const) or part == choose.then.parameters
        for part in topological(results[0])
    ):
        return node
    value = instantiate(choose.then, given(choose, choose.then), choose.rows, roots=(results[0],))[results[0].id]
    fates = scope.fates
    before = fates.control(choose.rows) | fates.of(choose.condition)
    if before & ~(fates.of(value) | scope.ambient(old)):
        return node
    return typed_as(value, node.type)


def _without_second_question(scope: Scope, node: Choose) -> Choose:
    """The branch with those branches in its arms decided that ask for its own condition again."""
    outside = given(node, node.then)
    changed: dict[str, Any] = {}
    for part, body, holds in (("then", node.then, True), ("otherwise", node.otherwise, False)):
        decided = _decided(body, outside, node.condition, holds)
        if decided is not body and not is_blurred(scope.inside(node, part, decided)):
            changed[part] = decided
    return replace(node, **changed) if changed else node


def _decided(body: Body, outside: Mapping[str, Value], condition: Value, holds: bool) -> Body:
    done: dict[str, Node] = {}
    taken = {step for node in body_nodes(body) if (step := getattr(node, "step", ""))}
    for node in body_nodes(body):
        fresh = with_inputs(node, done)
        if isinstance(node, Project) and isinstance(node.source, Choose) and isinstance(fresh, Project):
            inner = fresh.source
            assert isinstance(inner, Choose)
            arm = inner.then if holds else inner.otherwise
            own = {step for part in body_nodes(arm) if (step := getattr(part, "step", ""))}
            if _asks(body, node.source, outside, condition) and not own & taken:
                result = arm.result(fresh.field)
                value = instantiate(arm, given(inner, arm), inner.rows, roots=(result,))[result.id]
                fresh = typed_as(value, fresh.type)
        done[node.id] = fresh
    results: Any = tuple((name, done[value.id]) for name, value in body.results)
    if all(new is old for (_, new), (_, old) in zip(results, body.results, strict=True)):
        return body
    return Body(parameters=body.parameters, results=results)


def _asks(body: Body, inner: Choose, outside: Mapping[str, Value], condition: Value) -> bool:
    """Whether a branch in an arm asks what the branch around it has asked."""
    if any(
        not isinstance(part, Project | Apply | Render | Const) and part != body.parameters
        for part in topological(inner.condition)
    ):
        return False
    asked = instantiate(body, outside, body.parameters, roots=(inner.condition,))[inner.condition.id]
    return asked == condition
