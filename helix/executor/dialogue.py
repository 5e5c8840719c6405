"""One agent in one row: what was said so far, and what comes next."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from helix.errors import OutputError
from helix.executor.agent_prompt import line_of
from helix.executor.agent_turns import Answer, Asked, Turn
from helix.executor.attempts import ToolCaller
from helix.executor.calls import Call, Outcome, Settle
from helix.executor.engines.base import Message, Request
from helix.executor.frame import Frame
from helix.executor.steps import prompt_bytes
from helix.executor.tool_calls import Deciding, Decision, ToolCall, ToolResult, merge_key, named, source_of, spared
from helix.executor.values import PENDING, Failure
from helix.tools.effects import HARMLESS

if TYPE_CHECKING:
    from helix.executor.agent import AgentStep


class _More:
    """The mark of a dialogue that goes on."""


MORE = _More()
_NO_TOKENS = {"prompt_tokens": None, "completion_tokens": None}


class Dialogue:
    """See the module. It lives from the first turn to the answer, and is held by the calls that it waits for."""

    __slots__ = (
        "_acted",
        "_age",
        "_began",
        "_calls",
        "_cut",
        "_frame",
        "_heard_any",
        "_instance",
        "_last",
        "_late",
        "_left",
        "_lines",
        "_messages",
        "_own",
        "_rank",
        "_request",
        "_session",
        "_shown",
        "_slot",
        "_started",
        "_step",
        "_timer",
        "_tokens",
        "_trace",
        "_turn",
        "_unusable",
        "_waiting",
    )

    def __init__(self, step: AgentStep, frame: Frame, slot: int, messages: tuple[Message, ...]) -> None:
        self._step = step
        self._frame = frame
        self._slot = slot
        self._messages = messages
        # The number of the turn that is asked for next or that is going on, from 0.
        self._turn = 0
        self._tokens = self._unusable = 0
        self._trace: list[dict[str, Any]] = []
        self._last = self._heard_any = False
        self._began = self._started = asyncio.get_running_loop().time()
        self._request: Request | None = None
        # The worker that had the last turn.
        self._rank: int | None = None
        # The calls of the turn: those that are still to be made in order, how many have not ended, what the model reads
        # of each, and for the trace.
        self._waiting: list[tuple[int, Asked]] = []
        self._left = 0
        self._lines: list[str] = []
        self._shown: list[dict[str, Any]] = []
        self._cut: Failure | None = None
        # A tool that acts was called: what was read before may not be so any more.
        self._acted = False
        # Where there is a time limit: what rings at it, whether it has rung, the calls that are waited for by then, and
        # a count by which the outcomes of those that were given up are known.
        self._timer: asyncio.TimerHandle | None = None
        self._late = False
        self._calls: dict[int, tuple[Asked | None, Call]] = {}
        self._age = 0
        name = step.place.name(frame.items)
        where = "".join(f".{turn}" for turn in frame.turns)
        self._session = f"{frame.row}/{name}{where}"
        # An agent that stands alone in its row goes where the row goes; several in one row are placed each for itself.
        self._own = bool(frame.path)
        place = (*frame.path, step.index) if self._own else ()
        self._instance = (frame.scope, frame.sequence, *place)

    # --- from turn to turn ---

    def begin(self) -> Any:
        """The value, or PENDING where it comes later."""
        limit = self._step.node.max_time
        if limit is not None:
            self._timer = asyncio.get_running_loop().call_at(self._began + limit, self._out_of_time)
        return self._ended(self._advance())

    def _advance(self) -> Any:
        """Goes on until something has to be waited for."""
        value: Any = MORE
        while value is MORE:
            value = self._ask()
            if value.__class__ is Outcome:
                value = self._heard(value)
        return value

    def _go_on(self, value: Any) -> None:
        """Goes on after something that was waited for."""
        value = self._ended(self._advance() if value is MORE else value)
        if value is not PENDING:
            self._step.flow.settle(self._frame, self._slot, value)

    def _ended(self, value: Any) -> Any:
        if value is PENDING:
            return value
        step = self._step
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        step.tool_calls.closed(self._session)
        if self._own:
            step.dispatcher.row_ended(self._instance)
        return step.outcome(value)

    # --- asking the model ---

    def _ask(self) -> Any:
        """Asks for the next turn: its outcome, PENDING, or a failure where a limit leaves none."""
        step, frame, turn = self._step, self._frame, self._turn
        node = step.node
        reason = self._limit()
        self._last = reason is not None
        if reason is not None:
            if node.at_limit == "fail":
                step.report.at_limit += 1
                return self._failure("limit", f"no answer within {reason}", turns=turn)
            if turn:
                step.report.at_limit += 1
        name, order = step.place.name(frame.items), step.place.order(frame.items)
        request = step.prompt.turn(self._messages, frame.row, name, last=self._last)
        self._request = request
        key = step.prompt.turn_key(self._messages, last=self._last) if node.cache and node.repeats else None
        asked = None
        if step.asking is not None:
            content = step.prompt.content(self._messages, last=self._last)
            turns = (*frame.turns, turn)
            asked = step.asking.call(content, 0, row=frame.row, place=name, turns=turns, shared=key)
        call = Call(
            step=name,
            order=order,
            priority=(frame.sequence // step.block, step.phase(frame.row), frame.sequence, *frame.path, step.index, 0),
            key=key,
            lane=step.lane,
            make=partial(self._make_turn, request),
            settle=self._unless_late(lambda outcome: self._go_on(self._heard(outcome))),
            wanted=self._wanted(),
            row=frame.row,
            gates=step.gates if turn == 0 else (),
            request=request,
            instance=self._instance,
            node=node.id,
            asked=asked,
        )
        self._started = asyncio.get_running_loop().time()
        outcome = step.dispatcher.submit(call)
        if outcome is not None:
            return outcome
        if self._timer is not None:
            self._calls[0] = (None, call)
        step.tool_calls.deciding(
            Deciding(
                session=self._session,
                row=frame.row,
                step=name,
                turn=turn,
                told=() if turn else self._told(),
                tools=node.tools,
                engine=step.engine,
                request=request,
            )
        )
        return PENDING

    async def _make_turn(self, request: Request, call: Call) -> Outcome:
        self._rank = call.rank
        return await self._step.make_turn(self._frame, request, call)

    def _limit(self) -> str | None:
        """The limit that makes the next turn the last one, or with `at_limit fail` one too many."""
        node = self._step.node
        last = node.max_turns if node.at_limit == "fail" else node.max_turns - 1
        if self._turn >= last:
            return f"{node.max_turns} {'turn' if node.max_turns == 1 else 'turns'}"
        if node.max_total_tokens is not None and self._tokens >= node.max_total_tokens:
            return f"{node.max_total_tokens} tokens"
        late = node.max_time is not None and asyncio.get_running_loop().time() - self._began >= node.max_time
        if self._late or late:
            return f"{node.max_time:g} s"
        return None

    def _told(self) -> tuple[str, ...]:
        """What users said that is new to the model in this turn."""
        return () if self._heard_any else tuple(each.content for each in self._messages if each.role == "user")

    # --- hearing the model ---

    def _heard(self, outcome: Outcome) -> Any:
        """Takes a turn: MORE, PENDING while its calls are made, the value, or a failure."""
        step, frame = self._step, self._frame
        report = step.report
        report.merged += outcome.merged
        report.fetched += outcome.fetched
        if outcome.failure is not None:
            return outcome.failure.at(step.place.name(frame.items), step.place.order(frame.items))
        assert outcome.text is not None
        assert self._request is not None
        report.turns += 1
        self._calls.clear()
        turn = Turn.unpacked(outcome.text)
        self._tokens += turn.tokens(prompt_bytes(self._request))
        said = step.prompt.said(turn, self._turn)
        told = self._told()
        self._heard_any = True
        try:
            found = step.prompt.read(turn)
        except OutputError as error:
            self._decided(outcome, turn, told, ())
            return self._unusable_reply(error, turn, said)
        self._unusable = 0
        if isinstance(found, Answer):
            self._decided(outcome, turn, told, ())
            self._note(turn)
            return {"answer": found.value, "trace": self._trace} if step.node.trace else found.value
        calls = tuple(self._tool_call(place, each) for place, each in enumerate(found) if each.tool is not None)
        self._decided(outcome, turn, told, calls)
        if self._last:
            what = f"it asks for calls in its last turn, the {self._turn + 1}. of {step.node.max_turns}"
            return self._failure("limit", what, raw=turn.text)
        self._messages = (*self._messages, said)
        self._note(turn)
        if step.tool_calls.around is not None:
            begun = (*self._messages, *step.prompt.results_begin(self._turn, found))
            name = step.place.name(frame.items)
            next_one = replace(step.prompt.turn(begun, frame.row, name, last=False), rank=self._rank)
            step.tool_calls.awaiting(self._session, step.engine, next_one)
        return self._make(found)

    def _unusable_reply(self, error: OutputError, turn: Turn, said: Message) -> Any:
        """A reply that is neither a call nor an answer: the model is told, so often in a row as it may be re-asked."""
        self._unusable += 1
        self._note(turn, problem=error.message)
        if self._last or error.kind == "truncated" or self._unusable > self._step.node.reask:
            return self._failure(error.kind, error.message, raw=error.text)
        self._step.report.reasks += 1
        self._turn += 1
        kept = (said,) if said.content.strip() or said.calls else ()
        self._messages = (*self._messages, *kept, *self._step.prompt.correction(error, last=self._next_is_last()))
        return MORE

    def _next_is_last(self) -> bool:
        return self._step.node.at_limit == "answer" and self._limit() is not None

    def _note(self, turn: Turn, problem: str = "") -> None:
        """Begins a turn of the trace."""
        if self._step.node.trace:
            noted: dict[str, Any] = {"turn": self._turn + 1, "text": turn.text, "calls": []}
            if problem:
                noted["problem"] = problem
            noted |= {"prompt_tokens": turn.prompt_tokens, "completion_tokens": turn.completion_tokens}
            self._trace.append(noted)

    # --- calling tools ---

    def _make(self, found: list[Asked]) -> Any:
        """Makes the calls of a turn: all at once where none of them acts, else one after the other, in their order."""
        self._lines = [""] * len(found)
        self._shown = [{} for _ in found]
        self._left = len(found)
        self._cut = None
        self._step.report.tool_calls += len(found)
        self._waiting = list(enumerate(found))
        together = all(each.tool is None or each.tool.effects in HARMLESS for each in found)
        return self._next_calls(together=together)

    def _next_calls(self, *, together: bool) -> Any:
        """Makes those calls that are not made yet, up to one that has to be waited for, where they go in order."""
        while self._waiting:
            place, asked = self._waiting.pop(0)
            if asked.tool is None:
                self._got(place, asked, None, asked.problem)
                if not together:
                    self._drop_rest()
                continue
            outcome = self._submit(place, asked, together=together)
            if outcome is not None:
                self._returned(place, asked, outcome, together=together)
            elif not together:
                break
        return self._after_calls() if self._left == 0 else PENDING

    def _submit(self, place: int, asked: Asked, *, together: bool) -> Outcome | None:
        """Submits one call; its outcome where that is known already."""
        step, frame = self._step, self._frame
        tool = asked.tool
        assert tool is not None
        args = list(asked.args)
        made = self._tool_call(place, asked)
        name, order = step.place.name(frame.items), step.place.order(frame.items)
        key = None if self._acted and tool.effects != "pure" else merge_key(tool, args)
        self._acted = self._acted or tool.effects not in ("pure", "read")
        known = None
        if tool in step.askings:
            turns = (*frame.turns, self._turn, place)
            known = step.askings[tool].call(args, 0, row=frame.row, place=name, turns=turns, shared=key)
            # A call that has to be made anew in this run is no result for another one.
            known.stored = known.stored and key is not None
        caller = ToolCaller(
            lambda args, call: step.tool_calls.call(made), step.limits, step.report, step.timeouts[tool]
        )

        def settle(outcome: Outcome) -> None:
            self._calls.pop(place, None)
            self._returned(place, asked, outcome, together=together)
            if self._left == 0:
                self._go_on(self._after_calls())
            elif not together:
                self._go_on(self._next_calls(together=False))

        call = Call(
            step=name,
            order=order,
            priority=(frame.sequence, *frame.path, step.index, self._turn, place),
            key=key,
            lane=step.lanes[tool],
            make=partial(caller.make, args),
            settle=self._unless_late(settle),
            wanted=self._wanted(),
            row=frame.row,
            asked=known,
        )
        outcome = step.dispatcher.submit(call)
        if outcome is None and self._timer is not None:
            self._calls[place] = (asked, call)
        return outcome

    def _tool_call(self, place: int, asked: Asked) -> ToolCall:
        tool = asked.tool
        assert tool is not None
        return ToolCall(
            tool=tool,
            args=named(tool, asked.args),
            row=self._frame.row,
            step=self._step.place.name(self._frame.items),
            session=self._session,
            turn=self._turn,
            position=place,
        )

    def _returned(self, place: int, asked: Asked, outcome: Outcome, *, together: bool) -> None:
        """Takes the outcome of a call."""
        report, failure = self._step.report, outcome.failure
        report.merged += outcome.merged
        report.fetched += outcome.fetched
        if outcome.merged or outcome.fetched:
            self._step.tool_calls.returned(self._tool_call(place, asked), spared(outcome))
        if failure is None:
            self._got(place, asked, outcome.text, "")
            return
        if failure.cut_short or failure.passing:
            self._cut = self._cut or failure
        self._got(place, asked, None, failure.message)
        if not together:
            self._drop_rest()

    def _drop_rest(self) -> None:
        """Makes no further call of the turn: what follows was asked for in the belief that this one would go well."""
        for place, asked in self._waiting:
            self._got(place, asked, None, "not called, since a call of the same turn before it failed")
        self._waiting = []

    def _got(self, place: int, asked: Asked, text: str | None, problem: str) -> None:
        self._left -= 1
        self._lines[place] = line_of(asked.name, text, problem)
        if text is None:
            self._step.report.tool_errors += 1
        if self._step.node.trace:
            shown = {"tool": asked.name, "args": asked.given}
            self._shown[place] = shown | ({"error": problem} if text is None else {"result": json.loads(text)})

    def _after_calls(self) -> Any:
        """The calls of a turn have ended: the model is told, and asked again."""
        if self._cut is not None:
            step, frame = self._step, self._frame
            return self._cut.at(step.place.name(frame.items), step.place.order(frame.items))
        if self._step.node.trace:
            self._trace[-1]["calls"] = self._shown
        number, self._turn = self._turn, self._turn + 1
        results = self._step.prompt.results(number, self._lines, last=self._next_is_last())
        self._messages = (*self._messages, *results)
        self._lines, self._shown = [], []
        return MORE

    # --- out of time ---

    def _out_of_time(self) -> None:
        """The time limit: what is waited for is given up, and the model has its last turn, if there is one.

        A last turn that is going on is not ended: it is what the limit asks for.
        """
        step, node = self._step, self._step.node
        self._timer, self._late = None, True
        if self._last or step.dispatcher.over:
            return
        calls, self._calls = self._calls, {}
        self._age += 1
        for _, call in calls.values():
            step.dispatcher.give_up(call)
        limit = f"{node.max_time:g} s"
        if node.at_limit == "fail":
            step.report.at_limit += 1
            self._go_on(self._failure("limit", f"no answer within {limit}", turns=self._turn))
        elif self._left:
            self._cut_calls(calls, f"no result within the {limit} that the agent has")
        else:
            if node.trace:
                problem = f"it was given up after the {limit} that the agent has"
                self._trace.append({"turn": self._turn + 1, "text": "", "calls": [], "problem": problem} | _NO_TOKENS)
            self._turn += 1
            self._messages = (*self._messages, *step.prompt.hurry())
            self._go_on(MORE)

    def _cut_calls(self, calls: dict[int, tuple[Asked | None, Call]], problem: str) -> None:
        """Tells the model, and the watchers, of calls that were given up."""
        for place, (asked, _) in sorted(calls.items(), key=lambda each: each[0]):
            assert asked is not None
            self._step.tool_calls.returned(self._tool_call(place, asked), ToolResult(error=problem, kind="limit"))
            self._got(place, asked, None, problem)
        self._drop_rest()
        self._go_on(self._after_calls())

    def _unless_late(self, settle: Settle) -> Settle:
        """Takes the outcome of a call, unless it was given up."""
        age = self._age
        return lambda outcome: settle(outcome) if age == self._age else None

    def _wanted(self) -> Callable[[], bool]:
        """Whether a call that is asked for now is still wanted."""
        age, scope = self._age, self._frame.scope
        return lambda: not scope.closed and age == self._age

    # --- what others hear ---

    def _decided(self, outcome: Outcome, turn: Turn, told: tuple[str, ...], calls: tuple[ToolCall, ...]) -> None:
        made = not (outcome.merged or outcome.fetched)
        self._step.tool_calls.decided(
            Decision(
                session=self._session,
                row=self._frame.row,
                step=self._step.place.name(self._frame.items),
                turn=self._turn,
                told=told,
                text=turn.text,
                calls=calls,
                source=source_of(outcome),
                began=self._started if made else None,
                ended=asyncio.get_running_loop().time() if made else None,
            )
        )

    def _failure(self, kind: str, message: str, *, raw: str | None = None, turns: int | None = None) -> Failure:
        """A failure of the agent's own; `turns` were made (None: the one that is going on is the last)."""
        step, items = self._step, self._frame.items
        name, order = step.place.name(items), step.place.order(items)
        attempts = self._turn + 1 if turns is None else turns
        return Failure(kind, message, step=name, order=order, attempts=attempts, raw=raw, own=True)
