"""Longest shared prefix first (arXiv 2312.07104): SGLang's own order, made by the client.

What the engine holds is followed as far as a client can; as SGLang does, no more than 128 waiting calls are looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from helix.executor.engines.base import Reply
from helix.executor.policies.base import BLOCK, CallQueue, EnginePlace, PolicyBase, Warmup
from helix.executor.policies.prefix_cache import Node, PrefixCache, prompt_text

if TYPE_CHECKING:
    from helix.executor.calls import Call, Outcome

# SGLang's own limit for ordering by the longest match.
LOOKED_AT = 128


class LongestPrefixFirst(PolicyBase):
    """The ready call of which most is in the cache goes next (SGLang's own order, arXiv 2312.07104, by the client)."""

    name = "lspf"

    def rows(self, window: int) -> int:
        return max(window, BLOCK)

    def queue(self, place: EnginePlace) -> CallQueue:
        return _LongestFirst(place)

    def describe(self) -> str:
        return "the ready call of which most is in the cache goes next"


class _LongestFirst:
    def __init__(self, place: EnginePlace) -> None:
        tokens = place.capabilities.kv_tokens
        # About four characters make a token; of several ranks it cannot tell which holds what.
        self._cache = PrefixCache(None if tokens is None else 4.0 * tokens)
        self._waiting: dict[Call, str | None] = {}
        self._nodes: dict[Call, Node] = {}

    def put(self, call: Call) -> None:
        request = call.request
        self._waiting[call] = None if request is None else prompt_text(request.model or "", request.messages)

    def take(self) -> Call | Warmup | None:
        best: Call | None = None
        most = -1
        for number, (call, text) in enumerate(self._waiting.items()):
            if number >= LOOKED_AT:
                break
            found = 0 if text is None else self._cache.matched(text)
            if found > most:
                best, most = call, found
        if best is None:
            return None
        text = self._waiting.pop(best)
        if text is not None:
            node = self._nodes[best] = self._cache.add(text)
            self._cache.pin(node)
            self._cache.computed(node)
        return best

    def ended(self, call: Call, outcome: Outcome) -> None:
        self.dropped(call)

    def dropped(self, call: Call) -> None:
        node = self._nodes.pop(call, None)
        if node is not None:
            self._cache.unpin(node)
            self._cache.drop(node)

    def warmed(self, warmup: Warmup, reply: Reply | None) -> None:
        """Nothing: it makes none."""

    def row_began(self, row: object, rank: int) -> None:
        """Nothing: it knows calls only."""

    def row_ended(self, row: object) -> None:
        """Nothing: it knows calls only."""

    def drain(self) -> list[Call]:
        waiting = sorted(self._waiting, key=lambda call: call.priority)
        self._waiting.clear()
        return waiting
