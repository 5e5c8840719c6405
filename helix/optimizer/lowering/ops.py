"""The llm steps of a plan as a scheduler sees them: calls, tokens, time, and how long the rest takes after each."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from helix.logical import Generate, Invoke
from helix.optimizer.engine_time import EngineTime
from helix.optimizer.lengths import Length
from helix.optimizer.tree.refs import Resolution
from helix.optimizer.tree.shape import Tree, bits
from helix.optimizer.tree.trie import Paths
from helix.optimizer.turns import tool_seconds, turns


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """An llm step where it stands. `calls` are for the whole table, tokens are means for one call.

    `private` are the tokens that only this op's calls have, `alone` the seconds that a call takes with all else in the
    cache and nothing beside it, `rank_up` those until the end of the longest chain that waits for it, its own time
    included. `needs` are the ops that it waits for, as bits; `often` is how often it runs for one row.
    """

    index: int
    node: Generate
    calls: float
    prompt: float
    private: float
    length: Length
    alone: float
    rank_up: float
    needs: int
    often: float


def list_ops(
    found: Resolution,
    tree: Tree,
    paths: Paths,
    engine: EngineTime,
    lengths: Mapping[int, Length],
    *,
    calls: Sequence[float],
    prompts: Sequence[float],
    made_by_place: array[float],
    often: Sequence[float],
) -> tuple[Op, ...]:
    """The ops of a plan. `calls` and `prompts` (their tokens together) are by op, `often` by frame."""
    users: dict[int, int] = {}
    for path in paths.paths:
        for place in path:
            users[place] = users.get(place, 0) + 1
    sites = [site for site in found.calls if isinstance(site.node, Generate)]
    number = {site.index: op for op, site in enumerate(sites)}
    alone: dict[int, float] = {}
    prompt: list[float] = []
    private: list[float] = []
    for op, site in enumerate(sites):
        count = calls[op]
        own = sum(made_by_place[place] for place in paths.paths[op] if users[place] == 1)
        prompt.append(prompts[op] / count if count else 0.0)
        private.append(min(prompt[-1], own / count) if count else 0.0)
        output = lengths[site.index].mean
        spent = engine.prefill(private[-1], prompt[-1] - private[-1]) + engine.decode(prompt[-1], output)
        spent = turns(site.node) * spent / 1000 + tool_seconds(site.node)
        alone[site.index] = spent if count else 0.0
    for site in found.calls:
        if isinstance(site.node, Invoke):
            alone[site.index] = site.node.tool.cost or 0.0
    ranked = upward(found, alone)
    return tuple(
        Op(
            index=op,
            node=site.node,
            calls=calls[op],
            prompt=prompt[op],
            private=private[op],
            length=lengths[site.index],
            alone=alone[site.index],
            rank_up=ranked[site.index],
            needs=tree.ops[op].needs & ~(1 << op),
            often=often[site.frame],
        )
        for site in sites
        if isinstance(site.node, Generate)
        for op in (number[site.index],)
    )


def upward(found: Resolution, alone: Mapping[int, float]) -> list[float]:
    """The upward rank of each call in seconds: its own time, in a loop once for each round, and the largest of those
    that wait for it, each times the chance that it is made when this one is.
    """
    chances, rounds = _chances(found), _rounds(found)
    readers: list[list[int]] = [[] for _ in found.calls]
    for site in found.calls:
        for other in bits(site.needs & ((1 << site.index) - 1)):
            readers[other].append(site.index)
    ranked = [0.0] * len(found.calls)
    for site in reversed(found.calls):
        here = chances[site.frame]
        after = 0.0
        for reader in readers[site.index]:
            share = min(1.0, chances[found.calls[reader].frame] / here) if here else 0.0
            after = max(after, share * ranked[reader])
        ranked[site.index] = alone[site.index] * rounds[site.frame] + after
    return ranked


def _chances(found: Resolution) -> list[float]:
    """The chance that a frame is come to for one row: filters and the arms of branches around it."""
    made: list[float] = []
    for place in found.places:
        above = made[place.parent] if place.parent >= 0 else 1.0
        made.append(above * place.expected if place.kind in ("filter", "then", "otherwise") else above)
    return made


def _rounds(found: Resolution) -> list[float]:
    """How often the calls of a frame are made one after the other for one row: the rounds of the loops around it."""
    made: list[float] = []
    for place in found.places:
        above = made[place.parent] if place.parent >= 0 else 1.0
        made.append(above * place.expected if place.kind == "rounds" else above)
    return made


def often_by_frame(found: Resolution, lists: Mapping[int, float]) -> list[float]:
    """How often each frame runs for one row of the table; groups count as shares of it."""
    made: list[float] = []
    for index, place in enumerate(found.places):
        above = made[place.parent] if place.parent >= 0 else 1.0
        match place.kind:
            case "items" | "spread":
                made.append(above * lists.get(index, place.expected))
            case "rows" | "sort" | "limit":
                made.append(above)
            case _:
                made.append(above * place.expected)
    return made
