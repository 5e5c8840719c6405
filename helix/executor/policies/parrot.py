"""Parrot (arXiv 2405.19888): calls are scheduled by what the application wants of them, and sent where their prompt is.

Calls whose replies no other llm step reads are wanted soon (latency); those that one step reads together are wanted
together (throughput): such a gang is let go whole, as soon as the engine has places for all of it. A call goes to the
worker with a free place that has had the longest beginning of its prompt, by the hashes of its segments (values and the
literal texts between them); how busy workers are does not count, but between workers that have had equally much. A
worker has a place while it has a free slot and the prompts and replies in flight there fit into its cache.
"""

from __future__ import annotations

from collections import deque
from hashlib import blake2b
from typing import TYPE_CHECKING

from helix.executor.engines.base import Reply
from helix.executor.policies.base import BLOCK, CallQueue, EnginePlace, PolicyBase, Warmup
from helix.executor.policies.literals import literals_of, segments_of
from helix.executor.policies.programs import PER_TOKEN
from helix.logical import Generate, every_node
from helix.physical import PhysicalPlan, Planner

if TYPE_CHECKING:
    from helix.executor.calls import Call, Outcome


class Parrot(PolicyBase):
    """See the module."""

    name = "parrot"
    planner: Planner | None = "outline"

    def __init__(self) -> None:
        # By step the steps that read it, and the literal texts of its prompts.
        self.readers: dict[str, tuple[str, ...]] = {}
        self.literals: dict[str, tuple[tuple[str, ...], ...]] = {}

    def rows(self, window: int) -> int:
        return max(window, BLOCK)

    def follow(self, physical: PhysicalPlan, calls: int) -> bool:
        readers: dict[str, list[str]] = {}
        for step in physical.steps:
            for needed in step.needs:
                readers.setdefault(needed, []).append(step.node)
        self.readers = {node: tuple(found) for node, found in readers.items()}
        nodes = every_node(physical.plan.sink)
        self.literals = {node.id: literals_of(node) for node in nodes if isinstance(node, Generate)}
        return False

    def queue(self, place: EnginePlace) -> CallQueue:
        return ParrotQueue(self, place)

    def describe(self) -> str:
        return "last calls first, calls that are read together let go together, each where most of its prompt was sent"


Gang = tuple[object, tuple[str, ...]]


class ParrotQueue:
    """Calls wait in two lines: those wanted soon, and gangs in the order in which they came."""

    def __init__(self, policy: Parrot, place: EnginePlace) -> None:
        self._policy = policy
        self._slots = [max(1, place.slots // place.ranks)] * place.ranks
        self._running = [0] * place.ranks
        # By rank the tokens in flight, four characters each, and what a cache holds.
        self._tokens = [0.0] * place.ranks
        self._room = place.capabilities.kv_tokens
        self._soon: deque[Call] = deque()
        self._gangs: dict[Gang, deque[Call]] = {}
        # The gang that is being let go.
        self._open: deque[Call] = deque()
        # By rank the beginnings that it has had, as hashes of segments.
        self._had: list[set[bytes]] = [set() for _ in range(place.ranks)]
        self._sent: dict[Call, int] = {}

    def put(self, call: Call) -> None:
        readers = self._policy.readers.get(call.node)
        if readers is None:
            self._soon.append(call)
        else:
            self._gangs.setdefault((call.instance, readers), deque()).append(call)

    def take(self) -> Call | Warmup | None:
        if not any(self._free(rank) for rank in range(len(self._running))):
            return None
        if self._soon:
            return self._send(self._soon.popleft())
        if not self._open and self._gangs:
            gang, calls = next(iter(self._gangs.items()))
            in_flight = sum(self._running)
            if in_flight and in_flight + len(calls) > sum(self._slots):
                return None
            del self._gangs[gang]
            self._open = calls
        return self._send(self._open.popleft()) if self._open else None

    def _send(self, call: Call) -> Call:
        hashes = self._hashes(call)
        rank = 0
        if len(self._running) > 1:
            free = [each for each in range(len(self._running)) if self._free(each)]
            rank = min(free, key=lambda each: (-self._match(each, hashes), self._running[each], each))
            call.rank = rank
        self._had[rank].update(hashes)
        self._running[rank] += 1
        self._tokens[rank] += _tokens(call)
        self._sent[call] = rank
        return call

    def _free(self, rank: int) -> bool:
        """Whether a rank has a place. One that has nothing to do always has."""
        running = self._running[rank]
        fits = self._room is None or self._tokens[rank] < self._room
        return running < self._slots[rank] and (fits or not running)

    def _hashes(self, call: Call) -> list[bytes]:
        """A hash of each beginning of a prompt that ends with a segment."""
        if call.request is None or len(self._running) == 1:
            return []
        segments = segments_of(call.request.messages, self._policy.literals.get(call.node, ()))
        hasher = blake2b((call.request.model or "").encode(), digest_size=12)
        made: list[bytes] = []
        for segment in segments:
            hasher.update(segment.encode("utf-8", "surrogatepass") + b"\0")
            made.append(hasher.digest())
        return made

    def _match(self, rank: int, hashes: list[bytes]) -> int:
        """How many segments a rank has had."""
        had = self._had[rank]
        return next((number for number, each in enumerate(hashes) if each not in had), len(hashes))

    def ended(self, call: Call, outcome: Outcome) -> None:
        self.dropped(call)

    def dropped(self, call: Call) -> None:
        rank = self._sent.pop(call)
        self._running[rank] -= 1
        self._tokens[rank] -= _tokens(call)

    def warmed(self, warmup: Warmup, reply: Reply | None) -> None:
        """Nothing: it makes none."""

    def row_began(self, row: object, rank: int) -> None:
        """Nothing: it knows calls only."""

    def row_ended(self, row: object) -> None:
        """Nothing: it knows calls only."""

    def drain(self) -> list[Call]:
        waiting = [*self._soon, *self._open, *(call for calls in self._gangs.values() for call in calls)]
        self._soon.clear()
        self._open.clear()
        self._gangs.clear()
        return sorted(waiting, key=lambda call: call.priority)


def _tokens(call: Call) -> float:
    """The tokens that a call takes, about: its prompt, and half of what its reply may be."""
    request = call.request
    if request is None:
        return 0.0
    return sum(len(message.content) for message in request.messages) / PER_TOKEN + (request.max_tokens or 0) / 2
