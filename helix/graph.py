"""Plans as graphs, by networkx, which is loaded when used.

Graphs are of a plan or of one sub-plan, so they are small: a few nodes for each step of a workflow, whatever the number
of rows. An edge goes from an operator to one that reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from helix.logical import (
    Agent,
    Body,
    Choose,
    Generate,
    Invoke,
    LogicalPlan,
    Map,
    Node,
    Repeat,
    body_nodes,
    topological,
)

if TYPE_CHECKING:
    import networkx

    Graph = networkx.DiGraph[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Steps of which each has to wait for the one before: how many calls they make, and their names."""

    calls: int = 0
    steps: tuple[str, ...] = ()


def graph_of(part: LogicalPlan | Body) -> Graph:
    """The operators of a plan, or of one sub-plan, by id, each with itself as `node`; sub-plans are not entered."""
    import networkx

    graph: Graph = networkx.DiGraph()
    nodes = topological(part.sink) if isinstance(part, LogicalPlan) else body_nodes(part)
    for node in nodes:
        graph.add_node(node.id, node=node)
        graph.add_edges_from((read.id, node.id) for read in node.inputs)
    return graph


def order(graph: Graph) -> tuple[Node, ...]:
    """The operators, inputs before readers; of several that could come next, the one that was added first."""
    import networkx

    place = {node: position for position, node in enumerate(graph)}
    return tuple(graph.nodes[node]["node"] for node in networkx.lexicographical_topological_sort(graph, place.get))


def readers(graph: Graph, node: Node) -> frozenset[str]:
    """The ids of all operators that depend on one."""
    import networkx

    return frozenset(networkx.descendants(graph, node.id))


def needs(graph: Graph, node: Node) -> frozenset[str]:
    """The ids of all operators that one depends on."""
    import networkx

    return frozenset(networkx.ancestors(graph, node.id))


def dominators(graph: Graph, root: Node) -> dict[str, str]:
    """For each operator that `root` depends on, the nearest reader that all its ways to `root` pass through.

    What only one branch of a plan needs is dominated by that branch. The root has no entry.
    """
    import networkx

    found = networkx.immediate_dominators(graph.reverse(copy=False), root.id)
    return {node: reader for node, reader in found.items() if node != root.id and reader is not None}


def longest_chain(part: LogicalPlan | Body) -> Chain:
    """The most calls that a row has to wait for one after the other.

    A loop over a list counts as one item, since items do not wait for each other; a `repeat` as all its rounds; a
    branch as the longer of its two.
    """
    longest: dict[str, Chain] = {}
    nodes = topological(part.sink) if isinstance(part, LogicalPlan) else body_nodes(part)
    for node in nodes:
        before = max((longest[read.id] for read in node.inputs), key=lambda chain: chain.calls, default=Chain())
        own = _own(node)
        longest[node.id] = (
            Chain(calls=before.calls + own.calls, steps=before.steps + own.steps) if own.calls else before
        )
    return max(longest.values(), key=lambda chain: chain.calls, default=Chain())


def _own(node: Node) -> Chain:
    match node:
        case Agent(step=step, max_turns=turns):
            # A turn waits for the calls of the one before, and the last one makes none.
            return Chain(calls=2 * turns - 1, steps=(step,))
        case Generate(step=step) | Invoke(step=step):
            return Chain(calls=1, steps=(step,))
        case Map(body=body):
            return longest_chain(body)
        case Choose(then=then, otherwise=otherwise):
            return max(longest_chain(then), longest_chain(otherwise), key=lambda chain: chain.calls)
        case Repeat(times=times, body=body):
            once = longest_chain(body)
            steps = once.steps if times == 1 else (f"{times} x ({', '.join(once.steps)})",)
            return Chain(calls=once.calls * times, steps=steps if once.calls else ())
    return Chain()
