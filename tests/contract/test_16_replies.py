"""Contract 16 from the command line: structured replies read strictly, asked for again once, the raw text kept."""

from __future__ import annotations

from typing import Any

from running import Folder, run, said_calls

TEXT = """workflow t(a: text)
label = llm -> choice["billing", "bug"] { system "Sort." user "{{ a }}" }
output a, label"""


def test_16_labels_fences_prose_and_a_re_ask(folder: Folder) -> None:
    folder.workflow(TEXT)
    words = ("bare", "quoted", "fenced", "wrong once", "wrong", "empty", "cut")
    folder.rows(*({"a": word} for word in words))
    folder.rules(
        {"contains": "bare", "reply": " bug\n"},
        {"contains": "quoted", "reply": '"billing"'},
        {"contains": "fenced", "reply": '```json\n"bug"\n```'},
        {"prompt_match": "wrong once\n(?s:.*)cannot be used", "reply": "bug"},
        {"prompt_contains": "wrong", "reply": "I think it is a bug"},
        {"prompt_contains": "empty", "reply": "  "},
        {"prompt_contains": "cut", "reply": "bil", "finish": "length"},
    )
    done = folder.run("-o", "out.jsonl")
    assert done.returncode == 3
    assert said_calls(done.stderr) == 3 + 2 + 2 + 2 + 1
    rows = folder.read()
    assert [row["label"] for row in rows] == ["bug", "billing", "bug", "bug", None, None, None]
    errors = [row["_error"] for row in rows[4:]]
    assert [(error["kind"], error["raw"], error["attempts"]) for error in errors] == [
        ("schema", "I think it is a bug", 2),
        ("empty", "  ", 2),
        ("truncated", "bil", 1),
    ]


def test_16_a_wrong_type_is_told_by_its_json_pointer(folder: Folder, quick: Any) -> None:
    folder.workflow(
        "workflow t(a: text)\nr = llm(reask: 0) -> { items: list[{ n: int }], note: text? } {\n"
        '  user "{{ a }}"\n}\noutput r'
    )
    folder.rows({"a": "good"}, {"a": "deep"}, {"a": "part"})
    folder.rules(
        {"contains": "good", "reply": 'Here: {"items": [{"n": 1}]} - done'},
        {"contains": "deep", "reply": '{"items": [{"n": 1}, {"n": "2"}]}'},
        {"contains": "part", "reply": '{"note": "no items"}'},
    )
    done = quick("-o", "out.jsonl")
    assert done.returncode == 3
    rows = folder.read()
    assert rows[0]["r"] == {"items": [{"n": 1}], "note": None}
    assert rows[1]["_error"]["message"] == 'the reply does not fit at `/items/1/n`: expected int, found text "2"'
    assert rows[2]["_error"]["message"] == "the reply does not fit at `/items`: field `items` is missing"


def test_16_coerce_is_asked_for() -> None:
    text = 'workflow t(a: text)\nr = llm(reask: 0) -> int { user "{{ a }}" }\noutput r'
    ran = run(text, [{"a": "v"}], rules=[{"reply": '"42"'}])
    assert ran.errors == [("schema", "r")]
    ran = run(text.replace("reask: 0", "reask: 0, coerce: on"), [{"a": "v"}], rules=[{"reply": '"42"'}])
    assert ran.column("r") == [42]


def test_16_the_engine_is_asked_to_decode_under_the_schema() -> None:
    ran = run(TEXT, [{"a": "v"}], rules=[{"reply": "bug"}])
    assert ran.engine.requests[0].schema == {"type": "string", "enum": ["billing", "bug"]}


def test_16_the_prefix_of_a_re_ask_is_that_of_the_first_prompt() -> None:
    ran = run(TEXT, [{"a": "v"}], rules=[{"call": 1, "reply": "neither"}, {"reply": "bug"}])
    first, second = (request.messages for request in ran.engine.requests)
    assert second[:2] == first
    assert [message.role for message in second[2:]] == ["assistant", "user"]
    assert ran.report.steps["label"].reasks == 1
