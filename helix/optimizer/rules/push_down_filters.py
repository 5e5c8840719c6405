"""The rule `push_down_filters`."""

from __future__ import annotations

from helix.logical import Filter, LogicalPlan, Sort, Unnest
from helix.optimizer.rule import RuleContext, rule
from helix.optimizer.scopes import scope_of
from helix.optimizer.table import Chain, may_move
from helix.types import ListOf, Table, required


@rule()
def push_down_filters(plan: LogicalPlan, context: RuleContext) -> LogicalPlan:
    """Steps that a filter does not need run after it; the filter runs before rows are spread and sorted.

    Sound: only a filter whose condition cannot fail on a row that is all right so far moves, and only past filters,
    sorts and spreads that cannot fail either, never past a limit or a group. A step moves above a filter where it is
    not made anyway for the rows that the filter fails on; steps that sample or act stay. (A list of more than 100 000
    items, which cannot be spread, is filtered out with its row where the filter says so.)
    Pays: calls are made for the rows alone that are kept; fewer lists are spread and fewer rows sorted.

    >>> show('''
    ... workflow demo(text: text, lang: text)
    ... gist = llm { user "Sum up: {{ text }}" }
    ... sort by text
    ... keep when lang == "th"
    ... output gist
    ... ''', push_down_filters)
    Sink gist
      Sort by text
        Generate gist
          user "Sum up: {text}"
        Filter when lang == "th"
          Scan text: text, lang: text
    """
    if not scope_of(plan).holds(Filter):
        return plan
    moved = _moved(plan)
    return Chain(moved).lifted(Filter)


def _moved(plan: LogicalPlan) -> LogicalPlan:
    """The plan with its filters as far down as they can come."""
    chain = Chain(plan)
    order = list(range(len(chain.relations)))
    for level, relation in enumerate(chain.relations):
        if isinstance(relation, Filter) and chain.fates.passes(relation):
            _sink(chain, order, level, relation)
    return plan if order == sorted(order) else chain.reordered(order)


def _sink(chain: Chain, order: list[int], level: int, relation: Filter) -> None:
    """Moves a filter in the order as far down as it can come: right below the lowest sort or spread it can pass."""
    needs = chain.level(relation.condition)
    place = target = order.index(level)
    while place > 0 and order[place - 1] > needs and _passable(chain, order[place - 1], relation):
        place -= 1
        if not isinstance(chain.relations[order[place]], Filter):
            target = place
    order.remove(level)
    order.insert(target, level)


def _passable(chain: Chain, level: int, relation: Filter) -> bool:
    """Whether a filter may come below another relation: neither fails a row, and what runs over that one may move."""
    fates, below = chain.fates, chain.relations[level]
    if not all(may_move(node) for node in chain.runners(level)):
        return False
    match below:
        case Filter():
            return fates.passes(below)
        case Sort(rows=rows):
            before = fates.control(rows)
            return not (fates.control(below) | fates.of(relation.condition)) & ~before
        case Unnest(rows=rows, value=value):
            before = fates.control(rows)
            listed = isinstance(required(value.type), ListOf | Table) and fates.typed(value)
            return listed and not (fates.of(value) | fates.of(relation.condition)) & ~before
    return False
