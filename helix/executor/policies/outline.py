"""What a plan says of its steps that a queue wants to know: what follows on each."""

from __future__ import annotations

from helix.logical import Agent, Generate, Render, every_node
from helix.physical import PhysicalPlan


class Outline:
    """Of a plan once it was read; before, of none. Steps are known by the ids of their nodes."""

    def __init__(self) -> None:
        self._levels: dict[str, float] = {}
        self._hops: dict[str, int] = {}
        self._turns: dict[str, int] = {}
        self._continued: frozenset[str] = frozenset()
        self._returns: frozenset[str] = frozenset()
        # By the steps that follow: calls, and the tokens that one holds times those of its reply.
        self.stages: dict[int, tuple[float, float]] = {}
        # The rows that are worked on side by side; 0 where they go phase by phase.
        self.window = 0

    def read(self, physical: PhysicalPlan) -> None:
        """Takes a plan."""
        self._levels = {step.node: round(step.rank_up, 6) for step in physical.steps}
        self._hops = _hops(physical)
        self.stages = _stages(physical, self._hops)
        agents = (node for node in every_node(physical.plan.sink) if isinstance(node, Agent))
        self._turns = {node.id: node.max_turns for node in agents}
        self._continued, self._returns = _continued(physical)

    def level(self, node: str) -> float:
        """The seconds from the start of a step to the end of all that waits for it."""
        return self._levels.get(node, 0.0)

    def hops(self, node: str) -> int:
        """The most steps that follow one another from a step on, itself included."""
        return self._hops.get(node, 1)

    def turns(self, node: str) -> int:
        """The most calls that a step makes for a row, one after the other: of an agent its turns."""
        return self._turns.get(node, 1)

    def continues(self, node: str) -> bool:
        """Whether a dialogue goes on from the reply of a step."""
        return node in self._continued

    @property
    def returning(self) -> bool:
        """Whether rows come back to prompts of theirs."""
        return bool(self._returns)

    @property
    def keeps(self) -> bool:
        """The same, one row after the other. In phases so many come between that it is cheaper to compute them again
        than to leave them the room.
        """
        return self.returning and self.window > 0

    def returns(self, node: str) -> bool:
        """Whether a dialogue goes on from the reply of a step after others have come between."""
        return node in self._returns


def _hops(physical: PhysicalPlan) -> dict[str, int]:
    """By step the most steps that follow one another from it on, itself included."""
    readers: dict[str, list[str]] = {}
    for step in physical.steps:
        for needed in step.needs:
            readers.setdefault(needed, []).append(step.node)
    found: dict[str, int] = {}
    left = [step.node for step in physical.steps]
    while left:
        ready = [node for node in left if all(each in found for each in readers.get(node, ()))]
        if not ready:
            # Steps of a loop wait for one another.
            ready = left
        for node in ready:
            found[node] = 1 + max((found.get(each, 0) for each in readers.get(node, ())), default=0)
        left = [node for node in left if node not in found]
    return found


def _stages(physical: PhysicalPlan, hops: dict[str, int]) -> dict[int, tuple[float, float]]:
    """By the steps that follow one another from a call on: how many calls there are, and what one takes of a cache."""
    found: dict[int, tuple[float, float]] = {}
    for step in physical.steps:
        calls, area = found.get(hops[step.node], (0.0, 0.0))
        reply = step.output_tokens
        found[hops[step.node]] = calls + step.calls, area + step.calls * reply * (step.private_tokens + reply / 2)
    return {stage: (calls, area / calls if calls else 0.0) for stage, (calls, area) in sorted(found.items())}


def _continued(physical: PhysicalPlan) -> tuple[frozenset[str], frozenset[str]]:
    """The steps from which a dialogue goes on with the row's next call: whose reply the next step has in the messages
    of an assistant, and agents, whose turns go on from one another. And those where other steps come between, whose
    prompts want the room meanwhile.
    """
    found: set[str] = set()
    later: set[str] = set()
    calls = {node.id: node for node in every_node(physical.plan.sink) if isinstance(node, Generate)}
    needs = {step.node: step.needs for step in physical.steps}
    for node in calls.values():
        if isinstance(node, Agent):
            found.add(node.id)
        said = [value for part in node.prompt if part.role in ("assistant", "history") for value in part.content]
        said += [arg for value in said if isinstance(value, Render) for arg in value.args]
        before = _before(node.id, needs) & calls.keys()
        for value in said:
            if isinstance(value, Generate):
                between = any(value.id in _before(each, needs) for each in before - {value.id, node.id})
                (later if between else found).add(value.id)
    return frozenset(found), frozenset(later)


def _before(node: str, needs: dict[str, tuple[str, ...]]) -> set[str]:
    """The steps that a step waits for, and all that those wait for."""
    found: set[str] = set()
    stack = list(needs.get(node, ()))
    while stack:
        each = stack.pop()
        if each not in found:
            found.add(each)
            stack += needs.get(each, ())
    return found
