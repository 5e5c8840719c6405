"""What an agent decides next: a tool, or SAY.

Counts of what followed each context of events (control.py) are weighed together with what texts and results show: the
words of the user and of the model, the names of tools in them, what was called already. The weights are those of one
conditional logit over all outcomes; dense features share a weight over the outcomes, sparse ones have one for each.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from helix.canonical import to_json_text
from helix.mining.candidates import MinerSettings
from helix.mining.control import SAY, Trie
from helix.mining.history import USER, History
from helix.mining.loglinear import softmax
from helix.mining.texts import stems

# What is looked at of a result's text.
_MOST_RESULT = 20_000
_SMALL = 0.01
_DENSE = ("told fresh", "told", "spoken", "named", "called", "in turn", "again", "never")
_DENSE_START = {"told fresh": 1.0, "told": 0.5, "spoken": 0.5, "named": 1.0}


@dataclass(slots=True)
class View:
    """A decision that is open: its outcomes, what speaks for each, and their probabilities."""

    outcomes: list[str]
    dense: list[list[float]]
    sparse: list[tuple[str, float]]
    probabilities: list[float] = field(default_factory=list)

    def p(self, outcome: str) -> float:
        """The probability of an outcome, 0 for one that was never seen."""
        return self.probabilities[self.outcomes.index(outcome)] if outcome in self.outcomes else 0.0


class Decisions:
    """Counts and weights for the next outcome."""

    def __init__(self, settings: MinerSettings) -> None:
        self.settings = settings
        self.trie = Trie(settings.order)
        self.dense = [0.0] * settings.order + [0.6] + [_DENSE_START.get(name, 0.0) for name in _DENSE]
        self.dense[settings.order - 1] = 0.3
        self.squares = [0.1] * len(self.dense)
        self.sparse: dict[str, dict[str, float]] = {}
        self.seen: dict[str, int] = {}
        self.rate, self.sparse_rate = 0.05, 1.0
        self._stems: dict[str, tuple[str, ...]] = {}
        self._spread: dict[str, int] = {}
        self._weights: dict[str, list[tuple[str, float]]] = {}

    def outcomes(self) -> list[str]:
        """All outcomes that were seen, by name."""
        return sorted(self.trie.counts.get((), {}))

    def look(self, history: History, offered: Collection[str] | None = None) -> View:
        """The open decision after a history. With `offered` only these tools, and SAY, are outcomes."""
        outcomes = self.outcomes()
        if offered is not None:
            outcomes = [name for name in outcomes if name == SAY or name in offered]
        view = View(outcomes, self._dense(history, outcomes), self._sparse(history))
        view.probabilities = self.probabilities(view)
        return view

    def probabilities(self, view: View) -> list[float]:
        """The probabilities of a view's outcomes under the weights of now."""
        weights = self.dense
        scores: list[float] = []
        for row in view.dense:
            score = 0.0
            for weight, value in zip(weights, row, strict=True):
                score += weight * value
            scores.append(score)
        places = {name: place for place, name in enumerate(view.outcomes)}
        for name, value in view.sparse:
            for outcome, weight in self.sparse.get(name, {}).items():
                place = places.get(outcome)
                if place is not None:
                    scores[place] += weight * value
        return softmax(scores)

    def weigh(self, view: View, outcome: str) -> None:
        """Lets the weights learn what was decided."""
        if outcome not in view.outcomes:
            return
        chosen = view.outcomes.index(outcome)
        slopes = [0.0] * len(self.dense)
        steps: list[tuple[dict[str, float], float]] = []
        for feature, value in view.sparse:
            seen = self.seen.get(feature, 0)
            steps.append((self.sparse.setdefault(feature, {}), self.sparse_rate / math.sqrt(1.0 + seen) * value))
            self.seen[feature] = seen + 1
        for place, (name, p) in enumerate(zip(view.outcomes, view.probabilities, strict=True)):
            miss = (1.0 if place == chosen else 0.0) - p
            if abs(miss) < _SMALL:
                continue
            for at, value in enumerate(view.dense[place]):
                slopes[at] += miss * value
            for held, step in steps:
                held[name] = held.get(name, 0.0) + step * miss
        for at, slope in enumerate(slopes):
            self.squares[at] += slope * slope
            self.dense[at] += self.rate * slope / math.sqrt(self.squares[at])

    def learn(self, history: History, outcome: str, unit: float = 1.0) -> None:
        """Counts what was decided."""
        self.trie.learn(history.context(self.settings.order), outcome, unit)
        if outcome not in self._stems:
            self.know(outcome)

    def know(self, outcome: str) -> None:
        """Takes in the name of an outcome."""
        held = tuple(stems(outcome)) if outcome != SAY else ()
        self._stems[outcome] = held
        self._weights.clear()
        for stem in held:
            self._spread[stem] = self._spread.get(stem, 0) + 1

    def _dense(self, history: History, outcomes: Sequence[str]) -> list[list[float]]:
        columns = [
            [math.log(p + 1e-6) for p in level]
            for level in self.trie.smoothed(history.context(self.settings.order), outcomes)
        ]
        user = history.texts[-1].stems if history.texts else frozenset()
        model = history.model_text
        spoken = model.stems if model is not None else frozenset()
        named = (model.text if model is not None else "") + _result_text(history)
        called = {call.tool for call in history.calls}
        turn = {call.tool for call in history.turn_calls}
        last = history.calls[-1].tool if history.calls and not history.fresh else None
        rows: list[list[float]] = []
        for place, name in enumerate(outcomes):
            told = self._overlap(name, user)
            rows.append(
                [
                    *(column[place] for column in columns),
                    told if history.fresh else 0.0,
                    0.0 if history.fresh else told,
                    self._overlap(name, spoken),
                    1.0 if name != SAY and name in named else 0.0,
                    1.0 if name in called else 0.0,
                    1.0 if name in turn else 0.0,
                    1.0 if name == last else 0.0,
                    1.0 if name != SAY and name not in called else 0.0,
                ]
            )
        return rows

    def _overlap(self, name: str, said: frozenset[str]) -> float:
        """The share of a tool's name that stands in a text, rare parts of names counting more."""
        if not self.settings.words:
            return 0.0
        if not said:
            return 0.0
        weights = self._weights.get(name)
        if weights is None:
            parts = [(part, 1.0 / self._spread.get(part, 1)) for part in self._stems.get(name, ())]
            whole = sum(weight for _, weight in parts)
            weights = self._weights[name] = [(part, weight / whole) for part, weight in parts]
        return sum(weight for part, weight in weights if part in said)

    def _sparse(self, history: History) -> list[tuple[str, float]]:
        context = history.context(2)
        turn = history.turn_calls
        found = [
            ("always", 1.0),
            (f"after {context[1]}", 0.5),
            (f"after {context[0]} {context[1]}", 0.5),
            (f"calls {min(len(turn), 6)}", 0.5),
            (f"texts {min(len(history.texts), 8)}", 0.3),
            (f"said {context[1] if context[1] != USER else 'fresh'} {min(len(turn), 3)}", 0.3),
        ]
        found += _scaled({f"has {call.tool}" for call in history.calls}, 0.5)
        found += _scaled({f"turn {call.tool}" for call in turn}, 0.5)
        if turn and not history.fresh:
            found += _scaled(_result_marks(history), 0.5)
        if not self.settings.words:
            return found
        if history.texts:
            mark = "u" if history.fresh else "t"
            found += _scaled({f"{mark} {stem}" for stem in history.texts[-1].stems}, 1.0)
            if not history.fresh:
                found += _scaled({f"{context[1]} {stem}" for stem in history.texts[-1].stems}, 0.7)
        if history.model_text is not None:
            found.append((f"since {history.since} {context[1]}", 0.5))
            found += _scaled({f"{history.since} {stem}" for stem in history.model_text.stems}, 1.0)
        return found


def _scaled(names: Collection[str], norm: float) -> list[tuple[str, float]]:
    """Features of one family: together they have the length `norm`, however many there are."""
    if not names:
        return []
    value = norm / math.sqrt(len(names))
    return [(name, value) for name in sorted(names)]


def _result_text(history: History) -> str:
    """The text of the last result, for names of tools in it."""
    if not history.calls or history.fresh:
        return ""
    result = history.calls[-1].result
    return (result if isinstance(result, str) else to_json_text(result))[:_MOST_RESULT]


def _result_marks(history: History) -> set[str]:
    """What the last result looks like: how much there is of it, and its names."""
    call = history.calls[-1]
    result = call.result
    found = {f"ok {call.tool} {call.ok}"}
    if isinstance(result, list):
        found.add(f"list {call.tool} {min(len(result), 3)}")
    elif isinstance(result, dict):
        found |= {f"key {name}" for name in list(result)[:12]}
    elif isinstance(result, str):
        found |= {f"res {stem}" for stem in stems(result[:300])[:12]}
    return found
