"""The baseline that the miner is measured against: back-off over the last events, and functions that fill each
argument by themselves.

Next tools come from the counted trie of control.py. A function's score is g = hits / (tries + 1), refined by the last
event as (h + 3 g) / (n + 3); an argument set has the product of its arguments' scores.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from helix.canonical import canonical_text
from helix.mining.arguments import Arguments
from helix.mining.candidates import MinerSettings
from helix.mining.control import SAY, Trie
from helix.mining.functions import ABSENT, Sources
from helix.mining.history import History, call_key
from helix.mining.miner import decisions_of, outcomes_of
from helix.traces.events import Session

# The functions of the baseline; the others are the miner's own.
KINDS = frozenset({"const", "absent", "arg", "res", "user"})
_BEAM = 3


class Baseline:
    """Learns sessions, and ranks next tools and next calls."""

    def __init__(self, order: int = 3) -> None:
        self.trie = Trie(order)
        self.arguments = Arguments(MinerSettings(half_life=None))

    def mine(self, sessions: Iterable[Session], *, arguments: bool = True) -> None:
        """Counts all decisions of sessions."""
        for session in sessions:
            for history, calls in decisions_of(session):
                context = history.context(self.trie.order)
                for call in outcomes_of(calls):
                    self.trie.learn(context, SAY if call is None else call.tool)
                    if call is not None and arguments:
                        self.arguments.learn(call.tool, call.args, Sources(history, dates=False))

    def tools(self, history: History) -> list[str]:
        """The next tools, the likeliest first."""
        return [name for name, _ in self.trie.rank(history.context(self.trie.order))]

    def calls(
        self, history: History, *, say: bool = False, tools: int = 6, sets: int = 3
    ) -> list[tuple[str, str, float]]:
        """The next calls as (tool, key, probability), the likeliest first."""
        sources = Sources(history, dates=False)
        ranked = [held for held in self.trie.rank(history.context(self.trie.order), say=say) if held[0] != SAY]
        found: list[tuple[float, str, str]] = []
        for tool, p in ranked[:tools]:
            found += [(-p * fit, tool, key) for fit, key in self._sets(tool, sources, sets)]
        return [(tool, key, -p) for p, tool, key in sorted(found)]

    def _sets(self, tool: str, sources: Sources, most: int) -> list[tuple[float, str]]:
        beam: list[tuple[float, dict[str, object]]] = [(1.0, {})]
        for name in sorted(self.arguments.names.get(tool, {})):
            values = self._values(tool, name, sources)
            grown = [
                (fit * score, args if value is ABSENT else {**args, name: value})
                for fit, args in beam
                for score, value in values
            ]
            beam = heapq.nsmallest(_BEAM, grown, key=lambda held: (-held[0], canonical_text(held[1])))
        if tool not in self.arguments.names:
            return []
        return [(fit, call_key(tool, args)) for fit, args in beam[:most]]

    def _values(self, tool: str, name: str, sources: Sources) -> list[tuple[float, object]]:
        last = sources.history.context(1)[0]
        refined = self.arguments.refined.get((tool, name, last), {})
        best: dict[str, tuple[float, object]] = {}
        for rate, function in self.arguments.ranked(tool, name, KINDS):
            given = sources.given(function, tool, name)
            if given is None:
                continue
            value, text = given
            finer = refined.get(function)
            if finer is not None:
                rate = (finer.hits + 3.0 * rate) / (finer.tries + 3.0)
            if text not in best or rate > best[text][0]:
                best[text] = (rate, value)
        ordered = sorted(best.items(), key=lambda held: (-held[1][0], held[0]))
        return [held for _, held in ordered[:_BEAM]]
