"""The rule `insert_warmups`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

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
    spine,
)
from helix.optimizer.rewrite import marked
from helix.optimizer.rule import RuleContext, rule
from helix.optimizer.scopes import scope_of
from helix.optimizer.tokens import estimated_tokens
from helix.prefixes import static_prefix

# The shortest beginning, in tokens, that is worth waiting a call for.
SHORTEST = 256
# As many characters of two beginnings are compared: those that agree in them share as many tokens, about.
COMPARED = 4 * SHORTEST


@rule(marks=True)
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
    rows = spine(plan.sink.rows)
    if any(isinstance(each, Limit) for each in rows):
        return plan
    many = context.stats is None or context.stats.rows > 1 or any(isinstance(each, Unnest) for each in rows)
    steps = tuple(_steps(scope_of(plan).nodes, many, set()))
    others = [step for step in steps if not step.node.lead]
    if not others:
        return plan
    alike = Counter(step.alike for step in steps)
    several = [step for step in others if step.many or alike[step.alike] > 1]
    long = {prefix for prefix in {step.prefix for step in several} if estimated_tokens(prefix) >= SHORTEST}
    leading = {step.node.id for step in several if step.prefix in long}
    return marked(plan, lambda node: {"lead": True} if node.id in leading else {}) if leading else plan


@dataclass(frozen=True, slots=True)
class _Step:
    """A step, what its prompts begin with, and whether it makes several calls."""

    node: Generate
    prefix: str
    many: bool

    @property
    def alike(self) -> tuple[str | None, str | None, str]:
        """What steps have in common that share a cached beginning."""
        return self.node.model.engine, self.node.model.name, self.prefix[:COMPARED]


def _steps(nodes: Iterable[Node], many: bool, varying: set[str]) -> Iterator[_Step]:
    """The llm steps among nodes, inputs first, and inside their sub-plans. `many`: they run several times.

    `varying` takes up the nodes whose values differ from row to row, or may.
    """
    for node in nodes:
        if isinstance(node, Project | Generate | Invoke | Map) or any(read.id in varying for read in node.inputs):
            varying.add(node.id)
        if isinstance(node, Generate):
            yield _Step(node, static_prefix(node), _calls_many(node, many, varying))
        for _, body in bodies(node):
            yield from _steps(body_nodes(body), many or isinstance(node, Map), varying)


def _calls_many(node: Generate, many: bool, varying: Collection[str]) -> bool:
    """Whether a step makes several calls: with a prompt that no row changes, equal ones are one."""
    varies = any(content.id in varying for part in node.prompt for content in part.content)
    return node.sample > 1 or (many and (varies or not (node.deterministic and node.cache)))
