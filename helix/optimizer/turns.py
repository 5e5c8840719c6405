"""What the turns of an agent add to a plan's cost: the first one is the call that the tree of prompts knows.

Each later turn has the prompt before it, the reply and the results of the calls that it asked for. The reply was
decoded in place, so of a turn's prompt only the results have to be computed.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

from helix.logical import Agent, Generate, Invoke, Node
from helix.optimizer.lengths import Length
from helix.optimizer.sizes import TOOL
from helix.optimizer.tree.refs import CallSite, Resolution
from helix.optimizer.tree.trie import Paths

# The turns that an agent is taken to need, where it may have so many.
TURNS = 3.0


def turns(node: Node) -> float:
    """How many calls of the model a step is taken to make for a row, one after the other."""
    return min(TURNS, float(node.max_turns)) if isinstance(node, Agent) else 1.0


def growth(node: Node, reply: float) -> float:
    """The tokens that an agent's prompt grows by until its last turn, its replies of so many tokens."""
    return (turns(node) - 1.0) * (reply + TOOL)


def tool_seconds(node: Node) -> float:
    """The time that an agent waits for its tools, as far as they declare what they cost: a mean of them each turn."""
    if not isinstance(node, Agent):
        return 0.0
    return (turns(node) - 1.0) * sum(tool.cost or 0.0 for tool in node.tools) / len(node.tools)


def add_turns(
    found: Resolution,
    paths: Paths,
    lengths: Sequence[Length],
    *,
    calls: list[float],
    prompts: list[float],
    made_by_place: array[float],
    merged: list[float] | None = None,
) -> tuple[float, dict[str, float]]:
    """Adds the turns of agents after the first to the counts by op. Gives the tokens that they add to what has to be
    computed, and the calls of tools by step.
    """
    fresh = 0.0
    tools: dict[str, float] = {}
    for op, site in enumerate(llm_sites(found)):
        count = turns(site.node)
        if count == 1.0:
            continue
        more, step = lengths[op].mean + TOOL, calls[op]
        added = step * (count - 1.0) * TOOL
        tools[site.node.step] = tools.get(site.node.step, 0.0) + step * (count - 1.0)
        prompts[op] = count * prompts[op] + step * more * count * (count - 1.0) / 2.0
        calls[op] = step * count
        if merged is not None:
            merged[op] *= count
        made_by_place[paths.paths[op][-1]] += added
        fresh += added
    return fresh, tools


def llm_sites(found: Resolution) -> list[CallSite]:
    """The calls of models, in the order of the ops."""
    return [site for site in found.calls if isinstance(site.node, Generate)]


def costless_tools(found: Resolution) -> list[str]:
    """The tools that declare no cost, by name."""
    names: set[str] = set()
    for site in found.calls:
        used = site.node.tools if isinstance(site.node, Agent) else ()
        called = (site.node.tool,) if isinstance(site.node, Invoke) else used
        names.update(tool.name for tool in called if tool.cost is None)
    return sorted(names)


def agents(found: Resolution) -> Mapping[int, Agent]:
    """The agents of a plan by the number of their call."""
    return {site.index: site.node for site in found.calls if isinstance(site.node, Agent)}
