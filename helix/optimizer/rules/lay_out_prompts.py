"""The rule `lay_out_prompts`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

from helix.canonical import canonical_text
from helix.expr import Expr
from helix.logical import (
    Apply,
    Body,
    Const,
    Generate,
    LogicalPlan,
    Node,
    Project,
    PromptPart,
    Render,
    Sink,
    Value,
    bodies,
    encode,
    every_node,
    topological,
)
from helix.optimizer.rewrite import with_inputs
from helix.optimizer.rule import RuleContext, TableStats, rule
from helix.optimizer.safety import safe_type
from helix.optimizer.variation import Deciders, Scope, distinct, text_pieces
from helix.places import PIN
from helix.templates.template import Block, Slot, Text

# As many parts are laid out by trying all orders; of more the best is put first, one after the other.
TRIED = 6


@rule(fewer_calls=False, fewer_tokens=False)
def lay_out_prompts(plan: LogicalPlan, context: RuleContext) -> LogicalPlan:
    """unordered { a, b } is unordered { b, a }.

    Sound: by the author's word alone. Only parts inside `unordered` move, and only among themselves: writing it says
    that their order does not matter. A model may word its reply otherwise all the same. Steps with the same parts are
    laid out alike; prompts of other steps that were equal by chance may no longer be, and then share no call.
    Pays: prompts begin alike for longer, so that less of each is computed anew: what no row changes comes first, then
    what few rows change, weighed by its tokens where the table has been looked at, else what has fewer holes.

    >>> show('''
    ... workflow demo(question: text, policy: text)
    ... reply = llm { user unordered { part "{{ question }}" part "Policy: {{ policy }}" part "Be brief." } }
    ... output reply
    ... ''', lay_out_prompts, context=seen(rows=100, question=(100, 20), policy=(2, 400)))
    Sink reply
      Generate reply
        user unordered
          part "Be brief."
          part "Policy: {policy}"
          part "{question}"
      Scan question: text, policy: text
    """
    steps = (node for node in every_node(plan.sink) if isinstance(node, Generate))
    if not any(part.unordered for step in steps for part in step.prompt):
        return plan
    sink = _Layout(context.stats).scope(Scope().add(topological(plan.sink)), (plan.sink,))[plan.sink.id]
    assert isinstance(sink, Sink)
    return plan if sink.id == plan.sink.id else replace(plan, sink=sink)


class _Layout:
    """Lays out the prompts of one plan. The same parts are laid out alike wherever they stand, so that equal prompts of
    several steps stay equal and share their calls.
    """

    def __init__(self, stats: TableStats | None) -> None:
        self._stats = stats
        self._decided: dict[tuple[str, ...], tuple[str, ...]] = {}

    def scope(self, scope: Scope, roots: Sequence[Node]) -> dict[str, Node]:
        """The new node for each node that the roots read."""
        done: dict[str, Node] = {}
        for root in roots:
            for node in topological(root):
                if node.id not in done:
                    done[node.id] = self._node(scope, node, with_inputs(node, done))
        return done

    def _node(self, scope: Scope, node: Node, fresh: Node) -> Node:
        changed: dict[str, Any] = {}
        for part, body in bodies(node):
            inner = self._body(scope.inside(node, body), body)
            if inner is not body:
                changed[part] = inner
        if isinstance(node, Generate) and isinstance(fresh, Generate):
            prompt = self._prompt(scope, node, fresh)
            if prompt != fresh.prompt:
                changed["prompt"] = prompt
        return replace(fresh, **changed) if changed else fresh

    def _body(self, scope: Scope, body: Body) -> Body:
        done = self.scope(scope, (body.parameters, *(value for _, value in body.results)))
        results: Any = tuple((name, done[value.id]) for name, value in body.results)
        if all(new is old for (_, new), (_, old) in zip(results, body.results, strict=True)):
            return body
        return Body(parameters=body.parameters, results=results)

    def _prompt(self, scope: Scope, old: Generate, new: Generate) -> tuple[PromptPart, ...]:
        """The prompt with its unordered parts laid out. `old` is the step as the scope knows it."""
        made: list[PromptPart] = []
        for number, (known, part) in enumerate(zip(old.prompt, new.prompt, strict=True)):
            if part.unordered and len(part.content) > 1 and not any(map(_may_begin_in, known.content)):
                names = [_name(content) for content in known.content]
                alike = tuple(sorted(names))
                if alike not in self._decided:
                    before = scope.of_all(content for each in old.prompt[:number] for content in each.content)
                    order = _order(scope, known.content, before, self._stats)
                    self._decided[alike] = tuple(names[place] for place in order)
                left = list(range(len(names)))
                content: list[Value] = []
                for name in self._decided[alike]:
                    place = next(place for place in left if names[place] == name)
                    left.remove(place)
                    content.append(part.content[place])
                part = replace(part, content=tuple(content))
            made.append(part)
        return tuple(made)


def _may_begin_in(content: Value) -> bool:
    """Whether a failure may begin in a part, not in a step that it reads. It is told by the name of the prompt's own
    step then, and so may another part's be: of two such the one that stands first is the row's error.
    """
    stack: list[Node] = [content]
    while stack:
        node = stack.pop()
        if not isinstance(node, Apply | Render):
            continue
        if node is not content and node.label and not node.label.startswith(PIN):
            continue
        kinds = [arg.type for arg in node.args]
        if isinstance(node, Apply):
            expressions: list[Expr] | None = [node.expr]
        elif any(isinstance(segment, Block) for segment in node.template.segments):
            expressions = None
        else:
            expressions = [segment.value for segment in node.template.segments if isinstance(segment, Slot)]
        if expressions is None or any(safe_type(each, kinds) is None for each in expressions):
            return True
        stack.extend(node.args)
    return False


def _name(content: Value) -> str:
    """What a part says, as the workflow writes it: two that say the same by the same names are alike."""
    if content.label and not content.label.startswith(PIN):
        return content.label
    match content:
        case Render(template=template, args=args):
            return canonical_text([encode(template), [_name(arg) for arg in args]])
        case Apply(expr=expr, args=args):
            return canonical_text([encode(expr), [_name(arg) for arg in args]])
        case Const(json=text):
            return text
        case Project(field=field):
            return field
    return str(getattr(content, "step", content.id))


def _order(scope: Scope, contents: Sequence[Value], before: Deciders, stats: TableStats | None) -> list[int]:
    """The places of the parts in their new order."""
    deciders = [scope.known[content.id] for content in contents]
    static = [place for place, found in enumerate(deciders) if found == frozenset()]
    others = [place for place in range(len(contents)) if place not in static]
    if stats is None:
        return static + sorted(others, key=lambda place: _holes(scope, contents[place]))
    tokens = [sum(piece.tokens for piece in text_pieces(scope, content, stats)) for content in contents]

    def cost(order: Iterable[int]) -> float:
        """The tokens that are computed anew over all rows: a part is, for each beginning that stands before it."""
        total, so_far = 0.0, before
        for place in order:
            so_far = _both(so_far, deciders[place])
            total += tokens[place] * (stats.rows if so_far is None else distinct(so_far, stats))
        return total

    if len(others) <= TRIED:
        # The first of equal orders is the author's own.
        return static + list(min(permutations(others), key=cost))
    chosen: list[int] = []
    while others:
        best = min(others, key=lambda place: (_lost(cost, chosen, place, others), place))
        chosen.append(best)
        others.remove(best)
    return static + chosen


def _lost(cost: Callable[[Iterable[int]], float], chosen: list[int], place: int, others: list[int]) -> float:
    """What it costs to put a part next, with the others after it as they stand."""
    return cost([*chosen, place, *(other for other in others if other != place)])


def _both(first: Deciders, second: Deciders) -> Deciders:
    return None if first is None or second is None else first | second


def _holes(scope: Scope, content: Value) -> int:
    """How many places of a text change from row to row."""
    if not isinstance(content, Render):
        return 1
    args = [arg for arg in content.args if scope.known[arg.id] != frozenset()]
    texts = sum(isinstance(segment, Text) for segment in content.template.segments)
    return max(len(args), len(content.template.segments) - texts) if args else 0
