"""The rule `fold_constants`."""

from __future__ import annotations

import json
from dataclasses import replace

from helix.canonical import canonical_text
from helix.errors import HelixError
from helix.evaluate import evaluator
from helix.expr import Arg, Call, Expr, literal, transform, walk
from helix.functions import FUNCTIONS, to_text
from helix.logical import Apply, Choose, Const, Filter, LogicalPlan, Map, Node, Project, Render, Value
from helix.optimizer.rewrite import instantiate, rewrite
from helix.optimizer.rule import RuleContext, rule
from helix.template import Block, Segment, Slot, Template, Text, map_template, template
from helix.types import mismatch


@rule()
def fold_constants(plan: LogicalPlan, context: RuleContext) -> LogicalPlan:
    """f(constants) = constant; if true then a else b = a.

    Sound: only pure expressions without declared functions are computed, and only where they have a value; a branch
    whose condition is constant is replaced by the arm that every row takes.
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
    return rewrite(plan, _fold)


def _fold(node: Node) -> Node:
    match node:
        case Apply(args=args):
            return _folded_apply(node) if any(isinstance(arg, Const) for arg in args) else node
        case Render(args=args) if any(isinstance(arg, Const) for arg in args):
            return _folded_render(node)
        case Filter(rows=rows, condition=Const(json=text)) if json.loads(text):
            return rows
        case Map(over=Const(json="[]")):
            return Const(type=node.type, json="[]", span=node.span)
        case Map(over=Const(json="null")):
            return Const(type=node.type, json="null", span=node.span)
        case Project(source=Choose() as choose) if isinstance(choose.condition, Const):
            return _taken(node, choose, choose.condition)
    return node


def _folded_apply(node: Apply) -> Value:
    """The expression with its constant inputs put in; a constant where nothing else is left."""
    expr, args = _inlined(node.expr, node.args)
    if args or not _computable(expr):
        return node if expr is node.expr else replace(node, expr=expr, args=args)
    try:
        value = evaluator(expr)(())
        if mismatch(value, node.type) is not None:
            return node
        return Const(type=node.type, json=canonical_text(value), span=node.span)
    except (HelixError, TypeError, ValueError):
        # It fails for every row; it is left to fail where the row's error says so.
        return node


def _folded_render(node: Render) -> Render:
    """The template with its constant slots turned into text."""
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
        if isinstance(arg, Const) and id(part) not in holding:
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


def _taken(node: Project, choose: Choose, condition: Const) -> Value:
    """The value of the arm that every row takes, put in place of the branch."""
    body = choose.then if json.loads(condition.json) else choose.otherwise
    names = [name for name, _ in body.parameters.columns]
    given = dict(zip(names, choose.captures, strict=True))
    value = instantiate(body, given, choose.rows)[node.field]
    if value.type == node.type:
        return value
    # The branch joined two types; whoever reads it was checked against the wider one.
    return Apply(type=node.type, expr=Arg(index=0), args=(value,), label=node.label, span=node.span)
