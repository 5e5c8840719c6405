"""The scopes of a plan, its own and those of its sub-plans, and what a rule asks of one before it changes a node.

Three questions decide whether a change is exact: of what a value fails (`fates`), which failures its readers do not
notice since they have failed by then (`ambient`), and whether its failure always comes to light (`strict`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from helix.expr import Arg
from helix.logical import (
    Agent,
    Apply,
    Body,
    Choose,
    Const,
    Filter,
    Generate,
    GroupReduce,
    Invoke,
    LogicalPlan,
    Map,
    Node,
    Parameters,
    Project,
    Render,
    Repeat,
    Scan,
    Sink,
    Sort,
    Unnest,
    Value,
    bodies,
    body_nodes,
    readable,
    topological,
)
from helix.optimizer.fallible import Fates
from helix.optimizer.rewrite import with_inputs
from helix.traits import traits
from helix.types import NULL

Change = Callable[["Scope", Node, Node], Node]
_ALWAYS = -1


@dataclass(slots=True, eq=False)
class Scope:
    """The nodes that one name space holds: those of the plan, or those of a sub-plan. `roots` are read from outside.

    `holder` is the operator that holds the sub-plan, as its part `part`.
    """

    roots: tuple[Node, ...]
    fates: Fates = field(default_factory=Fates)
    holder: Node | None = None
    part: str = ""
    nodes: tuple[Node, ...] = ()
    _readers: dict[str, list[Node]] | None = None
    _ambient: dict[str, int] | None = None
    _cones: tuple[dict[str, int], dict[str, int]] | None = None
    _steps: dict[str, str] | None = None
    _kinds: frozenset[type[Node]] | None = None

    def __post_init__(self) -> None:
        found: dict[str, Node] = {}
        for root in self.roots:
            if root.id not in found:
                for node in topological(root):
                    found.setdefault(node.id, node)
        self.nodes = tuple(found.values())
        if self.holder is None:
            self.fates.acting = any(acts(node) for node in self.nodes)

    def inside(self, holder: Node, part: str, body: Body) -> Scope:
        """The scope of a sub-plan that an operator of this scope holds."""
        roots = (body.parameters, *(value for _, value in body.results))
        return Scope(roots, self.fates.inside(holder, part, body), holder, part)

    @property
    def readers(self) -> dict[str, list[Node]]:
        """For each node the nodes of this scope that read it, in plan order."""
        if self._readers is None:
            self._readers = {}
            for node in self.nodes:
                for read in dict.fromkeys(node.inputs):
                    self._readers.setdefault(read.id, []).append(node)
        return self._readers

    def holds(self, *kinds: type[Node]) -> bool:
        """Whether there is an operator of these kinds here or in a sub-plan."""
        if self._kinds is None:
            self._kinds = frozenset(map(type, self.nodes)).union(
                *(map(type, _every(body)) for node in self.nodes for _, body in bodies(node))
            )
        return not self._kinds.isdisjoint(kinds)

    def claim(self, steps: Collection[str], owner: str) -> bool:
        """Takes names for steps that are to come into this scope; False where one of them has another owner already."""
        if self._steps is None:
            self._steps = {step: "" for node in self.nodes if (step := getattr(node, "step", ""))}
        if any(self._steps.get(step, owner) != owner for step in steps):
            return False
        self._steps.update(dict.fromkeys(steps, owner))
        return True

    def outputs(self, node: Node) -> list[Project]:
        """What is read of the names that a branch or loop sets."""
        return [reader for reader in self.readers.get(node.id, ()) if isinstance(reader, Project)]

    def has_one_reader(self, node: Node) -> bool:
        """Whether one node alone reads a value, and nothing outside the scope does."""
        return len(self.readers.get(node.id, ())) == 1 and all(root.id != node.id for root in self.roots)

    def cut(self, render: Node) -> frozenset[int]:
        """Which inputs of a template a step may shorten (`on_overflow`): they must stay inputs of it, as they are."""
        readers = (node for node in self.readers.get(render.id, ()) if isinstance(node, Generate))
        subjects = {node.on_overflow.value.id for node in readers if node.on_overflow is not None}
        return frozenset(place for place, read in enumerate(render.inputs) if read.id in subjects)

    def ambient(self, node: Node) -> int:
        """The events after which it does not matter to any reader what a value is, nor whether it is there."""
        if self._ambient is None:
            self._ambient = self._found_ambient()
        return self._ambient.get(node.id, 0)

    def _found_ambient(self) -> dict[str, int]:
        found = {root.id: 0 for root in self.roots}
        for node in reversed(self.nodes):
            own = found.get(node.id, 0) if isinstance(node, Apply | Render) else 0
            for read, events in _tolerated(node, own, self.fates):
                found[read.id] = found.get(read.id, _ALWAYS) & events
        return found

    def comes_to_light(self, hidden: Node, shown: Node) -> bool:
        """Whether wherever the failure of `hidden` can come to light, that of `shown` does so for certain."""
        if self._cones is None:
            self._cones = self._found_cones()
        strict, loose = self._cones
        return not loose.get(hidden.id, 0) & ~strict.get(shown.id, 0)

    def _found_cones(self) -> tuple[dict[str, int], dict[str, int]]:
        """For each node the roots, as bits, that fail with it for certain, and those that might."""
        strict: dict[str, int] = {}
        loose: dict[str, int] = {}
        for number, root in enumerate(self.observed()):
            for node in root:
                strict[node.id] = strict.get(node.id, 0) | 1 << number
        for node in reversed(self.nodes):
            certain = strict.get(node.id, 0)
            for read in certainly_read(node):
                strict[read.id] = strict.get(read.id, 0) | certain
            anyhow = loose.setdefault(node.id, 0) | certain
            loose[node.id] = anyhow
            for read in node.inputs:
                loose[read.id] = loose.get(read.id, 0) | anyhow
        return strict, loose

    def observed(self) -> list[tuple[Node, ...]]:
        """What is looked at from outside, together: of those in one tuple any failure comes to light."""
        acting = tuple(node for node in self.nodes if acts(node))
        if self.holder is None:
            return [(*self.roots, *acting)]
        if isinstance(self.holder, Map):
            body = self.holder.body
            also = [(value,) for name, value in body.results if not readable(name)]
            return [(body.result("yield"), *acting), *also]
        return [(root,) for root in (*self.roots, *acting) if not isinstance(root, Parameters)]


def acts(node: Node) -> bool:
    """Whether a node acts on the world, or is an output of a branch or loop that does: its failure is the row's."""
    holder = node.source if isinstance(node, Project) else node
    return isinstance(holder, Agent | Invoke | Map | Choose | Repeat) and traits(holder).effects not in ("pure", "read")


