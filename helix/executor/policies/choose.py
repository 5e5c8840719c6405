"""The policies by name: what `--policy` takes."""

from __future__ import annotations

from collections.abc import Callable

from helix.errors import OptionError, name_help
from helix.executor.policies.base import CallQueue, EnginePlace, Policy
from helix.executor.policies.baselines import Fcfs, LongestPrefixFirst, OperatorWise, QueryWise, Random
from helix.executor.policies.cache_aware import CacheAwareQueue
from helix.executor.policies.ordered import OrderedQueue

DEFAULT = "helix"


class Helix:
    """The order of the plan; where the engine has a prefix cache, no beginning is computed twice."""

    name = "helix"

    def rows(self, window: int) -> int:
        return window

    def queue(self, place: EnginePlace) -> CallQueue:
        # Without warm-ups the steps that the plan lets lead do what can be done for a cold cache.
        return CacheAwareQueue(place) if place.capabilities.prefix_cache and place.warm else OrderedQueue()

    def describe(self) -> str:
        return "the order of the plan; what calls share is computed once, and held until its last use"


class PlanOrder:
    """The order of the plan alone: row before row, and step before step within a row."""

    name = "plan"

    def rows(self, window: int) -> int:
        return window

    def queue(self, place: EnginePlace) -> CallQueue:
        return OrderedQueue()

    def describe(self) -> str:
        return "row before row, and step before step within a row"


_POLICIES: dict[str, Callable[[], Policy]] = {
    "helix": Helix,
    "plan": PlanOrder,
    "fcfs": Fcfs,
    "query-wise": QueryWise,
    "operator-wise": OperatorWise,
    "lspf": LongestPrefixFirst,
    "random": Random,
}
_NUMBERED: dict[str, tuple[Callable[[int], Policy], str, int]] = {
    "query-wise": (QueryWise, "a number of rows", 1),
    "random": (Random, "a seed", 0),
}
FORMS = ("helix", "plan", "fcfs", "query-wise[:ROWS]", "operator-wise", "lspf", "random[:SEED]")


def choose_policy(text: str) -> Policy:
    """The policy of a name, with a number behind a colon where it takes one. Raises OptionError."""
    name, colon, number = text.strip().partition(":")
    if name not in _POLICIES:
        raise OptionError(f"unknown policy `{name}`; {name_help(name, _POLICIES, 'policies')}")
    if not colon:
        return _POLICIES[name]()
    if name not in _NUMBERED:
        raise OptionError(f"the policy `{name}` takes no number, found `{text}`")
    make, what, least = _NUMBERED[name]
    if not number.isascii() or not number.isdigit() or int(number) < least:
        raise OptionError(f"the policy `{name}` takes {what} of at least {least}, found `{number}`")
    return make(int(number))
