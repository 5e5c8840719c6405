"""The nouns of mining: what a miner may be told, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from helix.errors import OptionError
from helix.traces.events import EffectClass


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A call that may come next.

    `p` estimates the probability that the next decision is this very call. `p_low` is a lower bound of it: the 5 %
    quantile of what the `hits` in `chances` of its `pattern` allow. `text` says in words where it comes from. `stale`
    tells that the tool's schema is not the one that the pattern was learned with.
    """

    tool: str
    args: Mapping[str, Any]
    key: str
    p: float
    p_low: float
    chances: float
    hits: float
    pattern: str
    text: str
    stale: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFacts:
    """What is known of a tool besides its calls: its declared effects, and the hash of its schema (None: unknown)."""

    effects: EffectClass = "unknown"
    schema: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MinerSettings:
    """How patterns are mined.

    `order` is the longest context of events. A function that fills an argument counts from `least_seen` uses on, and
    the best `most_functions` of each argument are tried. `half_life` is the age in sessions at which what was seen
    weighs half (None: nothing ages). `dates` reads dates in texts; `joint` scores the arguments of one call together;
    `words` looks at the words of texts.
    """

    order: int = 4
    least_seen: int = 2
    most_functions: int = 60
    half_life: float | None = 200.0
    tools_tried: int = 6
    sets_tried: int = 3
    dates: bool = True
    joint: bool = True
    words: bool = True

    def __post_init__(self) -> None:
        for name in ("order", "least_seen", "most_functions", "tools_tried", "sets_tried"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise OptionError(f"{name} is a whole number from 1 on, found {value!r}")
        if self.half_life is not None and not 0 < self.half_life < float("inf"):
            raise OptionError(f"half_life is a number of sessions, or None, found {self.half_life!r}")
