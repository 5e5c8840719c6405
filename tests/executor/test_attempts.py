"""One call until it succeeds or cannot: attempts, back-off, shared pauses, time limits, re-ask, budgets."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from running import Ran, run

from helix.errors import EngineError
from helix.executor import attempts
from helix.executor.engines.base import Capabilities, Reply, Request
from helix.executor.engines.scripted import ScriptedEngine

ONE = 'workflow t(a: text)\nx = llm { user "{{ a }}" }\noutput x'
TYPED = 'workflow t(a: text)\nx = llm -> bool { user "{{ a }}" }\noutput x'


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "FIRST_BACKOFF", 0.004)


def rows(count: int) -> list[dict[str, str]]:
    return [{"a": f"row {number}"} for number in range(count)]


def error(ran: Ran, row: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = ran.rows[row]["_error"]
    return found


# --- attempts ---


@pytest.mark.parametrize("fault", [500, 502, 504, 408, "connection", "malformed"])
def test_what_may_succeed_is_tried_again(fault: Any) -> None:
    ran = run(ONE, rows(1), rules=[{"attempt": [1, 2], "error": fault}, {"reply": "good"}])
    assert ran.column("x") == ["good"]
    assert (ran.engine.calls, ran.report.steps["x"].retries) == (3, 2)


def test_three_attempts_are_made_and_the_last_error_is_the_rows() -> None:
    ran = run(ONE, rows(2), rules=[{"contains": "row 0", "error": 500, "message": "boiler down"}, {"reply": "good"}])
    assert ran.column("x") == [None, "good"]
    assert error(ran) == {
        "step": "x",
        "kind": "engine",
        "message": "boiler down",
        "attempts": 3,
        "skipped": [],
        "raw": None,
    }
    assert ran.engine.calls == 4


@pytest.mark.parametrize("fault", [400, 405, 422, 501, "prompt.too_long"])
def test_what_cannot_succeed_is_not_tried_again(fault: Any) -> None:
    ran = run(ONE, rows(1), rules=[{"error": fault}])
    assert ran.engine.calls == 1
    assert error(ran)["attempts"] == 1
    assert error(ran)["kind"] == ("prompt.too_long" if fault == "prompt.too_long" else "engine")


def test_the_run_and_the_step_say_how_often() -> None:
    assert run(ONE, rows(1), rules=[{"error": 500}], attempts=5).engine.calls == 5
    step = ONE.replace("llm", "llm(attempts: 2)")
    assert run(step, rows(1), rules=[{"error": 500}], attempts=5).engine.calls == 2


def test_back_off_doubles_with_jitter_and_repeats_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "FIRST_BACKOFF", 1.0)
    call: Any = type("Call", (), {"priority": (3, 1)})
    waits = [attempts._backoff(number, call, 0) for number in range(10)]
    assert waits == [attempts._backoff(number, call, 0) for number in range(10)]
    for number, wait in enumerate(waits):
        assert min(30.0, 2.0**number) * 0.5 <= wait <= min(30.0, 2.0**number)
    other: Any = type("Call", (), {"priority": (4, 1)})
    assert attempts._backoff(0, other, 0) != waits[0]


def test_a_wait_that_a_failing_server_asks_for_is_kept() -> None:
    began = time.monotonic()
    ran = run(ONE, rows(1), rules=[{"attempt": 1, "error": 500, "retry_after": 0.2}, {"reply": "good"}])
    assert ran.column("x") == ["good"]
    assert time.monotonic() - began >= 0.2


def test_a_wait_longer_than_a_call_waits_is_not_waited_for() -> None:
    ran = run(ONE, rows(1), rules=[{"error": 500, "retry_after": 3600.0}], wait_limit=1.0)
    assert error(ran)["attempts"] == 1


class Faulty(ScriptedEngine):
    """Raises what an engine should not."""

    def __init__(self, *faults: BaseException, **more: Any) -> None:
        super().__init__(**more)
        self.faults = list(faults)

    async def generate(self, request: Request) -> Reply:
        if self.faults:
            self.calls += 1
            raise self.faults.pop(0)
        return await super().generate(request)

    async def count_tokens(self, request: Request) -> int:
        raise ValueError("no tokenizer")


def test_an_engines_own_fault_is_one_rows_error() -> None:
    ran = run(ONE, rows(3), engine=Faulty(ValueError("bad \x1b state")), concurrency=1)
    assert ran.errors == [("engine", "x"), None, None]
    assert "raised ValueError: bad" in error(ran)["message"]


def test_an_engine_that_drops_a_call_is_asked_again() -> None:
    ran = run(ONE, rows(1), engine=Faulty(asyncio.CancelledError()))
    assert ran.errors == [None]


def test_an_engines_own_timeout_is_not_the_runs() -> None:
    ran = run(ONE, rows(1), engine=Faulty(TimeoutError("socket")), call_timeout=20.0)
    assert "raised TimeoutError: socket" in error(ran)["message"]


def test_an_engine_that_cannot_count_is_asked_all_the_same() -> None:
    ran = run(ONE, rows(1), engine=Faulty(max_context=20, counts_tokens=True))
    assert ran.errors == [None]


# --- overload ---


@pytest.mark.parametrize("status", [429, 503])
def test_overload_pauses_everybody_and_uses_no_attempt(status: int) -> None:
    times: list[tuple[str, float]] = []
    state = {"overloaded": True}

    def reply(request: Request) -> Any:
        times.append((request.messages[-1].content, time.monotonic()))
        if state["overloaded"]:
            state["overloaded"] = False
            return EngineError("busy", status=status, retryable=True, overloaded=True, retry_after=0.3)
        return "good"

    ran = run(ONE, rows(6), reply=reply, concurrency=1, attempts=1)
    assert ran.column("x") == ["good"] * 6
    assert ran.engine.calls == 7
    assert ran.report.steps["x"].retries == 1
    first = times[0][1]
    assert min(at for _, at in times[1:]) - first >= 0.29
    assert times[1][0] == "row 0"


def test_calls_that_are_ready_wait_for_a_pause_that_others_met() -> None:
    arrivals: list[float] = []

    def reply(request: Request) -> Any:
        arrivals.append(time.monotonic())
        if len(arrivals) == 1:
            return EngineError("busy", status=429, retryable=True, overloaded=True, retry_after=0.3)
        return "good"

    text = 'workflow t(a: text)\nx = llm { user "{{ a }}" }\ny = llm { user "{{ x }}" }\noutput y'
    ran = run(text, rows(3), reply=reply, concurrency=1)
    assert ran.report.failed_rows == 0
    assert arrivals[1] - arrivals[0] >= 0.29
    assert arrivals[-1] - arrivals[1] < 0.25


def test_overload_ends_after_the_time_that_a_call_waits() -> None:
    ran = run(ONE, rows(1), rules=[{"error": 429, "retry_after": 0.02}], wait_limit=0.1)
    assert error(ran)["kind"] == "engine"
    assert 3 <= ran.engine.calls <= 7


def test_a_server_that_asks_for_no_wait_at_all_is_not_hammered() -> None:
    ran = run(ONE, rows(1), rules=[{"call": list(range(1, 6)), "error": 503, "retry_after": 0.0}, {"reply": "good"}])
    assert ran.column("x") == ["good"]
    assert ran.engine.calls == 6


def test_overload_ends_after_a_number_of_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "MOST_PAUSES", 4)
    ran = run(ONE, rows(1), rules=[{"error": 429, "retry_after": 0.001}])
    assert ran.engine.calls == 5


def test_a_server_that_asks_for_more_than_a_call_waits_stops_the_run() -> None:
    began = time.monotonic()
    ran = run(ONE, rows(40), rules=[{"error": 429, "retry_after": 3600.0, "message": "quota"}], concurrency=2)
    assert time.monotonic() - began < 5
    assert ran.report.stopped == "the engine asks to wait 3600 s, longer than the 600 s that a call waits: quota"
    assert ran.engine.calls <= 2
    assert {kind for kind, _ in filter(None, ran.errors)} == {"engine", "not_started"}


# --- refusals ---


@pytest.mark.parametrize("status", [401, 402, 403, 404])
def test_a_refused_key_or_model_stops_the_run_at_once(status: int) -> None:
    engine = ScriptedEngine([{"error": status, "message": "no such key"}])
    with pytest.raises(EngineError, match="no such key") as refused:
        run(ONE, rows(200), engine=engine, concurrency=4)
    assert engine.calls <= 4
    assert refused.value.fatal


def test_what_was_done_before_a_refusal_is_kept() -> None:
    ran = run(ONE, rows(50), rules=[{"call": [1, 2, 3], "reply": "good"}, {"error": 403}], concurrency=1)
    assert ran.column("x")[:3] == ["good"] * 3
    assert len(ran.rows) == 50
    assert not ran.report.nothing_done
    assert ran.errors[3] == ("engine", "x")
    assert {kind for kind, _ in filter(None, ran.errors[4:])} == {"not_started"}
    assert ran.engine.calls == 4


# --- time ---


def test_a_call_that_takes_too_long_is_cancelled_and_tried_again() -> None:
    ran = run(ONE, rows(1), rules=[{"attempt": 1, "hang": True}, {"reply": "good"}], call_timeout=0.1)
    assert ran.column("x") == ["good"]
    assert ran.engine.calls == 2
    assert ran.engine.in_flight == 0


def test_a_call_that_always_takes_too_long_times_out() -> None:
    ran = run(ONE, rows(2), rules=[{"contains": "row 0", "hang": True}], call_timeout=0.05)
    assert ran.errors == [("timeout", "x"), None]
    assert error(ran)["message"] == "no reply within 0.05 s"
    assert error(ran)["attempts"] == 3
    assert ran.engine.in_flight == 0


def test_the_time_of_a_step_goes_before_that_of_the_run() -> None:
    text = ONE.replace("llm", "llm(timeout: 50ms, attempts: 1)")
    ran = run(text, rows(1), rules=[{"hang": True}], call_timeout=60.0)
    assert error(ran)["message"] == "no reply within 0.05 s"


def test_the_time_of_the_run_ends_calls_in_flight_and_starts_no_others() -> None:
    began = time.monotonic()
    ran = run(ONE, rows(30), rules=[{"row": [0], "reply": "good"}, {"hang": True}], run_timeout=0.3, concurrency=3)
    assert time.monotonic() - began < 5
    assert ran.report.stopped == "the run's time limit of 0.3 s was reached"
    assert ran.errors[0] is None
    assert ran.errors[1:4] == [("timeout", "x")] * 3
    assert error(ran, 1)["message"] == "the run's time limit of 0.3 s"
    assert {kind for kind, _ in filter(None, ran.errors[4:])} == {"not_started"}
    assert len(ran.rows) == 30
    assert ran.engine.in_flight == 0


@pytest.mark.parametrize(
    "rule",
    [
        {"error": 429, "retry_after": 500.0, "message": "busy"},
        {"error": 500, "retry_after": 500.0, "message": "broken"},
    ],
)
def test_the_end_of_the_run_does_not_wait_for_a_pause_or_a_back_off(rule: dict[str, Any]) -> None:
    began = time.monotonic()
    ran = run(ONE, rows(5), rules=[rule], run_timeout=0.2, concurrency=2)
    assert time.monotonic() - began < 5
    assert ran.engine.calls <= 2
    assert error(ran)["kind"] == "not_started"
    assert error(ran)["attempts"] == (1 if rule["error"] == 500 else 0)
    reason = "not tried again: the run's time limit of 0.2 s was reached; the attempt before failed: "
    assert error(ran)["message"] == reason + rule["message"]


def test_an_engine_that_hangs_while_it_counts_is_given_up() -> None:
    class Stuck(ScriptedEngine):
        async def count_tokens(self, request: Request) -> int:
            await asyncio.Event().wait()
            return 0

    ran = run(ONE, rows(1), engine=Stuck(max_context=20), call_timeout=0.1)
    assert ran.errors == [None]


# --- re-ask ---


def test_a_bad_reply_is_asked_for_again_at_the_tail_of_the_prompt() -> None:
    ran = run(
        'workflow t(a: text)\nx = llm -> bool { system "S" user "{{ a }}" }\noutput x',
        rows(1),
        rules=[{"call": 1, "reply": "perhaps"}, {"reply": "true"}],
    )
    assert ran.column("x") == [True]
    first, second = ran.engine.requests
    assert second.messages[: len(first.messages)] == first.messages
    tail = second.messages[len(first.messages) :]
    assert [message.role for message in tail] == ["assistant", "user"]
    assert tail[0].content == "perhaps"
    assert "true or false" in tail[1].content
    assert ran.report.steps["x"].reasks == 1


def test_a_bad_reply_again_is_the_rows_error_with_the_raw_text() -> None:
    ran = run(TYPED, rows(1), rules=[{"call": 1, "reply": "perhaps"}, {"reply": "maybe"}])
    assert error(ran)["kind"] == "schema"
    assert (error(ran)["raw"], error(ran)["attempts"]) == ("maybe", 2)
    assert ran.engine.calls == 2


def test_an_empty_reply_is_asked_for_again_without_an_empty_turn() -> None:
    ran = run(TYPED, rows(1), rules=[{"call": 1, "reply": " "}, {"reply": "true"}])
    assert ran.column("x") == [True]
    assert [message.role for message in ran.engine.requests[1].messages] == ["user", "user"]


@pytest.mark.parametrize(("reask", "calls"), [(0, 1), (1, 2), (3, 4)])
def test_the_step_says_how_often_it_asks_again(reask: int, calls: int) -> None:
    ran = run(TYPED.replace("llm", f"llm(reask: {reask})"), rows(1), rules=[{"reply": "maybe"}])
    assert ran.engine.calls == calls
    assert error(ran)["attempts"] == calls


def test_each_re_ask_follows_the_first_prompt() -> None:
    ran = run(TYPED.replace("llm", "llm(reask: 3)"), rows(1), rules=[{"reply": "maybe"}])
    assert [len(request.messages) for request in ran.engine.requests] == [1, 3, 3, 3]


def test_a_reply_that_was_cut_off_is_not_asked_for_again() -> None:
    ran = run(TYPED, rows(1), rules=[{"reply": "tr", "finish": "length"}])
    assert error(ran)["kind"] == "truncated"
    assert error(ran)["raw"] == "tr"
    assert ran.engine.calls == 1


def test_a_text_that_ends_at_the_limit_is_kept_and_counted() -> None:
    ran = run(ONE, rows(2), rules=[{"row": 0, "reply": "half a sen", "finish": "length"}, {"reply": "whole"}])
    assert ran.column("x") == ["half a sen", "whole"]
    assert ran.report.steps["x"].cut_replies == 1


# --- budgets ---


def test_a_budget_of_calls_is_kept_exactly() -> None:
    ran = run(ONE, rows(50), max_calls=7, concurrency=4)
    assert ran.engine.calls == 7
    assert ran.report.stopped == "the budget of 7 calls is used up"
    assert sum(found is None for found in ran.errors) == 7
    assert {kind for kind, _ in filter(None, ran.errors)} == {"limit"}
    assert len(ran.rows) == 50


def test_retries_and_re_asks_count_against_the_budget() -> None:
    ran = run(ONE, rows(1), rules=[{"error": 500}], max_calls=2)
    assert ran.engine.calls == 2
    assert (error(ran)["kind"], error(ran)["attempts"]) == ("limit", 2)
    ran = run(TYPED, rows(1), rules=[{"reply": "maybe"}], max_calls=1)
    assert ran.engine.calls == 1
    assert (error(ran)["kind"], error(ran)["attempts"]) == ("limit", 1)


def test_a_budget_of_nothing_makes_no_call() -> None:
    ran = run(ONE, rows(3), max_calls=0)
    assert ran.engine.calls == 0
    assert error(ran)["attempts"] == 0


def test_a_budget_of_tokens_stops_after_the_call_that_used_it_up() -> None:
    ran = run(ONE, rows(20), rules=[{"reply": "x" * 40}], max_tokens=30, concurrency=1)
    assert ran.report.stopped == "the budget of 30 tokens is used up"
    assert 2 <= ran.engine.calls <= 3
    assert sum(found is None for found in ran.errors) == ran.engine.calls


# --- what is counted ---


def test_the_report_counts_what_a_step_took() -> None:
    rules = [
        {"contains": "row 0", "attempt": 1, "error": 500},
        {"contains": "row 1", "error": 400},
        {"reply": "good"},
    ]
    ran = run(ONE, [*rows(3), {"a": "row 2"}], rules=rules)
    step = ran.report.steps["x"]
    assert (step.calls, step.done, step.merged, step.retries, step.failed) == (4, 2, 1, 1, 1)
    assert step.prompt_tokens == 4
    assert step.completion_tokens == 2


def test_an_engine_that_tells_no_tokens_counts_none() -> None:
    class Silent(ScriptedEngine):
        async def open(self, *, concurrency: int) -> Capabilities:
            return Capabilities()

        async def generate(self, request: Request) -> Reply:
            return Reply(text="x")

    ran = run(ONE, rows(1), engine=Silent())
    assert ran.report.total("prompt_tokens") == 0
    assert ran.report.outcome == "complete"
