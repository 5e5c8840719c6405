"""The rule `inline_text`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from helix.expr import Arg, Expr, children, walk
from helix.logical import Apply, Choose, Generate, LogicalPlan, Map, Node, Render, Repeat, Value, bodies
from helix.optimizer.inlining import MOST_SEGMENTS, Inliner, TooLarge
from helix.optimizer.lifting import copied_in, given
from helix.optimizer.rewrite import trim, typed_as
from helix.optimizer.rule import RuleContext, rule
from helix.optimizer.scopes import Scope, rewrite_scopes
from helix.templates.template import template

# No expression grows beyond so many parts, nor deeper than this.
MOST_PARTS = 400
MOST_DEPTH = 50


@rule()
def inline_text(plan: LogicalPlan, context: RuleContext) -> LogicalPlan:
    """{{ a + b }} = {{ a }}{{ b }}, and f(g(x)) is one expression.

    Sound: only expressions that cannot fail are put into their readers, so each row's error begins where it did. An
    item of a list is taken out of it only where the other items fail with it. A prompt that a step may cut
    (`on_overflow`) stays as it is.
    Pays: texts that prompts share show as such, at their beginning above all; equal prompts that were put together in
    different ways become equal.

    >>> show('''
    ... workflow demo(text: text, tone: text)
    ... rules = "Be " + tone + ". "
    ... reply = llm { system "{{ rules + 'Answer.' }}" user "{{ [text, tone] | join(', ') }}" }
    ... output reply
    ... ''', inline_text)
    Sink reply
      Generate reply
        system "Be {tone}. Answer."
        user "{text}, {tone}"
      Scan text: text, tone: text
    """
    return rewrite_scopes(plan, _inline)


def _inline(scope: Scope, old: Node, node: Node) -> Node:
    try:
        if isinstance(node, Apply) and node.args:
            return _inlined_apply(scope, old, node)
        if isinstance(node, Render) and node.args and not _may_be_cut(scope, old):
            return _inlined_render(scope, old, node)
        if isinstance(node, Map | Choose | Repeat):
            return _texts_inside(scope, node)
    except TooLarge:
        pass
    return node


def _may_be_cut(scope: Scope, node: Node) -> bool:
    readers = scope.readers.get(node.id, ())
    return any(isinstance(reader, Generate) and reader.on_overflow is not None for reader in readers)


def _texts_inside(scope: Scope, node: Map | Choose | Repeat) -> Node:
    """The operator with texts put together in its sub-plans, where prompts can show them, instead of outside."""
    inner = Inliner(scope.fates, scope.has_one_reader, taking=False)
    captured = given(node, bodies(node)[0][1])
    texts = {name: value for name, value in captured.items() if isinstance(value, Apply) and inner.is_text(value)}
    return trim(copied_in(node, texts)) if texts else node


def _inlined_apply(scope: Scope, old: Node, node: Apply) -> Value:
    for taking in (True, False):
        inner = Inliner(scope.fates, _private(scope, old, node), taking=taking)
        expr = inner.expanded(node.expr, node.args)
        made = replace(node, expr=expr, args=tuple(inner.args))
        if made.id == node.id:
            break
        if _small(expr) and _same_fate(scope, old, node, made):
            return typed_as(made.args[expr.index], node.type) if isinstance(expr, Arg) else made
    return node


def _inlined_render(scope: Scope, old: Node, node: Render) -> Render:
    if not any(isinstance(arg, Apply | Render) for arg in node.args) and all(
        isinstance(expr, Arg) for expr in node.template.expressions
    ):
        # Nothing to put in, nor to take apart.
        return node
    for taking in (True, False):
        inner = Inliner(scope.fates, _private(scope, old, node), taking=taking)
        segments = inner.segments(node.template.segments, node.args)
        shown = template(*segments, span=node.template.span)
        if shown == node.template and tuple(inner.args) == node.args:
            break
        made = replace(node, template=shown, args=tuple(inner.args))
        if made.id == node.id or len(segments) > MOST_SEGMENTS:
            break
        if all(map(_small, made.template.expressions)) and _same_fate(scope, old, node, made):
            return made
    return node


def _private(scope: Scope, old: Node, node: Node) -> Callable[[Value], bool]:
    """Whether one node alone reads a value: asked of the value as it was before its own inputs changed."""
    before = {new.id: read for read, new in zip(old.inputs, node.inputs, strict=True)}
    return lambda value: scope.has_one_reader(before.get(value.id, value))


def _same_fate(scope: Scope, old: Node, node: Node, made: Node) -> bool:
    """Whether the new form fails with what the old one failed with, as far as anybody can tell."""
    fates = scope.fates
    return not (fates.of_inputs(node) ^ fates.of_inputs(made)) & ~scope.ambient(old)


def _small(expr: Expr) -> bool:
    return sum(1 for _ in walk(expr)) <= MOST_PARTS and _depth(expr) <= MOST_DEPTH


def _depth(expr: Expr) -> int:
    depth, level = 0, [expr]
    while level:
        depth += 1
        level = [part for each in level for part in children(each)]
    return depth