def certainly_read(node: Node) -> Sequence[Node]:
    """What a node fails with for certain: not what its sub-plans may or may not read."""
    match node:
        case Map(rows=rows, over=over):
            return (rows, over)
        case Choose(rows=rows, condition=condition):
            return (rows, condition)
        case Repeat(rows=rows):
            return (rows,)
        case Sink(rows=rows, columns=columns):
            return (rows, *(value for _, value in columns))
    return node.inputs


def _tolerated(node: Node, own: int, fates: Fates) -> list[tuple[Node, int]]:
    """What a node reads, each with the events after which the node does not look at it."""
    match node:
        case Apply(args=args) | Render(args=args):
            return [(arg, own) for arg in args]
        case Generate() | Invoke():
            return [(read, fates.control(node.rows)) for read in node.inputs]
        case Map(rows=rows, over=over):
            return [*((read, 0) for read in node.inputs if read != over), (over, fates.control(rows))]
        case Choose(rows=rows, condition=condition):
            others = ((read, 0) for read in node.captures)
            return [*others, (condition, fates.control(rows))]
        case Filter(rows=rows, condition=condition):
            return [(condition, fates.control(rows))]
        case Unnest(rows=rows, value=value):
            return [(value, fates.control(rows))]
        case Sort(rows=rows, keys=keys):
            return [(value, fates.control(rows)) for value, _ in keys]
        case GroupReduce(rows=rows, keys=keys, columns=columns):
            return [
                *((value, 0) for _, value in keys),
                *((value, fates.control(rows)) for _, value in columns),
            ]
    return [(read, 0) for read in node.inputs]


class _Latest(threading.local):
    """The plan that was asked for last, with its scope."""

    sink: Node | None = None
    scope: Scope | None = None


_LATEST = _Latest()


def scope_of(plan: LogicalPlan) -> Scope:
    """The scope of a plan. The rules look at one plan after the other: what one of them found out serves the next."""
    if _LATEST.scope is None or _LATEST.sink is not plan.sink:
        _LATEST.sink, _LATEST.scope = plan.sink, Scope((plan.sink,))
    # What one rule has claimed is free for the next: its plan may not have been taken.
    _LATEST.scope._steps = None
    return _LATEST.scope


def _every(body: Body) -> Iterator[Node]:
    for node in body_nodes(body):
        yield node
        for _, held in bodies(node):
            yield from _every(held)


# --- changing scope by scope --------------------------------------------------------------------------------------


def rewrite_scopes(plan: LogicalPlan, change: Change, *kinds: type[Node]) -> LogicalPlan:
    """The plan with `change(scope, old, new)` applied to each node, inputs first and sub-plans before their holder.

    `old` is the node as it stands in the plan, which the scope knows, `new` the same node over its changed inputs. A
    step that acts on the world stays, also where the change has left nobody who reads it. The same plan comes back
    where nothing changed. `kinds` are those without which there is nothing to change.
    """
    scope = scope_of(plan)
    if kinds and not scope.holds(*kinds):
        return plan
    done = rewritten(scope, change)
    sink = done.get(plan.sink.id, plan.sink)
    assert isinstance(sink, Sink)
    sink = settled(scope, sink, done)
    return plan if sink is plan.sink else replace(plan, sink=sink)


