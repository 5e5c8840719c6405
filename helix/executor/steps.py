"""The operators that call: an llm step with its samples, a tool step."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from helix.errors import ExecutionError
from helix.executor.attempts import EngineCaller, ToolCaller
from helix.executor.calls import Call, Dispatcher, Outcome, addressed
from helix.executor.engines.base import Capabilities, Message, Request
from helix.executor.frame import Dataflow, Frame
from helix.executor.gates import Gate
from helix.executor.operators import Operator
from helix.executor.places import Place
from helix.executor.prompts import Prompt
from helix.executor.store.keys import Asked, Asking
from helix.executor.tool_calls import ToolCalls, merge_key, of_step, spared
from helix.executor.values import PENDING, Failure, Order
from helix.logical import Generate, Invoke
from helix.replies import parse_reply
from helix.results import StepReport

# No prompt has more tokens than bytes and a template's overhead: shorter ones need not be counted.
_TEMPLATE_TOKENS = 64


class GenerateStep(Operator):
    """Calls a language model once for each sample; the value is the reply, or the list of the replies.

    Among `block` rows, the calls of a lower `phase` go first; `turns` are phases of single rows.
    """

    __slots__ = (
        "_asking",
        "_block",
        "_caller",
        "_capabilities",
        "_dispatcher",
        "_flow",
        "_gates",
        "_lane",
        "_node",
        "_phase",
        "_prompt",
        "_report",
        "_shared",
        "_shorten",
        "_turns",
    )

    def __init__(
        self,
        index: int,
        place: Place,
        node: Generate,
        *,
        flow: Dataflow,
        dispatcher: Dispatcher,
        capabilities: Capabilities,
        lane: str,
        prompt: Prompt,
        caller: EngineCaller,
        report: StepReport,
        shorten: Shortener | None,
        gates: tuple[Gate, ...] = (),
        phase: int = 0,
        block: int = 1,
        turns: Mapping[int, int] | None = None,
        asking: Asking | None = None,
    ) -> None:
        super().__init__(index, place)
        self._asking = asking
        self._turns = turns
        self._gates = gates
        self._phase, self._block = phase, block
        self._node = node
        self._flow = flow
        self._dispatcher = dispatcher
        self._capabilities = capabilities
        self._lane = lane
        self._prompt = prompt
        self._caller = caller
        self._report = report
        self._shared = node.cache and node.deterministic
        self._shorten = shorten

    def start(self, frame: Frame, slot: int) -> Any:
        try:
            messages = self._prompt.messages(frame.values)
        except ExecutionError as error:
            return self._outcome(self.failed(frame, error))
        count = self._node.sample
        if count == 1:
            value = self._submit(frame, messages, 0, lambda value: self._flow.settle(frame, slot, self._outcome(value)))
            return PENDING if value is PENDING else self._outcome(value)
        results: list[Any] = [PENDING] * count
        left = count

        def collect(sample: int, value: Any) -> None:
            nonlocal left
            results[sample] = value
            left -= 1
            if left == 0:
                # All replies, or the failure of the first sample that failed.
                failed = next((value for value in results if value.__class__ is Failure), results)
                self._flow.settle(frame, slot, self._outcome(failed))

        for sample in range(count):
            value = self._submit(frame, messages, sample, partial(collect, sample))
            if value is not PENDING:
                collect(sample, value)
        return PENDING

    def _submit(self, frame: Frame, messages: tuple[Message, ...], sample: int, settle: Callable[[Any], None]) -> Any:
        step, order = self.place.name(frame.items), self.place.order(frame.items)
        request = self._prompt.request(messages, frame.row, sample, step)
        key = self._prompt.key(messages, sample) if self._shared else None
        phase = self._phase if self._turns is None else self._turns.get(frame.row, self._phase)
        call = Call(
            step=step,
            order=order,
            priority=(frame.sequence // self._block, phase, frame.sequence, *frame.path, self.index, sample),
            key=key,
            lane=self._lane,
            make=lambda call: self._make(frame, request, call),
            settle=lambda outcome: settle(self._value(outcome, step, order)),
            wanted=lambda: not frame.scope.closed,
            row=frame.row,
            gates=self._gates,
            request=request,
            instance=(frame.scope, frame.sequence),
            node=self._node.id,
            asked=None if self._asking is None else self._asked(self._asking, frame, messages, sample, step, key),
        )
        outcome = self._dispatcher.submit(call)
        return PENDING if outcome is None else self._value(outcome, step, order)

    def _asked(
        self, asking: Asking, frame: Frame, messages: tuple[Message, ...], sample: int, place: str, key: bytes | None
    ) -> Asked:
        cut = None
        if self._shorten is not None:
            cut = [*self._shorten.cuts(frame), self._capabilities.max_context]
        content: Any = [[message.role, message.content] for message in messages]
        if cut is not None:
            content = {"messages": content, "cut": cut}
        return asking.call(content, sample, row=frame.row, place=place, turns=frame.turns, shared=key)

    async def _make(self, frame: Frame, request: Request, call: Call) -> Outcome:
        request = addressed(request, call)
        limit = self._capabilities.max_context
        if limit is not None and may_be_longer(request, limit):
            fitted = await self._fitted(frame, request, limit)
            if isinstance(fitted, Failure):
                return Outcome(None, fitted)
            request = fitted
        return await self._caller.make(request, call)

    async def _fitted(self, frame: Frame, request: Request, limit: int) -> Request | Failure:
        """The request if it fits the model's context, or cut as the step allows; else the failure of the row."""
        if not self._capabilities.counts_tokens:
            return request
        room = limit - (request.max_tokens or 1)
        tokens = await self._caller.count_tokens(request)
        if tokens is None or tokens <= room:
            return request
        if self._shorten is not None:
            shorter = await self._shorten.fit(self._caller.count_tokens, frame, self._prompt, request, room)
            if shorter is not None:
                self._report.truncated_prompts += 1
                return shorter
        return self.failure(frame, "prompt.too_long", too_long(request, tokens, limit))

    def _value(self, outcome: Outcome, step: str, order: Order) -> Any:
        """The value of an outcome: each reader gets a fresh object."""
        self._report.merged += outcome.merged
        self._report.fetched += outcome.fetched
        if outcome.failure is not None:
            return outcome.failure.at(step, order)
        assert outcome.text is not None
        return parse_reply(outcome.text, self._node.returns, coerce=self._node.coerce)

    def _outcome(self, value: Any) -> Any:
        """What the step gives: its value, its failure, or null where the step says that errors are null."""
        if value.__class__ is Failure and not value.cut_short:
            self._report.failed += 1
            if self._node.on_error == "null":
                return None
        return value


