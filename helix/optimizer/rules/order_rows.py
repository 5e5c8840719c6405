"""The rule `order_rows`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from helix.logical import Filter, Generate, LogicalPlan, Scan, Sink, Unnest, every_node, spine
from helix.optimizer.rewrite import rewrite
from helix.optimizer.rule import RuleContext, TableStats, rule
from helix.optimizer.variation import Piece, Scope, closure, distinct, llm_steps, prompt_pieces
from helix.traits import traits

# The least share of prompt tokens that has to be won: the result is held back until the last row for it.
WORTH = 0.05


@rule(marks=True)
def order_rows(plan: LogicalPlan, context: RuleContext) -> LogicalPlan:
    """f(rows) is f(sorted rows), put back in their order.

    Sound: only where each row is worked on by itself up to the result (filters and spread lists, but no sort, limit or
    group), and where no tool acts on the world. The run groups the rows and writes the result in the table's order;
    with a budget or a limit of failures, which may leave rows undone, it keeps to the table's order from the start.
    Pays: prompts that begin alike follow one another, so that a cache of any size holds what they share. The columns
    are chosen one after the other, each time those that win the most tokens within the groups so far (greedy group
    recursion, arXiv 2403.05821); a column that another one decides needs no grouping of its own, and rows with the same
    list share what its items begin. Only with a look at the table, and only where a twentieth of the prompt tokens is
    won.

    >>> show('''
    ... workflow demo(question: text, policy: text)
    ... reply = llm { system "Answer by this policy: {{ policy }}" user "{{ question }}" }
    ... output reply
    ... ''', order_rows, context=seen(rows=1000, question=(1000, 20), policy=(12, 400)))
    Sink reply
      Generate reply
        system "Answer by this policy: {policy}"
        user "{question}"
      Scan question: text, policy: text grouped by policy
    """
    stats = context.stats
    if stats is None or stats.rows < 2 or plan.scan.order or not _is_free(plan.sink):
        return plan
    prompts = [_prompt(scope, step, stats) for scope, step in llm_steps(plan.sink)]
    order = _order(prompts, stats)
    asked = sum(prompt.calls * piece.tokens for prompt in prompts for piece in prompt.pieces)
    if not order or _won(prompts, order, stats) < WORTH * asked:
        return plan
    return rewrite(plan, lambda node: replace(node, order=order) if isinstance(node, Scan) else node, inside=False)


def _is_free(sink: Sink) -> bool:
    """Whether the order of the rows shows in the result alone, where it is put right."""
    local = all(isinstance(relation, Scan | Filter | Unnest) for relation in spine(sink.rows))
    return local and all(traits(node).effects in ("pure", "read") for node in every_node(sink))


@dataclass(frozen=True, slots=True)
class _Prompt:
    """The pieces of one step's prompt, and how many calls it takes: equal ones are made once."""

    pieces: tuple[Piece, ...]
    calls: int


def _prompt(scope: Scope, step: Generate, stats: TableStats) -> _Prompt:
    pieces = tuple(prompt_pieces(scope, step.prompt, stats))
    deciders = scope.of_all(content for part in step.prompt for content in part.content)
    shared = step.deterministic and step.cache and deciders is not None
    return _Prompt(pieces, distinct(deciders, stats) if shared and deciders is not None else stats.rows)


def _order(prompts: Sequence[_Prompt], stats: TableStats) -> tuple[str, ...]:
    """The columns to group by, the first for the largest groups."""
    chosen: tuple[str, ...] = ()
    won = 0.0
    while True:
        best: tuple[str, ...] = ()
        for more in _candidates(prompts, chosen, stats):
            gain = _won(prompts, (*chosen, *more), stats)
            if gain > won:
                best, won = more, gain
        if not best:
            return chosen
        chosen = (*chosen, *best)


def _candidates(prompts: Sequence[_Prompt], chosen: tuple[str, ...], stats: TableStats) -> Iterator[tuple[str, ...]]:
    """For each prompt the columns that its next piece needs besides those that are grouped by; each set once."""
    seen: set[tuple[str, ...]] = set()
    covered = closure(chosen, stats)
    for prompt in prompts:
        for piece in prompt.pieces:
            if piece.deciders is None:
                break
            # Of several the one with the fewest values first: its groups are the largest.
            missing = sorted(piece.deciders - covered, key=lambda column: (distinct((column,), stats), column))
            if missing:
                if (more := tuple(missing)) not in seen:
                    seen.add(more)
                    yield more
                break


def _won(prompts: Sequence[_Prompt], order: Sequence[str], stats: TableStats) -> float:
    """The tokens that calls share with the one before, over all rows, once rows are grouped by these columns.

    What no row changes is shared in any order and does not count.
    """
    total = 0.0
    covered = [closure(order[:place], stats) for place in range(len(order) + 1)]
    groups = [distinct(order[:place], stats) for place in range(len(order) + 1)]
    for prompt in prompts:
        needed: frozenset[str] = frozenset()
        for piece in prompt.pieces:
            if piece.deciders is None:
                break
            needed |= piece.deciders
            place = next((place for place, columns in enumerate(covered) if needed <= columns), None)
            if place is None:
                break
            if place:
                total += piece.tokens * max(0, prompt.calls - groups[place])
    return total
