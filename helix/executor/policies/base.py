"""What a policy is asked: how many rows are worked on at once, and which of the waiting calls goes next.

A policy makes one `CallQueue` for each engine. The dispatcher puts ready calls in, takes the next one whenever a worker
is free, and tells when it has ended. Nothing here waits: all of it runs on the loop's thread, between calls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from helix.executor.engines.base import Capabilities, HintedEngine, Load, Reply, Request

if TYPE_CHECKING:
    from helix.executor.calls import Call, Outcome
    from helix.physical import PhysicalPlan, Planner

# The rows that a policy works on at once which takes as many as it gets: all of a small table, and no more memory than
# that for a large one.
BLOCK = 4096
# Tells what each rank of an engine is doing now. Raises EngineError.
Ask = Callable[[], Awaitable[tuple[Load, ...]]]
# Computes the beginning of prompts on an engine; None where that failed.
Warm = Callable[[Request], Awaitable[Reply | None]]


class Warmup:
    """A beginning to be computed before the calls that share it. `call` is the one whose turn it was."""

    __slots__ = ("call", "rank", "request")

    def __init__(self, request: Request, call: Call, rank: int) -> None:
        self.request = request
        self.call = call
        self.rank = rank


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePlace:
    """An engine as a policy sees it. `slots` are the calls that may be in flight on all of its ranks together; `warm`
    computes beginnings, `load` tells what its ranks are doing, `hints` is the engine where it can be told what is used
    next (None: it cannot).
    """

    name: str
    capabilities: Capabilities
    slots: int
    warm: Warm | None = None
    load: Ask | None = None
    hints: HintedEngine | None = None

    @property
    def ranks(self) -> int:
        """The workers, at least one."""
        return max(1, self.capabilities.ranks)


class CallQueue(Protocol):
    """The calls that wait for one engine, or for one kind of tool."""

    def put(self, call: Call) -> None:
        """Takes a call that is ready."""

    def take(self) -> Call | Warmup | None:
        """What goes next; None where nothing may until something ends or is put in."""

    def ended(self, call: Call, outcome: Outcome) -> None:
        """A call that was taken has ended."""

    def dropped(self, call: Call) -> None:
        """A call that was taken is not made: nobody wants it any more."""

    def warmed(self, warmup: Warmup, reply: Reply | None) -> None:
        """A warm-up has ended; None: it failed."""

    def row_began(self, row: object, rank: int) -> None:
        """The schedule has a rank for a row."""

    def row_ended(self, row: object) -> None:
        """No call of a row will come any more."""

    def drain(self) -> list[Call]:
        """All calls that wait, in their order; the queue is empty afterwards."""


@runtime_checkable
class WakingQueue(Protocol):
    """A queue that lets calls go at times of its own, and not only when one ends or is put in."""

    def attach(self, wake: Callable[[], None]) -> None:
        """Gives what has free workers ask again; before the first call."""


class Policy(Protocol):
    """How a run releases its calls. `name` is what `--policy` says, with its number where it has one. `planner` makes
    the plan that it follows (None: it wants none).
    """

    @property
    def name(self) -> str: ...

    @property
    def planner(self) -> Planner | None: ...

    def rows(self, window: int) -> int:
        """How many rows are worked on at once, where `window` would keep the engine busy."""

    def slots(self, capabilities: Capabilities, usual: int) -> int:
        """How many calls an engine gets at once, where nothing else is asked for and `usual` would keep it busy."""

    def follow(self, physical: PhysicalPlan, calls: int) -> bool:
        """Hears of the plan, on an engine that runs so many calls at once; whether calls are to go by its phases."""

    def queue(self, place: EnginePlace) -> CallQueue:
        """The queue of an engine. Raises OptionError where the policy cannot do with this one."""

    def describe(self) -> str:
        """What it does, in a line."""


class PolicyBase:
    """What most policies say: as many rows and calls as keep the engine busy, and no plan."""

    planner: Planner | None = None

    def rows(self, window: int) -> int:
        return window

    def slots(self, capabilities: Capabilities, usual: int) -> int:
        return usual

    def follow(self, physical: PhysicalPlan, calls: int) -> bool:
        return False
