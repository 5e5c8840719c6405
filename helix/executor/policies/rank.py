"""One rank as the executor sees it: the calls that wait for it, what its cache holds, and the room that is left there.

The ledger (scheduling after CONCUR, arXiv 2601.22705, and ThunderAgent, 2602.13692, between calls only): a call is let
go while what running calls and open rows hold, its own part and its reply fit into the cache. The engine's own gauges
hide what waits between two calls of a row, so it is counted here. What replies tell about tokens found in the cache
corrects it: where much was expected and little found, less is let in.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

from helix.executor.policies.chains import Chains
from helix.executor.policies.pace import Pace
from helix.executor.policies.prefix_cache import Node, PrefixCache

if TYPE_CHECKING:
    from helix.executor.calls import Call

# The share of the cache that is planned for; the engine rounds to pages and keeps some for itself.
USABLE = 0.95
# After so many replies the room is adjusted: where more than `MUCH` of the prompts was lost, less is let in.
ADJUST_EVERY = 32
MUCH, LITTLE = 0.3, 0.05
SHRINK, GROW, LEAST = 0.8, 0.05, 0.3
# Of what a prompt was expected to find, so many tokens may be missing before it counts as lost: the last ones of a
# beginning depend on what follows them.
SLACK = 16
# What calls take is a mean over about so many of the last ones.
RECENT = 32
# Entries of a line that count for nothing and are let be.
STALE = 256


class Ticket:
    """A call in a rank's line. `node` is the end of its prompt in the rank's tree (None: it shares nothing).

    `size` is the length of its prompt, `stage` are the steps that follow one another from it on, `expected` what of the
    prompt was in the cache when it was let go, `reserve` what its reply is expected to take, `took` what it added to
    what the cache has to hold when it was let go, `load` what it adds to the work of the rank. `passed` counts those
    that went before it while it had no room, `queued` says that the engine had as many calls as it runs when it was let
    go, `held` are calls that wait for its end.
    """

    __slots__ = (
        "began",
        "call",
        "expected",
        "held",
        "key",
        "level",
        "load",
        "node",
        "passed",
        "queued",
        "reserve",
        "serial",
        "size",
        "stage",
        "took",
    )

    def __init__(self, call: Call, key: Any, size: int, level: float = 0.0, stage: int = 1) -> None:
        self.call = call
        self.key = key
        self.level = level
        self.stage = stage
        # Its place in line; 0: it is in none.
        self.serial = 0
        self.passed = 0
        self.began = 0.0
        self.size = size
        self.node: Node | None = None
        self.expected = 0
        self.reserve = 0.0
        self.took = 0.0
        self.load = 0.0
        self.queued = False
        self.held: list[Ticket] = []


class Rank:
    """A rank's line, tree and ledger. `slots` are the calls that may be in flight on it; unless it is `bounded`, any of
    them fits. Lengths are in characters. `places` number the places in line: calls go from one rank to another, so
    ranks count together.
    """

    def __init__(
        self,
        number: int,
        slots: int,
        kv_tokens: int | None,
        *,
        bounded: bool = True,
        places: Iterator[int] | None = None,
    ) -> None:
        self.number = number
        self.slots = slots
        self.cache = PrefixCache()
        self.pace = Pace()
        self.chains = Chains()
        # Calls with the longest rest behind them go first just now.
        self.wide = False
        self.running = 0
        self.reserved = 0.0
        # What is still to be computed for calls that wait or run here: what placement balances.
        self.load = 0.0
        self.omega = 1.0
        # Rows that have begun and wait for something else than a call, and what a call takes that nothing else holds.
        self.idle = 0
        self.own = 0.0
        # By stage what calls that run have added to the cache, and what one does in the mean.
        self.taken: dict[int, float] = {}
        self.sizes: dict[int, float] = {}
        self._kv_tokens = kv_tokens
        self._bounded = bounded
        # Rows that have a call and have not begun, and those that have and are not done.
        self.fresh = self.begun = 0
        # The line three times: in the order of the plan, by what follows each call, the longest rest first, and by
        # stage. An entry whose number is not the call's own any more counts for nothing.
        self._heap: list[tuple[Any, int, Ticket]] = []
        self._stages: dict[int, list[tuple[Any, int, Ticket]]] = {}
        self._levels: list[tuple[float, Any, int, Ticket]] = []
        self._count = 0
        self._places = count(1) if places is None else places
        self._replies = 0
        self._lost = self._asked = 0.0

    def __len__(self) -> int:
        """The calls that wait."""
        return self._count

    # --- the line ---

    def push(self, ticket: Ticket) -> None:
        """Puts a call in line."""
        self._count += 1
        ticket.serial = serial = next(self._places)
        stage = self._stages.setdefault(ticket.stage, [])
        heapq.heappush(self._heap, (ticket.key, serial, ticket))
        heapq.heappush(stage, (ticket.key, serial, ticket))
        heapq.heappush(self._levels, (-ticket.level, ticket.key, serial, ticket))
        # A call that leaves by one of the orders stays in the others: such entries go before they are most of it.
        orders: tuple[list[Any], ...] = (self._heap, self._levels, stage)
        for heap in orders:
            if len(heap) > 2 * self._count + STALE:
                heap[:] = [entry for entry in heap if entry[-1].serial == entry[-2]]
                heapq.heapify(heap)

    def first(self, *, wide: bool = False) -> Ticket | None:
        """The call whose turn it is: by the plan, or (`wide`) by the rest of the workflow that waits for it."""
        return _first(self._levels if wide else self._heap)

    def first_of(self, stage: int) -> Ticket | None:
        """The first call of a stage, by the plan."""
        return _first(self._stages.get(stage, []))

    def remove(self, ticket: Ticket) -> None:
        """Takes a call out."""
        ticket.serial = 0
        self._count -= 1

    def take_last(self) -> Ticket:
        """Takes out the call whose turn is furthest away."""
        waiting = (entry for entry in self._heap if entry[2].serial == entry[1])
        found = max(waiting, key=lambda entry: entry[:2])[2]
        self.remove(found)
        return found

    def drain(self) -> list[Ticket]:
        """All calls that wait, in their order."""
        waiting = [entry for entry in self._heap if entry[2].serial == entry[1]]
        made = [entry[2] for entry in sorted(waiting, key=lambda entry: entry[:2])]
        for ticket in made:
            self.remove(ticket)
        self._heap, self._levels, self._stages = [], [], {}
        return made

    # --- the ledger ---

    def resize(self, per_token: float) -> None:
        """Sets the size of the cache, now that a token is known to be so many characters."""
        if self._kv_tokens is not None:
            self.cache.capacity = self._kv_tokens * per_token

    def fits(self, ticket: Ticket, more: float = 0.0, *, share: float = USABLE) -> bool:
        """Whether a call fits into a share of the cache, beside those that run and what open rows hold, with so much
        `more` that it brings. One that is alone always does.
        """
        if self.cache.capacity is None or self.running == 0 or ticket.node is None or not self._bounded:
            return True
        wanted = self.cache.pinned + self.reserved + self.takes(ticket) + more
        return wanted <= share * self.omega * self.cache.capacity

    def takes(self, ticket: Ticket) -> float:
        """What a call would add to what the cache has to hold."""
        return ticket.reserve + (self.cache.unpinned(ticket.node) if ticket.node is not None else 0)

    def begin(self, ticket: Ticket) -> None:
        """A call is let go."""
        self.running += 1
        self.reserved += ticket.reserve
        stage, ticket.took = ticket.stage, self.takes(ticket)
        size = self.sizes.get(stage, ticket.took)
        self.sizes[stage] = size + (ticket.took - size) / RECENT
        self.taken[stage] = self.taken.get(stage, 0.0) + ticket.took
        if ticket.node is not None:
            self.own += (ticket.took - self.own) / RECENT
            ticket.expected = self.cache.held(ticket.node)
            self.cache.pin(ticket.node)
            fresh = [each for each in ticket.node.path() if not each.resident]
            self.cache.computed(ticket.node)
            for each in fresh:
                each.computing = ticket

    def end(self, ticket: Ticket) -> None:
        """A call that was let go has ended."""
        self.running -= 1
        self.pace.ended()
        self.taken[ticket.stage] -= ticket.took
        self.reserved -= ticket.reserve
        if ticket.node is not None:
            for each in ticket.node.path():
                if each.computing is ticket:
                    each.computing = None
            self.cache.unpin(ticket.node)

    def learn(self, ticket: Ticket, prompt: int, cached: int, per_token: float) -> None:
        """A reply has told how much of its prompt was in the cache, in tokens."""
        expected = ticket.expected / per_token
        lost = max(0.0, expected - cached - SLACK)
        if cached == 0 and lost > 0 and ticket.node is not None:
            # Not even what all prompts begin with was there: the server has started anew, or was flushed.
            self.cache.clear()
            self.cache.computed(ticket.node)
        self._lost += lost
        self._asked += prompt
        self._replies += 1
        if self._replies < ADJUST_EVERY:
            return
        share = self._lost / max(1.0, self._asked)
        if share > MUCH and self._count:
            self.omega = max(LEAST, self.omega * SHRINK)
        elif share < LITTLE:
            self.omega = min(1.0, self.omega + GROW)
        self._replies = 0
        self._lost = self._asked = 0.0


def _first(heap: list[Any]) -> Ticket | None:
    """The first call of an order that waits yet."""
    while heap and heap[0][-1].serial != heap[0][-2]:
        heapq.heappop(heap)
    return heap[0][-1] if heap else None
