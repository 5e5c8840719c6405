"""The rule `merge_equal_steps`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from helix.canonical import canonical_text
from helix.logical import (
    Body,
    Choose,
    Filter,
    Generate,
    Invoke,
    LogicalPlan,
    Map,
    Node,
    Relation,
    Repeat,
    Sink,
    bodies,
    content,
    topological,
)
from helix.optimizer.fallible import can_fail
from helix.optimizer.rewrite import with_bodies, with_inputs
from helix.optimizer.rule import RuleContext, rule
from helix.traits import traits


@rule()
def merge_equal_steps(plan: LogicalPlan, context: RuleContext) -> LogicalPlan:
    """x = f(a), y = f(a) is x = f(a), y = x.

    Sound: only steps whose results depend on their inputs alone: temperature 0 or a seed and no `cache off`, tools that
    only read. They run over the same rows, or the second over rows that a filter which cannot fail has left of them.
    Inputs first, so that steps that differ only in the names of equal steps merge too. The first one's name stays.
    Pays: one call where there were two.

    >>> show('''
    ... workflow demo(text: text)
    ... a = llm { user "Sum up: {{ text }}" }
    ... b = llm { user "Sum up: {{ text }}" }
    ... output a, b
    ... ''', merge_equal_steps)
    Sink a, b=a
      Generate a
        user "Sum up: {text}"
      Scan text: text
    """
    sink = _merged(plan.sink, plan.steps)
    assert isinstance(sink, Sink)
    return plan if sink.id == plan.sink.id else replace(plan, sink=sink)


def _merged(root: Node, steps: tuple[str, ...]) -> Node:
    """The node with equal steps of its scope merged, and of the sub-plans below it each within itself."""
    return _merge_scope((root,), steps)[root.id]


def _merge_scope(roots: tuple[Node, ...], steps: tuple[str, ...]) -> dict[str, Node]:
    done: dict[str, Node] = {}
    leaders: dict[str, list[Node]] = {}
    nodes = {node.id: node for root in roots for node in topological(root)}
    for node in nodes.values():
        fresh = with_inputs(node, done)
        if bodies(fresh):
            fresh = with_bodies(fresh, lambda body: _merge_body(body, steps))
        if isinstance(fresh, Generate | Invoke | Map | Choose | Repeat) and _mergeable(fresh):
            known = leaders.setdefault(_signature(fresh), [])
            leader = next((each for each in known if _covers(each, fresh)), None)
            if leader is not None:
                fresh = leader
            else:
                known.append(fresh)
        done[node.id] = fresh
    return done


def _merge_body(body: Body, steps: tuple[str, ...]) -> Body:
    done = _merge_scope(tuple(value for _, value in body.results), steps)
    results: Any = tuple((name, done[value.id]) for name, value in body.results)
    if all(new is old for (_, new), (_, old) in zip(results, body.results, strict=True)):
        return body
    return Body(parameters=body.parameters, results=results)


def _mergeable(node: Node) -> bool:
    own = traits(node)
    return own.deterministic and own.effects in ("pure", "read")


def _covers(leader: Node, other: Node) -> bool:
    """Whether the leader has run wherever the other would: over its rows, or those that safe filters left of them."""
    rows: Relation = other.rows  # type: ignore[attr-defined]
    while rows != leader.rows:  # type: ignore[attr-defined]
        if not isinstance(rows, Filter) or can_fail(rows.condition):
            return False
        rows = rows.rows
    return True


def _signature(node: Node) -> str:
    """What two steps must share to be equal: everything but their names and their rows."""
    return canonical_text([type(node).__name__, _nameless(node)])


def _nameless(node: Node) -> dict[str, Any]:
    shown = content(node)
    shown.pop("step", None)
    shown.pop("rows", None)
    for name, body in bodies(node):
        shown[name] = {
            "parameters": content(body.parameters),
            "results": [[given, _inner(value, node)] for given, value in body.results],
        }
    return shown


def _inner(root: Node, holder: Node) -> list[Any]:
    """The operators of a sub-plan without the names of their steps: references by position instead of by id."""
    place: dict[str, int] = {}
    shown: list[Any] = []
    for node in topological(root):
        place[node.id] = len(place)
        shown.append([type(node).__name__, _replaced(_nameless(node), place)])
    return shown


def _replaced(value: Any, place: dict[str, int]) -> Any:
    if isinstance(value, dict):
        if set(value) == {"$"}:
            return {"#": place.get(value["$"], value["$"])}
        return {key: _replaced(item, place) for key, item in value.items()}
    return [_replaced(item, place) for item in value] if isinstance(value, list) else value
