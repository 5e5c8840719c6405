"""The one place through which every real call of a tool goes, of steps and of agents alike.

A step or an agent decides that a tool is to be called; merging, the journal, lanes, budgets and time limits are the
dispatcher's and the caller's. What is left, the call itself, comes here. So whoever has to know of real calls, or may
have a result ready before one is made, stands here: `around` may answer a call from a guess, and learns when a call
that acts begins and ends; `watchers` hear of each decision of a model and of each result that came of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from helix.canonical import canonical_text
from helix.errors import ToolError
from helix.executor.engines.base import Request
from helix.executor.tools import RunTool
from helix.executor.tools.threads import charging
from helix.services import Tool
from helix.sql.clock import is_volatile

if TYPE_CHECKING:
    from helix.executor.calls import Call, Outcome

Source = Literal["made", "merged", "fetched"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call of a tool. `args` are by name, defaults filled in.

    `row` is the input row that it is for, `step` the step with the positions of lists. `session` is what goes on by
    itself: one agent in one row, or the steps of a row. `turn` is the decision of an agent that asked for it (from 0;
    None: a step of the workflow), `position` its place among the calls of that decision.
    """

    tool: Tool
    args: dict[str, Any]
    row: int
    step: str
    session: str
    turn: int | None = None
    position: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """How a call of a tool ended: its result as JSON text, or an error (`kind` as in `_error`).

    `source` says whether the call was made, an equal one was, or its result was known from before the run. `began` and
    `ended` are seconds of the run's clock; None for a call that was not made.
    """

    text: str | None = None
    error: str | None = None
    kind: str = ""
    source: Source = "made"
    began: float | None = None
    ended: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A turn of an agent: what it was told since the one before, what it said, and the calls that it asks for.

    No calls: it answers. `told` are the texts of messages that are new to it, results of tools left out. Times as in
    `ToolResult`.
    """

    session: str
    row: int
    step: str
    turn: int
    told: tuple[str, ...]
    text: str
    calls: tuple[ToolCall, ...]
    source: Source = "made"
    began: float | None = None
    ended: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deciding:
    """A turn of an agent that begins: its model is about to be asked. `tools` are those that it may ask for.

    `told` as in `Decision`. `request` is the prompt of the turn, and `engine` the name of the engine that gets it.
    """

    session: str
    row: int
    step: str
    turn: int
    told: tuple[str, ...]
    tools: tuple[Tool, ...]
    engine: str = ""
    request: Request | None = None


# Makes a call for good, within its time; raises what the tool raises.
Make = Callable[[], Awaitable[str]]
# Awaits a call within the time that it has; None where whoever asks for calls sees to that.
Limited = Callable[[Tool, Awaitable[str]], Awaitable[str]]


class Around(Protocol):
    """Stands around each real call of a tool: gives its result, from a guess or by awaiting `make`."""

    async def __call__(self, call: ToolCall, make: Make) -> str: ...

    def deciding(self, deciding: Deciding) -> None:
        """A model is being asked: what it will probably ask for in turn may be made ready meanwhile."""

    def awaiting(self, session: str, engine: str, request: Request) -> None:
        """An agent waits for its tools; its next prompt begins with the messages of `request`, the last of which holds
        how the results will probably begin.
        """


class Watcher(Protocol):
    """Hears of decisions and results, on the loop's thread. It must neither raise nor wait."""

    def decided(self, decision: Decision) -> None:
        """A model has decided: its calls are about to be made, or it has answered."""

    def returned(self, call: ToolCall, result: ToolResult) -> None:
        """A call has ended, whether it was made or its result was there."""

    def closed(self, session: str) -> None:
        """No call of a session will come any more."""


