"""The rule `fold_constants`."""

from __future__ import annotations

import json
from dataclasses import replace

from helix.canonical import constant_text
from helix.errors import HelixError
from helix.evaluate import evaluator
from helix.expr import Arg, Binary, Call, Expr, Literal, Unary, literal, transform, walk
from helix.functions import FUNCTIONS, to_text
from helix.logical import Apply, Choose, Const, Filter, LogicalPlan, Map, Node, Project, Render, Value
from helix.optimizer.lifting import given, put_in_place
from helix.optimizer.rule import RuleContext, rule
from helix.optimizer.scopes import Scope, rewrite_scopes
from helix.templates.template import Block, Segment, Slot, Template, Text, map_template, template
from helix.traits import traits
from helix.types import mismatch


@rule()
def fold_constants(plan: LogicalPlan, context: RuleContext) -> LogicalPlan:
    """f(constants) = constant; if true then a else b = a.

    Sound: only pure expressions without declared functions are computed, and only where they have a value. A branch
    whose condition is constant is replaced by the arm that every row takes, unless that arm acts on the world, or a row
    that has failed before would get a value in its column.
    Pays: prompts show their constant text, so that prefixes are seen; branches that never run are not planned.

    >>> show('''
    ... workflow demo(text: text)
    ... let tone = "kind"
    ... reply = llm { system "Be {{ upper(tone) }}." user "{{ text }}" }
    ... output reply
    ... ''', fold_constants)
    Sink reply
      Generate reply
        system "Be KIND."
        user "{text}"
      Scan text: text
    """
    return rewrite_scopes(plan, _fold, Apply, Const)


def _fold(scope: Scope, old: Node, node: Node) -> Node:
    match node:
        case Apply():
            return _folded_apply(scope, old, node)
        case Render(args=args) if any(isinstance(arg, Const) for arg in args):
            return _folded_render(node, scope.cut(old))
        case Filter(rows=rows, condition=Const(json=text)) if json.loads(text):
            return rows
        case Map(over=Const(json="[]" | "null" as text)):
            # The body never runs, so that the loop fails with its row and never by itself.
            failed = scope.fates.control(node.rows) & ~scope.ambient(old)
            return node if failed else Const(type=node.type, json=text, span=node.span)
        case Project(source=Choose() as choose) if isinstance(choose.condition, Const):
            assert isinstance(old, Project)
            return _taken(scope, old, node, choose, choose.condition)
    return node


def _if_exact(scope: Scope, old: Node, node: Value, new: Value) -> Value:
    """The new value where it fails on the same rows as the one before, as far as anybody can tell."""
    fates = scope.fates
    return node if (fates.of(node) ^ fates.of(new)) & ~scope.ambient(old) else new


def _folded_apply(scope: Scope, old: Node, node: Apply) -> Value:
    """The expression with its constant inputs put in; a constant where nothing else is left."""
    expr, args = node.expr, node.args
    if any(isinstance(arg, Const) for arg in args):
        expr, args = _inlined(expr, args)
    simple = _simplified(expr)
    if simple is not expr:
        made = _if_exact(scope, old, node, _over(node, simple, args))
        if made is not node:
            assert isinstance(made, Apply)
            expr, args = made.expr, made.args
    if args or not _computable(expr):
        return node if expr is node.expr else replace(node, expr=expr, args=args)
    try:
        value = evaluator(expr)(())
        if mismatch(value, node.type) is not None:
            return node
        return Const(type=node.type, json=constant_text(value), span=node.span)
    except (HelixError, TypeError, ValueError):
        # It fails for every row; it is left to fail where the row's error says so.
        return node


def _over(node: Apply, expr: Expr, args: tuple[Value, ...]) -> Apply:
    """The node with another expression, over those inputs alone that it reads."""
    kept = list(dict.fromkeys(args[part.index] for part in walk(expr) if isinstance(part, Arg)))

    def leaf(part: Expr) -> Expr:
        return Arg(index=kept.index(args[part.index]), span=part.span) if isinstance(part, Arg) else part

    return replace(node, expr=transform(expr, leaf), args=tuple(kept))


