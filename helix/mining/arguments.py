"""Which values the arguments of a tool will have: functions that gave them before, weighed together."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from helix.canonical import canonical_text
from helix.mining.candidates import MinerSettings
from helix.mining.functions import ABSENT, LEFT_OUT, Function, Sources, constant
from helix.mining.loglinear import Logit, log_odds
from helix.mining.words import Words
from helix.traces.canonical import is_secret

# Functions of one argument that are counted; the least useful are forgotten beyond.
MOST_COUNTED = 240
_KEPT_COUNTED = 160
MOST_SHARED = 20
MOST_VALUES = 8
_BEAM = 12
# Values whose canonical text is shorter are equal by chance.
_SHORT = 4
# Constants that the user's words call for are tried, so many of those that are not among the best functions.
_MOST_CALLED_FOR = 6
_LEAST_CALLED_FOR = 0.25
# Other texts are no argument to guess: they are written, not copied.
_START = {
    "bias": 0.0,
    "own": 1.0,
    "sum": 0.3,
    "shared": 0.2,
    "words": 0.5,
    "words.rate": 0.0,
    "other": 0.0,
    "other.reach": 1.0,
}


class Tally:
    """How often a function had a value, how often the right one (both discounted), and how often in plain numbers."""

    __slots__ = ("hits", "seen", "tries")

    def __init__(self, tries: float = 0.0, hits: float = 0.0, seen: int = 0) -> None:
        self.tries, self.hits, self.seen = tries, hits, seen

    def rate(self, unit: float) -> float:
        """The share of right values, drawn towards 0 by one failed try."""
        return self.hits / (self.tries + unit)


@dataclass(slots=True)
class Choice:
    """A value that an argument may have, the likeliest function that gives it, and its probability."""

    value: Any
    text: str
    function: Function
    features: dict[str, float]
    p: float = 0.0


@dataclass(slots=True)
class ArgumentSet:
    """Values for all arguments of a tool. `fit` is the logarithm of the product of their probabilities."""

    args: dict[str, Any]
    functions: dict[str, Function]
    fit: float
    choices: tuple[Choice, ...]


Table = dict[Function, Tally]


class Arguments:
    """Counts of functions for each argument of each tool, and the weights that rank their values."""

    def __init__(self, settings: MinerSettings) -> None:
        self.settings = settings
        self.names: dict[str, dict[str, int]] = {}
        self.own: dict[tuple[str, str], Table] = {}
        self.refined: dict[tuple[str, str, str], Table] = {}
        self.shared: dict[str, Table] = {}
        self.words = Words()
        # By tool, how many of its calls had two equal arguments, and how many there were.
        self.doubles: dict[str, list[float]] = {}
        self.reach: dict[tuple[str, str], Tally] = {}
        self.logit = Logit(_START)
        self._ranked: dict[tuple[str, str], list[tuple[float, Function]]] = {}
        self._ranked_shared: dict[str, list[tuple[float, Function]]] = {}

    def sets(self, tool: str, sources: Sources, most: int, unit: float = 1.0) -> list[ArgumentSet]:
        """The likeliest argument sets of a tool, the best first; none for a tool that was never seen."""
        if tool not in self.names:
            return []
        # Each entry: the negated fit, then the texts of the values, which order what fits as well.
        beam: list[tuple[float, tuple[str, ...], tuple[Choice, ...]]] = [(0.0, (), ())]
        names = sorted(self.names[tool])
        apart = self._apart(tool, unit)
        for name in names:
            choices, _ = self.choices(tool, name, sources, unit)
            if not choices:
                return []
            tried = [(math.log(max(choice.p, 1e-9)), choice) for choice in choices[: max(most, 4)]]
            grown = [
                (cost - fit, (*texts, choice.text), (*before, choice))
                for cost, texts, before in beam
                for fit, choice in tried
                if not (apart and choice.text in texts and len(choice.text) > _SHORT)
            ]
            if not grown:
                return []
            beam = heapq.nsmallest(_BEAM, grown, key=_order)
        return [
            ArgumentSet(
                {name: choice.value for name, choice in zip(names, held, strict=True) if choice.value is not ABSENT},
                {name: choice.function for name, choice in zip(names, held, strict=True)},
                -cost,
                held,
            )
            for cost, _, held in beam[:most]
        ]

    def _apart(self, tool: str, unit: float) -> bool:
        """Whether the arguments of a tool are surely never equal: a flight goes to another place."""
        calls, doubles = self.doubles.get(tool, (0.0, 0.0))
        return self.settings.joint and calls >= 5.0 * unit and doubles <= 0.02 * calls

    def choices(self, tool: str, name: str, sources: Sources, unit: float = 1.0) -> tuple[list[Choice], float]:
        """The values that an argument may have, the likeliest first, and the probability that it has another one."""
        found = self._values(tool, name, sources, unit)
        features = [choice.features for choice in found]
        features.append(self._other(tool, name, unit))
        probabilities = self.logit.probabilities(features)
        for choice, p in zip(found, probabilities, strict=False):
            choice.p = p
        found.sort(key=lambda choice: (-choice.p, choice.text))
        return found[:MOST_VALUES], probabilities[-1]

    def weigh(self, tool: str, args: Mapping[str, Any], sources: Sources, unit: float = 1.0) -> None:
        """Lets the weights learn from a call, before its functions are counted."""
        for name in sorted(self.names.get(tool, {})):
            value = args.get(name, ABSENT)
            if is_secret(value):
                continue
            wanted = "" if value is ABSENT else canonical_text(value)
            found = self._values(tool, name, sources, unit)
            features = [choice.features for choice in found]
            features.append(self._other(tool, name, unit))
            place = next((at for at, choice in enumerate(found) if choice.text == wanted), len(found))
            self.logit.learn(features, place)
            self.reach.setdefault((tool, name), Tally()).tries += unit
            if place < len(found):
                self.reach[tool, name].hits += unit

    def learn(self, tool: str, args: Mapping[str, Any], sources: Sources, unit: float = 1.0) -> None:
        """Counts which functions give the arguments of a call."""
        names = self.names.setdefault(tool, {})
        last = sources.history.context(1)[0]
        texts = [text for value in args.values() if len(text := canonical_text(value)) > _SHORT]
        held = self.doubles.setdefault(tool, [0.0, 0.0])
        held[0] += unit
        held[1] += unit if len(set(texts)) < len(texts) else 0.0
        for name in args:
            names[name] = names.get(name, 0) + 1
        for name in sorted(names):
            value = args.get(name, ABSENT)
            if not is_secret(value):
                self._count(tool, name, value, last, sources, unit)

    def _count(self, tool: str, name: str, value: Any, last: str, sources: Sources, unit: float) -> None:
        own = self.own.setdefault((tool, name), {})
        refined = self.refined.setdefault((tool, name, last), {})
        shared = self.shared.setdefault(name, {})
        self._ranked.pop((tool, name), None)
        self._ranked_shared.pop(name, None)
        right = sources.leading_to(value, tool, name)
        hits = set(right)
        for function in own:
            if function in hits or sources.given(function, tool, name) is not None:
                own[function].tries += unit
                refined.setdefault(function, Tally()).tries += unit
        for function in shared:
            if function in hits or sources.given(function, tool, name) is not None:
                shared[function].tries += unit
        for function in right:
            for table in (own, refined) if function[0] == "const" else (own, refined, shared):
                tally = table.get(function)
                if tally is None:
                    tally = table[function] = Tally()
                    tally.tries += unit
                elif table is refined and function not in own:
                    tally.tries += unit
                tally.hits += unit
                tally.seen += 1
        self.words.changed((tool, name))
        if self.settings.words and sources.history.texts and isinstance(value, str | int | float):
            self.words.learn((tool, name), value, sources.history.phrases, unit)
        for table in (own, shared):
            if len(table) > MOST_COUNTED:
                _forget(table, unit)

    def _values(self, tool: str, name: str, sources: Sources, unit: float) -> list[Choice]:
        """The values that counted functions give here, with their features."""
        last = sources.history.context(1)[0]
        refined = self.refined.get((tool, name, last), {})
        by_text: dict[str, Choice] = {}
        rates: dict[str, list[float]] = {}
        strangers: dict[str, float] = {}
        for rate, function in self._best(tool, name, unit):
            given = sources.given(function, tool, name)
            if given is None:
                continue
            value, text = given
            finer = refined.get(function)
            if finer is not None:
                rate = (finer.hits + 3.0 * unit * rate) / (finer.tries + 3.0 * unit)
            held = rates.get(text)
            if held is None:
                rates[text] = [rate]
                by_text[text] = Choice(value, text, function, {})
                continue
            if rate > max(held):
                by_text[text].function = function
            held.append(rate)
        for rate, function in self._best_shared(name, unit):
            given = sources.given(function, tool, name)
            if given is None or given[0] is ABSENT:
                continue
            value, text = given
            strangers[text] = max(strangers.get(text, 0.0), rate)
            if text not in by_text:
                by_text[text] = Choice(value, text, function, {})
        self._add_words(tool, name, by_text, rates, sources, unit)
        used = sources.history.used(tool, name)
        for text, choice in by_text.items():
            self._describe(tool, name, choice, rates.get(text, ()), strangers.get(text), sources)
            if text in used:
                choice.features["used"] = 1.0
                choice.features[f"used {tool}.{name}"] = 1.0
        return list(by_text.values())

    def _add_words(
        self,
        tool: str,
        name: str,
        held: dict[str, Choice],
        rates: dict[str, list[float]],
        sources: Sources,
        unit: float,
    ) -> None:
        """Notes for each constant how much likelier the user's words make it, and adds those that they call for."""
        if not sources.history.texts:
            return
        own = self.own.get((tool, name), {})
        best = self.words.lifts((tool, name), sources.history.phrases, lambda: self._constants(own, unit), unit)
        called_for = [
            (-here, text) for text, (_, here) in best.items() if text not in held and here >= _LEAST_CALLED_FOR
        ]
        for _, text in heapq.nsmallest(_MOST_CALLED_FOR, called_for):
            found = constant(text)
            if found is None:
                continue
            held[text] = Choice(found[0], text, ("const", text), {})
            rates[text] = [own["const", text].rate(unit)]
        for text, (lift, here) in best.items():
            if text in held:
                features = held[text].features
                features["words"], features["words.rate"] = lift, log_odds(here)

    def _constants(self, own: Table, unit: float) -> dict[str, float]:
        """How often each constant of an argument was right, of those that were seen often enough."""
        least = self.settings.least_seen
        return {
            function[1]: tally.rate(unit)
            for function, tally in own.items()
            if function[0] == "const" and tally.seen >= least
        }

    def _describe(
        self,
        tool: str,
        name: str,
        choice: Choice,
        rates: Sequence[float],
        shared: float | None,
        sources: Sources,
    ) -> None:
        """Puts down what speaks for a value."""
        kind, value, found = choice.function[0], choice.value, choice.features
        found["bias"] = found[f"kind {kind}"] = found[f"kind {tool}.{name} {kind}"] = 1.0
        if rates:
            most = max(rates)
            found["own"] = log_odds(most)
            found["sum"] = math.log(sum(rates) + 0.01) - math.log(most + 0.01)
        else:
            found["stranger"] = 1.0
            found["own"] = log_odds(0.02)
        if shared is not None:
            found["shared"] = log_odds(shared)
        elif value is not ABSENT:
            found["unshared"] = 1.0
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            said, history = str(value), sources.history
            if len(said) < 2:
                return
            said = said.lower()
            if history.texts and said in history.texts[-1].lowered:
                found["told"] = 1.0
            if history.model_text is not None and said in history.model_text.lowered:
                found["spoken"] = 1.0
            if history.calls and choice.text in history.calls[-1].records():
                found["shown"] = 1.0

    def _other(self, tool: str, name: str, unit: float) -> dict[str, float]:
        reach = self.reach.get((tool, name))
        rate = 0.5 if reach is None else (reach.hits + unit) / (reach.tries + 2.0 * unit)
        return {"other": 1.0, "other.reach": log_odds(1.0 - rate)}

    def forget_ranks(self) -> None:
        """Hears that the tables were changed from outside."""
        self._ranked.clear()
        self._ranked_shared.clear()
        self.words.forget()

    def ranked(
        self, tool: str, name: str, kinds: frozenset[str] | None = None, unit: float = 1.0
    ) -> list[tuple[float, Function]]:
        """The best functions of an argument with their rates, those of some kinds or all."""
        found = heapq.nsmallest(
            self.settings.most_functions,
            (
                (-tally.rate(unit), function)
                for function, tally in self.own.get((tool, name), {}).items()
                if tally.seen >= self.settings.least_seen and (kinds is None or function[0] in kinds)
            ),
        )
        return [(-rate, function) for rate, function in found]

    def _best(self, tool: str, name: str, unit: float) -> list[tuple[float, Function]]:
        ranked = self._ranked.get((tool, name))
        if ranked is None:
            ranked = self._ranked[tool, name] = self.ranked(tool, name, None, unit)
        return ranked

    def _best_shared(self, name: str, unit: float) -> list[tuple[float, Function]]:
        ranked = self._ranked_shared.get(name)
        if ranked is None:
            least = self.settings.least_seen
            ranked = heapq.nsmallest(
                MOST_SHARED,
                (
                    (-tally.rate(unit), function)
                    for function, tally in self.shared.get(name, {}).items()
                    if tally.seen >= least and function != LEFT_OUT
                ),
            )
            ranked = self._ranked_shared[name] = [(-rate, function) for rate, function in ranked]
        return ranked


def _order(entry: tuple[float, tuple[str, ...], tuple[Choice, ...]]) -> tuple[float, tuple[str, ...]]:
    return entry[0], entry[1]


def _forget(table: Table, unit: float) -> None:
    """Drops the functions that gave the fewest right values."""
    kept = heapq.nsmallest(_KEPT_COUNTED, table.items(), key=lambda held: (-held[1].hits, -held[1].rate(unit), held[0]))
    names = {function for function, _ in kept}
    for function in [function for function in table if function not in names]:
        del table[function]


__all__ = ["ArgumentSet", "Arguments", "Choice", "Tally"]
