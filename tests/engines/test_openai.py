"""The OpenAI-compatible engine: what it sends and reads, its pool, and what cancelling a call does."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import pytest
from fake_server import Answer, Call, FakeServer, completion
from openai_calls import KEY, SCHEMA, ask, chat, failure, use

from helix.executor.engines.base import Reply
from helix.executor.engines.openai import OpenAIEngine


def test_a_whole_request_and_reply() -> None:
    request = ask(
        "hi",
        temperature=0.0,
        max_tokens=5,
        top_p=0.5,
        seed=0,
        stop=("a", "b"),
        extra=(("top_k", 3), ("lora", {"x": 1})),
        step="s",
        row=9,
        sample=2,
    )
    usage = {"prompt_tokens": 10, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}}
    with FakeServer(chat(completion("Hallo", usage=usage))) as server:
        replies = use(server, request, api_key=KEY)
    assert replies == [Reply(text="Hallo", finish="stop", prompt_tokens=10, completion_tokens=3, cached_tokens=8)]
    (call,) = server.chats()
    assert call.path == "/v1/chat/completions"
    assert call.headers["authorization"] == f"Bearer {KEY}"
    assert call.json == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "temperature": 0.0,
        "max_tokens": 5,
        "top_p": 0.5,
        "seed": 0,
        "stop": ["a", "b"],
        "top_k": 3,
        "lora": {"x": 1},
    }


def test_a_bare_request_sends_nothing_more_and_no_key() -> None:
    with FakeServer(chat(completion("x"))) as server:
        use(server, ask())
    (call,) = server.chats()
    assert call.json == {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    assert "authorization" not in call.headers


def test_no_key_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with FakeServer(chat(completion("x"))) as server:
        use(server, ask())
    assert all("authorization" not in call.headers for call in server.calls)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": {"b": 1}} %s ${HOME} --- <|im_start|> \\ \\n',
        "ไทย 🎉 e\u0301 \u00e9 \ufeff \u2028",
        "\x00\x1f\r\n\t \x7f",
        "",
    ],
)
def test_texts_arrive_and_come_back_unchanged(text: str) -> None:
    def echo(call: Call) -> Answer | None:
        return completion(call.json["messages"][0]["content"]) if call.body else None

    with FakeServer(echo) as server:
        assert use(server, ask(text))[0].text == text


def test_the_model_of_the_request_goes_before_the_engines() -> None:
    with FakeServer(chat(completion("x"))) as server:
        use(server, ask(), ask(model="other"), model="mine")
    assert [call.json["model"] for call in server.chats()] == ["mine", "other"]


def test_a_limit_of_tokens_for_requests_without_one() -> None:
    with FakeServer(chat(completion("x"))) as server:
        use(server, ask(), ask(max_tokens=3), max_tokens=99)
    assert [call.json["max_tokens"] for call in server.chats()] == [99, 3]


@pytest.mark.parametrize(
    ("told", "finish"),
    [
        ("stop", "stop"),
        (None, "stop"),
        ("length", "length"),
        ("tool_calls", "tool"),
        ("function_call", "tool"),
        ("content_filter", "other"),
    ],
)
def test_finish_reasons(told: str | None, finish: str) -> None:
    with FakeServer(chat(completion("x", finish=told))) as server:
        assert use(server, ask())[0].finish == finish


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("", ""),
        ("a \ud800 \U0001f389", "a \ufffd \U0001f389"),
        ([{"type": "text", "text": "a"}, {"type": "image"}, {"text": "b"}], "ab"),
    ],
)
def test_forms_of_content(content: Any, text: str) -> None:
    with FakeServer(chat(completion(content))) as server:
        assert use(server, ask())[0].text == text


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": None, "completion_tokens": "5"}])
def test_usage_may_be_missing(usage: Any) -> None:
    with FakeServer(chat(completion("x", usage=usage))) as server:
        assert use(server, ask()) == [Reply(text="x")]


def test_compressed_replies() -> None:
    body = gzip.compress(json.dumps(completion("packed").body).encode())
    with FakeServer(chat(Answer(body=body, headers={"content-encoding": "gzip"}))) as server:
        assert use(server, ask())[0].text == "packed"


def test_utf16_replies_are_read_and_latin1_is_malformed() -> None:
    plain = json.dumps(completion("é").body, ensure_ascii=False)
    with FakeServer(chat(Answer(body=plain.encode("utf-16")))) as server:
        assert use(server, ask())[0].text == "é"
    error = failure(Answer(body=plain.encode("latin-1")))
    assert "sent a reply that is not JSON" in error.message
    assert error.retryable


def test_lone_surrogates_are_an_error_of_the_request() -> None:
    error = failure(completion("x"), request=ask("a \ud800 b"))
    assert "the request cannot be written as JSON in UTF-8" in error.message
    assert (error.retryable, error.fatal) == (False, False)


def test_schemas_are_sent_strict() -> None:
    with FakeServer(chat(completion('{"a": 1}'))) as server:
        use(server, ask(schema=SCHEMA))
    assert server.chats()[0].json["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "reply", "strict": True, "schema": SCHEMA},
    }


def test_a_refused_schema_is_left_out_for_the_run_and_noted_once() -> None:
    def respond(call: Call) -> Answer | None:
        if call.route != "/v1/chat/completions":
            return None
        sent = call.json.get("response_format", {}).get("json_schema", {}).get("schema")
        if sent == SCHEMA:
            return Answer(status=400, body={"error": {"message": "response_format json_schema is not supported"}})
        return completion("checked" if sent is None else "constrained")

    async def calls(url: str) -> tuple[list[str], list[str]]:
        engine = OpenAIEngine(url)
        await engine.open(concurrency=4)
        first = await asyncio.gather(*(engine.generate(ask(schema=SCHEMA, step="s")) for _ in range(3)))
        later = [await engine.generate(ask(schema=schema)) for schema in (SCHEMA, {"type": "integer"})]
        await engine.close()
        return [reply.text for reply in [*first, *later]], engine.notes

    with FakeServer(respond) as server:
        texts, notes = asyncio.run(calls(server.url))
    assert texts == ["checked"] * 4 + ["constrained"]
    assert len(server.chats()) == 3 + 3 + 1 + 1
    assert notes == [
        f"{server.url} refused the schema of step `s`, so replies are checked but not constrained: "
        f"{server.url} answered 400: response_format json_schema is not supported"
    ]


def test_a_refusal_that_stays_without_the_schema_is_the_error() -> None:
    error = failure(Answer(status=400, body={"detail": "no schema of any kind"}), request=ask(schema=SCHEMA))
    assert error.message.endswith("answered 400: no schema of any kind")


def test_servers_that_want_max_completion_tokens() -> None:
    def respond(call: Call) -> Answer | None:
        if call.body and "max_tokens" in call.json:
            said = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
            return Answer(status=400, body={"error": {"message": said, "code": "unsupported_parameter"}})
        return completion("x") if call.body else None

    with FakeServer(respond) as server:
        use(server, ask(max_tokens=4), ask(max_tokens=5))
    sent = [(call.json.get("max_tokens"), call.json.get("max_completion_tokens")) for call in server.chats()]
    assert sent == [(4, None), (None, 4), (None, 5)]


def test_as_many_calls_at_once_as_were_asked_for_and_no_more() -> None:
    async def calls(url: str) -> None:
        engine = OpenAIEngine(url)
        await engine.open(concurrency=64)
        await asyncio.gather(*(engine.generate(ask(str(number))) for number in range(200)))
        await engine.close()

    answer = completion("x")
    answer.delay = 0.15
    with FakeServer(chat(answer)) as server:
        asyncio.run(calls(server.url))
    assert server.peak == 64
    assert server.connections == 64
    assert len(server.chats()) == 200


@pytest.mark.parametrize("end", ["silence", "half+silence"])
def test_cancelling_a_call_closes_its_connection_and_no_other(end: str) -> None:
    def respond(call: Call) -> Answer | None:
        if call.body and b"wait" in call.body:
            return Answer(body=completion("x" * 100).body, end=end)
        return completion("fine") if call.body else None

    async def calls(server: FakeServer) -> None:
        engine = OpenAIEngine(server.url)
        await engine.open(concurrency=4)
        waiting = asyncio.ensure_future(engine.generate(ask("wait")))
        for _ in range(500):
            if server.in_flight and server.chats():
                break
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        for _ in range(200):
            if server.left:
                break
            await asyncio.sleep(0.01)
        assert server.left == 1
        assert (await engine.generate(ask())).text == "fine"
        await engine.close()

    with FakeServer(respond) as server:
        asyncio.run(calls(server))


def test_a_cancelled_call_gives_its_place_in_the_pool_back() -> None:
    def respond(call: Call) -> Answer | None:
        if call.body and b"wait" in call.body:
            return Answer(end="silence")
        return completion("fine") if call.body else None

    async def calls(url: str) -> None:
        engine = OpenAIEngine(url)
        await engine.open(concurrency=1)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await engine.generate(ask("wait"))
        async with asyncio.timeout(5):
            assert (await engine.generate(ask())).text == "fine"
        await engine.close()

    with FakeServer(respond) as server:
        asyncio.run(calls(server.url))
