"""Guesses at a branch of a workflow: a read in one arm of it, made ready while a model decides which arm is taken.

The inputs of such a call are there, only the condition is not. Its probability is how often the arm was taken so far,
in this run and in those before it; everything else is as for guesses at what an agent asks for.
"""

from __future__ import annotations

import asyncio
from typing import Any

from helix.executor.speculation.effect import guessable
from helix.executor.speculation.guess import Guess, Owner
from helix.executor.speculation.speculator import Speculator, named_args
from helix.mining.confidence import wilson
from helix.services import Tool


class OpenBranch:
    """A branch of one row whose condition is not known yet."""

    __slots__ = ("began", "guesses", "name", "owner", "timers")

    def __init__(self, name: str, owner: Owner, began: float) -> None:
        self.name = name
        self.owner = owner
        self.began = began
        self.guesses: list[tuple[bool, Guess]] = []
        self.timers: list[asyncio.TimerHandle] = []


class Branches:
    """The open branches of a run, by any object that stands for one in a row."""

    def __init__(self, speculator: Speculator) -> None:
        self._speculator = speculator
        self._open: dict[object, OpenBranch] = {}

    def ready(self, place: object, name: str, row: int, arm: bool, tool: Tool, args: list[Any]) -> None:
        """The inputs of a call in an arm (`True`: taken where the condition holds) of an open branch are there.

        `name` is the branch over all rows. Nothing is done at once: a condition that is known in a moment, such as one
        from an earlier run, is not guessed at.
        """
        loop = asyncio.get_running_loop()
        found = self._open.get(place)
        if found is None:
            found = self._open[place] = OpenBranch(name, (f"{row}", None), loop.time())
        found.timers.append(loop.call_later(self._speculator.settings.patience, self._look, found, arm, tool, args))

    def _look(self, branch: OpenBranch, arm: bool, tool: Tool, args: list[Any]) -> None:
        speculator, state = self._speculator, self._speculator.state
        tool = speculator.known(tool)
        counts = state.branch(branch.name)
        chances, p_low = sum(counts), wilson(counts[arm], sum(counts))
        named = named_args(tool, args)
        effect = guessable(tool, named)
        if effect is None:
            speculator.figures.refuse("effects")
            return
        if chances < speculator.settings.chances:
            speculator.figures.refuse("chances")
            return
        if speculator.hides(tool, named):
            speculator.figures.refuse("secret")
            return
        value = speculator.worth(tool, p_low, state.branch_times(branch.name))
        if value.value <= 0:
            speculator.figures.refuse("value")
            return
        held = [guess for _, guess in branch.guesses]
        if len(held) >= speculator.settings.per_decision:
            speculator.figures.refuse("decision")
            return
        call = speculator.table.call(tool, named)
        pattern = f"branch {branch.name} {'taken' if arm else 'not taken'}"
        guess = speculator.guess(branch.owner, tool, args, call, effect, value, pattern)
        if guess is not None:
            branch.guesses.append((arm, guess))

    def decided(self, place: object, name: str, taken: bool | None) -> None:
        """The condition of a branch is known (None: it failed): what stands in the other arm is given up."""
        state = self._speculator.state
        if taken is not None:
            state.branch(name)[taken] += 1
        branch = self._open.get(place)
        if branch is None:
            return
        self._stop(branch)
        lead = asyncio.get_running_loop().time() - branch.began
        state.branch_times(name).add(lead)
        self._speculator.branch_leads[branch.owner[0]] = lead
        for arm, guess in branch.guesses:
            self._speculator.figures.settled(guess.p_low, arm is taken)
            if arm is taken:
                guess.matched = True
            else:
                self._speculator.table.give_up(guess, branch.owner)
        branch.guesses = [(arm, guess) for arm, guess in branch.guesses if arm is taken]

    def finished(self, place: object) -> None:
        """The arm that was taken has ended: what was not asked for in it is given up."""
        branch = self._open.pop(place, None)
        if branch is not None:
            self._stop(branch)
            self._speculator.branch_leads.pop(branch.owner[0], None)
            for _, guess in branch.guesses:
                self._speculator.table.give_up(guess, branch.owner)

    def _stop(self, branch: OpenBranch) -> None:
        for timer in branch.timers:
            timer.cancel()
        branch.timers = []

    def close(self) -> None:
        """Forgets all branches."""
        for branch in self._open.values():
            self._stop(branch)
        self._open.clear()
