"""What came of the guesses of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# Predictions are put together by their lower bound, in tenths.
BINS = 10


@dataclass(slots=True, kw_only=True)
class Figures:
    """Counts of a run. Seconds are of the run's clock.

    `decisions` of models were seen, `guesses` passed the gate, `launched` calls were made for them. `hits` are real
    calls that had their result from one, `late_hits` those of them that had to wait for the rest of it, `compared`
    those that were made all the same to compare, and `differences` of these differed; `wasted` launches were for
    nothing, for `wasted_seconds` of work. `shadow_guesses` were not made; `shadow_hits` of them would have been right
    and hidden `shadow_hidden` seconds. `hidden` are seconds that real calls did not wait, `limit` those that they could
    have been spared if each read had begun with the decision that asked for it. `delayed` are seconds that real calls
    waited for a place. `by_bin` holds, for each tenth of the lower bound, predictions, hits and the sum of the bounds.
    """

    decisions: int = 0
    guesses: int = 0
    launched: int = 0
    hits: int = 0
    late_hits: int = 0
    compared: int = 0
    differences: int = 0
    wasted: int = 0
    shadow_guesses: int = 0
    shadow_hits: int = 0
    shadow_hidden: float = 0.0
    errors: int = 0
    cancelled: int = 0
    stale: int = 0
    real_calls: int = 0
    real_reads: int = 0
    fees: float = 0.0
    hidden: float = 0.0
    limit: float = 0.0
    wasted_seconds: float = 0.0
    delayed: float = 0.0
    warmups: int = 0
    breakers: dict[str, str] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    by_tool: dict[str, list[int]] = field(default_factory=dict)
    by_bin: list[list[float]] = field(default_factory=lambda: [[0, 0, 0.0] for _ in range(BINS)])

    def refuse(self, reason: str) -> None:
        """A guess was not made."""
        self.refused[reason] = self.refused.get(reason, 0) + 1

    def guess(self, tool: str, *, shadow: bool) -> None:
        """A guess passed the gate."""
        self.guesses += 1
        self.shadow_guesses += shadow
        self.by_tool.setdefault(tool, [0, 0])[0] += 1

    def hit(self, tool: str, hidden: float, *, late: bool) -> None:
        """A call has its result from a guess."""
        self.hits += 1
        self.late_hits += late
        self.hidden += hidden
        self.by_tool.setdefault(tool, [0, 0])[1] += 1

    def shadow_hit(self, tool: str, hidden: float) -> None:
        """A call would have had its result from a guess that was not made."""
        self.shadow_hits += 1
        self.shadow_hidden += hidden
        self.by_tool.setdefault(tool, [0, 0])[1] += 1

    def settled(self, p_low: float, hit: bool) -> None:
        """A prediction turned out right or wrong."""
        held = self.by_bin[min(BINS - 1, int(p_low * BINS))]
        held[0] += 1
        held[1] += hit
        held[2] += p_low

    def precision(self, mode: str) -> float | None:
        """The share of launches (in the mode `shadow`: of guesses) that were right; None without any."""
        if mode == "shadow":
            return self.shadow_hits / self.shadow_guesses if self.shadow_guesses else None
        return (self.launched - self.wasted) / self.launched if self.launched else None

    def to_json(self, mode: str) -> dict[str, Any]:
        """The figures as JSON values."""
        precision = self.precision(mode)
        return {
            "mode": mode,
            "decisions": self.decisions,
            "guesses": self.guesses,
            "launched": self.launched,
            "hits": self.hits,
            "late_hits": self.late_hits,
            "compared": self.compared,
            "differences": self.differences,
            "wasted": self.wasted,
            "wasted_seconds": round(self.wasted_seconds, 6),
            "errors": self.errors,
            "cancelled": self.cancelled,
            "stale": self.stale,
            "fees": round(self.fees, 9),
            "hidden_seconds": round(self.hidden, 6),
            "limit_seconds": round(self.limit, 6),
            "delayed_seconds": round(self.delayed, 6),
            "precision": None if precision is None else round(precision, 6),
            "shadow_guesses": self.shadow_guesses,
            "shadow_hits": self.shadow_hits,
            "shadow_hidden_seconds": round(self.shadow_hidden, 6),
            "real_calls": self.real_calls,
            "real_reads": self.real_reads,
            "prefix_warmups": self.warmups,
            "refused": dict(sorted(self.refused.items())),
            "breakers": dict(sorted(self.breakers.items())),
            "tools": {name: {"guesses": made, "hits": hit} for name, (made, hit) in sorted(self.by_tool.items())},
            "calibration": [
                {"p_low": round(told / count, 6), "observed": round(hit / count, 6), "predictions": int(count)}
                for count, hit, told in self.by_bin
                if count
            ],
        }
