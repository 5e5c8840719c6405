"""Prompts: the messages of a step, its requests, and what makes two calls the same call."""

from __future__ import annotations

from typing import Any

import pytest
from running import run

from helix.executor.engines.base import Message, Request


def requests(body: str, row: dict[str, Any], params: str = "a: text", **options: Any) -> list[Request]:
    ran = run(f"workflow t({params})\n{body}\noutput x", [row], **options)
    found: list[Request] = ran.engine.requests
    return found


def messages(body: str, row: dict[str, Any], params: str = "a: text", **options: Any) -> list[tuple[str, str]]:
    (request,) = requests(body, row, params, **options)
    return [(message.role, message.content) for message in request.messages]


def test_messages_come_in_the_order_in_which_they_are_written() -> None:
    body = 'x = llm { system "S {{ a }}" user "U" assistant "A" user "{{ a }}!" }'
    assert messages(body, {"a": "v"}) == [("system", "S v"), ("user", "U"), ("assistant", "A"), ("user", "v!")]


def test_history_puts_its_turns_where_it_stands() -> None:
    turns = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes?"}]
    body = 'x = llm { system "S" history a user "now" }'
    expected = [("system", "S"), ("user", "hi"), ("assistant", "yes?"), ("user", "now")]
    assert messages(body, {"a": turns}, "a: list[{role: text, content: text}]") == expected
    assert messages(body, {"a": turns}, "a: json") == expected


@pytest.mark.parametrize("nothing", [None, []])
def test_no_history_is_no_message(nothing: Any) -> None:
    assert messages('x = llm { history a user "now" }', {"a": nothing}, "a: json?") == [("user", "now")]


@pytest.mark.parametrize(
    ("turns", "message"),
    [
        ("hi", '`history` needs a list of {role, content}, found text "hi"'),
        ([{"role": "user"}], "item 0 is record"),
        ([{"role": "user", "content": "a"}, {"role": "robot", "content": "b"}], "item 1 is record"),
        ([{"role": "user", "content": 7}], "item 0 is record"),
        ([["user", "a"]], "item 0 is list"),
    ],
)
def test_history_that_is_none_is_the_rows_error(turns: Any, message: str) -> None:
    ran = run('workflow t(a: json)\nx = llm { history a user "now" }\noutput x', [{"a": turns}, {"a": []}])
    assert message in ran.rows[0]["_error"]["message"]
    assert ran.rows[0]["_error"]["step"] == "x"
    assert ran.errors[1] is None
    assert ran.engine.calls == 1


def test_unordered_parts_are_one_message_in_the_written_order() -> None:
    body = 'x = llm { user unordered { part "one {{ a }}" part "two" part "three" } }'
    assert messages(body, {"a": "v"}, plain=True) == [("user", "one v\n\ntwo\n\nthree")]
    # With the optimizer what changes from row to row comes last.
    assert messages(body, {"a": "v"}) == [("user", "two\n\nthree\n\none v")]


HARD = '{"a": {"b": 1}} %s ${HOME} --- <|im_start|> \\n ไทย 👩\u200d🚀 {{ a }} {% x %} "q" \'s\''


def test_a_value_arrives_byte_for_byte_and_is_never_rendered() -> None:
    assert messages('x = llm { user "{{ a }}" }', {"a": HARD}) == [("user", HARD)]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (False, "false"),
        (0, "0"),
        (1.5, "1.5"),
        ([1, None], "[1,null]"),
        ({"b": 1, "a": "é"}, '{"a":"é","b":1}'),
    ],
)
def test_values_render_as_the_contract_says(value: Any, text: str) -> None:
    assert messages('x = llm { user "<{{ a }}>" }', {"a": value}, "a: json?") == [("user", f"<{text}>")]


