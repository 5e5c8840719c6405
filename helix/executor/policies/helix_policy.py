"""Helix's own policies: the order of the plan, with what is known of the engine's cache, or with parts left out."""

from __future__ import annotations

from helix.executor.engines.base import Capabilities
from helix.executor.policies.base import CallQueue, EnginePlace, PolicyBase
from helix.executor.policies.cache_aware import CacheAwareQueue
from helix.executor.policies.ordered import OrderedQueue
from helix.executor.policies.outline import Outline
from helix.executor.policies.rank import USABLE
from helix.physical import PhysicalPlan, Planner

# Calls in flight on a rank at most, however many the engine would run, and those that may wait in it beside them.
MOST_RUNNING, MOST_AHEAD = 1024, 64
# What can be left out, for what it is worth to show.
PARTS = {
    "warm-ups": "no beginning is computed ahead",
    "phases": "row after row, without a schedule",
    "ledger": "calls are let go whatever room the cache has",
    "holds": "nothing is held for a row between its calls",
    "affinity": "calls go to the rank with the least to do, whatever it holds",
    "balance": "large calls take the cache whatever they leave of it for small ones",
}


class Helix(PolicyBase):
    """The order of the plan; where the engine has a prefix cache, no beginning is computed twice. Of `PARTS` those in
    `without` are left out.
    """

    def __init__(self, without: tuple[str, ...] = ()) -> None:
        self._without = tuple(part for part in PARTS if part in without)
        self._outline = Outline()
        self.planner: Planner | None = None if "phases" in without else "helix"

    @property
    def name(self) -> str:
        return "helix" + (":" + ",".join(f"no-{part}" for part in self._without) if self._without else "")

    def follow(self, physical: PhysicalPlan, calls: int) -> bool:
        """Phases, where what rows share does not fit into the cache beside the calls, and a block of rows is enough to
        keep the engine busy in each phase. Where all of it fits it stays there anyway, and row after row is done
        sooner; where a block is small, few of its calls can go at once.
        """
        self._outline.read(physical)
        room = physical.kv_tokens
        phases = room is not None and physical.fills and _wanted(physical, calls) > USABLE * room
        self._outline.window = 0 if phases else calls
        return phases

    def slots(self, capabilities: Capabilities, usual: int) -> int:
        # As many as run, and no more than it takes to keep them so many: those that wait in the engine are let in one
        # by one, and take a pass each.
        if capabilities.max_running is None:
            return usual
        running = min(capabilities.max_running, MOST_RUNNING)
        return capabilities.ranks * (running + min(running, MOST_AHEAD))

    def queue(self, place: EnginePlace) -> CallQueue:
        # Without warm-ups the steps that the plan lets lead do what can be done for a cold cache.
        if not place.capabilities.prefix_cache or place.warm is None:
            return OrderedQueue()
        without = self._without
        return CacheAwareQueue(
            place,
            outline=self._outline,
            warm_ups="warm-ups" not in without,
            ledger="ledger" not in without,
            holds="holds" not in without,
            affinity="affinity" not in without,
            balance="balance" not in without,
        )

    def describe(self) -> str:
        if self._without:
            return f"helix, but {'; '.join(PARTS[part] for part in self._without)}"
        return "the order of the plan; what calls share is computed once, and held until its last use"


class PlanOrder(PolicyBase):
    """The order of the plan alone: row before row, and step before step within a row."""

    name = "plan"

    def queue(self, place: EnginePlace) -> CallQueue:
        return OrderedQueue()

    def describe(self) -> str:
        return "row before row, and step before step within a row"


def _wanted(physical: PhysicalPlan, calls: int) -> float:
    """The tokens of so many calls at once, of all that their rows share and of all that every row does."""
    groups = physical.groups
    rows = sum(group.rows for group in groups)
    shared = calls * sum(group.shared_tokens for group in groups) / rows if rows else 0.0
    return physical.fixed_tokens + shared + calls * physical.call_tokens
