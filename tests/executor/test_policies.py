"""The policies that can be chosen: in which order they release calls, and what they say of themselves."""

from __future__ import annotations

from typing import Any

import pytest
from caching_engine import CachingEngine
from running import run

import helix
from helix.errors import OptionError
from helix.executor.engines.scripted import ScriptedEngine
from helix.executor.policies.choose import choose_policy
from helix.results import RunResult

TWO_STEPS = helix.loads(
    "workflow w(x: text)\n"
    'model m { name: "m", temperature: 0 }\n'
    'a = llm { user "first {{ x }}" }\n'
    'b = llm { user "second {{ a }}" }\n'
    "output b\n"
)
ROWS = [{"x": str(at)} for at in range(6)]


def released(policy: str, *, slots: int = 1) -> list[str]:
    """The calls in their order, as step and row."""
    engine = CachingEngine()
    result: RunResult = TWO_STEPS.run(ROWS, engine=engine, policy=policy, concurrency=slots, rules=[])
    assert [row["_error"] for row in result.rows] == [None] * 6
    assert result.report.policy == choose_policy(policy).name
    return [f"{step}{row}" for step, row in engine.log]


def test_row_by_row_ends_one_row_before_the_next() -> None:
    order = [f"{step}{row}" for row in range(6) for step in "ab"]
    assert released("query-wise") == order
    assert released("plan") == order
    assert released("query-wise:3", slots=4)[:3] == ["a0", "a1", "a2"]


def test_step_by_step_ends_one_step_before_the_next() -> None:
    order = [f"{step}{row}" for step in "ab" for row in range(6)]
    assert released("operator-wise") == order
    # With several at once too: no call of the second step before the last one of the first has ended.
    assert [call[0] for call in released("operator-wise", slots=4)] == ["a"] * 6 + ["b"] * 6


def test_first_come_first_served() -> None:
    assert released("fcfs") == [f"{step}{row}" for step in "ab" for row in range(6)]


def test_random_orders_repeat_and_differ_by_seed() -> None:
    assert released("random:1") == released("random:1")
    assert len({tuple(released(f"random:{seed}")) for seed in range(5)}) > 1


def test_longest_prefix_first_takes_what_is_in_the_cache() -> None:
    workflow = helix.loads('workflow w(x: text)\nmodel m { temperature: 0 }\na = llm { user "{{ x }}" }\noutput a')
    rows = [{"x": ("left " if at % 2 else "right ") * 30 + str(at)} for at in range(8)]
    engine = CachingEngine()
    workflow.run(rows, engine=engine, policy="lspf", concurrency=1, rules=[])
    assert [row for _, row in engine.log] == [0, 2, 4, 6, 1, 3, 5, 7]


@pytest.mark.parametrize("policy", ["helix", "plan", "fcfs", "query-wise:2", "operator-wise", "lspf", "random:3"])
def test_all_give_the_same_result(policy: str) -> None:
    plain = run(TWO_STEPS, ROWS)
    made = TWO_STEPS.run(ROWS, engine=ScriptedEngine(), policy=policy)
    assert made.rows == plain.rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("helx", "unknown policy `helx`; did you mean `helix`?"),
        ("nothing", "unknown policy `nothing`; policies: "),
        ("fcfs:3", "the policy `fcfs` takes no number, found `fcfs:3`"),
        ("query-wise:0", "the policy `query-wise` takes a number of rows of at least 1, found `0`"),
        ("query-wise:", "the policy `query-wise` takes a number of rows of at least 1, found ``"),
        ("random:x", "the policy `random` takes a seed of at least 0, found `x`"),
    ],
)
def test_what_is_no_policy(text: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        choose_policy(text)
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["helix", "plan", "fcfs", "query-wise", "operator-wise", "lspf", "random"])
def test_each_says_what_it_does(text: str) -> None:
    policy: Any = choose_policy(text)
    assert policy.name.startswith(text)
    assert policy.describe()
