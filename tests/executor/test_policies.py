"""The policies that can be chosen: in which order they release calls, and what they say of themselves."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from caching_engine import CachingEngine
from running import ROOT, run

import helix
from helix.errors import OptionError
from helix.executor.engines.scripted import ScriptedEngine
from helix.executor.policies.choose import FORMS, choose_policy
from helix.executor.policies.helix_policy import PARTS
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


def test_rows_side_by_side_have_one_step_at_a_time_each() -> None:
    workflow = helix.loads(
        "workflow w(x: text)\n"
        "model m { temperature: 0 }\n"
        'a = llm { user "first {{ x }}" }\n'
        'b = llm { user "second {{ x }}" }\n'
        'c = llm { user "third {{ a }} {{ b }}" }\n'
        "output c\n"
    )
    engine = CachingEngine()
    workflow.run(ROWS[:3], engine=engine, policy="operator-wise:chain", concurrency=8, rules=[])
    assert [f"{step}{row}" for step, row in engine.log] == ["a0", "a1", "a2", "b0", "b1", "b2", "c0", "c1", "c2"]
    # Never more than one call of a row: three at once.
    assert max(engine.at_once) == 3
    free = CachingEngine()
    workflow.run(ROWS[:3], engine=free, policy="fcfs", concurrency=8, rules=[])
    assert max(free.at_once) == 6


def test_a_static_cap_bounds_the_rows() -> None:
    engine = CachingEngine()
    TWO_STEPS.run(ROWS, engine=engine, policy="cap:2", concurrency=8, rules=[])
    assert [row for _, row in engine.log[:2]] == [0, 1]
    assert max(engine.at_once) == 2
    # A row begins when one has ended, not when a batch of them has.
    assert [f"{step}{row}" for step, row in engine.log[2:6]] == ["b0", "b1", "a2", "a3"]


def test_uncapped_all_that_is_ready_goes() -> None:
    engine = CachingEngine(running=2)
    TWO_STEPS.run(ROWS, engine=engine, policy="lpm", rules=[])
    assert engine.at_once[5] == 6
    capped = CachingEngine(running=2)
    TWO_STEPS.run(ROWS, engine=capped, policy="fcfs", rules=[])
    assert max(capped.at_once) == 4


# Each with a number, a form or a part left out where it takes one.
EVERY = [
    "helix", "helix:no-warm-ups", "helix:no-phases", "helix:no-ledger", "helix:no-holds,no-affinity", "plan", "fcfs",
    "lpm", "cap:2", "query-wise:2", "operator-wise", "operator-wise:chain", "lspf", "random:3", "ready-random:3",
    "parrot", "thunder-agent", "thunder-agent:1", "concur", "concur:1", "helium", "helium:paper",
]  # fmt: skip


@pytest.mark.parametrize("policy", EVERY)
def test_all_give_the_same_result(policy: str) -> None:
    plain = run(TWO_STEPS, ROWS)
    made = TWO_STEPS.run(ROWS, engine=ScriptedEngine(), policy=policy)
    assert made.rows == plain.rows
    # The scripted engine has no cache; of one that has, that is small, the same and in the same order each time.
    engines = [CachingEngine(kv_tokens=40), CachingEngine(kv_tokens=40)]
    rows = [TWO_STEPS.run(ROWS, engine=engine, policy=policy, rules=[]).rows for engine in engines]
    assert rows[0] == rows[1]
    assert [row["_error"] for row in rows[0]] == [None] * len(ROWS)
    assert engines[0].log == engines[1].log
    assert sorted(engines[0].log) == sorted((step, row) for step in "ab" for row in range(len(ROWS)))


def test_hints_need_an_engine_that_takes_them() -> None:
    with pytest.raises(OptionError, match=r"`kvflow` gives hints .* caching does not take; it runs on simulated"):
        TWO_STEPS.run(ROWS, engine=CachingEngine(), policy="kvflow")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("helx", "unknown policy `helx`; did you mean `helix`?"),
        ("nothing", "unknown policy `nothing`; policies: "),
        ("fcfs:3", "the policy `fcfs` takes no number, found `fcfs:3`"),
        ("query-wise:0", "the policy `query-wise` takes a number of rows of at least 1, found `0`"),
        ("query-wise:", "the policy `query-wise` takes a number of rows of at least 1, found ``"),
        ("cap", "the policy `cap` takes a number of rows of at least 1, found ``"),
        ("helium:book", "the policy `helium` has the forms `code` and `paper`, found `book`"),
        ("operator-wise:4", "the policy `operator-wise` has the forms `barrier` and `chain`, found `4`"),
        ("helix:no-warmups", "no part to leave out that is called `no-warmups`; did you mean `no-warm-ups`?"),
        ("random:x", "the policy `random` takes a seed of at least 0, found `x`"),
    ],
)
def test_what_is_no_policy(text: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        choose_policy(text)
    assert message in str(caught.value)


@pytest.mark.parametrize("text", [*EVERY, "kvflow"])
def test_each_says_what_it_does(text: str) -> None:
    policy: Any = choose_policy(text)
    assert policy.name.startswith(text)
    assert policy.describe()
    assert choose_policy(policy.name).name == policy.name


def test_the_command_and_the_documentation_name_all() -> None:
    shown = subprocess.run([sys.executable, "-m", "helix", "run", "--help"], capture_output=True, text=True, check=True)
    words = "".join(shown.stdout.split())
    docs = (ROOT / "docs" / "explanation" / "scheduling.md").read_text(encoding="utf-8")
    options = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    for form in FORMS:
        assert form in words, form
        assert f"`{form.replace('helix[:no-PART,...]', 'helix:no-PART,...')}`" in docs, form
        assert f"`{form.replace('helix[:no-PART,...]', 'helix:no-PART,...')}`" in options, form
    assert all(f"`no-{part}`" in docs for part in PARTS)
