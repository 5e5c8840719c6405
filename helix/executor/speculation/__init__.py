"""Speculation: read calls that a model will probably ask for, made ready while it decides.

A guess may save time and never change an answer. `Speculator` stands around the real calls of a run; the parts are:
`effect` (what a call does), `epochs` (has the state changed since?), `times` and `value` (is a guess worth its cost?),
`budgets`, `breaker` and `stages` (may it be made, and served?), `lane` (guesses on their way), `figures` (what came of
it), `branches` (guesses at a branch of a workflow) and `warmup` (beginnings of an agent's next prompt).
"""

from __future__ import annotations

from helix.executor.speculation.settings import SpeculationSettings

__all__ = ["SpeculationSettings"]
