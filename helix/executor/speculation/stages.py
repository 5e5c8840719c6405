"""Staged roll-out: how far each tool is trusted with guesses, and what it has shown so far.

`replay`: no pattern of it has had chances enough. `shadow`: guesses are counted, not made. `issue`: they are made,
never served, and compared with the real call's result. `serve`. A result that differs puts a tool back into the shadow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from helix.executor.speculation.settings import SpeculationSettings

Stage = Literal["replay", "shadow", "issue", "serve"]
STAGES: Final[tuple[Stage, ...]] = ("replay", "shadow", "issue", "serve")


@dataclass(slots=True, kw_only=True)
class ToolStage:
    """What a tool has shown. `version` is its signature and source: where that changes, it begins in the shadow again.

    `guesses` are those in the shadow that were settled, `value` what they would have been worth; `matches` are results
    that were compared and equal, `differences` those that were not (over its whole life).
    """

    version: str
    stage: Stage = "replay"
    guesses: int = 0
    value: float = 0.0
    matches: int = 0
    differences: int = 0
    served: int = 0

    def ready(self) -> None:
        """A pattern of it has had chances enough, and is worth its cost."""
        if self.stage == "replay":
            self.stage = "shadow"

    def shadowed(self, value: float, settings: SpeculationSettings) -> None:
        """A guess that was not made has been settled."""
        self.guesses += 1
        self.value += value
        if self.stage == "shadow" and self.guesses >= settings.shadow_guesses:
            if self.value > 0:
                self.stage = "issue"
            else:
                # Looked at anew, so that a bad beginning is not held against it for ever.
                self.guesses, self.value = 0, 0.0

    def compared(self, equal: bool, settings: SpeculationSettings) -> None:
        """A guess's result was compared with that of the real call."""
        if not equal:
            self.differences += 1
            self.demote()
            return
        self.matches += 1
        if self.stage == "issue" and self.matches >= settings.matches:
            self.stage = "serve"

    def demote(self) -> None:
        """Back into the shadow, to show all of it again."""
        self.stage = "shadow"
        self.guesses, self.value, self.matches = 0, 0.0, 0

    def audits(self, settings: SpeculationSettings) -> bool:
        """Whether the next match is to be compared though the tool is served; counts it."""
        self.served += 1
        return settings.audit_every > 0 and self.served % settings.audit_every == 0

    def to_json(self) -> dict[str, Any]:
        """As it is stored."""
        return {
            "version": self.version,
            "stage": self.stage,
            "guesses": self.guesses,
            "value": round(self.value, 6),
            "matches": self.matches,
            "differences": self.differences,
            "served": self.served,
        }


def stage_of(found: Any, version: str) -> ToolStage:
    """What was stored of a tool of this version; a beginner where that is of another version, or is no such thing."""
    if not isinstance(found, Mapping):
        return ToolStage(version=version)
    stage, numbers = found.get("stage"), {}
    for name in ("guesses", "matches", "differences", "served"):
        value = found.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            return ToolStage(version=version)
        numbers[name] = value
    value = found.get("value")
    if stage not in STAGES or not isinstance(value, int | float) or isinstance(value, bool) or value != value:
        return ToolStage(version=version)
    if found.get("version") != version:
        known = stage != "replay"
        return ToolStage(version=version, stage="shadow" if known else "replay", differences=numbers["differences"])
    return ToolStage(version=version, stage=stage, value=float(value), **numbers)
