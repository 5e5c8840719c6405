"""Keeps the names of failures while rules change who reads what.

An expression without a name of its own is told by the first step that reads it, and that one may be gone after a rule.
So the names are written down before the first rule (`pinned`), and those that come out the same without are taken away
after the last one (`unpinned`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from helix.logical import Apply, LogicalPlan, Map, Node, Render, Sink, bodies, body_nodes, every_node
from helix.optimizer.rewrite import relinked, with_inputs
from helix.optimizer.scopes import Scope, body_of, scope_of
from helix.places import PIN, Place, Places

# A node of a plan: the holders of the sub-plans around it, each with the part that holds it, and its own id.
Address = tuple[str, ...]


def pinned(plan: LogicalPlan) -> LogicalPlan:
    """The plan with a label on each expression that may fail and has none, and one object for each operator."""
    labels: dict[Address, str] = {}
    if _any_nameless(scope_of(plan)):
        for address, scope, node, place in _placed(plan):
            if not node.label and scope.fates.may_begin_in(node):
                labels[address] = f"{PIN}{place.label}"
    return _relabelled(plan, labels)


def _any_nameless(scope: Scope) -> bool:
    """Whether an expression that may fail has no label of its own."""
    return any(
        isinstance(node, Apply | Render) and not node.label and scope.fates.may_begin_in(node) for node in scope.nodes
    ) or any(_any_nameless(scope.inside(node, part, body)) for node in scope.nodes for part, body in bodies(node))


def unpinned(plan: LogicalPlan) -> LogicalPlan:
    """The plan without those labels of `pinned` that say what the plan says by itself."""
    if not any(isinstance(node, Apply | Render) and node.label.startswith(PIN) for node in every_node(plan.sink)):
        return plan
    pins = {address: node.label for address, _, node, _ in _placed(plan) if node.label.startswith(PIN)}
    bare = _named(_relabelled(plan, dict.fromkeys(pins, "")))
    needless = {address: "" for address, label in pins.items() if bare[address] == label}
    lighter = _relabelled(plan, needless)
    # One that stays may name what it reads, which bare was named by somebody else.
    named = _named(lighter)
    return lighter if all(named[address] == label for address, label in pins.items()) else plan


def _named(plan: LogicalPlan) -> dict[Address, str]:
    return {address: node.label or f"{PIN}{place.label}" for address, _, node, place in _placed(plan)}


def _placed(plan: LogicalPlan) -> Iterator[tuple[Address, Scope, Apply | Render, Place]]:
    """The expressions and templates of a plan, each with its scope and its place."""
    places = Places(plan.steps, [name for name, _ in plan.sink.columns])
    yield from _in_scope(scope_of(plan), places, places.plan(plan.sink), (), ())


def _in_scope(
    scope: Scope, places: Places, found: Mapping[str, Place], maps: tuple[str, ...], around: Address
) -> Iterator[tuple[Address, Scope, Apply | Render, Place]]:
    for node in scope.nodes:
        if isinstance(node, Apply | Render):
            yield (*around, node.id), scope, node, found[node.id]
        for part, body in bodies(node):
            place = found[node.id].item() if isinstance(node, Map) else found[node.id]
            inner_maps = (*maps, node.step) if isinstance(node, Map) else maps
            roots = {value.id: place for _, value in body.results}
            inner = places.scope(body_nodes(body), roots, inner_maps)
            yield from _in_scope(scope.inside(node, part, body), places, inner, inner_maps, (*around, node.id, part))


def _relabelled(plan: LogicalPlan, labels: Mapping[Address, str]) -> LogicalPlan:
    sink = _relabelled_scope(scope_of(plan), labels, ())[plan.sink.id]
    assert isinstance(sink, Sink)
    return plan if sink is plan.sink else replace(plan, sink=sink)


def _relabelled_scope(scope: Scope, labels: Mapping[Address, str], around: Address) -> dict[str, Node]:
    done: dict[str, Node] = {}
    for node in scope.nodes:
        fresh = with_inputs(node, done)
        for part, body in bodies(node):
            inside = _relabelled_scope(scope.inside(node, part, body), labels, (*around, node.id, part))
            if (inner := body_of(body, inside)) is not body:
                changed: dict[str, Any] = {part: inner}
                fresh = replace(fresh, **changed)
        label = labels.get((*around, node.id))
        if label is not None:
            assert isinstance(fresh, Apply | Render)
            fresh = relinked(fresh, {"label": label})
        done[node.id] = fresh
    return done
