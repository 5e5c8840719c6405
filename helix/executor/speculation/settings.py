"""What speculation may cost, and what it must have shown before it is trusted."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, Literal

from helix.errors import OptionError, name_help

Mode = Literal["off", "shadow", "on"]
MODES: Final[tuple[Mode, ...]] = ("off", "shadow", "on")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationSettings:
    """The bounds of speculation. Times are in seconds; values are in the value of one second of waiting.

    `second` is what a second saved is worth (w), `work` what a second of a tool's work costs that nobody used, `money`
    what a unit of money is worth, `fixed` what each launch costs (c_fixed). By default a call as long as the model's
    decision is guessed from a probability of 0.2 on.

    Budgets: launches `per_decision`, `per_session`, calls `in_flight` at once in all and `per_rate_group`, `fees` in
    money over the run (None: no limit). Of the places of a lane `reserved` (a share) are for real calls alone.

    A pattern launches after `chances` predictions. A tool is served after `matches` results that were compared with
    those of real calls, none differing; from then on every `audit_every`th is compared. It leaves the shadow after
    `shadow_guesses` guesses that would have been worth their cost.

    The breaker looks at the last `window` guesses from `least` on, and stays open for `cool_off`, twice as long each
    time again. `deadline` bounds a guess; a decision that is known within `patience` is not guessed at. `candidates`
    are the calls that are looked at before each decision.
    """

    second: float = 1.0
    work: float = 0.25
    money: float = 1000.0
    fixed: float = 0.001
    per_decision: int = 3
    per_session: int = 200
    in_flight: int = 16
    per_rate_group: int = 4
    fees: float | None = None
    reserved: float = 0.5
    chances: int = 30
    shadow_guesses: int = 30
    matches: int = 300
    audit_every: int = 50
    window: int = 50
    least: int = 20
    cool_off: float = 60.0
    longest_cool_off: float = 3600.0
    deadline: float = 30.0
    patience: float = 0.002
    candidates: int = 12

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            # Written so that NaN, which is neither below nor above, is refused too.
            if value is not None and not (isinstance(value, int | float) and 0 <= value < float("inf")):
                raise OptionError(f"{each.name} is a number from 0 on, found {value!r}")
        if self.reserved >= 1:
            raise OptionError(f"reserved is a share below 1, found {self.reserved:g}")


def mode_of(text: str) -> Mode:
    """The mode that a word names. Raises OptionError."""
    for mode in MODES:
        if text == mode:
            return mode
    raise OptionError(f"speculate is `off`, `shadow` or `on`, found `{text}`; {name_help(text, MODES, 'modes')}")
