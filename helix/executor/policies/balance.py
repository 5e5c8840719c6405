"""Whose turn it is where large and small calls want the cache: as many of each run as a steady state has.

Rows that begin together ask for calls of one kind together: many small ones first, which fill the places of a batch and
leave the cache half empty, then few large ones, which fill the cache and leave places empty. Side by side they fill
both. In a steady state each stage, the calls that as many steps follow, holds the share of the cache that its calls
hold of all tokens times passes (by Little's law calls that run are rate times duration, and all rates are those of
rows). A stage of large calls that has its share lets the small ones of another go first.
"""

from __future__ import annotations

from helix.executor.policies.outline import Outline
from helix.executor.policies.rank import USABLE, Rank, Ticket

# Calls of a stage that have to end before what they held counts instead of what the plan expects.
ENOUGH = 8


class Balance:
    """Of all ranks of an engine, of which each runs `at_once` calls (0: the order of the line is kept). Sizes are in
    characters.
    """

    def __init__(self, outline: Outline, at_once: int) -> None:
        self._outline = outline
        self._at_once = at_once
        # By stage what calls that ended have held, times the tokens of their replies, and how many these were.
        self._held: dict[int, tuple[float, int]] = {}

    def ended(self, ticket: Ticket, tokens: int) -> None:
        """A call has ended with a reply of so many tokens."""
        held, count = self._held.get(ticket.stage, (0.0, 0))
        self._held[ticket.stage] = held + ticket.took * tokens, count + 1

    def first(self, rank: Rank, per_token: float, *, wide: bool) -> Ticket | None:
        """The call whose turn it is, by the order of the line or for the sake of balance."""
        ticket = rank.first(wide=wide)
        outline = self._outline
        # The more rows are open, the more is pushed out of what they come back to.
        if ticket is None or not self._at_once or outline.returning or len(outline.stages) < 2:
            return ticket
        if rank.cache.capacity is None:
            return ticket
        room = USABLE * rank.cache.capacity
        taken = rank.taken.get(ticket.stage, 0.0)
        if not taken or self._small(rank, ticket.stage, room):
            return ticket
        shares = self._shares(per_token)
        if taken + rank.takes(ticket) <= shares.get(ticket.stage, 1.0) * room:
            return ticket
        others = [
            stage
            for stage, share in shares.items()
            if stage != ticket.stage and self._small(rank, stage, room) and rank.taken[stage] < share * room
        ]
        found = [other for stage in others if (other := rank.first_of(stage)) is not None]
        return min(found, key=lambda each: each.key, default=ticket)

    def _small(self, rank: Rank, stage: int, room: float) -> bool:
        """Whether calls of a stage alone would fill the places of a batch before they fill the cache."""
        size = rank.sizes.get(stage)
        return size is not None and size * self._at_once < room

    def _shares(self, per_token: float) -> dict[int, float]:
        areas: dict[int, float] = {}
        for stage, (calls, expected) in self._outline.stages.items():
            held, count = self._held.get(stage, (0.0, 0))
            areas[stage] = calls * (held / count if count >= ENOUGH else expected * per_token)
        total = sum(areas.values())
        return {stage: area / total for stage, area in areas.items()} if total else {}
