"""The rule `unroll_constant_maps`."""

from __future__ import annotations

import json
from collections.abc import Callable

from helix.canonical import constant_text
from helix.expr import Arg, Expr, ListExpr, transform, walk
from helix.logical import Apply, Const, LogicalPlan, Map, Node, Value, body_nodes, topological
from helix.optimizer.fallible import Fates
from helix.optimizer.lifting import given
from helix.optimizer.rewrite import instantiate, typed_as, with_inputs
from helix.optimizer.rule import RuleContext, rule
from helix.optimizer.safety import safe_type
from helix.optimizer.scopes import Scope, rewrite_scopes
from helix.places import PIN, label_of
from helix.traits import traits
from helix.types import Type

MOST_ITEMS = 64
MOST_NODES = 4000


@rule()
def unroll_constant_maps(plan: LogicalPlan, context: RuleContext) -> LogicalPlan:
    """for x in [a, b] { f(x) } = [f(a), f(b)].

    Sound: the list has a known number of items, at most 64, and is there wherever the row is, so each copy runs where
    its item would have. Copies keep the names of their items (`opinions[1].view`), so errors do too. Loops that act on
    the world stay.
    Pays: each copy's prompt shows its constant text; steps of several copies can be equal; an item that is read alone
    does not wait for the others.

    >>> show('''
    ... workflow demo(text: text)
    ... views = for role in ["lawyer", "engineer"] {
    ...   view = llm { system "You are a {{ role }}." user "{{ text }}" }
    ...   yield view
    ... }
    ... output views
    ... ''', unroll_constant_maps)
    Sink views=[views[0].view, views[1].view]
      Generate views[1].view
        system "You are a {"engineer"}."
        user "{text}"
      Generate views[0].view
        system "You are a {"lawyer"}."
        user "{text}"
      Scan text: text
    """
    return rewrite_scopes(plan, _unroll, Map)


def _unroll(scope: Scope, old: Node, node: Node) -> Node:
    if not isinstance(node, Map) or traits(node).effects not in ("pure", "read"):
        return node
    items = _items(scope, node)
    if not items or len(items) * len(body_nodes(node.body)) > MOST_NODES:
        return node
    inner = scope.inside(node, "body", node.body)
    captured, variable = given(node, node.body), node.body.parameters.columns[0][0]
    result = node.body.result("yield")
    copies: list[Value] = []
    for place, item in enumerate(items):
        known = captured | {variable: item}
        rename = naming(node.step, place)
        copies.append(instantiate(node.body, known, node.rows, rename, (result,))[result.id])
    hidden = any(inner.fates.may_begin_in(each) and not inner.comes_to_light(each, each) for each in inner.nodes)
    if hidden and _share_names(copies, scope.fates):
        return node
    copies = _unified(copies)
    args = tuple(dict.fromkeys(copies))
    expr = ListExpr(items=tuple(Arg(index=args.index(copy)) for copy in copies), span=node.span)
    made = Apply(type=node.type, expr=expr, args=args, label=node.step, span=node.span)
    fates = scope.fates
    # A row that has failed before makes the loop fail: the list of copies must fail then too.
    before = fates.control(node.rows) | fates.of(node.over)
    return node if before & ~(fates.of(made) | scope.ambient(old)) else made


def _items(scope: Scope, node: Map) -> list[Value]:
    """The items of a list of known length that is there wherever the row is; none where it is no such list."""
    kind = node.body.parameters.columns[0][1]
    if isinstance(node.over, Const):
        listed = json.loads(node.over.json)
        if not isinstance(listed, list) or len(listed) > MOST_ITEMS:
            return []
        return [Const(type=kind, json=constant_text(item), span=node.over.span) for item in listed]
    over = node.over
    if not isinstance(over, Apply) or not isinstance(over.expr, ListExpr) or len(over.expr.items) > MOST_ITEMS:
        return []
    fates = scope.fates
    if fates.of(over) & ~fates.control(node.rows) or safe_type(over.expr, fates.kinds(over.args)) is None:
        return []
    return [_item(over, item, kind) for item in over.expr.items]


def _item(over: Apply, expr: Expr, kind: Type) -> Value:
    if isinstance(expr, Arg):
        return typed_as(over.args[expr.index], kind)
    args = tuple(dict.fromkeys(over.args[part.index] for part in walk(expr) if isinstance(part, Arg)))

    def leaf(part: Expr) -> Expr:
        return Arg(index=args.index(over.args[part.index]), span=part.span) if isinstance(part, Arg) else part

    return Apply(type=kind, expr=transform(expr, leaf), args=args, span=expr.span)


def naming(step: str, place: int) -> Callable[[str], str]:
    """The names of one item: `opinions.view` becomes `opinions[1].view`."""

    def rename(name: str) -> str:
        pin, bare = (PIN, name[len(PIN) :]) if name.startswith(PIN) else ("", name)
        if bare == step or bare.startswith(f"{step}."):
            return f"{pin}{step}[{place}]{bare[len(step) :]}"
        return name

    return rename


def _share_names(copies: list[Value], fates: Fates) -> bool:
    """Whether two copies have an expression in common that may fail, under different names."""
    labels: dict[str, str] = {}
    for copy in copies:
        for node in topological(copy):
            if fates.may_begin_in(node) and labels.setdefault(node.id, label_of(node)) != label_of(node):
                return True
    return False


def _unified(copies: list[Value]) -> list[Value]:
    """The copies with one object, and one name, for what they have in common: the first item's."""
    done: dict[str, Node] = {}
    unified: list[Value] = []
    for copy in copies:
        for node in topological(copy):
            if node.id not in done:
                done[node.id] = with_inputs(node, done)
        new = done[copy.id]
        assert isinstance(new, Value)
        unified.append(new)
    return unified
