"""KVFlow (arXiv 2507.07400): the cache evicts what the workflow uses again last.

For each step, the number of steps until it comes next is known from the workflow and from where each row stands; of
several rows the least counts. What the prompts of a step begin with, whatever the row, has that number; where steps
share a beginning, the least. The cache evicts the largest first, and all that is a row's own before that. With a second
tier in the host's memory what comes in the next step is loaded ahead, and a request whose beginning is on its way waits
for it. No real engine takes such hints: the policy is for simulated ones.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from helix.errors import OptionError
from helix.executor.engines.base import Hint, HintedEngine
from helix.executor.policies.base import BLOCK, CallQueue, EnginePlace, PolicyBase
from helix.executor.policies.ordered import OrderedQueue
from helix.executor.policies.prefix_cache import messages_of
from helix.logical import Generate, every_node
from helix.physical import PhysicalPlan, Planner
from helix.prefixes import static_prefix

if TYPE_CHECKING:
    from helix.executor.calls import Call, Outcome


class KVFlow(PolicyBase):
    """See the module."""

    name = "kvflow"
    planner: Planner | None = "outline"

    def __init__(self) -> None:
        # By step what it needs, and what all its prompts begin with.
        self.needs: dict[str, tuple[str, ...]] = {}
        self.beginnings: dict[str, Hint] = {}

    def rows(self, window: int) -> int:
        return max(window, BLOCK)

    def follow(self, physical: PhysicalPlan, calls: int) -> bool:
        self.needs = {step.node: step.needs for step in physical.steps}
        for node in every_node(physical.plan.sink):
            if isinstance(node, Generate) and (messages := messages_of(static_prefix(node))):
                self.beginnings[node.id] = Hint(messages=messages, steps=0, model=node.model.name)
        return False

    def queue(self, place: EnginePlace) -> CallQueue:
        if place.hints is None:
            raise OptionError(
                f"the policy `kvflow` gives hints on what to evict, which {place.name} does not take; it runs on "
                "simulated engines only, such as sim:h100/llama-3.1-8b"
            )
        place.hints.take_hints()
        return KVFlowQueue(self, place.hints)

    def describe(self) -> str:
        return "first come, first served; the cache evicts what the workflow uses again last (simulated only)"


class _Row:
    """A row: by step how many of its calls wait or run, the steps that it is done with, and how far each is away."""

    __slots__ = ("away", "busy", "done")

    def __init__(self) -> None:
        self.busy: Counter[str] = Counter()
        self.done: set[str] = set()
        self.away: dict[str, int] = {}


class KVFlowQueue(OrderedQueue):
    """Calls go as they are ready. After each that comes or ends, the engine hears what has changed."""

    def __init__(self, policy: KVFlow, engine: HintedEngine) -> None:
        super().__init__(lambda call: 0, gates=False)
        self._policy = policy
        self._engine = engine
        self._rows: dict[object, _Row] = {}
        # By step how many rows are so many steps away from it.
        self._away: dict[str, Counter[int]] = {}
        self._told: dict[str, int] = {}
        self._models: dict[str, str | None] = {}

    def put(self, call: Call) -> None:
        super().put(call)
        row = self._rows.setdefault(call.instance, _Row())
        row.busy[call.node] += 1
        row.done.discard(call.node)
        if call.request is not None:
            self._models.setdefault(call.node, call.request.model)
        self._look(row)

    def ended(self, call: Call, outcome: Outcome) -> None:
        self.dropped(call)

    def dropped(self, call: Call) -> None:
        row = self._rows.get(call.instance)
        if row is None:
            return
        row.busy[call.node] -= 1
        if not row.busy[call.node]:
            row.done.add(call.node)
        self._look(row)

    def row_ended(self, row: object) -> None:
        gone = self._rows.pop(row, None)
        if gone is not None:
            self._count(gone.away, {})
            self._tell()

    # --- how far steps are away ---

    def _look(self, row: _Row) -> None:
        away: dict[str, int] = {}
        for node, needs in self._policy.needs.items():
            # Steps stand after what they need, but for what comes round again in a loop.
            if row.busy[node]:
                away[node] = 0
            elif node not in row.done:
                away[node] = 1 + max((away.get(each, 0) for each in needs if each not in row.done), default=0)
        if away != row.away:
            self._count(row.away, away)
            row.away = away
            self._tell()

    def _count(self, before: dict[str, int], after: dict[str, int]) -> None:
        for node, steps in before.items():
            counts = self._away[node]
            counts[steps] -= 1
            if not counts[steps]:
                del counts[steps]
        for node, steps in after.items():
            self._away.setdefault(node, Counter())[steps] += 1

    def _tell(self) -> None:
        """Tells the engine, where the least number of steps to any has changed."""
        least = {node: min(counts) for node, counts in self._away.items() if counts}
        if least == self._told:
            return
        self._told = least
        self._engine.hint(
            Hint(messages=known.messages, steps=steps, model=self._models.get(node, known.model))
            for node, steps in least.items()
            if (known := self._policy.beginnings.get(node)) is not None
        )
