"""An engine that goes away in the middle of a run and comes back, in process. From the command line: contract 11."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from running import run

import helix
from helix.api import Prepared
from helix.errors import EngineError
from helix.executor import attempts, outage
from helix.executor.engines.base import Reply, Request
from helix.executor.engines.scripted import ScriptedEngine
from helix.executor.settings import RunSettings
from helix.progress import Progress

ONE = 'workflow t(a: text)\nx = llm { user "{{ a }}" }\noutput x'


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "FIRST_BACKOFF", 0.004)
    monkeypatch.setattr(outage, "FIRST_LOOK", 0.01)


def rows(count: int) -> list[dict[str, str]]:
    return [{"a": f"row {number}"} for number in range(count)]


class Server(ScriptedEngine):
    """An engine that is `away` at times: then it neither answers nor is there when looked at.

    `comes` says at the n-th look of an outage whether it is back; `fails` which requests it goes away at.
    """

    def __init__(self, *, fails: Callable[[Request], bool], comes: Callable[[int], bool], **more: Any) -> None:
        super().__init__(**more)
        self.fails = fails
        self.comes = comes
        self.away = False
        self.looks = 0
        self.served = "m"

    async def generate(self, request: Request) -> Reply:
        self.away = self.away or self.fails(request)
        reply = await super().generate(request)
        await asyncio.sleep(0.001)
        if self.away:
            raise EngineError("connection refused", retryable=True)
        return reply

    async def look(self) -> None:
        if self.away:
            self.looks += 1
            if not self.comes(self.looks):
                raise EngineError("connection refused", retryable=True)
            self.away, self.looks = False, 0
        if self.served != "m":
            raise EngineError("another model", fatal=True)


def at_call(*numbers: int) -> Callable[[Request], bool]:
    made = iter(range(1, 1_000_000))
    return lambda request: next(made) in numbers


def test_all_wait_together_and_no_attempt_is_used_up() -> None:
    engine = Server(fails=at_call(5, 20), comes=lambda number: number == 6)
    ran = run(ONE, rows(40), engine=engine, attempts=1, concurrency=4)
    assert ran.errors == [None] * 40
    # Each outage costs the calls in flight and no other.
    assert 42 <= engine.calls <= 48
    assert ran.report.steps["x"].retries == engine.calls - 40
    assert [note.partition(" for ")[0] for note in ran.report.notes] == ["scripted did not answer"] * 2
    assert ran.report.waiting is None


def test_what_the_run_waits_for_is_told_while_it_waits(capsys: pytest.CaptureFixture[str]) -> None:
    engine = Server(fails=at_call(1), comes=lambda number: time.monotonic() - began > 0.7)
    settings = RunSettings(attempts=1)
    unsaid: Any = dict.fromkeys(("output", "model", "api_key", "set", "input_format", "output_format"))
    prepared = Prepared(helix.loads(ONE), rows(2), engine=engine, settings=settings, quiet=True, **unsaid)
    began = time.monotonic()
    result = asyncio.run(prepared.run(progress=Progress(2, quiet=False).update))
    assert result.report.failed_rows == 0
    assert capsys.readouterr().err.splitlines() == [
        "waiting, up to --wait-limit 600 s, for an engine that does not answer: connection refused",
        "the engine answers again; going on",
    ]


def test_a_failure_while_the_engine_is_there_is_the_calls_own() -> None:
    engine = Server(fails=at_call(1), comes=lambda number: True)
    ran = run(ONE, rows(1), engine=engine, attempts=1)
    assert ran.errors == [("engine", "x")]
    assert engine.calls == 1
    assert ran.report.notes == []


def test_so_are_the_failures_of_many_at_once() -> None:
    class Resetting(ScriptedEngine):
        async def look(self) -> None:
            await asyncio.sleep(0.01)

    engine = Resetting([{"error": "connection"}])
    ran = run(ONE, rows(12), engine=engine, concurrency=6)
    assert engine.calls == 36
    assert {row["_error"]["attempts"] for row in ran.rows} == {3}


def test_an_engine_that_cannot_be_looked_at_costs_attempts() -> None:
    ran = run(ONE, rows(1), rules=[{"error": "connection"}])
    assert ran.engine.calls == 3
    assert ran.errors == [("engine", "x")]


def test_the_run_ends_after_the_time_to_wait() -> None:
    engine = Server(fails=at_call(11), comes=lambda number: False)
    began = time.monotonic()
    ran = run(ONE, rows(60), engine=engine, concurrency=1, wait_limit=0.2)
    assert time.monotonic() - began < 5
    assert ran.errors[:11] == [None] * 10 + [("not_started", "x")]
    assert {kind for kind, _ in filter(None, ran.errors[11:])} == {"not_started"}
    assert ran.report.stopped == "scripted has not answered for 0 s: connection refused"
    assert ran.rows[10]["_error"]["message"].endswith("; the attempt before failed: connection refused")
    assert engine.calls == 11
    assert not ran.report.fatal


def test_no_time_to_wait_at_all_ends_it_at_once() -> None:
    engine = Server(fails=at_call(3), comes=lambda number: False)
    ran = run(ONE, rows(6), engine=engine, concurrency=1, wait_limit=0)
    assert [kind for kind, _ in filter(None, ran.errors)] == ["not_started"] * 4


def test_the_time_of_the_run_goes_on() -> None:
    engine = Server(fails=at_call(2), comes=lambda number: False)
    began = time.monotonic()
    ran = run(ONE, rows(9), engine=engine, concurrency=2, run_timeout=0.3)
    assert time.monotonic() - began < 5
    assert ran.report.stopped == "the run's time limit of 0.3 s was reached"
    assert {kind for kind, _ in filter(None, ran.errors)} == {"not_started"}


def test_a_call_that_brings_the_engine_down_each_time_fails_and_the_others_do_not() -> None:
    engine = Server(fails=lambda request: request.row == 3, comes=lambda number: number == 3)
    ran = run(ONE, rows(12), engine=engine, concurrency=1)
    assert ran.errors == [None] * 3 + [("engine", "x")] + [None] * 8
    error = ran.rows[3]["_error"]
    assert error["message"] == "the engine went away 6 times while it worked on this call: connection refused"
    assert engine.calls == 11 + 1 + attempts.MOST_OUTAGES


def test_an_engine_that_comes_back_as_another_ends_the_run() -> None:
    engine = Server(fails=at_call(4), comes=lambda number: setattr(engine, "served", "other") or number == 2)
    ran = run(ONE, rows(8), engine=engine, concurrency=1)
    assert (ran.report.stopped, ran.report.fatal) == ("another model", True)
    assert ran.errors[:3] == [None] * 3
    assert {kind for kind, _ in filter(None, ran.errors[3:])} == {"not_started"}


def test_a_look_that_hangs_is_not_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "LOOK_TIMEOUT", 0.05)

    class Hanging(Server):
        async def look(self) -> None:
            if self.away and self.looks < 2:
                self.looks += 1
                await asyncio.Event().wait()
            await super().look()

    engine = Hanging(fails=at_call(2), comes=lambda number: True)
    ran = run(ONE, rows(5), engine=engine, attempts=1, concurrency=2)
    assert ran.errors == [None] * 5


def test_a_call_that_hears_late_of_an_outage_uses_no_attempt() -> None:
    class Late(Server):
        async def generate(self, request: Request) -> Reply:
            if request.row == 0 and not self.requests:
                await ScriptedEngine.generate(self, request)
                await asyncio.sleep(0.5)
                raise EngineError("reset", retryable=True)
            return await super().generate(request)

    engine = Late(fails=at_call(3), comes=lambda number: number == 3)
    ran = run(ONE, rows(12), engine=engine, attempts=1, concurrency=2)
    assert ran.errors == [None] * 12
