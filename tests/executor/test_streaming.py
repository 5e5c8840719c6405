"""No barrier anywhere: a call starts as soon as what it reads is there, whatever else is slow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from running import run, user_text

from helix.executor.engines.base import Request


def after(slow: str, *needed: str) -> Callable[[Request], Awaitable[str]]:
    """Replies with the prompt in capitals; to a prompt that holds `slow` only once all `needed` ones have arrived."""
    arrived: dict[str, asyncio.Event] = {}

    async def reply(request: Request) -> str:
        text = user_text(request)
        for word in needed:
            if word in text:
                arrived.setdefault(word, asyncio.Event()).set()
        if slow in text:
            for word in needed:
                async with asyncio.timeout(5):
                    await arrived.setdefault(word, asyncio.Event()).wait()
        return text.upper()

    return reply


def test_steps_of_one_row_run_together_where_they_do_not_need_each_other() -> None:
    text = 'workflow t(a: text)\nx = llm { user "slow {{ a }}" }\ny = llm { user "quick {{ a }}" }\noutput x, y'
    ran = run(text, [{"a": "1"}], reply=after("slow", "quick"))
    assert ran.rows[0]["x"] == "SLOW 1"


def test_a_later_row_does_not_wait_for_the_first_steps_of_others() -> None:
    text = 'workflow t(a: text)\nx = llm { user "first {{ a }}" }\ny = llm { user "second {{ x }}" }\noutput y'
    ran = run(text, [{"a": "one"}, {"a": "two"}], reply=after("first one", "second FIRST TWO"))
    assert ran.column("y") == ["SECOND FIRST ONE", "SECOND FIRST TWO"]


def test_an_arm_starts_before_a_capture_that_it_does_not_need_yet() -> None:
    text = """workflow t(a: text)
late = llm { user "slow {{ a }}" }
if a == "1" {
  early = llm { user "early {{ a }}" }
  both = llm { user "both {{ early }} {{ late }}" }
}
output both"""
    ran = run(text, [{"a": "1"}], reply=after("slow", "early"))
    assert ran.column("both") == ["BOTH EARLY 1 SLOW 1"]


def test_an_output_of_an_arm_is_there_before_the_arm_is_done() -> None:
    text = """workflow t(a: text)
if a == "1" {
  early = llm { user "early {{ a }}" }
  tail = llm { user "slow {{ a }}" }
}
next = llm { user "next {{ early }}" }
output next, tail"""
    ran = run(text, [{"a": "1"}], reply=after("slow", "next EARLY 1"))
    assert ran.column("next") == ["NEXT EARLY 1"]


def test_items_of_a_loop_start_before_a_capture_is_there_and_do_not_wait_for_each_other() -> None:
    text = """workflow t(a: text)
late = llm { user "slow {{ a }}" }
views = for word in ["p", "q"] {
  first = llm { user "first {{ word }}" }
  second = llm { user "{{ first }} {{ late }}" }
  yield second
}
output views"""
    ran = run(text, [{"a": "1"}], reply=after("slow", "first p", "first q"))
    assert ran.column("views") == [["FIRST P SLOW 1", "FIRST Q SLOW 1"]]


def test_one_item_goes_on_while_another_is_slow() -> None:
    text = """workflow t(a: text)
views = for word in ["slow", "quick"] {
  first = llm { user "first {{ word }}" }
  second = llm { user "second {{ first }}" }
  yield second
}
output views"""
    ran = run(text, [{"a": "1"}], reply=after("first slow", "second FIRST QUICK"))
    assert ran.column("views") == [["SECOND FIRST SLOW", "SECOND FIRST QUICK"]]


def test_a_round_starts_before_a_capture_that_it_does_not_need_yet() -> None:
    text = """workflow t(a: text)
late = llm { user "slow {{ a }}" }
reply = llm { user "zero {{ a }}" }
repeat up to 2 {
  note = llm { user "note {{ reply }}" }
  reply = llm { user "better {{ note }} {{ late }}" }
}
output reply"""
    ran = run(text, [{"a": "1"}], reply=after("slow", "note ZERO 1"))
    assert ran.column("reply") == ["BETTER NOTE BETTER NOTE ZERO 1 SLOW 1 SLOW 1"]


def test_spread_rows_go_on_by_themselves() -> None:
    text = """workflow t(a: list[text])
