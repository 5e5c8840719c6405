"""Joins the parts of speculation: stands around the real calls of a run, and hears of the decisions of its models."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from helix.canonical import canonical_text
from helix.executor.engines.base import Request
from helix.executor.speculation.books import Books
from helix.executor.speculation.budgets import Budgets
from helix.executor.speculation.effect import guessable
from helix.executor.speculation.epochs import Epochs
from helix.executor.speculation.figures import Figures
from helix.executor.speculation.guess import Guess, Kind, Owner
from helix.executor.speculation.lane import GuessLane, Lanes
from helix.executor.speculation.log import LaunchLog
from helix.executor.speculation.predictor import MakeHistory, Predictor
from helix.executor.speculation.real import RealCalls
from helix.executor.speculation.sessions import Session, own_name
from helix.executor.speculation.settings import Mode, SpeculationSettings
from helix.executor.speculation.state import SpeculationState
from helix.executor.speculation.table import GuessTable
from helix.executor.speculation.times import Times, expected_least
from helix.executor.speculation.value import Worth, greedy, worth
from helix.executor.tool_calls import Deciding, Decision, Make, ToolCall, ToolResult
from helix.places import static_name
from helix.services import Tool
from helix.tools.effects import Effect
from helix.tools.schema import arguments_in_order

_MOST_REMEMBERED = 4096


class Speculator:
    """The speculation of one run: an `Around` and a `Watcher` of its tool calls. Used from one event loop.

    `predictor` knows patterns (None: only branches are guessed at), `history` makes what it looks at. `lanes` and `run`
    are as in `GuessLane`, `timeout` is the time limit of a tool's real calls. `hidden_from` says whether a text may not
    leave for an open world, `warm` computes the beginning of an agent's next prompt, `over` says whether the run makes
    no further call. `tools` are those of the plan, `known` gives a tool with the effects that its server says.
    """

    def __init__(
        self,
        settings: SpeculationSettings,
        mode: Mode,
        *,
        state: SpeculationState,
        lanes: Lanes,
        run: Callable[[Tool, list[Any]], Awaitable[str]],
        predictor: Predictor | None = None,
        history: MakeHistory | None = None,
        tools: Iterable[Tool] = (),
        known: Callable[[Tool], Tool] = lambda tool: tool,
        timeout: Callable[[Tool], float | None] = lambda tool: tool.timeout,
        hidden_from: Callable[[str], bool] = lambda text: False,
        tenant: str | None = None,
        log: LaunchLog | None = None,
        warm: Callable[[str, str, Request], None] | None = None,
        over: Callable[[], bool] = lambda: False,
    ) -> None:
        self.settings = settings
        self.mode = mode
        self.state = state
        self.books = Books(settings, state, log)
        self._predictor = predictor
        self._make_history = history
        self._hidden_from = hidden_from
        self._warm = warm
        self._over = over
        self._known = known
        tools = tuple(tools)
        epochs = Epochs(
            (name for tool in tools for name in tool.reads or ()),
            strict=any(tool.origin == "sql" and tool.reads is None for tool in tools),
        )
        self._budgets = Budgets(settings)
        self.table = GuessTable(epochs, self.books, tenant)
        self._lane = self.table.lane = GuessLane(settings, self._budgets, lanes, run, self.table.ended)
        self._real = RealCalls(self.books, epochs, self.table, known=known, timeout=timeout, lead=self._lead)
        self._sessions: dict[str, Session] = {}
        # By row: how long its last branch was open in which something could be guessed at.
        self.branch_leads: dict[str, float] = {}
        self._least: dict[tuple[int, int, int, int], float] = {}

    @property
    def figures(self) -> Figures:
        """What came of the guesses so far."""
        return self.books.figures

    async def __call__(self, call: ToolCall, make: Make) -> str:
        """The result of a real call: from a guess, or made."""
        return await self._real(call, make)

    # --- a model decides ---

    def deciding(self, deciding: Deciding) -> None:
        """A model is being asked: looks at what it may ask for, unless it has answered in a moment."""
        loop = asyncio.get_running_loop()
        session = self._session(deciding.session)
        self._let_go(session)
        session.begins(deciding, loop.time())
        if self._predictor is not None:
            session.timer = loop.call_later(self.settings.patience, self._look, session, deciding)

    def awaiting(self, session: str, engine: str, request: Request) -> None:
        """An agent waits for its tools: the beginning of its next prompt may be computed meanwhile."""
        if self._warm is not None:
            self._warm(session, engine, request)

    def _look(self, session: Session, deciding: Deciding) -> None:
        """Launches what is worth it before a decision."""
        session.timer = None
        if self._predictor is None or session.history is None:
            return
        try:
            candidates = self._predictor.predict(session.history, most=self.settings.candidates)
        except Exception as error:
            # Patterns are a help: where they break, the run goes on without them, and says so once.
            self._predictor = None
            self.state.note = f"patterns were given up: {type(error).__name__}: {error}"
            return
        figures = self.books.figures
        by_name = {own_name(tool.name): self._known(tool) for tool in deciding.tools}
        leads = self.state.decision_times(static_name(session.step))
        seen: set[str] = set()
        good: dict[str, tuple[Tool, list[Any], Effect, Worth, str]] = {}
        for candidate in candidates:
            tool = by_name.get(candidate.tool)
            given = None if tool is None else self._arguments(tool, candidate.args)
            if tool is None or given is None:
                figures.refuse("arguments" if tool is not None else "tool")
                continue
            args, named = given
            call = self.table.call(tool, named)
            if call in seen:
                continue
            seen.add(call)
            session.asked.append((call, candidate))
            effect = guessable(tool, named)
            if effect is None:
                figures.refuse("effects")
            elif candidate.chances < self.settings.chances or candidate.stale:
                figures.refuse("chances")
            elif self.hides(tool, named):
                figures.refuse("secret")
            else:
                good[call] = (tool, args, effect, self.worth(tool, candidate.p_low, leads), candidate.pattern)
        chosen = greedy(((call, found[3]) for call, found in good.items()), self.settings.per_decision)
        for call, found in good.items():
            if call not in chosen:
                figures.refuse("value" if found[3].value <= 0 else "decision")
        for call in chosen:
            tool, args, effect, value, pattern = good[call]
            guess = self.guess((deciding.session, deciding.turn), tool, args, call, effect, value, pattern)
            if guess is not None:
                session.guesses.append(guess)

    def hides(self, tool: Tool, args: Mapping[str, Any]) -> bool:
        """Whether a guess at a call would tell an open world what is secret: a wrong read still leaks its arguments."""
        return tool.open_world and self._hidden_from(canonical_text(dict(args)))

    def known(self, tool: Tool) -> Tool:
        """A tool with the effects that its server says, where they are left to it."""
        return self._known(tool)

    def worth(self, tool: Tool, p_low: float, leads: Times) -> Worth:
        """What a guess at a call is worth before a decision that takes so long."""
        times = self.state.tool_times(tool)
        key = (id(times), times.version, id(leads), leads.version)
        hidden = self._least.get(key)
        if hidden is None:
            if len(self._least) > _MOST_REMEMBERED:
                self._least.clear()
            hidden = self._least[key] = expected_least(times, leads)
        return worth(
            self.settings,
            p_low=p_low,
            hidden=hidden,
            tool_seconds=times.mean(),
            fee=tool.fee or 0.0,
            queue=self._lane.expected_delay(tool),
        )

    def guess(
        self, owner: Owner, tool: Tool, args: list[Any], call: str, effect: Effect, value: Worth, pattern: str
    ) -> Guess | None:
        """Makes a guess at a call whose effects were looked at, or counts it in the shadow; None where it is not to be.

        A result that is on its way already, and holds for this owner too, is not fetched twice.
        """
        if self._over():
            self.figures.refuse("the run is over")
            return None
        now = asyncio.get_running_loop().time()
        breaker = self.books.breaker(tool, now)
        if breaker == "open":
            self.figures.refuse("breaker")
            return None
        key = self.table.key(tool, call, effect, owner)
        held = self.table.find(key, now)
        if held is not None:
            held.owners.add(owner)
            return held
        stage = self.state.stage(tool)
        stage.ready()
        kind: Kind = "shadow"
        if self.mode == "on" and breaker == "closed" and stage.stage in ("issue", "serve"):
            kind = "issue" if stage.stage == "issue" else "serve"
        made = Guess(
            tool=tool,
            args=args,
            call=call,
            key=key,
            effect=effect,
            kind=kind,
            owner=owner,
            p_low=value.p_low,
            worth=value,
            pattern=pattern,
            born=now,
        )
        self.table.add(made)
        if kind != "shadow":
            refusal = self._lane.offer(made, owner[0])
            if refusal is not None:
                self.figures.refuse(refusal)
                self.table.drop(made)
                return None
        self.books.made(made, now)
        return made

    def decided(self, decision: Decision) -> None:
        """A model has decided: what it did not ask for is given up."""
        session = self._session(decision.session)
        if session.began is None:
            # It was known at once: nothing was guessed, but guesses of the turn before may be left.
            self._let_go(session)
        lead = session.ends(decision, asyncio.get_running_loop().time())
        if lead is not None and decision.source == "made":
            self.state.decision_times(static_name(decision.step)).add(lead)
        self.figures.decisions += 1
        calls = {self.table.call(self._known(call.tool), call.args) for call in decision.calls}
        for call, candidate in session.asked:
            self.figures.settled(candidate.p_low, call in calls)
        session.asked = []
        kept: list[Guess] = []
        for guess in session.guesses:
            if guess.call in calls:
                guess.matched = True
                kept.append(guess)
            else:
                self.table.give_up(guess, (decision.session, decision.turn))
        session.guesses = kept

    def returned(self, call: ToolCall, result: ToolResult) -> None:
        """A call has ended."""
        session = self._sessions.get(call.session)
        if session is not None:
            session.returned(call, result)

    def closed(self, session: str) -> None:
        """A session is over."""
        found = self._sessions.pop(session, None)
        if found is not None:
            found.stop()
            self._let_go(found)
        self._budgets.forget(session)

    def _let_go(self, session: Session) -> None:
        """Gives up what is left of a decision: calls that were asked for, whose results were known otherwise."""
        for guess in session.guesses:
            self.table.give_up(guess, (session.name, session.turn))
        session.guesses = []

    def _session(self, name: str) -> Session:
        found = self._sessions.get(name)
        if found is None:
            history = None if self._make_history is None else self._make_history()
            found = self._sessions[name] = Session(name, history)
        return found

    def _lead(self, call: ToolCall) -> float | None:
        if call.turn is None:
            return self.branch_leads.get(call.session)
        session = self._sessions.get(call.session)
        return None if session is None else session.lead

    def _arguments(self, tool: Tool, args: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]] | None:
        """Predicted arguments as the tool takes them, in order and by name; None where they do not fit."""
        try:
            values = arguments_in_order(tool, dict(args))
        except ValueError:
            return None
        return values, named_args(tool, values)

    async def close(self) -> None:
        """Ends all guesses and keeps what was learned; safe to call twice."""
        for session in self._sessions.values():
            session.stop()
            self._let_go(session)
        self._sessions.clear()
        await self._real.close()
        await self.table.close()
        self.state.save()
        if self.books.log is not None:
            self.books.log.close()


def named_args(tool: Tool, values: list[Any]) -> dict[str, Any]:
    """Arguments in the order of the parameters, by name."""
    return {param.name: value for param, value in zip(tool.params, values, strict=True)}
