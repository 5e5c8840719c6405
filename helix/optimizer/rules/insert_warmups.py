"""The rule `insert_warmups`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from helix.logical import (
    Generate,
    Invoke,
    Limit,
    LogicalPlan,
    Map,
    Node,
    Project,
    Unnest,
    bodies,
    body_nodes,
    every_node,
    spine,
    topological,
)
from helix.optimizer.rewrite import rewrite
from helix.optimizer.rule import RuleContext, rule
from helix.optimizer.tokens import estimated_tokens
from helix.prefixes import static_prefix

# The shortest beginning, in tokens, that is worth waiting a call for.
SHORTEST = 256
# As many characters of two beginnings are compared: those that agree in them share as many tokens, about.
COMPARED = 4 * SHORTEST


@rule()
def insert_warmups(plan: LogicalPlan, context: RuleContext) -> LogicalPlan:
    """Calls that begin alike: first one of them, then all others.

    Sound: the same calls with the same prompts; only when they are released changes. Once one has ended well no call
    waits any more; where three have failed, neither. Not where a limit cuts rows off: which calls are made in vain
    before it is reached depends on their order.
    Pays: with a cold cache the common beginning, at least 256 tokens by an estimate, is computed once and not once for
    each call in flight. Steps whose prompts begin alike wait for one another too.

    >>> show('''
    ... workflow demo(text: text)
    ... reply = llm { system "%s" user "{{ text }}" }
    ... output reply
    ... ''' % ("Mind this rule. " * 80), insert_warmups)  # doctest: +ELLIPSIS
    Sink reply
      Generate reply lead=on
        system "Mind this rule. Mind this rule. ..."
        user "{text}"
      Scan text: text
    """
    if all(node.lead or _is_short(node) for node in every_node(plan.sink) if isinstance(node, Generate)):
        return plan
    rows = spine(plan.sink.rows)
    if any(isinstance(each, Limit) for each in rows):
        return plan
    many = context.stats is None or context.stats.rows > 1 or any(isinstance(each, Unnest) for each in rows)
    steps = tuple(_steps(topological(plan.sink), many))
    alike = Counter(step.alike for step in steps)
    leading = {step.key for step in steps if step.is_long and (step.many or alike[step.alike] > 1)}

    def change(node: Node) -> Node:
        if isinstance(node, Generate) and not node.lead and (node.step, static_prefix(node)) in leading:
            return replace(node, lead=True)
        return node

    return rewrite(plan, change) if leading else plan


def _is_short(step: Generate) -> bool:
    return estimated_tokens(static_prefix(step)) < SHORTEST


@dataclass(frozen=True, slots=True)
class _Step:
    """A step, what its prompts begin with, and whether it makes several calls."""

    node: Generate
    prefix: str
    many: bool

    @property
    def is_long(self) -> bool:
        """Whether the beginning is worth waiting for."""
        return estimated_tokens(self.prefix) >= SHORTEST

    @property
    def key(self) -> tuple[str, str]:
        """What tells the step from others: it stays when steps that it reads are changed."""
        return self.node.step, self.prefix

    @property
    def alike(self) -> tuple[str | None, str | None, str]:
        """What steps have in common that share a cached beginning."""
        return self.node.model.engine, self.node.model.name, self.prefix[:COMPARED]


def _steps(nodes: Iterable[Node], many: bool) -> Iterator[_Step]:
    """The llm steps among nodes and inside their sub-plans. `many`: they run several times."""
    for node in nodes:
        if isinstance(node, Generate):
            yield _Step(node, static_prefix(node), _calls_many(node, many))
        for _, body in bodies(node):
            yield from _steps(body_nodes(body), many or isinstance(node, Map))


def _calls_many(node: Generate, many: bool) -> bool:
    """Whether a step makes several calls: with a prompt that no row changes, equal ones are one."""
    contents = [content for part in node.prompt for content in part.content]
    varies = any(isinstance(read, Project | Generate | Invoke | Map) for each in contents for read in topological(each))
    return node.sample > 1 or (many and (varies or not (node.deterministic and node.cache)))
