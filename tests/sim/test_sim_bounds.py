"""No simulation is faster than its lower bounds, whatever the engine, the policy and the table."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import helix
from helix.executor.engines.sim import SimSettings
from helix.executor.engines.sim.settings import OVERLAPS
from helix.optimizer.engine_time import EngineTime
from helix.simulating.bounds import BoundsOf, KeepingEngine
from helix.simulating.wanted import time_of
from helix.simulation.cost import LinearCost

FLOW = """
workflow w(base: text, question: text, items: list[text])

model m { temperature: 0, max_tokens: 40 }

a = llm m { system "{{ base }}" user "{{ question }}" }
each = for item in items {
  v = llm m(max_tokens: 3) { system "{{ base }}" user "{{ item }}{{ a }}" }
  yield v
}
b = llm m {
  system "{{ base }}"
  user "{{ question }}"
  assistant "{{ a }}"
  user "{{ each | join(" ") }}"
}
c = llm m(max_tokens: 1) { user "{{ b }}" }

output c
"""
TEXT = st.text("ab", min_size=1, max_size=60)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "base": st.sampled_from(["x", "base " * 20, "other " * 40]),
            "question": TEXT,
            "items": st.lists(TEXT, min_size=1, max_size=3),
        }
    ),
    min_size=1,
    max_size=6,
)
SETTINGS = {
    "kv_tokens": st.sampled_from([700, 5000]),
    "page": st.sampled_from([1, 16]),
    "max_running": st.sampled_from([1, 3, 50]),
    "ranks": st.integers(1, 2),
    "reply_tokens": st.sampled_from([1, 2, 20]),
    "request_ms": st.sampled_from([0.0, 3.0]),
    "step_gap_us": st.just(1.0),
}
SGLANG = st.fixed_dictionaries(
    {
        **SETTINGS,
        "policy": st.sampled_from(["fcfs", "lpm"]),
        "chunk": st.sampled_from([None, 32]),
        "mixed_chunk": st.booleans(),
        "prefix_cache": st.booleans(),
        "clip": st.sampled_from([1, 4096]),
        "overlap": st.sampled_from(OVERLAPS),
    }
)
VLLM = st.fixed_dictionaries({**SETTINGS, "dialect": st.just("vllm"), "budget": st.sampled_from([16, 2048])})
SPLIT = st.fixed_dictionaries(
    {
        **SETTINGS,
        "ranks": st.just(3),
        "decode_ranks": st.integers(1, 2),
        "policy": st.sampled_from(["fcfs", "lpm"]),
        "kv_bytes": st.just(1000),
        "pd_reserve": st.sampled_from([0, 512]),
    }
)
ENGINES = st.one_of(SGLANG, VLLM, SPLIT)
# Constants of which each is most of a run somewhere, and some are nothing.
COSTS = st.builds(
    LinearCost,
    name=st.just("drawn"),
    a=st.sampled_from([0.0, 1.0, 30.0]),
    b=st.sampled_from([0.0, 0.02, 2.0]),
    c=st.sampled_from([0.0, 1e-4]),
    d=st.sampled_from([0.5, 10.0]),
    e=st.sampled_from([0.0, 1.0]),
    f=st.sampled_from([0.0, 1e-2]),
)
POLICIES = ("helix", "lpm", "fcfs", "query-wise:2")


def holds(rows: list[dict[str, Any]], changes: dict[str, Any], cost: LinearCost, policy: str) -> None:
    engine = KeepingEngine(SimSettings(**changes), cost)
    flow = helix.loads(FLOW)
    report = flow.run(rows, engine=engine, policy=policy).report
    assert report.failed_rows == 0, report.errors
    bounds = BoundsOf(flow.check().plan, engine, (), {}).on(time_of(cost, engine.settings))
    assert bounds is not None
    late = {name: seconds for name, seconds in bounds.all if seconds > report.seconds + 1e-9}
    assert not late, (late, report.seconds)


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, changes=ENGINES, cost=COSTS, policy=st.sampled_from(POLICIES))
def test_no_run_is_faster(rows: list[dict[str, Any]], changes: dict[str, Any], cost: LinearCost, policy: str) -> None:
    holds(rows, changes, cost, policy)


def test_a_prefill_beside_decoding_takes_no_pass_of_its_own() -> None:
    rows = [
        {"base": "x", "question": "abbbba", "items": ["a"]},
        {"base": "x", "question": "bbabbbabbbbbab", "items": ["a"]},
        {"base": "other " * 40, "question": "aaaa", "items": ["a"]},
        {"base": "other " * 40, "question": "abb", "items": ["b", "aabbb", "a"]},
        {"base": "other " * 40, "question": "a", "items": ["abba", "bbbaababaabab"]},
        {"base": "x", "question": "aaaaaaa", "items": ["a"]},
    ]
    changes = {
        "kv_tokens": 700,
        "max_running": 3,
        "ranks": 2,
        "reply_tokens": 20,
        "mixed_chunk": True,
        "clip": 1,
        "request_ms": 0.0,
        "chunk": None,
    }
    holds(rows, changes, LinearCost(name="a pass", a=30.0, b=0.0, c=0.0, d=0.5, e=0.0, f=0.01), "lpm")


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(rows=ROWS, changes=ENGINES, cost=COSTS, policy=st.sampled_from(POLICIES))
def test_no_run_is_faster_many_times(
    rows: list[dict[str, Any]], changes: dict[str, Any], cost: LinearCost, policy: str
) -> None:
    holds(rows, changes, cost, policy)


def test_one_call_alone_takes_its_critical_path() -> None:
    """The first token comes with the prompt: four decode steps for five tokens, none for one."""
    cost = LinearCost(name="round", a=5.0, b=1.0, c=0.0, d=10.0, e=1.0, f=0.0)
    for tokens, steps in ((1, 0), (5, 4)):
        given = SimSettings(kv_tokens=1000, request_ms=0.0, step_gap_us=0.0, reply_tokens=1000)
        engine = KeepingEngine(given, cost)
        flow = helix.loads(f'workflow w(q: text)\na = llm(max_tokens: {tokens}) {{ user "{{{{ q }}}}" }}\noutput a\n')
        assert flow.run([{"q": "x" * 80}], engine=engine).report.failed_rows == 0
        bounds = BoundsOf(flow.check().plan, engine, (), {}).on(time_of(cost, given))
        assert bounds is not None
        assert engine.figures.busy / 1e9 == pytest.approx((5.0 + engine.figures.asked + steps * 11.0) / 1000)
        assert bounds.critical_path == pytest.approx(engine.figures.busy / 1e9)
    assert EngineTime.steps(0) == 0
