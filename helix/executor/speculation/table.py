"""The guesses of a run: found by what was called, for whom, and in which epoch; dropped when nobody may want them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from helix.canonical import canonical_text
from helix.executor.speculation.books import Books
from helix.executor.speculation.epochs import Epochs
from helix.executor.speculation.guess import Guess, Key, Owner, outlives
from helix.executor.speculation.lane import GuessLane
from helix.services import Tool
from helix.tools.effects import Effect
from helix.tools.schema import parameters_schema
from helix.traces.canonical import canonical_args

# Results that hold for longer are kept for so many calls at most.
_MOST_KEPT = 4096


class GuessTable:
    """The guesses that may still serve somebody. `lane` is set once it is made."""

    lane: GuessLane

    def __init__(self, epochs: Epochs, books: Books, tenant: str | None) -> None:
        self._epochs = epochs
        self._books = books
        self._tenant = tenant
        self._held: dict[Key, Guess] = {}
        self._schemas: dict[Tool, Mapping[str, Any]] = {}

    def call(self, tool: Tool, args: Mapping[str, Any]) -> str:
        """A tool with its canonical arguments (by name, defaults filled in) as one text."""
        schema = self._schemas.get(tool)
        if schema is None:
            schema = self._schemas[tool] = parameters_schema(tool)
        return canonical_text([tool.name, canonical_args(args, schema)])

    def key(self, tool: Tool, call: str, effect: Effect, owner: Owner) -> Key:
        """What a guess is found by now: tool and version, arguments, tenant, owner where its result holds for that one
        alone, and the epochs of what it reads, last.
        """
        whose = None if outlives(tool) else owner
        return (tool, call, self._tenant, whose, self._epochs.of(effect.reads))

    def find(self, key: Key, now: float) -> Guess | None:
        """The guess of a key, if it may serve now."""
        found = self._held.get(key)
        return found if found is not None and found.live and found.fresh(now) else None

    def current(self, guess: Guess) -> bool:
        """Whether nothing that a guess reads was written since."""
        return bool(guess.key[-1] == self._epochs.of(guess.effect.reads))

    def add(self, guess: Guess) -> None:
        """Takes a new guess; one with its key that is too old gives way."""
        before = self._held.pop(guess.key, None)
        if before is not None:
            before.owners.clear()
            self.drop(before)
        self._held[guess.key] = guess
        if len(self._held) > _MOST_KEPT:
            idle = next((each for each in self._held.values() if not each.owners and not each.claims), None)
            if idle is not None:
                self.drop(idle)

    def give_up(self, guess: Guess, owner: Owner) -> None:
        """An owner of a guess does not want it any more. What holds longer is kept for others."""
        guess.owners.discard(owner)
        if guess.owners or guess.claims:
            return
        if guess.kind != "shadow" and guess.shared and guess.state in ("running", "done"):
            return
        self.drop(guess)

    def drop(self, guess: Guess) -> None:
        """Nobody is served by a guess any more. A call that cannot be cancelled runs to its end by itself."""
        if self._held.get(guess.key) is guess:
            del self._held[guess.key]
        running = guess.state == "running"
        if guess.kind == "shadow":
            guess.state = "dropped"
        elif guess.live:
            self._books.figures.cancelled += self.lane.drop(guess)
        if not running:
            self._books.settle(guess, asyncio.get_running_loop().time())

    def drop_stale(self) -> None:
        """Drops what has read a state that may have changed."""
        for guess in list(self._held.values()):
            if not self.current(guess):
                self._books.figures.stale += 1
                guess.owners.clear()
                self.drop(guess)

    def drop_tool(self, tool: Tool) -> None:
        """Drops all guesses at a tool."""
        for guess in list(self._held.values()):
            if guess.tool == tool:
                guess.owners.clear()
                self.drop(guess)

    def ended(self, guess: Guess, error: BaseException | None) -> None:
        """A guess has a result, or none."""
        now = asyncio.get_running_loop().time()
        if error is not None and not isinstance(error, asyncio.CancelledError):
            self._books.failed(guess, error, now)
        if not guess.live and not guess.claims:
            if self._held.get(guess.key) is guess:
                del self._held[guess.key]
            self._books.settle(guess, now)

    async def close(self) -> None:
        """Drops all guesses and ends their calls."""
        for guess in list(self._held.values()):
            guess.owners.clear()
            self.drop(guess)
        await self.lane.close()