spread a as item
x = llm { user "first {{ item }}" }
y = llm { user "second {{ x }}" }
output y"""
    ran = run(text, [{"a": ["slow", "quick"]}], reply=after("first slow", "second FIRST QUICK"))
    assert ran.column("y") == ["SECOND FIRST SLOW", "SECOND FIRST QUICK"]


def test_a_filter_holds_up_only_what_comes_after_it() -> None:
    text = """workflow t(a: text)
score = llm -> int { user "slow {{ a }}" }
before = llm { user "before {{ a }}" }
keep when score > 3
later = llm { user "later {{ a }}" }
output before, later"""

    async def reply(request: Request) -> str:
        if request.step == "before":
            arrived.set()
        if request.step == "score":
            async with asyncio.timeout(5):
                await arrived.wait()
            return "9" if "1" in user_text(request) else "1"
        return "done"

    arrived = asyncio.Event()
    ran = run(text, [{"a": "1"}, {"a": "2"}], reply=reply)
    assert ran.rows == [{"_row": 0, "before": "done", "later": "done", "_error": None}]
    assert ran.calls("later") == ["later 1"]


def test_rows_pass_a_limit_while_others_are_slow() -> None:
    text = """workflow t(a: text)
x = llm { user "first {{ a }}" }
limit 2
y = llm { user "second {{ x }}" }
output y"""
    rows = [{"a": "quick"}, {"a": "slow"}, {"a": "third"}]
    ran = run(text, rows, reply=after("first slow", "second FIRST QUICK"))
    assert ran.column("y") == ["SECOND FIRST QUICK", "SECOND FIRST SLOW"]


@pytest.mark.parametrize("concurrency", [1, 3, 8])
def test_as_many_calls_as_allowed_are_in_flight_and_no_more(concurrency: int) -> None:
    text = 'workflow t(a: text)\nx = llm { user "{{ a }}" }\ny = llm { user "{{ x }}" }\noutput y'
    rows = [{"a": str(number)} for number in range(40)]
    ran = run(text, rows, rules=[{"delay": 0.002}], concurrency=concurrency)
    assert ran.engine.peak_in_flight == concurrency


def test_calls_are_released_row_before_row_and_step_before_step() -> None:
    text = """workflow t(a: text)
x = llm { user "x {{ a }}" }
y = llm { user "y {{ a }}" }
z = llm { user "z {{ a }}{{ x }}{{ y }}" }
output z"""
    rows = [{"a": str(number)} for number in range(3)]
    ran = run(text, rows, reply=lambda _: "r", concurrency=1)
    order = [(request.row, request.step) for request in ran.engine.requests]
    assert order == [(row, step) for row in range(3) for step in "xyz"]


def test_calls_of_a_loop_are_released_in_the_order_of_its_items() -> None:
    text = """workflow t(a: text)
views = for n in [0, 1, 2] { v = llm { user "{{ a }}{{ n }}" } yield v }
output views"""
    ran = run(text, [{"a": "p"}, {"a": "q"}], concurrency=1)
    assert ran.calls("views.v") == ["p0", "p1", "p2", "q0", "q1", "q2"]


def test_rows_that_need_no_call_do_not_hold_up_the_loop() -> None:
    text = 'workflow t(a: text, go: bool)\nx = llm { user "{{ a }}" } when go\noutput x'
    rows: list[dict[str, Any]] = [{"a": "only", "go": True}, *({"a": "none", "go": False} for _ in range(30_000))]
    waits: list[float] = []

    async def reply(request: Request) -> str:
        for _ in range(20):
            # Processor time: what else the machine does is not the loop's.
            began = time.thread_time()
            await asyncio.sleep(0)
            waits.append(time.thread_time() - began)
        return "done"

    ran = run(text, rows, reply=reply)
    assert len(ran.rows) == 30_001
    assert max(waits) < 0.5
