"""The rule `push_down_limits`."""

from __future__ import annotations

from dataclasses import replace

from helix.logical import Limit, LogicalPlan, Node
from helix.optimizer.rule import RuleContext, rule
from helix.optimizer.scopes import Scope, rewrite_scopes, scope_of
from helix.optimizer.table import Chain


@rule()
def push_down_limits(plan: LogicalPlan, context: RuleContext) -> LogicalPlan:
    """Steps that a limit does not need run after it; a limit of a limit is the smaller of the two.

    Sound: a step moves above a limit, and above sorts and filters between, where it is not made anyway for the rows
    that fail there. Filters stay on their side, since which rows a limit takes depends on them. Steps that sample or
    act stay.
    Pays: calls are made for the rows alone that are in the result.

    >>> show('''
    ... workflow demo(text: text, score: int)
    ... gist = llm { user "Sum up: {{ text }}" }
    ... sort by score desc
    ... limit 10
    ... limit 20
    ... output gist
    ... ''', push_down_limits)
    Sink gist
      Generate gist
        user "Sum up: {text}"
      Limit 10
        Sort by score desc
          Scan text: text, score: int
    """
    return Chain(_merged(plan)).lifted(Limit) if scope_of(plan).holds(Limit) else plan


def _merged(plan: LogicalPlan) -> LogicalPlan:
    return rewrite_scopes(plan, _merge)


def _merge(scope: Scope, old: Node, node: Node) -> Node:
    if not isinstance(node, Limit) or not isinstance(node.rows, Limit):
        return node
    assert isinstance(old, Limit)
    if scope.fates.control(old) != scope.fates.control(old.rows):
        # A row that has failed in a step with effects counts as failed from the next limit on.
        return node
    if node.count >= node.rows.count:
        return node.rows
    if node.rows.id != old.rows.id or len(scope.readers[old.rows.id]) > 1:
        # A step runs over more rows than are left in the end, and has not moved: it stays where it is.
        return node
    return replace(node, rows=node.rows.rows)
