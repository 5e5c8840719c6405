"""A conditional logit: it learns online how to weigh features of the choices that there are at one moment.

P(choice) = exp(w . f(choice)) / sum of exp(w . f(other)) over the choices (McFadden 1974); a step of stochastic
gradient with step sizes by AdaGrad (Duchi et al. 2011) after each outcome.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

Features = Mapping[str, float]


class Logit:
    """Weights by feature name. `start` are those before anything was learned, `rate` is the size of steps.

    `memory` is how much of the squares of earlier steps counts at the next one: below 1 the weights go on moving, which
    they must where what they weigh gets better with time.
    """

    def __init__(self, start: Mapping[str, float] | None = None, *, rate: float = 0.1, memory: float = 0.99) -> None:
        self.weights: dict[str, float] = dict(start or {})
        self.rate, self.memory = rate, memory
        self.squares: dict[str, float] = {}

    def scores(self, choices: Sequence[Features]) -> list[float]:
        """The sum of weighted features of each choice."""
        weight = self.weights.get
        found: list[float] = []
        for choice in choices:
            score = 0.0
            for name, value in choice.items():
                score += weight(name, 0.0) * value
            found.append(score)
        return found

    def probabilities(self, choices: Sequence[Features]) -> list[float]:
        """The probability of each choice."""
        return softmax(self.scores(choices))

    def learn(self, choices: Sequence[Features], chosen: int, probabilities: Sequence[float] | None = None) -> None:
        """One step towards the choice that was made."""
        found = self.probabilities(choices) if probabilities is None else probabilities
        gradient: dict[str, float] = {}
        for place, (choice, p) in enumerate(zip(choices, found, strict=True)):
            miss = (1.0 if place == chosen else 0.0) - p
            if abs(miss) < 1e-4:
                continue
            for name, value in choice.items():
                gradient[name] = gradient.get(name, 0.0) + miss * value
        for name, slope in gradient.items():
            if slope:
                square = self.memory * self.squares.get(name, 0.1) + slope * slope
                self.squares[name] = square
                self.weights[name] = self.weights.get(name, 0.0) + self.rate * slope / math.sqrt(square)


def softmax(scores: Sequence[float]) -> list[float]:
    """Probabilities that are proportional to the exponentials of scores."""
    if not scores:
        return []
    most = max(scores)
    raised = [math.exp(score - most) for score in scores]
    total = math.fsum(raised)
    return [each / total for each in raised]


def log_odds(p: float, *, least: float = 0.01) -> float:
    """The logarithm of p / (1 - p), bounded away from both ends."""
    return math.log((p + least) / (1.0 - p + least))
