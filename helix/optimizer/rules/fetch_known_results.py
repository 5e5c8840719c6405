"""The rule `fetch_known_results`."""

from __future__ import annotations

from helix.errors import OutputError
from helix.logical import Agent, Fetch, Generate, LogicalPlan, Node
from helix.optimizer.rewrite import rewrite
from helix.optimizer.rule import KnownResults, RuleContext, rule
from helix.prefixes import literal_messages
from helix.replies import parse_reply


@rule()
def fetch_known_results(plan: LogicalPlan, context: RuleContext) -> LogicalPlan:
    """x = f(constants) is the result that the store has of it.

    Sound: only a deterministic step without `cache off` and with one sample, whose prompt is literal text, and only a
    reply that the step would accept. The value is there for the rows that the step runs over, and for no others.
    Pays: no call is made for it, and what reads it can be planned for.

    >>> show('''
    ... workflow demo(text: text)
    ... plan = llm { user "How should one judge a text?" }
    ... verdict = llm { user "{{ plan }} {{ text }}" }
    ... output verdict
    ... ''', fetch_known_results, context=knowing("By its clarity."))
    Sink verdict
      Generate verdict
        user "{plan} {text}"
      Fetch plan known "By its clarity."
      Scan text: text
    """
    known = context.known
    if known is None:
        return plan
    return rewrite(plan, lambda node: _fetched(node, known))


def _fetched(node: Node, known: KnownResults) -> Node:
    # What the store knows of an agent are its turns, not its answer.
    if (
        not isinstance(node, Generate)
        or isinstance(node, Agent)
        or not (node.deterministic and node.cache)
        or node.sample > 1
    ):
        return node
    if literal_messages(node) is None:
        return node
    text = known.reply(node)
    if text is None:
        return node
    try:
        parse_reply(text, node.returns, coerce=node.coerce)
    except OutputError:
        return node
    return Fetch(
        type=node.type,
        label=node.label,
        rows=node.rows,
        step=node.step,
        text=text,
        returns=node.returns,
        coerce=node.coerce,
        span=node.span,
    )
