"""The operator of an agent: turns of a model and calls of its tools, one after another, until it answers.

A turn and a call of a tool are calls like any other: merged, kept in the journal and the store, bounded by lanes and
budgets. So a run that was killed goes through a dialogue again from what is known and makes what was in flight.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from helix.errors import ExecutionError
from helix.executor.agent_prompt import AgentPrompt
from helix.executor.attempts import EngineCaller
from helix.executor.calls import Call, Dispatcher, Outcome, addressed
from helix.executor.dialogue import Dialogue
from helix.executor.engines.base import Capabilities, Request
from helix.executor.frame import Dataflow, Frame
from helix.executor.gates import Gate
from helix.executor.limits import Limits
from helix.executor.operators import Operator
from helix.executor.places import Place
from helix.executor.steps import may_be_longer, too_long
from helix.executor.store.keys import Asking
from helix.executor.tool_calls import ToolCalls
from helix.executor.values import Failure
from helix.logical import Agent, Tool
from helix.results import StepReport


class AgentStep(Operator):
    """Runs an agent for each row. What is the same for all rows is here, the rest in a `Dialogue`.

    `lanes` and `askings` are by tool; `engine` is the name of the engine. `gates`, `phase`, `block` and `turns` as for
    an llm step.
    """

    __slots__ = (
        "_phase",
        "_turns",
        "asking",
        "askings",
        "block",
        "caller",
        "capabilities",
        "dispatcher",
        "engine",
        "flow",
        "gates",
        "lane",
        "lanes",
        "limits",
        "node",
        "prompt",
        "report",
        "timeouts",
        "tool_calls",
    )

    def __init__(
        self,
        index: int,
        place: Place,
        node: Agent,
        *,
        flow: Dataflow,
        dispatcher: Dispatcher,
        capabilities: Capabilities,
        engine: str,
        lane: str,
        prompt: AgentPrompt,
        caller: EngineCaller,
        tool_calls: ToolCalls,
        limits: Limits,
        report: StepReport,
        lanes: Mapping[Tool, str],
        timeouts: Mapping[Tool, float | None],
        askings: Mapping[Tool, Asking],
        asking: Asking | None,
        gates: tuple[Gate, ...] = (),
        phase: int = 0,
        block: int = 1,
        turns: Mapping[int, int] | None = None,
    ) -> None:
        super().__init__(index, place)
        self.node = node
        self.flow = flow
        self.dispatcher = dispatcher
        self.capabilities = capabilities
        self.engine = engine
        self.lane = lane
        self.prompt = prompt
        self.caller = caller
        self.tool_calls = tool_calls
        self.limits = limits
        self.report = report
        self.lanes = lanes
        self.timeouts = timeouts
        self.askings = askings
        self.asking = asking
        self.gates = gates
        self.block = block
        self._phase, self._turns = phase, turns

    def start(self, frame: Frame, slot: int) -> Any:
        try:
            messages = self.prompt.messages(frame.values)
        except ExecutionError as error:
            return self.outcome(self.failed(frame, error))
        return Dialogue(self, frame, slot, messages).begin()

    def phase(self, row: int) -> int:
        """The phase of a row's turns."""
        return self._phase if self._turns is None else self._turns.get(row, self._phase)

    def outcome(self, value: Any) -> Any:
        """What the step gives: its value, its failure, or null where the step says that errors are null."""
        if value.__class__ is Failure and not value.cut_short:
            self.report.failed += 1
            if self.node.on_error == "null":
                return None
        return value

    async def make_turn(self, frame: Frame, request: Request, call: Call) -> Outcome:
        """Asks the model for a turn."""
        request = addressed(request, call)
        limit = self.capabilities.max_context
        if limit is not None and self.capabilities.counts_tokens and may_be_longer(request, limit):
            tokens = await self.caller.count_tokens(request)
            if tokens is not None and tokens > limit - (request.max_tokens or 1):
                return Outcome(None, self.failure(frame, "prompt.too_long", too_long(request, tokens, limit)))
        return await self.caller.make(request, call)
