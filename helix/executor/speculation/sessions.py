"""The sessions of a run as guesses know them: what was said and called, and the decision that is being made."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from helix.executor.speculation.guess import Guess
from helix.executor.speculation.predictor import Candidate, History
from helix.executor.tool_calls import Deciding, Decision, ToolCall, ToolResult
from helix.tools.schema import parameters_schema
from helix.traces.canonical import canonical_args


class Session:
    """One session: an agent in a row.

    `guesses` are those of its decision, `asked` the candidates that were looked at (their call and lower bound), `lead`
    how long the last decision took.
    """

    __slots__ = ("asked", "began", "guesses", "history", "lead", "name", "results", "step", "timer", "turn")

    def __init__(self, name: str, history: History | None) -> None:
        self.name = name
        self.history = history
        self.step = ""
        self.turn = 0
        self.began: float | None = None
        self.lead: float | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.guesses: list[Guess] = []
        self.asked: list[tuple[str, Candidate]] = []
        self.results: dict[tuple[int, int], tuple[ToolCall, ToolResult]] = {}

    def begins(self, deciding: Deciding | Decision, now: float | None) -> None:
        """A decision begins: what came of the calls before it, and what the user said, is part of the history."""
        self.stop()
        self._take_in()
        if self.history is not None:
            for text in deciding.told:
                self.history.user(text)
        self.step, self.turn, self.began = deciding.step, deciding.turn, now
        self.guesses, self.asked = [], []

    def ends(self, decision: Decision, now: float) -> float | None:
        """A decision is made; gives how long it took. None where it was known at once, so that it never began."""
        self.stop()
        if self.began is None:
            self.begins(decision, None)
        if self.history is not None:
            self.history.said(decision.text)
        lead = None if self.began is None else now - self.began
        self.began, self.lead = None, lead
        return lead

    def stop(self) -> None:
        """Gives up what has been planned for the decision."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def returned(self, call: ToolCall, result: ToolResult) -> None:
        """A call has ended."""
        if call.turn is not None:
            self.results[call.turn, call.position] = (call, result)

    def _take_in(self) -> None:
        """Puts results into the history by their places in their decisions, whatever the order they came in."""
        if self.history is not None:
            for _, (call, result) in sorted(self.results.items(), key=lambda each: each[0]):
                value = _value(result)
                args = canonical_args(call.args, parameters_schema(call.tool))
                self.history.called(own_name(call.tool.name), args, value, ok=is_good(result, value))
        self.results.clear()


def own_name(name: str) -> str:
    """The name of a tool without the path of a sub-workflow."""
    return name.rpartition("#")[2]


def _value(result: ToolResult) -> Any:
    if result.text is None:
        return result.error
    try:
        return json.loads(result.text)
    except ValueError:
        return result.text


def is_good(result: ToolResult, value: Any) -> bool:
    """Whether a call did what it was asked for: no error, nor a text or an object that says it is one."""
    if result.error is not None:
        return False
    if isinstance(value, str):
        return not value.lstrip().lower().startswith("error")
    return not (isinstance(value, dict) and value.get("error"))