Count = Callable[[Request], Awaitable[int | None]]


class Shortener:
    """Cuts one input of a prompt until the prompt fits: what `on_overflow: truncate(...)` asks for."""

    def __init__(self, slot: int, keep: str, renders: Mapping[int, Operator]) -> None:
        self._slot = slot
        self._keep = keep
        self._renders = renders

    def cuts(self, frame: Frame) -> list[Any]:
        """What may be cut, and how."""
        return [self._keep, frame.values[self._slot]]

    async def fit(self, count: Count, frame: Frame, prompt: Prompt, request: Request, room: int) -> Request | None:
        """The request with the longest part of the input that fits, found by halving; None where nothing fits."""
        text = frame.values[self._slot]
        if not isinstance(text, str):
            return None
        low, high, best = 0, len(text), None
        while low <= high:
            middle = (low + high) // 2
            cut = text[:middle] if self._keep == "head" else text[len(text) - middle :]
            candidate = self._request(frame, prompt, request, cut)
            tokens = None if candidate is None else await count(candidate)
            if tokens is not None and tokens <= room:
                best, low = candidate, middle + 1
            else:
                high = middle - 1
        return best

    def _request(self, frame: Frame, prompt: Prompt, request: Request, cut: str) -> Request | None:
        """The request with the input cut; None where the template does not fit what is left of it."""
        shadow = Frame(
            frame.program, frame.row, frame.sequence, frame.path, frame.scope, lambda done: None, frame.items
        )
        shadow.values = list(frame.values)
        shadow.values[self._slot] = cut
        for slot, operator in self._renders.items():
            text = operator.start(shadow, slot)
            if text.__class__ is Failure:
                return None
            shadow.values[slot] = text
        return prompt.request(prompt.messages(shadow.values), request.row, request.sample, request.name)


