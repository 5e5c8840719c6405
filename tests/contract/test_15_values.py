"""Contract 15: null renders as nothing, other values as JSON, and Unicode is passed through as it is."""

from __future__ import annotations

from typing import Any

import pytest
from fake_server import Answer, Call, FakeServer, completion, models
from running import Folder, said_calls

RULES: dict[str, Any] = {"match": "(?s)(.*)", "reply": "<\\1>"}


def test_15_values_render_as_they_are_and_unicode_is_left_alone(folder: Folder, quick: Any) -> None:
    folder.workflow('workflow t(v: json, s: text)\nx = llm { user "<{{ v }}|{{ s }}>" }\noutput v, x')
    folder.rules(RULES)
    composed, decomposed = "é", "e\u0301"
    values: list[Any] = [None, False, 0, 1.50, "007", [1, "a"], {"b": 1, "a": None}, 12345678901234567890]
    folder.rows(*({"v": value, "s": composed if place % 2 else decomposed} for place, value in enumerate(values)))
    assert quick("-o", "out.jsonl").returncode == 0
    rendered = ["", "false", "0", "1.5", "007", '[1,"a"]', '{"a":null,"b":1}', "12345678901234567890"]
    assert [(row["v"], row["x"]) for row in folder.read()] == [
        (value, f"<<{text}|{composed if place % 2 else decomposed}>>")
        for place, (value, text) in enumerate(zip(values, rendered, strict=True))
    ]


def respond(call: Call) -> Answer | None:
    if call.route == "/v1/models":
        return models("m")
    return completion("so") if call.route == "/v1/chat/completions" else None


def test_15_the_server_gets_the_same_characters_and_like_looking_ones_are_two_calls(folder: Folder, quick: Any) -> None:
    folder.workflow('workflow t(s: text)\nx = llm { user "{{ s }}" }\noutput s, x')
    texts = ["\u00e9", "e\u0301", "\u00e9", "\ufb01", "fi", "\u200bfi", "\U0001f469\u200d\U0001f680", "a\r\nb"]
    folder.rows(*({"s": text} for text in texts))
    with FakeServer(respond) as server:
        done = quick("-o", "out.jsonl", engine=server.url)
        assert done.returncode == 0, done.stderr
        asked = [call.json["messages"][0]["content"] for call in server.chats()]
    assert sorted(asked) == sorted(set(texts))
    assert said_calls(done.stderr) == len(set(texts)) == 7
    assert [row["s"] for row in folder.read()] == texts


@pytest.mark.parametrize(("declared", "absent"), [("text?", None), ('text = "none"', "none"), ("int?", None)])
def test_15_what_is_absent_is_null_or_its_default_and_never_the_word_null(
    folder: Folder, quick: Any, declared: str, absent: str | None
) -> None:
    folder.workflow(
        'workflow t(a: text, v: KIND)\nx = llm { user "{{ a }}[{{ v }}]" }\noutput v, x'.replace("KIND", declared)
    )
    folder.rules(RULES)
    folder.rows({"a": "p", "v": None}, {"a": "q"})
    done = quick("-o", "out.jsonl")
    assert done.returncode == 0, done.stderr
    assert [(row["v"], row["x"]) for row in folder.read()] == [
        (absent, f"<p[{absent or ''}]>"),
        (absent, f"<q[{absent or ''}]>"),
    ]
