"""What a guess is expected to be worth, and which of several to make."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from helix.executor.speculation.settings import SpeculationSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """The expected value of a guess, in the value of a second: `gain` if it is right, `waste` if not, and what it costs
    anyway (`queue`, `fixed`); `p_low` is a lower bound of the probability that it is right, `seconds` what it hides.
    """

    p_low: float
    seconds: float
    gain: float
    waste: float
    queue: float
    fixed: float

    @property
    def value(self) -> float:
        """EV = w * p_low * E[min(t_tool, t_lead)] - (1 - p_low) * c_waste - c_queue - c_fixed."""
        return self.p_low * self.gain - (1.0 - self.p_low) * self.waste - self.queue - self.fixed

    @property
    def cost(self) -> float:
        """What it costs where it is wrong."""
        return self.waste + self.queue + self.fixed

    @property
    def rate(self) -> float:
        """Expected value for each unit of cost."""
        return self.value / max(self.cost, 1e-9)


def worth(
    settings: SpeculationSettings,
    *,
    p_low: float,
    hidden: float,
    tool_seconds: float,
    fee: float = 0.0,
    queue: float = 0.0,
) -> Worth:
    """The worth of a guess. `hidden` is E[min(t_tool, t_lead)], `tool_seconds` the expected time of the call, `fee` its
    price in money, `queue` the expected delay of real calls, in seconds.
    """
    return Worth(
        p_low=min(1.0, max(0.0, p_low)),
        seconds=hidden,
        gain=settings.second * hidden,
        waste=settings.work * tool_seconds + settings.money * fee,
        queue=settings.second * queue,
        fixed=settings.fixed,
    )


def greedy(candidates: Iterable[tuple[str, Worth]], most: int) -> list[str]:
    """The names of the candidates to make: those above 0, by value for their cost, ties by name."""
    good = [(each.rate, name) for name, each in candidates if each.value > 0]
    return [name for _, name in sorted(good, key=lambda found: (-found[0], found[1]))[: max(0, most)]]