class ToolCalls:
    """The tools of a run, and all calls of them.

    `limited` bounds the time of each call that is made: waiting for a guess is no part of it, so that a call whose
    guess came to nothing has all of its time.
    """

    def __init__(self, limited: Limited | None = None) -> None:
        self._limited = limited
        self._tools: dict[Tool, RunTool] = {}
        self.around: Around | None = None
        self.watchers: list[Watcher] = []

    def __contains__(self, tool: Tool) -> bool:
        return tool in self._tools

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that are open, in the order in which they were opened."""
        return tuple(self._tools)

    def add(self, tool: Tool, run: RunTool) -> None:
        """Takes a tool that is ready to be called."""
        self._tools[tool] = run

    def opened(self, tool: Tool) -> RunTool:
        """The tool itself. Raises KeyError for one that is not open."""
        return self._tools[tool]

    async def call(self, call: ToolCall) -> str:
        """Makes a call; its result as JSON text. Raises ToolError, and whatever else goes wrong in a tool."""
        run = self._tools[call.tool]
        args = [call.args[param.name] for param in call.tool.params]
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            with charging(call.tool.cost):
                if self.around is None:
                    text = await self._made(call.tool, run(args))
                else:
                    text = await self.around(call, lambda: self._made(call.tool, run(args)))
        except Exception as error:
            kind = getattr(error, "kind", "tool")
            message = error.message if isinstance(error, ToolError) else f"{type(error).__name__}: {error}"
            self.returned(call, ToolResult(error=message, kind=kind, began=began, ended=loop.time()))
            raise
        self.returned(call, ToolResult(text=text, began=began, ended=loop.time()))
        return text

    async def _made(self, tool: Tool, work: Awaitable[str]) -> str:
        return await (work if self._limited is None else self._limited(tool, work))

    def runner(self, tool: Tool) -> Callable[[list[Any], Call], Awaitable[str]]:
        """What makes the calls of a workflow's step, from its arguments in their order."""

        async def run(args: list[Any], call: Call) -> str:
            return await self.call(of_step(tool, args, call.row, call.step))

        return run

    def deciding(self, deciding: Deciding) -> None:
        """Tells who stands around the calls that a model is being asked."""
        if self.around is not None:
            self.around.deciding(deciding)

    def awaiting(self, session: str, engine: str, request: Request) -> None:
        """Tells who stands around the calls that an agent waits for its tools."""
        if self.around is not None:
            self.around.awaiting(session, engine, request)

    def decided(self, decision: Decision) -> None:
        """Tells the watchers of a decision."""
        for watcher in self.watchers:
            watcher.decided(decision)

    def returned(self, call: ToolCall, result: ToolResult) -> None:
        """Tells the watchers of a result."""
        for watcher in self.watchers:
            watcher.returned(call, result)

    def closed(self, session: str) -> None:
        """Tells the watchers that a session is over."""
        for watcher in self.watchers:
            watcher.closed(session)

    def close(self) -> None:
        """Closes the tools; safe to call twice."""
        for run in self._tools.values():
            run.close()


def of_step(tool: Tool, args: list[Any], row: int, step: str) -> ToolCall:
    """A call that a step of the workflow makes; arguments in the order of the parameters."""
    return ToolCall(tool=tool, args=named(tool, args), row=row, step=step, session=f"{row}")


def named(tool: Tool, args: Iterable[Any]) -> dict[str, Any]:
    """Arguments in the order of the parameters, by name."""
    return dict(zip((param.name for param in tool.params), args, strict=True))


def spared(outcome: Outcome) -> ToolResult:
    """The result of a call that was not made, since an equal one was or its result was known."""
    failure = outcome.failure
    return ToolResult(
        text=outcome.text,
        error=None if failure is None else failure.message,
        kind="" if failure is None else failure.kind,
        source=source_of(outcome),
    )


def source_of(outcome: Outcome) -> Source:
    """Whether a call was made, an equal one was, or its result was known from before the run."""
    return "merged" if outcome.merged else "fetched" if outcome.fetched else "made"


def merge_key(tool: Tool, args: list[Any]) -> bytes | None:
    """What equal calls of a tool share within a run; None where each is made: it acts, or may give another result.

    A statement that a row or a model writes may ask for the time or for chance.
    """
    if not tool.deterministic:
        return None
    if not tool.is_settled:
        query = named(tool, args).get("query")
        if query is not None and (not tool.is_sqlite or is_volatile(str(query))):
            return None
    return canonical_text([tool.origin, tool.target, tool.name, tool.query, args]).encode("utf-8", "surrogatepass")
