"""Steps that call: samples, null for errors, prompts that are too long, merging within a run."""

from __future__ import annotations

from typing import Any

import pytest
from running import run, user_text

from helix.errors import EngineError
from helix.executor.engines.base import Request
from helix.executor.engines.scripted import ScriptedEngine

ONE = 'workflow t(a: text)\nx = llm { user "{{ a }}" }\noutput x'


# --- samples ---


def test_samples_are_a_list_in_their_order_whatever_came_first() -> None:
    text = 'workflow t(a: text)\nx = llm(temperature: 0.9, sample: 3) { user "{{ a }}" }\noutput x'
    rules = [{"sample": number, "reply": f"s{number}", "delay": 0.03 - number * 0.01} for number in range(3)]
    ran = run(text, [{"a": "v"}], rules=rules)
    assert ran.column("x") == [["s0", "s1", "s2"]]
    assert [request.sample for request in ran.engine.requests] == [0, 1, 2]


def test_sampled_calls_are_never_merged() -> None:
    text = 'workflow t(a: text)\nx = llm(temperature: 0.9, sample: 2) { user "{{ a }}" }\noutput x'
    ran = run(text, [{"a": "v"}, {"a": "v"}])
    assert ran.engine.calls == 4
    assert ran.report.merged == 0


def test_samples_with_a_seed_are_merged_sample_by_sample() -> None:
    text = 'workflow t(a: text)\nx = llm(temperature: 0.9, seed: 1, sample: 2) { user "{{ a }}" }\noutput x'
    ran = run(text, [{"a": "v"}, {"a": "v"}])
    assert ran.engine.calls == 2
    assert ran.report.merged == 2
    assert ran.rows[0]["x"] == ran.rows[1]["x"]
    assert ran.rows[0]["x"][0] != ran.rows[0]["x"][1]


def test_one_failed_sample_fails_the_step_once() -> None:
    text = 'workflow t(a: text)\nx = llm(temperature: 0.9, sample: 3) { user "{{ a }}" }\noutput x'
    ran = run(text, [{"a": "v"}], rules=[{"sample": 2, "error": 400, "message": "two"}, {"sample": 1, "error": 400}])
    assert ran.column("x") == [None]
    assert ran.rows[0]["_error"]["message"] == "the scripted engine answers 400"
    assert ran.report.steps["x"].failed == 1


def test_one_failed_sample_is_null_for_the_whole_step_where_errors_are_null() -> None:
    text = 'workflow t(a: text)\nx = llm(temperature: 0.9, sample: 3, on_error: null) { user "{{ a }}" }\noutput x'
    ran = run(text, [{"a": "v"}, {"a": "w"}], rules=[{"sample": 1, "contains": "v", "error": 400}, {"reply": "s"}])
    assert ran.column("x") == [None, ["s", "s", "s"]]
    assert ran.errors == [None, None]


# --- on_error ---


def test_an_error_is_null_where_the_step_says_so_and_the_row_goes_on() -> None:
    text = (
        'workflow t(a: text)\nx = llm(on_error: null) { user "{{ a }}" }\n'
        'y = llm { user "y {{ x | default("none", true) }}" }\noutput x, y'
    )
    rules = [{"step": "x", "contains": "bad", "error": 400}, {"match": "(?s)(.*)", "reply": r"<\1>"}]
    ran = run(text, [{"a": "bad"}, {"a": "good"}], rules=rules)
    assert [(row["x"], row["y"]) for row in ran.rows] == [(None, "<y none>"), ("<good>", "<y <good>>")]
    assert ran.errors == [None, None]
    assert ran.report.steps["x"].failed == 1


def test_a_step_whose_input_failed_is_skipped_though_its_own_errors_are_null() -> None:
    text = 'workflow t(a: text)\nx = llm { user "{{ a }}" }\ny = llm(on_error: null) { user "{{ x }}" }\noutput x, y'
    ran = run(text, [{"a": "bad"}], rules=[{"contains": "bad", "error": 400}])
    assert ran.errors == [("engine", "x")]
    assert ran.rows[0]["_error"]["skipped"] == ["y"]


def test_what_was_cut_short_is_not_null() -> None:
    text = 'workflow t(a: text)\nx = llm(on_error: null) { user "{{ a }}" }\noutput x'
    ran = run(text, [{"a": "v"}], max_calls=0)
    assert ran.errors == [("limit", "x")]


# --- merging ---


def test_equal_steps_on_equal_rows_are_called_once() -> None:
    ran = run(ONE, [{"a": "v"}, {"a": "w"}, {"a": "v"}, {"a": "v"}])
    assert ran.engine.calls == 2
    assert ran.report.steps["x"].merged == 2
    assert ran.rows[0]["x"] == ran.rows[2]["x"] == ran.rows[3]["x"]


@pytest.mark.parametrize("option", ["temperature: 0.7", "temperature: null", "cache: off"])
def test_a_step_that_may_answer_otherwise_is_called_each_time(option: str) -> None:
    ran = run(ONE.replace("llm", f"llm({option})"), [{"a": "v"}, {"a": "v"}])
    assert ran.engine.calls == 2


def test_merging_can_be_switched_off() -> None:
    assert run(ONE, [{"a": "v"}, {"a": "v"}], merge=False).engine.calls == 2


def test_a_merged_failure_is_each_readers_own() -> None:
    text = 'workflow t(a: text)\nx = llm { user "{{ a }}" }\ny = llm { user "{{ a }}" }\noutput x, y'
    ran = run(text, [{"a": "v"}, {"a": "v"}], rules=[{"error": 400}], plain=True)
    assert ran.engine.calls == 1
    assert ran.errors == [("engine", "x"), ("engine", "x")]
    assert ran.rows[0]["_error"]["skipped"] == []
    assert ran.report.steps["y"].failed == 2