def _simplified(expr: Expr) -> Expr:
    """The expression without constant sides of `and` and `or`: `true and x` is x, `false and x` is false."""
    while isinstance(expr, Binary) and expr.op in ("and", "or"):
        left, right = _simplified(expr.left), _simplified(expr.right)
        if isinstance(left, Literal):
            expr = right if bool(left.value) == (expr.op == "and") else left
        elif isinstance(right, Literal) and right.value is (expr.op == "and") and _gives_bool(left):
            expr = left
        else:
            return expr if left is expr.left and right is expr.right else replace(expr, left=left, right=right)
    return expr


def _gives_bool(expr: Expr) -> bool:
    """Whether an expression gives true or false, where it gives anything."""
    match expr:
        case Binary(op="and" | "or", left=left, right=right):
            return _gives_bool(left) and _gives_bool(right)
        case Binary(op=op):
            return op not in ("+", "-", "*", "/")
        case Literal(value=value):
            return isinstance(value, bool)
    return isinstance(expr, Unary) and expr.op == "not"


def _folded_render(node: Render, cut: frozenset[int]) -> Render:
    """The template with its constant slots turned into text, but for those that a step may cut."""
    kept: list[Value] = []
    holding = {
        id(arg)
        for segment in node.template.segments
        if isinstance(segment, Block)
        for value in segment.inputs
        for arg in walk(value)
    }

    def leaf(part: Expr) -> Expr:
        if not isinstance(part, Arg):
            return part
        arg = node.args[part.index]
        if isinstance(arg, Const) and id(part) not in holding and part.index not in cut:
            return literal(json.loads(arg.json))
        if arg not in kept:
            kept.append(arg)
        return Arg(index=kept.index(arg), span=part.span)

    try:
        shown = _computed(map_template(node.template, leaf))
    except HelixError:
        # A slot fails for every row; it is left to fail where the row's error says so.
        return node
    if shown == node.template and tuple(kept) == node.args:
        return node
    return replace(node, template=shown, args=tuple(kept))


def _computed(subject: Template) -> Template:
    """The template with slots that no row changes turned into text. Raises HelixError where one has no value."""
    segments: list[Segment] = []
    for segment in subject.segments:
        if isinstance(segment, Slot) and _computable(segment.value) and not _reads(segment.value):
            segment = Text(text=to_text(evaluator(segment.value)(())))
        segments.append(segment)
    return template(*segments, span=subject.span)


def _reads(expr: Expr) -> bool:
    return any(isinstance(part, Arg) for part in walk(expr))


def _inlined(expr: Expr, args: tuple[Value, ...]) -> tuple[Expr, tuple[Value, ...]]:
    kept = [arg for arg in args if not isinstance(arg, Const)]

    def leaf(part: Expr) -> Expr:
        if not isinstance(part, Arg):
            return part
        arg = args[part.index]
        if isinstance(arg, Const):
            return literal(json.loads(arg.json))
        return Arg(index=kept.index(arg), span=part.span)

    return transform(expr, leaf), tuple(kept)


def _computable(expr: Expr) -> bool:
    """Whether an expression uses built-in functions only: a declared one may do anything."""
    return all(not isinstance(part, Call) or part.function in FUNCTIONS for part in walk(expr))


def _taken(scope: Scope, old: Project, node: Project, choose: Choose, condition: Const) -> Value:
    """The value of the arm that every row takes, put in place of the branch."""
    if traits(choose).effects not in ("pure", "read"):
        # Reading one output runs all of the arm.
        return node
    body = choose.then if json.loads(condition.json) else choose.otherwise
    return put_in_place(scope, old, node, given(choose, body), body, scope.fates.control(choose.rows))
