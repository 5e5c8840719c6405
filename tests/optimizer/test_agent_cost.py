"""What agents are estimated to cost: a first turn as the tree knows it, and turns that go on from it."""

from __future__ import annotations

from typing import Any

import pytest
from test_cost import ROUND, cost_of

from helix.agents import protocol
from helix.optimizer.sizes import TOOL
from helix.optimizer.turns import TURNS

TOOLS = """tool find(key: text) -> json from python "lib:find" effects read, cost 2s, lane "shop"
tool save(items: list[text]) -> list[text] from python "lib:save" effects write"""
REPLY = 10


def workflow(limits: str, *, steps: str = "") -> str:
    return f"""workflow w(a: text)
{TOOLS}
x = agent {{ tools [find, save] {limits} user "{{{{ a }}}}" }}
{steps}
output x
"""


def plan_agent(text: str) -> Any:
    from plans_support import plan_of

    from helix.logical import Agent, every_node

    return next(node for node in every_node(plan_of(text).sink) if isinstance(node, Agent))


@pytest.mark.parametrize(("most", "turns"), [(1, 1.0), (2, 2.0), (3, 3.0), (20, TURNS)])
def test_turns_go_on_from_one_another(most: int, turns: float) -> None:
    text = workflow(f"max_turns {most}")
    agent = plan_agent(text)
    first = len(protocol(agent.tools, agent.returns)) + len("abcd")
    cost = cost_of(text, [{"a": "abcd"}], lengths={"x": REPLY}, engine=ROUND)
    (step,) = cost.steps
    grown = REPLY + TOOL
    assert step.calls == cost.calls == turns
    assert step.prompt_tokens == sum(first + number * grown for number in range(int(turns)))
    assert step.output_tokens == turns * REPLY
    # Replies were decoded in place: only what the tools gave has to be computed anew.
    assert cost.p_min == first + (turns - 1) * TOOL
    assert cost.tool_calls == turns - 1
    assert [(tool.step, tool.calls) for tool in cost.tools] == [("x", turns - 1)]
    # One of the two tools tells what it costs: two seconds, a second in the mean.
    assert cost.tools[0].seconds == pytest.approx(turns - 1)
    assert cost.bounds.critical_path == pytest.approx(
        turns * (first + (turns - 1) * TOOL) / turns / 1000 + turns * REPLY * 10 / 1000 + (turns - 1), rel=0.5
    )
    assert cost.exact == (turns == 1)


def test_what_is_assumed_of_agents_is_said() -> None:
    notes = cost_of(workflow("max_turns 8"), [{"a": "x"}]).notes
    assert any("agents take 3 turns" in note for note in notes)
    assert any(note == "tools that declare no cost take no time here: save" for note in notes)


def test_equal_agents_are_counted_once_where_their_tools_only_read() -> None:
    read = workflow("max_turns 2").replace("[find, save]", "[find]")
    rows = [{"a": "same"}] * 4
    once, each = cost_of(read, rows, lengths={"x": REPLY}), cost_of(workflow("max_turns 2"), rows, lengths={"x": REPLY})
    assert (once.calls, once.merged) == (2, 6)
    assert (each.calls, each.merged) == (8, 0)


def test_a_table_looked_at_and_its_statistics_come_to_the_same() -> None:
    rows = [{"a": letter * 40} for letter in "abcdef"]
    text = workflow("max_turns 3", steps='y = llm { user "{{ x }}" }').replace("output x", "output y")
    counted, estimated = (cost_of(text, rows, lengths={"x": REPLY, "y": 5}, stats=stats) for stats in (False, True))
    assert counted.calls == estimated.calls == 6 * 3 + 6
    assert counted.prompt_tokens == pytest.approx(estimated.prompt_tokens)
    assert counted.p_min == pytest.approx(estimated.p_min, rel=0.02)
