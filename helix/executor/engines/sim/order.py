"""The order of the waiting requests before a pass: SGLang's schedule policies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

from helix.executor.engines.sim.call import SimCall
from helix.executor.engines.sim.radix import Node, RadixTree
from helix.executor.engines.sim.settings import SimSettings

_WORST = -(1 << 62)


def rank_of(call: SimCall) -> int:
    """The priority of a request; one that has none is the worst."""
    return _WORST if call.priority is None else call.priority


def ordered(
    waiting: list[SimCall], running: Sequence[SimCall], tree: RadixTree, settings: SimSettings, dice: Random
) -> list[SimCall]:
    """The waiting requests, first come first, in the order in which they are to be admitted."""
    policy = settings.policy
    if policy in ("lpm", "dfs-weight") and not settings.prefix_cache:
        return waiting
    match policy:
        case "lpm":
            # Beyond this SGLang saves the look at the tree.
            return waiting if len(waiting) > settings.matched_most else _longest_match(waiting, tree, settings)
        case "dfs-weight":
            return _depth_first(waiting, tree)
        case "lof":
            if settings.priority_scheduling:
                return sorted(waiting, key=lambda call: (-rank_of(call), -call.most_new))
            return sorted(waiting, key=lambda call: -call.most_new)
        case "random":
            made = list(waiting)
            dice.shuffle(made)
            return made
        case "routing-key":
            return _by_routing_key(waiting, running)
    if settings.priority_scheduling:
        return sorted(waiting, key=lambda call: (-rank_of(call), call.arrived, call.serial))
    return waiting


def _longest_match(waiting: list[SimCall], tree: RadixTree, settings: SimSettings) -> list[SimCall]:
    """Longest match first; of requests that find little and begin alike all but the first go last."""
    least, page = settings.deferred_least, settings.page
    # Who begins like somebody else shares this many pages with him.
    pages = -(-least // page)
    queued: set[tuple[str, str]] = set()
    keys: list[int] = []
    for call in waiting:
        matched = _matched(call, tree)[0] * page
        key = -matched
        if matched <= least and (call.fill - 1) // page >= pages:
            start = call.space, call.text[: pages * tree.unit]
            if start in queued:
                key = 1
            else:
                queued.add(start)
        keys.append(key)
    return [waiting[at] for at in sorted(range(len(waiting)), key=keys.__getitem__)]


def _matched(call: SimCall, tree: RadixTree) -> tuple[int, Node]:
    """What of a waiting request is in the tree, as `tree.match` has it: where nothing has changed at its end since the
    last look, without comparing texts.
    """
    node = call.matched_node
    if node is not None:
        at, unit = call.matched * tree.unit, tree.unit
        more = call.text[at : at + unit] if at + unit <= (call.fill - 1) * call.width else ""
        if tree.ends(node, more):
            tree.touch(node)
            return call.matched, node
    call.matched, call.matched_node = tree.match(call.beginning(call.fill - 1), call.space)
    return call.matched, call.matched_node


def _depth_first(waiting: list[SimCall], tree: RadixTree) -> list[SimCall]:
    """A walk of the tree, at each node into the child first below which most requests end, of equal ones the older; a
    node's own come last.
    """
    ends: dict[Node, list[SimCall]] = {}
    weight: Counter[Node] = Counter()
    roots: dict[Node, None] = {}
    # All are matched first: a later match may split the node of an earlier one.
    for call in waiting:
        _matched(call, tree)
    for call in waiting:
        node = _matched(call, tree)[1]
        ends.setdefault(node, []).append(call)
        weight[node] += 1
        while node.parent is not None:
            node = node.parent
            weight[node] += 1
        roots[node] = None
    made: list[SimCall] = []
    stack: list[tuple[Node, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        node, left = stack.pop()
        if left:
            made += ends.get(node, ())
            continue
        stack.append((node, True))
        children = sorted(filter(weight.__contains__, node.children.values()), key=lambda child: -weight[child])
        stack += [(child, False) for child in reversed(children)]
    return made


def _by_routing_key(waiting: list[SimCall], running: Sequence[SimCall]) -> list[SimCall]:
    """Requests whose routing key most running ones have go first."""
    counts = Counter(call.routing for call in running if call.routing)
    if not counts:
        return waiting

    def key(call: SimCall) -> tuple[int, int, str]:
        own = call.routing or ""
        count = counts.get(own, 0)
        return (0, -count, own) if count else (1, 0, own)

    return sorted(waiting, key=key)
