"""Agents in Python beside their text form."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from dsl_same import failure, same

import helix as hx_run
import helix.dsl as hx
from helix.executor.engines.scripted import ScriptedEngine

main = hx.model("m")


@hx.tool(effects="read")
def find(key: str) -> list[dict]:
    """What there is under a key."""
    return [{"key": key}]


@hx.tool(effects="write")
def save(value: int) -> bool:
    return value > 0


sales = hx.sql_tool("sales", "sqlite:shop.sqlite")


@dataclass
class Verdict:
    """A verdict."""

    ok: bool
    note: str


def test_an_agent_with_its_tools() -> None:
    @hx.workflow
    def w(a: str):
        r = hx.agent(a, tools=[find, sales], system="Be kind.")
        return hx.output(r)

    same(
        w,
        """workflow w(a: text)
        tool find(key: text) -> table from python "test_dsl_agents:find" effects read
        tool sales(query: text) -> table from sql "sqlite:shop.sqlite"
        r = agent { tools [find, sales] system "Be kind." user "{{ a }}" }
        output r""",
    )


def test_all_that_may_stand_in_an_agent() -> None:
    @hx.workflow
    def w(a: str, turns: list[dict], b: bool):
        r = hx.agent(
            model=main,
            tools=[find, save],
            messages=[hx.system("s"), hx.history(turns), hx.user(a)],
            returns=Verdict,
            max_turns=4,
            max_total_tokens=9000,
            max_time="2m",
            at_limit="fail",
            tool_calls="schema",
            trace=True,
            when=b,
            temperature=0.5,
            reask=2,
        )
        return hx.output(ok=r.answer.ok, turns=hx.length(r.trace))

    same(
        w,
        """workflow w(a: text, turns: table, b: bool)
        model main { name: "m" }
        tool find(key: text) -> table from python "test_dsl_agents:find" effects read
        tool save(value: int) -> bool from python "test_dsl_agents:save" effects write
        r = agent main(temperature: 0.5, reask: 2) -> { ok: bool, note: text } {
          tools [find, save]
          max_turns 4
          max_total_tokens 9000
          max_time 2m
          at_limit fail
          tool_calls schema
          trace on
          system "s" history turns user "{{ a }}"
        } when b
        output r.answer.ok, len(r.trace) as turns""",
    )


def test_agents_in_loops_and_seconds_as_a_number() -> None:
    @hx.workflow
    def w(a: str):
        views = hx.map(
            lambda role: hx.agent(f"{role}: {a}", tools=[find], max_time=90, name="view"), ["lawyer", "engineer"]
        )
        return hx.output(views)

    same(
        w,
        """workflow w(a: text)
        tool find(key: text) -> table from python "test_dsl_agents:find" effects read
        views = for role in ["lawyer", "engineer"] {
          view = agent { tools [find] max_time 90s user "{{ role }}: {{ a }}" }
          yield view
        }
        output views""",
    )


def test_a_run_gives_python_objects_and_tells_the_model_the_docstring() -> None:
    @hx.workflow
    def w(a: str):
        verdict = hx.agent(a, tools=[find], returns=Verdict)
        return hx.output(note=verdict.note)

    engine = ScriptedEngine(
        rules=[
            {"turn": 1, "calls": [{"tool": "find", "args": {"key": "k"}}]},
            {"turn": 2, "answer": {"ok": True, "note": "good"}},
        ]
    )
    result = w.run([{"a": "x"}], engine=engine)
    assert [row["note"] for row in result.rows] == ["good"]
    assert '"description": "What there is under a key."' in engine.requests[0].messages[0].content
    assert engine.requests[1].messages[-1].content == '{"tool": "find", "result": [{"key": "k"}]}'


def test_what_is_no_list_of_tools() -> None:
    def plain(key: str) -> str:
        return key

    @hx.workflow
    def no_list(a: str):
        return hx.output(r=hx.agent(a, tools=find))

    @hx.workflow
    def no_tool(a: str):
        return hx.output(r=hx.agent(a, tools=[plain]))

    for wrong in (no_list, no_tool):
        assert "`tools` is a list of tools" in str(failure(wrong))


def test_an_agent_stands_only_in_a_workflow() -> None:
    with pytest.raises(hx_run.SourceError, match="stands only inside a function"):
        hx.agent("a", tools=[find])
