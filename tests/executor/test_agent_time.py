"""The time limit of an agent ends what it waits for, in virtual time: nothing here depends on a clock."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import running

import helix as hx
from helix import api
from helix.executor.engines.scripted import ScriptedEngine
from helix.executor.engines.sim.loop import VirtualLoop

TOOLS = """
import asyncio

def note(line):
    with open(LOG, "a") as file:
        file.write(line + "\\n")

async def wait(seconds, name="it"):
    note(f"begin {name}")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        note(f"cancelled {name}")
        raise
    note(f"end {name}")
    return name
"""
HEAD = """
workflow w(kind: text)
tool wait(seconds: float, name: text = "it") -> text from python "clock:wait" effects EFFECTS, concurrency 4
"""
LAST = 'No more calls can be made. Reply with {"answer": ...} now.'


class Timed:
    """A finished run: its result, the seconds it took, what the tool noted, and the engine."""

    def __init__(self, body: str, rules: list[dict[str, Any]], folder: Path, effects: str, **options: Any) -> None:
        (folder / "clock.py").write_text(TOOLS.replace("LOG", repr(str(folder / "log.txt"))))
        self.engine = ScriptedEngine(rules)
        workflow = hx.loads(HEAD.replace("EFFECTS", effects) + body, folder=folder)

        async def main() -> tuple[Any, float]:
            loop = asyncio.get_running_loop()
            began = loop.time()
            rows = options.pop("rows", [{"kind": "a"}])
            result = await api.arun(workflow, rows, engine=self.engine, **options)
            assert asyncio.all_tasks() == {asyncio.current_task()}
            return result, loop.time() - began

        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            self.result, self.seconds = runner.run(main())
        file = folder / "log.txt"
        self.log = file.read_text().splitlines() if file.exists() else []

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the result."""
        return list(self.result.rows)

    def told(self, step: str, turn: int) -> list[str]:
        """What stands in the last message of a step's turn, line by line."""
        asked = [request for request in self.engine.requests if request.step == step]
        return asked[turn - 1].messages[-1].content.splitlines()


def agent(name: str, settings: str) -> str:
    return f'{name} = agent {{ tools [wait] {settings} user "{name} {{{{ kind }}}}" }}\n'


def asks(*seconds: float, **more: Any) -> dict[str, Any]:
    """A rule: the first turn asks for these calls of `wait`."""
    names = [f"n{place}" for place in range(len(seconds))]
    calls = [
        {"tool": "wait", "args": {"seconds": each, "name": name}} for each, name in zip(seconds, names, strict=True)
    ]
    return {"turn": 1, "calls": calls, **more}


DONE = {"answer": "done"}


def test_a_call_of_a_tool_ends_at_the_limit_and_the_model_answers(tmp_path: Path) -> None:
    ran = Timed(agent("x", "max_time 10s") + "output x\n", [asks(1000, 1), DONE], tmp_path, "read")
    assert [row["x"] for row in ran.rows] == ["done"]
    assert ran.seconds == pytest.approx(10)
    assert ran.log == ["begin n0", "begin n1", "end n1", "cancelled n0"]
    assert ran.told("x", 2) == [
        '{"tool": "wait", "error": "no result within the 10 s that the agent has"}',
        '{"tool": "wait", "result": "n1"}',
        LAST,
    ]
    assert ran.result.report.steps["x"].at_limit == 1


def test_calls_that_act_are_not_begun_after_the_limit(tmp_path: Path) -> None:
    ran = Timed(agent("x", "max_time 10s") + "output x\n", [asks(1000, 1), DONE], tmp_path, "write")
    assert [row["x"] for row in ran.rows] == ["done"]
    assert ran.log == ["begin n0", "cancelled n0"]
    assert "not called" in ran.told("x", 2)[1]


def test_a_turn_of_the_model_ends_at_the_limit(tmp_path: Path) -> None:
    body = agent("x", "max_time 10s trace on") + "output x\n"
    ran = Timed(body, [{"turn": 1, "call": 1, "delay": 1000, "answer": "late"}, DONE], tmp_path, "read")
    found = ran.rows[0]["x"]
    assert (found["answer"], ran.seconds) == ("done", pytest.approx(10))
    assert [turn["turn"] for turn in found["trace"]] == [1, 2]
    assert found["trace"][0]["problem"] == "it was given up after the 10 s that the agent has"
    assert ran.told("x", 2) == [LAST]
    assert [request.answers_only for request in ran.engine.requests] == [False, True]
    first, second = (request.messages for request in ran.engine.requests)
    assert second[: len(first)] == first


