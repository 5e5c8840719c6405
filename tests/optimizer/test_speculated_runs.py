"""Random workflows with guesses at what stands in their branches: equal rows, errors and effects, and equal calls."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from compared import Tools, answer, fraction, shop
from hypothesis import given, settings
from hypothesis import strategies as st
from random_workflows import Case, case
from test_optimized_runs import plan_of

from helix.errors import EngineError
from helix.executor.engines.scripted import ScriptedEngine
from helix.executor.engines.sim.loop import VirtualLoop
from helix.executor.run import Run
from helix.executor.settings import RunSettings
from helix.executor.speculation import SpeculationSettings, wiring
from helix.executor.speculation.state import SpeculationState
from helix.executor.speculation.times import Times
from helix.executor.tables import MemorySink, open_rows
from helix.logical import LogicalPlan
from helix.optimizer.driver import optimize
from helix.services import Tool

BOUNDS = SpeculationSettings(chances=1, work=0.0, fixed=0.0, audit_every=3, patience=0.0)


class Trusting(SpeculationState):
    """A state that trusts every tool, and knows of many branches that both arms were taken."""

    def stage(self, tool: Tool) -> Any:
        found = super().stage(tool)
        if found.stage == "replay":
            found.stage = "serve"
        return found

    def branch(self, branch: str) -> list[float]:
        return self.branches.setdefault(branch, [1e4, 1e4])

    def branch_times(self, branch: str) -> Times:
        found = super().branch_times(branch)
        if not found.known:
            found.add(1.0)
        return found


class SlowTools(Tools):
    """The tools of random workflows; what they give takes a time that its argument decides."""

    async def find(self, key: str) -> Any:
        await asyncio.sleep(fraction("time", key))
        return await super().find(key)


class SlowEngine(ScriptedEngine):
    """The scripted engine; each prompt takes a time of its own."""

    async def generate(self, request: Any) -> Any:
        await asyncio.sleep(2 * fraction("engine", [message.content for message in request.messages]))
        return await super().generate(request)


def ran(plan: LogicalPlan, found: Case, mode: str) -> tuple[list[Any], list[str], int, int, dict[str, Any]]:
    """The rows, the calls with effects, the calls of the engine, those of the reading tool, and the figures."""
    tools = SlowTools(failing=found.failing)

    def reply(request: Any) -> Any:
        text = answer(request, failing=found.failing, salt=0)
        return EngineError("the scripted engine does not like this prompt", status=400) if text is None else text

    engine = SlowEngine(reply=reply)

    async def main() -> tuple[list[Any], dict[str, Any]]:
        source = open_rows([dict(row) for row in found.rows], plan.scan.columns, on_bad_row="keep")
        sink = MemorySink(tuple((name, value.type) for name, value in plan.sink.columns))
        bounds = None if mode == "off" else BOUNDS
        run = Run(
            plan, source, sink, RunSettings(concurrency=2, speculate=mode, speculation=bounds),
            open_engine=lambda address: engine, callables=tools.callables, folder=shop(),
        )  # fmt: skip
        try:
            source.scan()
            await run.start()
            await run.finish()
            sink.commit()
        finally:
            await run.close()
            source.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return sink.to_dicts(), run.report.speculation or {}

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        rows, figures = runner.run(main())
    for row in rows:
        if row["_error"] is not None:
            del row["_error"]["skipped"]
    return rows, tools.calls("save"), engine.calls, len(tools.calls("find")), figures


def check(seed: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    found = case(seed)
    plan = plan_of(found.workflow)
    if seed % 2:
        plan = optimize(plan).plan
    monkeypatch.setattr(wiring, "SpeculationState", Trusting)
    plain, guessed = ran(plan, found, "off"), ran(plan, found, "on")
    assert json.dumps(guessed[0]) == json.dumps(plain[0])
    assert guessed[1:3] == plain[1:3]
    assert guessed[3] >= plain[3]
    return guessed[4]


def test_a_workflow_with_reads_in_branches(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = check(68, monkeypatch)
    assert figures["launched"] > 0
    assert figures["hits"] > 0


@pytest.mark.parametrize("seed", range(8))
def test_some_workflows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check(seed, monkeypatch)


@pytest.mark.slow
@settings(max_examples=250)
@given(seed=st.integers(0, 2**32 - 1))
def test_random_workflows(seed: int) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        check(seed, monkeypatch)
