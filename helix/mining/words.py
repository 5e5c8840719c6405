"""What the words of the user say of constants: which values an argument had where a phrase was said."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from helix.canonical import canonical_text

# Longer values have no names in texts.
_LONGEST = 60
_MOST_LIFT = 5.0
# By phrase, the values that it makes likelier: their canonical texts, by how much, and how likely they are there.
_Lifts = dict[str, list[tuple[str, float, float]]]


class Words:
    """Counts, by argument and phrase, how often the phrase was there with which values (canonical texts)."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
        # What was worked out since the counts, the rates or the unit last changed.
        self._lifts: dict[tuple[str, str], _Lifts] = {}
        self._best: dict[tuple[str, str], tuple[tuple[str, ...], dict[str, tuple[float, float]]]] = {}
        self._unit = 1.0

    def learn(self, argument: tuple[str, str], value: Any, phrases: Iterable[str], unit: float) -> None:
        """Counts a value of an argument, a tool and a name, after these phrases."""
        text = canonical_text(value)
        if len(text) > _LONGEST:
            return
        words = self.counts.setdefault(argument, {})
        for phrase in phrases:
            held = words.setdefault(phrase, {})
            held[text] = held.get(text, 0.0) + unit

    def changed(self, argument: tuple[str, str]) -> None:
        """Hears that the rates of an argument's constants have changed."""
        self._lifts.pop(argument, None)
        self._best.pop(argument, None)

    def forget(self) -> None:
        """Hears that the counts were changed from outside."""
        self._lifts.clear()
        self._best.clear()

    def lifts(
        self,
        argument: tuple[str, str],
        phrases: tuple[str, ...],
        rates: Callable[[], Mapping[str, float]],
        unit: float,
    ) -> dict[str, tuple[float, float]]:
        """The values that one of the phrases makes likelier: the logarithm of by how much, and how likely they are.

        `rates` gives how often each constant that counts was right.
        """
        words = self.counts.get(argument)
        if not words:
            return {}
        if unit != self._unit:
            self.forget()
            self._unit = unit
        before = self._best.get(argument)
        if before is not None and before[0] is phrases:
            return before[1]
        known = self._lifts.setdefault(argument, {})
        usual: Mapping[str, float] | None = None
        best: dict[str, tuple[float, float]] = {}
        for phrase in phrases:
            lifted = known.get(phrase)
            if lifted is None:
                seen = words.get(phrase)
                if seen is None:
                    continue
                usual = rates() if usual is None else usual
                lifted = known[phrase] = _lifted(seen, usual, unit)
            for text, lift, here in lifted:
                held = best.get(text)
                if held is None or lift > held[0]:
                    best[text] = lift, here
        self._best[argument] = phrases, best
        return best


def _lifted(seen: Mapping[str, float], rates: Mapping[str, float], unit: float) -> list[tuple[str, float, float]]:
    total = sum(seen.values())
    if total < 2.0 * unit:
        return []
    found: list[tuple[str, float, float]] = []
    for text, count in seen.items():
        rate = rates.get(text)
        if rate is None:
            continue
        here = (count + unit * rate) / (total + unit)
        more = here / (rate + 0.01) + 0.01
        if more > 1.0:
            found.append((text, min(_MOST_LIFT, math.log(more)), here))
    return found
