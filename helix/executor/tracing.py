"""Writes what happens in a run as a trace: decisions of agents, replies to llm steps, calls of tools.

An agent in a row is a session of its own; the llm and tool steps of a row are one session together, since no model
there decides what comes next. What a speculation launches is not here: only what was asked for.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from helix.executor.tool_calls import Decision, ToolCall, ToolResult
from helix.logical import Agent, LogicalPlan, every_node
from helix.services import Tool
from helix.traces.events import EFFECTS, EffectClass, Effects, Status
from helix.traces.recorder import SessionRecorder, TraceRecorder

if TYPE_CHECKING:
    from helix.executor.calls import Call, Outcome

# Classes of effects as traces write them.
_CLASSES: dict[str, EffectClass] = {each.replace("-", "_"): each for each in EFFECTS}
# Failures by which a run ends a call before it is done.
_CUT = frozenset({"not_started", "interrupted", "cancelled"})


class Tracing:
    """Hears of decisions and results (a `Watcher` of `ToolCalls`) and records them. Made on the run's loop."""

    def __init__(self, recorder: TraceRecorder, plan: LogicalPlan) -> None:
        self._recorder = recorder
        # Agents tell of their turns by themselves.
        self._agents = {node.id for node in every_node(plan.sink) if isinstance(node, Agent)}
        self._began = asyncio.get_running_loop().time()

    def decided(self, decision: Decision) -> None:
        """A model has decided."""
        self._session(decision.session, decision.row).decided(
            step=decision.turn,
            user=decision.told,
            text=decision.text or None,
            calls=[_id(decision.turn, call.position) for call in decision.calls],
            start=self._at(decision.began),
            end=self._at(decision.ended),
        )

    def returned(self, call: ToolCall, result: ToolResult) -> None:
        """A call of a tool has ended."""
        value: Any = result.error
        if result.text is not None:
            try:
                value = json.loads(result.text)
            except ValueError:
                value = result.text
        status: Status = "ok" if result.error is None else "cancelled" if result.kind in _CUT else "error"
        self._session(call.session, call.row).called(
            own_name(call.tool.name),
            call.args,
            result=value,
            status=status,
            id=None if call.turn is None else _id(call.turn, call.position),
            step=call.turn,
            start=self._at(result.began),
            end=self._at(result.ended),
            effects=effects_of(call.tool),
        )

    def closed(self, session: str) -> None:
        """No call of a session will come any more."""
        self._recorder.forget(session)

    def heard(self, call: Call, outcome: Outcome, began: float | None) -> None:
        """A call has an outcome: the reply to an llm step is a decision. `began` is None where it was not made."""
        request, failure = call.request, outcome.failure
        if request is None or call.node in self._agents:
            return
        if failure is not None and began is None and not outcome.merged:
            return
        status: Status = "ok" if failure is None else "cancelled" if failure.kind in _CUT else "error"
        texts = [message.content for message in request.messages if message.role == "user"]
        self._session(f"{call.row}", call.row).decided(
            user=texts[-1:],
            text=outcome.text,
            status=status,
            start=self._at(began),
            end=None if began is None else self._at(asyncio.get_running_loop().time()),
        )

    def _session(self, name: str, row: int) -> SessionRecorder:
        return self._recorder.session(name, group=f"{row}")

    def _at(self, moment: float | None) -> float | None:
        return None if moment is None else max(0.0, moment - self._began)


def own_name(name: str) -> str:
    """The name of a tool without the path of a sub-workflow."""
    return name.rpartition("#")[2]


def effects_of(tool: Tool) -> Effects:
    """What a tool declares of its effects."""
    return Effects(cls=_CLASSES.get(tool.effects, "unknown"), reads=tool.reads or (), writes=tool.writes or ())


def _id(turn: int, position: int) -> str:
    return f"{turn}.{position}"