def may_be_longer(request: Request, limit: int) -> bool:
    """Whether a prompt has to be counted: shorter ones fit a context of so many tokens anyway."""
    return prompt_bytes(request) + _TEMPLATE_TOKENS + (request.max_tokens or 0) > limit


def too_long(request: Request, tokens: int, limit: int) -> str:
    """What is said of a prompt of so many tokens."""
    wants = f" and {request.max_tokens} for the reply" if request.max_tokens else ""
    return f"the prompt needs {tokens} tokens{wants}, the model has {limit}"


def prompt_bytes(request: Request) -> int:
    """The length of a prompt's messages in UTF-8."""
    return sum(len(message.shown.encode("utf-8", "surrogatepass")) for message in request.messages)


class InvokeStep(Operator):
    """Calls a tool; equal calls of a tool that only reads are made once."""

    __slots__ = ("_args", "_asking", "_caller", "_dispatcher", "_flow", "_lane", "_node", "_report", "_tool_calls")

    def __init__(
        self,
        index: int,
        place: Place,
        node: Invoke,
        *,
        args: tuple[int, ...],
        flow: Dataflow,
        dispatcher: Dispatcher,
        lane: str,
        caller: ToolCaller,
        report: StepReport,
        tool_calls: ToolCalls,
        asking: Asking | None = None,
    ) -> None:
        super().__init__(index, place)
        self._asking = asking
        self._node = node
        self._tool_calls = tool_calls
        self._args = args
        self._flow = flow
        self._dispatcher = dispatcher
        self._lane = lane
        self._caller = caller
        self._report = report

    def start(self, frame: Frame, slot: int) -> Any:
        args = [frame.values[arg] for arg in self._args]
        key = merge_key(self._node.tool, args)
        step, order = self.place.name(frame.items), self.place.order(frame.items)
        asked: Asked | None = None
        if self._asking is not None:
            asked = self._asking.call(args, 0, row=frame.row, place=step, turns=frame.turns, shared=key)
            # A call that has to be made anew in this run is no result for another one.
            asked.stored = asked.stored and key is not None
        call = Call(
            step=step,
            order=order,
            priority=(frame.sequence, *frame.path, self.index),
            key=key,
            lane=self._lane,
            make=lambda call: self._caller.make(args, call),
            settle=lambda outcome: self._flow.settle(frame, slot, self._value(outcome, args, frame.row, step, order)),
            wanted=lambda: not frame.scope.closed,
            row=frame.row,
            asked=asked,
        )
        outcome = self._dispatcher.submit(call)
        if outcome is not None:
            return self._value(outcome, args, frame.row, step, order)
        self._caller.expect(args, call)
        return PENDING

    def _value(self, outcome: Outcome, args: list[Any], row: int, step: str, order: Order) -> Any:
        self._report.merged += outcome.merged
        self._report.fetched += outcome.fetched
        if self._tool_calls.watchers and (outcome.merged or outcome.fetched):
            self._tool_calls.returned(of_step(self._node.tool, args, row, step), spared(outcome))
        if outcome.failure is not None:
            if not outcome.failure.cut_short:
                self._report.failed += 1
            return outcome.failure.at(step, order)
        assert outcome.text is not None
        return json.loads(outcome.text)