def test_sampling_options_and_the_schema_go_into_the_request() -> None:
    options = 'name: "m", temperature: 0.5, max_tokens: 9, top_p: 0.9, seed: 3, stop: ["a", "b"], extra: { min_p: 0.1 }'
    body = f'model m {{ {options} }}\nx = llm m -> bool {{ user "{{{{ a }}}}" }}'
    (request,) = requests(body, {"a": "v"}, reply=lambda _: "true")
    assert request == Request(
        model="m",
        messages=(Message(role="user", content="v"),),
        temperature=0.5,
        max_tokens=9,
        top_p=0.9,
        seed=3,
        stop=("a", "b"),
        schema={"type": "boolean"},
        extra=(("min_p", 0.1),),
        step="x",
        name="x",
        row=0,
    )


@pytest.mark.parametrize("over", ["a", '["p", "q"]'], ids=["rolled", "unrolled"])
def test_a_request_is_named_by_its_items_as_records_name_it(over: str) -> None:
    body = f'x = for item in {over} {{\n  v = llm {{ user "{{{{ item }}}}" }}\n  yield v\n}}'
    found = requests(body, {"a": ["p", "q"]}, "a: list[text]")
    assert sorted((request.step, request.name) for request in found) == [("x.v", "x[0].v"), ("x.v", "x[1].v")]


def test_the_model_of_the_run_overrides_that_of_the_step() -> None:
    body = 'model m { name: "m" }\nx = llm m { user "{{ a }}" }'
    (request,) = requests(body, {"a": "v"}, model="other")
    assert request.model == "other"


@pytest.mark.parametrize("returns", ["", " -> text", " -> json", " -> text?"])
def test_texts_and_any_json_are_decoded_freely(returns: str) -> None:
    (request,) = requests(f'x = llm{returns} {{ user "{{{{ a }}}}" }}', {"a": "v"}, reply=lambda _: "1")
    assert request.schema is None


def merged(first: str, second: str, params: str = "a: text") -> bool:
    """Whether two steps with these heads and one prompt share a call."""
    prompt = '{ user "{{ a }}" }'
    text = f"workflow t({params})\nx = {first} {prompt}\ny = {second} {prompt}\noutput x, y"
    ran = run(text, [{"a": "v"}], reply=lambda _: "true")
    assert ran.report.failed_rows == 0
    return ran.engine.calls == 1


def test_steps_of_other_names_with_equal_calls_share_one() -> None:
    assert merged("llm", "llm")
    assert merged("llm(max_tokens: 5)", "llm(max_tokens: 5)")
    assert merged("llm -> bool", "llm -> bool")


@pytest.mark.parametrize(
    "other",
    [
        "llm(max_tokens: 5)",
        "llm(seed: 1)",
        "llm(top_p: 0.5)",
        'llm(stop: "a")',
        "llm(extra: { min_p: 1 })",
        "llm -> bool",
        "llm(reask: 0)",
        "llm(attempts: 1)",
        "llm(timeout: 5s)",
        "llm(on_overflow: truncate(a))",
    ],
)
def test_calls_that_may_end_otherwise_are_not_shared(other: str) -> None:
    assert not merged("llm", other)


def test_roles_and_the_borders_of_messages_tell_calls_apart() -> None:
    text = (
        'workflow t(a: text)\nx = llm { system "{{ a }}" user "b" }\ny = llm { user "{{ a }}" user "b" }\n'
        'z = llm { user "{{ a }}b" }\noutput x, y, z'
    )
    assert run(text, [{"a": "v"}]).engine.calls == 3


def test_a_lone_surrogate_in_a_reply_is_no_end_of_the_run() -> None:
    text = 'workflow t(a: text)\nx = llm -> json { user "{{ a }}" }\ny = llm { user "{{ x }}" }\noutput y'
    ran = run(text, [{"a": "1"}, {"a": "2"}], rules=[{"step": "x", "reply": '"\\ud83d"'}, {"reply": "fine"}])
    assert ran.column("y") == ["fine", "fine"]