def test_readers_of_one_reply_do_not_share_its_value() -> None:
    def change(value: Any) -> Any:
        value.append("changed")
        return value

    import helix as hx

    @hx.tool(effects="read")
    def spoil(value: list[str]) -> list[str]:
        return change(value)

    @hx.workflow
    def subject(a: str):  # type: ignore[no-untyped-def]
        x = hx.llm(user=a, returns=list[str])
        return hx.output(x=x, y=spoil(x), z=x)

    ran = run(subject, [{"a": "v"}, {"a": "v"}], rules=[{"reply": '["r"]'}])
    for row in ran.rows:
        assert (row["x"], row["y"], row["z"]) == (["r"], ["r", "changed"], ["r"])


# --- prompts that are too long ---


def long_run(option: str = "", text: str = "w" * 400, **more: Any) -> Any:
    body = f'x = llm{option} {{ system "S" user "<{{{{ a }}}}>" }}'
    workflow = f"workflow t(a: text)\n{body}\noutput x"
    return run(workflow, [{"a": text}, {"a": "short"}], settings={"max_context": 50} | more, reply=None)


def test_a_prompt_that_is_too_long_is_found_before_the_call() -> None:
    ran = long_run()
    assert ran.errors == [("prompt.too_long", "x"), None]
    assert ran.rows[0]["_error"]["message"] == "the prompt needs 101 tokens, the model has 50"
    assert ran.rows[0]["_error"]["attempts"] == 0
    assert ran.engine.calls == 1


def test_room_is_kept_for_the_reply() -> None:
    ran = long_run("(max_tokens: 30)", "w" * 100)
    assert ran.rows[0]["_error"]["message"] == "the prompt needs 26 tokens and 30 for the reply, the model has 50"
    assert long_run("(max_tokens: 20)", "w" * 100).errors == [None, None]


def test_without_a_tokenizer_the_engines_own_error_has_the_same_kind() -> None:
    ran = long_run(counts_tokens=False)
    assert ran.errors == [("prompt.too_long", "x"), None]
    assert ran.rows[0]["_error"]["message"] == "prompt too long: needs 101 tokens, has 50"
    assert ran.rows[0]["_error"]["attempts"] == 1
    assert ran.engine.calls == 2


@pytest.mark.parametrize(("keep", "expected"), [("head", "ab" * 96 + "a"), ("tail", "b" + "ab" * 96)])
def test_a_step_may_cut_one_input_and_it_is_noted(keep: str, expected: str) -> None:
    ran = long_run(f"(on_overflow: truncate(a, keep: {keep}))", "ab" * 500)
    assert ran.errors == [None, None]
    shown = user_text(ran.engine.requests[0])
    assert shown == f"<{expected}>"
    assert ran.engine.requests[0].messages[0].content == "S"
    assert ran.report.steps["x"].truncated_prompts == 1
    assert user_text(ran.engine.requests[1]) == "<short>"


def test_what_does_not_fit_even_when_cut_is_too_long() -> None:
    text = 'workflow t(a: text, b: text)\nx = llm(on_overflow: truncate(a)) { user "{{ a }}{{ b }}" }\noutput x'
    ran = run(text, [{"a": "v", "b": "w" * 400}], settings={"max_context": 50})
    assert ran.errors == [("prompt.too_long", "x")]
    assert ran.engine.calls == 0


def test_cutting_keeps_characters_whole_and_a_template_that_then_fails_is_no_fit() -> None:
    text = 'workflow t(a: text)\nx = llm(on_overflow: truncate(a)) { user "{{ a }}{{ a[300] }}" }\noutput x'
    ran = run(text, [{"a": "ก" * 400}], settings={"max_context": 50})
    assert ran.errors == [("prompt.too_long", "x")]
    text = 'workflow t(a: text)\nx = llm(on_overflow: truncate(a)) { user "{{ a }}" }\noutput x'
    ran = run(text, [{"a": "ก" * 400}], settings={"max_context": 50})
    assert user_text(ran.engine.requests[0]) == "ก" * 65


def test_a_short_prompt_is_not_counted() -> None:
    class Counting(ScriptedEngine):
        counted = 0

        async def count_tokens(self, request: Request) -> int:
            self.counted += 1
            return await super().count_tokens(request)

    engine = Counting(max_context=1000)
    run(ONE, [{"a": "short"}], engine=engine)
    assert engine.counted == 0


# --- engines of a workflow ---


def test_one_engine_behind_several_addresses_is_opened_and_closed_once() -> None:
    text = (
        'workflow t(a: text)\nmodel m { engine: "http://one/v1" }\nmodel n { engine: "http://two/v1" }\n'
        'x = llm m { user "x {{ a }}" }\ny = llm n { user "y {{ a }}" }\noutput x, y'
    )
    rows = [{"a": str(number)} for number in range(20)]
    ran = run(text, rows, rules=[{"delay": 0.002}], concurrency=3)
    assert (ran.engine.opened, ran.engine.closed) == (1, 1)
    assert ran.engine.peak_in_flight == 3


def test_an_engine_that_does_not_open_is_closed_again() -> None:
    class Shut(ScriptedEngine):
        async def open(self, *, concurrency: int) -> Any:
            await super().open(concurrency=concurrency)
            raise EngineError("nobody at home", fatal=True)

    engine = Shut()
    with pytest.raises(EngineError, match="nobody at home"):
        run(ONE, [{"a": "v"}], engine=engine)
    assert (engine.opened, engine.closed, engine.calls) == (1, 1, 0)
