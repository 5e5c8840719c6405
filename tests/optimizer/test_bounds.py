"""Lower bounds of runs that were made, against sums by hand."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from plans_support import plan_of

from helix.optimizer.bounds import Bounds, MeasuredCall, MeasuredTool, measured_bounds
from helix.optimizer.driver import optimize
from helix.optimizer.engine_time import H100, EngineTime
from helix.optimizer.tokens import estimate, from_ids

CHARS = from_ids("characters", lambda text: [ord(char) for char in text], turn=0)
ROUND = EngineTime(name="round", a=0.0, b=1.0, c=0.0, d=10.0, e=0.0, f=0.0, batch=4, capacity=1000)

PLAN = plan_of("""
    workflow w(q: text, items: list[text])
    a = llm { system "Sys." user "{{ q }}" }
    each = for item in items { v = llm { user "{{ item }}{{ a }}" } yield v }
    r = q
    repeat up to 3 { r = llm { user "R{{ r }}" } }
    output each, r
""")


def call(row: int, step: str, prompt: str, output: str) -> MeasuredCall:
    system = (("system", "Sys."),) if step == "a" else ()
    return MeasuredCall(row=row, step=step, messages=(*system, ("user", prompt)), output=output)


def test_by_hand() -> None:
    calls = [
        call(0, "a", "x" * 10, "o" * 5),
        call(0, "each[0].v", "1", "p" * 3),
        call(0, "each[1].v", "2", "p" * 7),
        call(0, "r", "Ra", "b"),
        call(0, "r", "Rb", "cc"),
        call(1, "a", "y" * 10, "o" * 5),
    ]
    found = measured_bounds(PLAN, calls, CHARS, engine=ROUND)
    # Distinct tokens: "Sys." once, two questions, "1", "2", "R", "a", "b".
    assert found.p_min == 4 + 20 + 2 + 3
    assert not found.estimated
    # The first token of each reply comes with its prompt.
    steps = 4 + 2 + 6 + 0 + 1 + 4
    # Row 0 takes ten passes alone, more than full batches do: four for `a`, six for the longer item.
    assert found.engine == pytest.approx((found.p_min * 1.0 + 10.0 * (4 + 6)) / 1000)
    alone = measured_bounds(PLAN, calls, CHARS, engine=replace(ROUND, batch=1))
    assert alone.engine == pytest.approx((found.p_min * 1.0 + 10.0 * steps) / 1000)
    # Passes of prefill cost something themselves, unless others decode in them.
    costly = replace(ROUND, a=3.0, chunk=10)
    assert measured_bounds(PLAN, calls, CHARS, engine=costly).engine == pytest.approx(found.engine + 3.0 * 2.9 / 1000)
    mixed = measured_bounds(PLAN, calls, CHARS, engine=replace(costly, mixes=True))
    assert mixed.engine == found.engine
    # Row 0: the question (10, shared system prompt warm) and 4 steps, then the longer item; rounds one after the other
    # are shorter than that: (1 + 0) + (1 + 10) against (10 + 40) + (1 + 60).
    assert found.critical_path == pytest.approx((10 + 40 + 1 + 60) / 1000)
    private = [(10, 4), (1, 2), (1, 6), (1, 0), (1, 1), (10, 4)]
    area = sum(own * out + out * (out + 1) / 2 for own, out in private)
    shared = 4 * 4 + 1 * 1
    assert found.kv_area == pytest.approx(10.0 * (area + shared) / 1000 / 1000)
    assert (found.tools, found.binder) == (0.0, "engine")
    assert found.lower_bound == found.engine


def test_a_reply_that_a_later_prompt_goes_on_from_is_not_prefilled() -> None:
    plan = plan_of("""
        workflow w(q: text)
        a = llm { user "{{ q }}" }
        b = llm { user "{{ q }}" assistant "{{ a }}" user "more" }
        output b
    """)
    calls = [
        MeasuredCall(row=0, step="a", messages=(("user", "abc"),), output="d" * 50),
        MeasuredCall(
            row=0, step="b", messages=(("user", "abc"), ("assistant", "d" * 50), ("user", "more")), output="e"
        ),
    ]
    assert measured_bounds(plan, calls, CHARS).p_min == 3 + 4


def test_tools_bind_and_stand_on_the_path() -> None:
    plan = plan_of("""
        workflow w(q: text)
        tool look(key: text) -> text from python "lib:look" effects read
        a = look(q)
        b = llm { user "{{ a }}" }
        output b
    """)
    calls = [MeasuredCall(row=row, step="b", messages=(("user", "abc"),), output="x") for row in (0, 1)]
    tools = [MeasuredTool(row=row, step="a", seconds=3.0, lane="look") for row in (0, 1)]
    found = measured_bounds(plan, calls, CHARS, engine=ROUND, tools=tools, slots={"look": 1})
    assert found.tools == 6.0
    assert found.binder == "tools"
    # Both calls share the whole prompt, so neither prefills alone, and the pass gives the reply: the tool is left.
    assert found.critical_path == pytest.approx(3.0)


def test_without_tokens_texts_are_compared_by_bytes() -> None:
    calls = [call(row, "a", f"{'same beginning ' * 20}{row}", "out") for row in range(4)]
    found = measured_bounds(PLAN, calls, estimate())
    assert found.estimated
    once = estimate().count("Sys." + "same beginning " * 20)
    # Two turns that all share, and for each call its number and the turn of its reply.
    assert found.p_min == pytest.approx(once + 2 * estimate().turn + 4 * (estimate().turn + 0.25), rel=0.05)


def test_the_default_is_the_published_fit() -> None:
    # Prefill of 1024 tokens, and a decode step of one request over 1024 tokens of context, of the fitted H100.
    assert H100.prefill(1024) == pytest.approx(4.794 + 0.01752 * 1024 + 7.385e-7 * 1024**2)
    assert H100.prefill(100, 900) == pytest.approx(4.794 + 1.752 + 7.385e-7 * 100 * 1900)
    assert H100.decode(1024, 2) == pytest.approx(6.502 + 0.00826 + 4.168e-5 * 1025)


def test_equal_bounds_name_the_first() -> None:
    flat = Bounds(critical_path=1.0, engine=1.0, kv_area=0.5, tools=1.0, p_min=0.0, estimated=True)
    assert flat.binder == "critical-path"


def test_no_calls() -> None:
    found = measured_bounds(PLAN, [], CHARS)
    assert (found.lower_bound, found.p_min) == (0.0, 0.0)


def test_the_steps_of_an_unrolled_loop_stand_on_the_path() -> None:
    plan = plan_of("""
        workflow w(q: text)
        let roles = ["x", "y"]
        views = for role in roles { v = llm { user "{{ role }}{{ q }}" } yield v }
        r = llm { user "{{ views }}" }
        output r
    """)
    unrolled = optimize(plan).plan
    calls = [
        call(0, "views[0].v", "xQ", "a" * 3),
        call(0, "views[1].v", "yQ", "b" * 5),
        call(0, "r", "both", "c" * 2),
    ]
    both = [measured_bounds(each, calls, CHARS, engine=ROUND).critical_path for each in (plan, unrolled)]
    assert both[0] == both[1] == pytest.approx((2 + 40 + 4 + 10) / 1000)


def test_of_steps_that_follow_on_one_another_in_a_loop_the_longest_call_counts() -> None:
    # The item with the long `v` may have the short `u`: nobody is told whose item a call is.
    plan = plan_of("""
        workflow w(q: text, items: list[text])
        views = for item in items {
          v = llm { user "{{ item }}{{ q }}" }
          u = llm { user "{{ v }}" }
          yield u
        }
        r = llm { user "{{ views }}" }
        output r
    """)
    calls = [
        call(0, "views.v", "xQ", "a" * 9),
        call(0, "views.v", "yQ", "b" * 2),
        call(0, "views.u", "wide", "c" * 2),
        call(0, "views.u", "brief", "d" * 7),
        call(0, "r", "last", "e" * 2),
    ]
    found = measured_bounds(plan, calls, CHARS, engine=ROUND)
    # The prompt of 2 and 8 passes of the longest call, and the prompt of 4 and one pass behind the loop.
    assert found.critical_path == pytest.approx((2 + 80 + 4 + 10) / 1000)


def test_attention_and_small_caches_count() -> None:
    engine = EngineTime(name="round", a=0.0, b=1.0, c=0.5, d=10.0, e=0.0, f=0.0, batch=4, capacity=8)
    found = measured_bounds(PLAN, [call(0, "a", "x" * 10, "o" * 5)], CHARS, engine=engine)
    # 14 tokens behind none; decoding holds (14 * 4 + 10) tokens of the 8 that there are room for.
    assert found.engine == pytest.approx((14 + 0.5 * 14**2 + 10.0 * (14 * 4 + 10) / 8) / 1000)


def test_the_turns_of_an_agent_stand_one_after_the_other() -> None:
    plan = plan_of("""
        workflow w(q: text)
        tool look(key: text) -> text from python "lib:look" effects read
        a = agent { tools [look] user "{{ q }}" }
        b = llm { user "{{ a }}" }
        output b
    """)
    prompts = ("x", "xy", "xyz")
    calls = [MeasuredCall(row=0, step="a", messages=(("user", text),), output="o" * 3) for text in prompts]
    calls.append(MeasuredCall(row=0, step="b", messages=(("user", "b"),), output="o"))

    def path(*seconds: float) -> float:
        tools = [MeasuredTool(row=0, step="a", seconds=each, lane="look") for each in seconds]
        return measured_bounds(plan, calls, CHARS, engine=ROUND, tools=tools, slots={"look": 9}).critical_path

    # Three turns of two decode steps; of the prompts one token is nobody else's. Then one more token of a prompt.
    turns = 3 * 20 + 1
    assert path() == pytest.approx((turns + 1) / 1000)
    # Tools of a turn may run beside one another, and ahead: the longest counts where it is longer than all turns.
    assert path(0.02, 0.03) == pytest.approx((turns + 1) / 1000)
    assert path(0.5, 0.4) == pytest.approx((500 + 1) / 1000)
