"""What tool comes next: a counted trie over the last events, with back-off."""

from __future__ import annotations

from collections.abc import Iterable

# The outcome of a decision without a call.
SAY = "SAY"
# Contexts of two events and more are trusted from so many outcomes on; shorter ones from the first.
LEAST_SEEN = 3


class Trie:
    """Counts what followed each context of up to `order` events."""

    def __init__(self, order: int) -> None:
        self.order = order
        self.counts: dict[tuple[str, ...], dict[str, float]] = {}

    def learn(self, context: tuple[str, ...], outcome: str, weight: float = 1.0) -> None:
        """Notes an outcome after a context, the last event last."""
        for length in range(min(self.order, len(context)) + 1):
            held = self.counts.setdefault(context[len(context) - length :], {})
            held[outcome] = held.get(outcome, 0.0) + weight

    def back_off(self, context: tuple[str, ...], *, say: bool = False) -> tuple[tuple[str, ...], dict[str, float]]:
        """The longest end of a context that was seen often enough, with its counts; without SAY unless `say`."""
        for length in range(min(self.order, len(context)), -1, -1):
            part = context[len(context) - length :]
            held = self.counts.get(part)
            if held is None:
                continue
            if not say:
                held = {outcome: count for outcome, count in held.items() if outcome != SAY}
            if sum(held.values()) >= (LEAST_SEEN if length > 1 else 1):
                return part, held
        return (), {}

    def rank(self, context: tuple[str, ...], *, say: bool = False) -> list[tuple[str, float]]:
        """The outcomes after a context with their probabilities, the likeliest first, ties by name."""
        _, held = self.back_off(context, say=say)
        total = sum(held.values())
        return [(name, count / total) for name, count in sorted(held.items(), key=lambda each: (-each[1], each[0]))]

    def smoothed(self, context: tuple[str, ...], outcomes: Iterable[str], strength: float = 2.0) -> list[list[float]]:
        """For each length of context from 0 on, the probabilities of `outcomes`.

        Each is drawn towards that of the next shorter one by `strength` pseudo-counts (Dirichlet smoothing), the
        shortest towards all being equal.
        """
        names = list(outcomes)
        before = [1.0 / max(1, len(names))] * len(names)
        found: list[list[float]] = []
        for length in range(self.order + 1):
            held = self.counts.get(context[len(context) - length :]) if length <= len(context) else None
            if held:
                total = sum(held.values()) + strength
                before = [
                    (held.get(name, 0.0) + strength * prior) / total for name, prior in zip(names, before, strict=True)
                ]
            found.append(before)
        return found
