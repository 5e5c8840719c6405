"""The rule `order_filters`."""

from __future__ import annotations

from math import inf

from helix.logical import Filter, LogicalPlan
from helix.optimizer.conditions import cost_of, kept_by, runs_of_filters
from helix.optimizer.rule import RuleContext, rule
from helix.optimizer.scopes import scope_of
from helix.optimizer.table import Chain


@rule()
def order_filters(plan: LogicalPlan, context: RuleContext) -> LogicalPlan:
    """Of filters side by side the one comes first that drops most rows for its cost.

    Sound: only filters whose conditions cannot fail, with no step between them; which rows pass all of them does not
    depend on their order.
    Pays: by cost / (1 - share kept), least first: fewer conditions are computed. The shares come from the table where
    it has been looked at.

    >>> show('''
    ... workflow demo(text: text, lang: text)
    ... keep when "refund" in lower(text)
    ... keep when lang == "th"
    ... output text
    ... ''', order_filters)
    Sink text
      Filter when "refund" in lower(text)
        Filter when lang == "th"
          Scan text: text, lang: text
    """
    if not scope_of(plan).holds(Filter):
        return plan
    chain = Chain(plan)
    order = list(range(len(chain.relations)))
    for run in runs_of_filters(chain):
        order[run[0] : run[-1] + 1] = sorted(run, key=lambda level: _rank(chain, level, context))
    return plan if order == sorted(order) else chain.reordered(order)


def _rank(chain: Chain, level: int, context: RuleContext) -> float:
    relation = chain.relations[level]
    assert isinstance(relation, Filter)
    dropped = 1.0 - kept_by(relation.condition, context)
    return cost_of(relation.condition) / dropped if dropped > 0 else inf
