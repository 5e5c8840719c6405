"""What records say of calls: by exact counts on the scripted engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import helix
from helix.errors import EngineError
from helix.executor.engines.base import Reply, Request
from helix.executor.engines.scripted import ScriptedEngine
from helix.executor.records import Recorder
from helix.executor.run import Run
from helix.executor.settings import RunSettings
from helix.executor.tables import MemorySink, open_rows
from helix.records import CallRecord

ONE = 'workflow t(a: text)\nx = llm { user "{{ a }}" }\noutput x\n'


def told(text: str, **tokens: Any) -> Reply:
    return Reply(text=text, **{"prompt_tokens": 100, "completion_tokens": 7, "cached_tokens": 40, **tokens})


def recorded(
    text: str,
    rows: list[dict[str, Any]],
    reply: Callable[[Request], Any],
    *,
    recorder: Recorder | None = None,
    callables: dict[str, Callable[..., Any]] | None = None,
    **settings: Any,
) -> Recorder:
    """The records of a run."""
    recorder = Recorder() if recorder is None else recorder
    workflow = helix.loads(text)
    plan = workflow.check().plan
    engine = ScriptedEngine(reply=reply)

    async def main() -> None:
        columns = tuple((name, value.type) for name, value in plan.sink.columns)
        source = open_rows(rows, plan.scan.columns, format=None, on_bad_row="stop", limit=None)
        run = Run(
            plan,
            source,
            MemorySink(columns),
            RunSettings(**settings),
            open_engine=lambda address: engine,
            callables=callables,
            recorder=recorder,
        )
        source.scan()
        await run.start()
        try:
            await run.finish()
        finally:
            await run.close()
            source.close()

    asyncio.run(main())
    return recorder


def only(records: Recorder) -> CallRecord:
    (record,) = records
    return record


def test_a_call_is_recorded_with_its_tokens_and_times_in_order() -> None:
    record = only(recorded(ONE, [{"a": "p"}], lambda request: told("q", rank=3, queue_seconds=0.25)))
    assert (record.step, record.row, record.kind, record.outcome, record.attempts) == ("x", 0, "llm", "made", 1)
    assert (record.prompt_tokens, record.cached_tokens, record.completion_tokens) == (100, 40, 7)
    assert (record.prefilled_tokens, record.rank, record.queue_seconds) == (60, 3, 0.25)
    assert record.submitted <= record.released <= record.started <= record.ended


def test_what_the_engine_does_not_tell_is_none_and_not_zero() -> None:
    record = only(recorded(ONE, [{"a": "p"}], lambda request: told("q", cached_tokens=None)))
    assert (record.prompt_tokens, record.cached_tokens, record.prefilled_tokens) == (100, None, None)
    assert (record.rank, record.queue_seconds) == (None, None)
    assert only(recorded(ONE, [{"a": "p"}], lambda request: told("q", cached_tokens=0))).cached_tokens == 0


def test_a_call_asked_again_is_one_record_with_the_tokens_of_both_replies() -> None:
    replies = iter(["four", "4"])
    text = 'workflow t(a: text)\nx = llm -> int { user "{{ a }}" }\noutput x\n'
    record = only(recorded(text, [{"a": "p"}], lambda request: told(next(replies))))
    assert (record.outcome, record.attempts, record.prompt_tokens, record.completion_tokens) == ("made", 2, 200, 14)


def test_a_call_that_is_tried_again_counts_the_attempt_without_a_reply() -> None:
    replies = iter([EngineError("gone", retryable=True, retry_after=0.0), told("q")])
    record = only(recorded(ONE, [{"a": "p"}], lambda request: next(replies)))
    assert (record.outcome, record.attempts, record.prompt_tokens) == ("made", 2, 100)


def test_a_failed_call_is_recorded_as_failed() -> None:
    record = only(recorded(ONE, [{"a": "p"}], lambda request: EngineError("no", status=400)))
    assert (record.outcome, record.attempts, record.prompt_tokens) == ("failed", 1, None)


def test_merged_calls_have_the_tokens_of_the_equal_one() -> None:
    rows = [{"a": "p"}, {"a": "p"}, {"a": "r"}, {"a": "p"}]
    records = list(recorded(ONE, rows, lambda request: told("q", prompt_tokens=90 + request.row)))
    assert sorted((record.row, record.outcome) for record in records) == [
        (0, "made"),
        (1, "merged"),
        (2, "made"),
        (3, "merged"),
    ]
    merged = [record for record in records if record.outcome == "merged"]
    assert [record.prompt_tokens for record in merged] == [90, 90]
    assert not any(record.sent for record in merged)


def test_calls_that_never_begin_are_not_recorded() -> None:
    records = recorded(ONE, [{"a": "p"}, {"a": "q"}], lambda request: told("q"), max_calls=1, concurrency=1)
    assert [record.row for record in records] == [0]


TOOL = """workflow t(a: text)
tool twice(a: text) -> text from python "m:twice" effects pure
y = twice(a)
x = llm { user "{{ y }}" }
output x
"""


def test_tools_are_recorded_beside_llm_calls() -> None:
    def twice(a: str) -> str:
        if a == "bad":
            raise ValueError("no")
        return a * 2

    rows = [{"a": "p"}, {"a": "bad"}, {"a": "p"}]
    records = list(recorded(TOOL, rows, lambda request: told("q"), callables={"m:twice": twice, "twice": twice}))
    tools = {(record.row, record.outcome) for record in records if record.kind == "tool"}
    assert tools == {(0, "made"), (1, "failed"), (2, "merged")}
    assert {(record.step, record.kind) for record in records} == {("y", "tool"), ("x", "llm")}


@pytest.mark.parametrize(("most", "characters", "kept"), [(2, 1_000, 2), (100, 6, 3), (100, 1_000, 5)])
def test_texts_are_kept_of_the_first_prompts_only(most: int, characters: int, kept: int) -> None:
    recorder = Recorder(most_prompts=most, most_characters=characters)
    rows = [{"a": f"r{number}"} for number in range(5)]
    recorded(ONE, rows, lambda request: told("q"), recorder=recorder, concurrency=1)
    assert [prompt.messages for prompt in recorder.prompts] == [(("user", f"r{number}"),) for number in range(kept)]
    assert (recorder.replies, len(recorder)) == (5, 5)


def test_a_run_without_a_recorder_keeps_nothing() -> None:
    result = helix.loads(ONE).run([{"a": "p"}], engine="scripted")
    assert result.run_report is None