def rewritten(scope: Scope, change: Change) -> dict[str, Node]:
    """The new node for each node of a scope that is another now."""
    done: dict[str, Node] = {}
    for node in scope.nodes:
        fresh = with_inputs(node, done)
        changed: dict[str, Any] = {}
        for part, body in bodies(node):
            inside = scope.inside(node, part, body)
            made = body_of(body, rewritten(inside, change), inside)
            # Before two of one name become one object further out, where nobody could tell.
            changed[part] = body if made is not body and is_blurred(scope.inside(node, part, made)) else made
        if any(changed[part] is not body for part, body in bodies(node)):
            fresh = replace(fresh, **matched(changed))
        if not isinstance(node, Parameters):
            fresh = change(scope, node, fresh)
        if fresh is not node:
            done[node.id] = fresh
    return done


def body_of(body: Body, done: Mapping[str, Node], scope: Scope | None = None, keep: Collection[str] = ()) -> Body:
    """A sub-plan with the new versions of its results; the same one where they are the same.

    With `scope` what acts in it stays. With `keep` only the results of these names do, and what acts.
    """
    results: list[tuple[str, Value]] = []
    for name, value in body.results:
        new = done.get(value.id, value)
        assert isinstance(new, Value)
        if not keep or name in keep:
            results.append((name, new))
    if scope is not None:
        lost = _lost(scope, [value for _, value in results], done)
        named = {done.get(value.id, value).id: name for name, value in body.results}
        taken = {name for name, _ in body.results}
        for value in lost:
            name = named.get(value.id) or next(free for n in count() if (free := f"also?{n}") not in taken)
            taken.add(name)
            results.append((name, value))
        order = {name: place for place, (name, _) in enumerate(body.results)}
        results.sort(key=lambda result: order.get(result[0], len(order)))
    if len(results) == len(body.results) and all(
        new is old[1] and name == old[0] for (name, new), old in zip(results, body.results, strict=True)
    ):
        return body
    return Body(parameters=body.parameters, results=tuple(results))


def matched(changed: dict[str, Body]) -> dict[str, Any]:
    """The two arms of a branch with the same names in the same order: null where one arm has nothing to give."""
    if len(changed) < 2:
        return dict(changed)
    names = list(dict.fromkeys(name for body in changed.values() for name, _ in body.results))
    found: dict[str, Any] = {}
    for part, body in changed.items():
        own = dict(body.results)
        if list(own) != names:
            given = tuple((name, own.get(name) or Const(type=NULL, json="null")) for name in names)
            body = Body(parameters=body.parameters, results=given)
        found[part] = body
    return found


def settled(scope: Scope, sink: Sink, done: Mapping[str, Node]) -> Sink:
    """The sink of the outermost scope, which also runs what acts and would be lost.

    A column that was no column of the input does not become one: those alone show what was given of a failed row.
    """
    old = scope.roots[0]
    assert isinstance(old, Sink)
    columns: list[tuple[str, Value]] = []
    for (name, value), (_, before) in zip(sink.columns, old.columns, strict=True):
        if _is_input(value) and not _is_input(before):
            value = Apply(type=value.type, expr=Arg(index=0), args=(value,), label=before.label, span=before.span)
        columns.append((name, value))
    lost = _lost(scope, [sink], done)
    if lost or any(new is not value for (_, new), (_, value) in zip(columns, sink.columns, strict=True)):
        return replace(sink, columns=tuple(columns), also=(*sink.also, *lost))
    return sink


def _is_input(value: Value) -> bool:
    return isinstance(value, Project) and isinstance(value.source, Scan)


def _lost(scope: Scope, roots: Sequence[Node], done: Mapping[str, Node]) -> list[Value]:
    """The new versions of what acts in a scope that no new root reads any more, without those that another reads."""
    acting = [done.get(node.id, node) for node in scope.nodes if acts(node)]
    found: list[Value] = []
    if acting:
        reached: set[str] = set()
        for root in roots:
            reached.update(node.id for node in topological(root))
        for node in reversed(acting):
            if node.id not in reached and isinstance(node, Value):
                found.append(node)
                reached.update(each.id for each in topological(node))
    return found[::-1]


# --- names of failures --------------------------------------------------------------------------------------------


def blurred(plan: LogicalPlan) -> bool:
    """Whether values of two names have become one that can fail: one of their errors would have the wrong name."""
    return is_blurred(scope_of(plan))


def is_blurred(scope: Scope) -> bool:
    """The same of one scope and those inside it."""
    labels: dict[str, str] = {}
    seen: set[int] = set()
    stack: list[Node] = list(scope.roots)
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        stack.extend(node.inputs)
        if not isinstance(node, Apply | Render):
            continue
        known = labels.setdefault(node.id, node.label)
        if known != node.label and scope.fates.may_begin_in(node):
            return True
    return any(is_blurred(scope.inside(node, part, body)) for node in scope.nodes for part, body in bodies(node))