@pytest.mark.parametrize("rule", [asks(1000), {"turn": 1, "delay": 1000, "answer": "late"}], ids=["tool", "turn"])
def test_at_limit_fail_fails_the_row_at_the_limit(tmp_path: Path, rule: dict[str, Any]) -> None:
    ran = Timed(agent("x", "max_time 10s at_limit fail") + "output x\n", [rule, DONE], tmp_path, "read")
    error = ran.rows[0]["_error"]
    assert (error["kind"], error["message"]) == ("limit", "no answer within 10 s")
    assert (ran.seconds, ran.engine.calls) == (pytest.approx(10), 1)
    assert "end n0" not in ran.log


def test_a_last_turn_that_is_going_on_is_not_ended(tmp_path: Path) -> None:
    rules = [asks(1), {"turn": 2, "delay": 50, "answer": "at last"}]
    ran = Timed(agent("x", "max_turns 2 max_time 10s") + "output x\n", rules, tmp_path, "read")
    assert [row["x"] for row in ran.rows] == ["at last"]
    assert ran.seconds == pytest.approx(51)


@pytest.mark.parametrize("first", ["hurried", "patient"])
def test_an_equal_call_that_another_agent_waits_for_goes_on(tmp_path: Path, first: str) -> None:
    agents = {"hurried": agent("hurried", "max_time 10s"), "patient": agent("patient", "max_turns 3")}
    other = next(name for name in agents if name != first)
    body = agents[first] + agents[other] + "output hurried, patient\n"
    ran = Timed(body, [asks(30), DONE], tmp_path, "read")
    assert ran.rows == [{"_row": 0, "hurried": "done", "patient": "done", "_error": None}]
    assert ran.log == ["begin n0", "end n0"]
    assert ran.told("patient", 2) == ['{"tool": "wait", "result": "n0"}']
    assert ran.told("hurried", 2)[0] == '{"tool": "wait", "error": "no result within the 10 s that the agent has"}'
    assert ran.seconds == pytest.approx(30)


def test_a_call_that_waits_for_its_turn_is_never_made(tmp_path: Path) -> None:
    body = agent("x", "max_time 10s") + "output x\n"
    rules = [asks(20, row=0), {**asks(5), "calls": [{"tool": "wait", "args": {"seconds": 5, "name": "other"}}]}, DONE]
    rows = [{"kind": "a"}, {"kind": "b"}]
    ran = Timed(body.replace("concurrency 4", "concurrency 1"), rules, tmp_path, "read", rows=rows, lanes={"wait": 1})
    assert [row["x"] for row in ran.rows] == ["done", "done"]
    assert ran.log == ["begin n0", "cancelled n0"]


def test_a_run_is_the_same_when_it_is_resumed(tmp_path: Path) -> None:
    body = agent("x", "max_time 10s") + "output x\n"
    first = Timed(body, [asks(1000, 1), DONE], tmp_path, "read", store=tmp_path / "store")
    again = Timed(body, [asks(1000, 1), DONE], tmp_path, "read", store=tmp_path / "store")
    assert json.dumps(first.rows) == json.dumps(again.rows)


def test_the_limit_of_an_agent_leaves_nothing_of_its_own_behind(tmp_path: Path) -> None:
    """A tool that will not be cancelled runs on by itself; its result is for nobody."""
    (tmp_path / "deaf.py").write_text(
        "import asyncio\nasync def deaf():\n    try:\n        await asyncio.sleep(1000)\n"
        "    except asyncio.CancelledError:\n        pass\n    return 'too late'\n"
    )
    text = (
        'workflow w(kind: text)\ntool deaf() -> text from python "deaf:deaf" effects read\n'
        'x = agent { tools [deaf] max_time 40ms user "{{ kind }}" }\noutput x\n'
    )
    rules = [{"turn": 1, "calls": [{"tool": "deaf", "args": {}}]}, DONE]
    ran = running.run(text, [{"kind": "a"}], rules=rules, folder=tmp_path)
    assert ran.column("x") == ["done"]
    assert "no result within the 0.04 s" in ran.engine.requests[-1].messages[-1].content
