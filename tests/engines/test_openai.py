"""The OpenAI-compatible engine against a server on this machine: requests, replies, errors, pool, cancellation."""

from __future__ import annotations

import asyncio
import email.utils
import gzip
import itertools
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from fake_server import Answer, Call, FakeServer, completion, models

from helix.errors import EngineError, OptionError
from helix.executor.engines.base import Capabilities, Message, Reply, Request
from helix.executor.engines.openai import OpenAIEngine

KEY = "sk-very-secret-0123456789"
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}


def ask(text: str = "hello", **more: Any) -> Request:
    return Request(**{"model": None, "messages": (Message(role="user", content=text),), **more})


def chat(answer: Answer) -> Callable[[Call], Answer | None]:
    """Answers every chat completion alike."""
    return lambda call: answer if call.route == "/v1/chat/completions" else None


def use(server: FakeServer, *requests: Request, **options: Any) -> list[Reply]:
    async def calls() -> list[Reply]:
        engine = OpenAIEngine(server.url, **options)
        await engine.open(concurrency=8)
        try:
            return [await engine.generate(request) for request in requests]
        finally:
            await engine.close()

    return asyncio.run(calls())


def failure(answer: Answer, *, request: Request | None = None, **options: Any) -> EngineError:
    """The error that an answer becomes."""
    with FakeServer(chat(answer)) as server, pytest.raises(EngineError) as caught:
        use(server, request or ask(), **options)
    error = caught.value
    assert KEY not in f"{error} {error!r} {error.__cause__!r} {error.__context__!r}"
    return error


def opened(server: FakeServer | str, **options: Any) -> Capabilities:
    async def call() -> Capabilities:
        engine = OpenAIEngine(server if isinstance(server, str) else server.url, **options)
        try:
            return await engine.open(concurrency=2)
        finally:
            await engine.close()

    return asyncio.run(call())


# ---- requests and replies


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
    [(None, ""), ("", ""), ([{"type": "text", "text": "a"}, {"type": "image"}, {"text": "b"}], "ab")],
)
def test_forms_of_content(content: Any, text: str) -> None:
    with FakeServer(chat(completion(content))) as server:
        assert use(server, ask())[0].text == text


def test_usage_may_be_missing() -> None:
    with FakeServer(chat(completion("x", usage=None))) as server:
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


# ---- structured output


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


# ---- errors


@pytest.mark.parametrize(
    ("status", "retryable", "overloaded", "fatal"),
    [
        (400, False, False, False),
        (402, False, False, True),
        (408, True, False, False),
        (409, True, False, False),
        (413, False, False, False),
        (422, False, False, False),
        (429, True, True, False),
        (500, True, False, False),
        (501, False, False, False),
        (502, True, False, False),
        (503, True, True, False),
        (504, True, False, False),
    ],
)
def test_statuses(status: int, retryable: bool, overloaded: bool, fatal: bool) -> None:
    error = failure(Answer(status=status, body={"error": {"message": f"so it is, {KEY}"}}), api_key=KEY)
    assert (error.status, error.retryable, error.overloaded, error.fatal, error.retry_after) == (
        status,
        retryable,
        overloaded,
        fatal,
        None,
    )
    assert error.message.endswith(f"/v1 answered {status}: so it is, [key]")


@pytest.mark.parametrize(
    ("headers", "low", "high"),
    [
        ({"retry-after": "7"}, 7, 7),
        ({"Retry-After": "0.5"}, 0.5, 0.5),
        ({"retry-after": "-3"}, 0, 0),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25, 0.25),
        ({"retry-after": email.utils.formatdate(time.time() + 3600, usegmt=True)}, 3500, 3600),
        ({"retry-after": email.utils.formatdate(time.time() - 3600, usegmt=True)}, 0, 0),
    ],
)
def test_waits(headers: dict[str, str], low: float, high: float) -> None:
    error = failure(Answer(status=429, headers=headers))
    assert error.retry_after is not None
    assert low <= error.retry_after <= high


@pytest.mark.parametrize("value", ["soon", "", "inf", "nan", "Wed, 99 Foo 2020"])
def test_waits_that_are_none(value: str) -> None:
    assert failure(Answer(status=503, headers={"retry-after": value})).retry_after is None


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ({"error": {"message": "inner"}}, "inner"),
        ({"error": "plain"}, "plain"),
        ({"message": "top", "object": "error"}, "top"),
        ({"detail": [{"loc": ["body"], "msg": "bad"}]}, '[{"loc": ["body"], "msg": "bad"}]'),
        ([{"error": {"message": "listed"}}], "listed"),
        ("<html>\n <b>Bad\x07 Gateway</b>\n</html>", "<html> <b>Bad? Gateway</b> </html>"),
        ("", "no message"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        ("[" * 100_000, "[" * 197 + "..."),
    ],
)
def test_messages_of_errors(body: Any, shown: str) -> None:
    assert failure(Answer(status=502, body=body)).message.endswith(f"answered 502: {shown}")


def test_keys_that_are_refused_or_missing() -> None:
    refused = failure(Answer(status=401, body={"error": {"message": f"Incorrect API key: {KEY}"}}), api_key=KEY)
    assert refused.message.endswith(
        "refused the API key (401): Incorrect API key: [key]; check HELIX_API_KEY or OPENAI_API_KEY"
    )
    missing = failure(Answer(status=403, body={"error": {"message": "who?"}}))
    assert missing.message.endswith("wants an API key (403): who?; set HELIX_API_KEY or OPENAI_API_KEY")
    assert refused.fatal
    assert missing.fatal


def test_a_model_that_is_not_served() -> None:
    def respond(call: Call) -> Answer | None:
        if call.route == "/v1/models":
            return models("llama-3.1-8b", "qwen-2.5-7b")
        return Answer(status=404, body={"error": {"message": "The model `llama-3.1-8` does not exist."}})

    with FakeServer(respond) as server, pytest.raises(EngineError) as caught:
        use(server, ask(), model="llama-3.1-8")
    error = caught.value
    assert error.message == (
        f"{server.url} does not serve the model `llama-3.1-8` (404): The model `llama-3.1-8` does not exist.; "
        "did you mean `llama-3.1-8b`? models served: llama-3.1-8b, qwen-2.5-7b"
    )
    assert error.fatal


def test_a_model_not_found_with_another_status_or_without_a_list() -> None:
    def respond(call: Call) -> Answer | None:
        if call.route == "/v1/models":
            return Answer(status=404)
        return Answer(status=400, body={"error": {"message": "no", "code": "model_not_found"}})

    with FakeServer(respond) as server, pytest.raises(EngineError) as caught:
        use(server, ask(), model="m")
    assert caught.value.message.endswith("does not serve the model `m` (404): no; name another with --model")
    assert caught.value.fatal


def test_an_address_without_chat_completions() -> None:
    error = failure(Answer(status=404, body={"detail": "Not Found"}))
    assert error.message.endswith("has no chat completions (404): Not Found; check the path of the address")
    assert error.fatal


def test_no_credit_left_is_not_a_pause() -> None:
    error = failure(Answer(status=429, body={"error": {"message": "pay", "code": "insufficient_quota"}}))
    assert (error.fatal, error.overloaded, error.retryable) == (True, False, False)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (
            400,
            {
                "message": "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000"
                " tokens. Please reduce the length of the messages.",
                "code": "context_length_exceeded",
            },
        ),
        (400, {"message": "too much", "code": "context_length_exceeded"}),
        (400, {"message": "The decoder prompt (length 5000) is longer than the maximum model length of 4096."}),
        (
            400,
            {
                "message": "You passed 5001 input tokens and requested 100 output tokens. However, the model's context"
                " length is only 4096 tokens."
            },
        ),
        (400, {"message": "The input (5000 tokens) is longer than the model's context length (4096 tokens)."}),
        (400, {"message": "Requested token count exceeds the model's maximum context length of 4096 tokens."}),
        (400, {"message": "Input length (5000 tokens) exceeds the maximum allowed length (4095 tokens)."}),
        (
            400,
            {
                "code": 400,
                "message": "request (9031 tokens) exceeds the available context size (8192 tokens), try increasing it",
                "type": "exceed_context_size_error",
            },
        ),
        (400, {"message": "the request exceeds the available context size. try increasing the context size"}),
        (500, {"message": "input is too large to process. increase the physical batch size"}),
        (400, {"message": "prompt is too long: 200001 tokens > 200000 maximum"}),
        (400, {"message": "The input token count (40000) exceeds the maximum number of tokens allowed (32768)."}),
        (422, {"message": "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens"}),
        (413, {"message": "Please reduce the length of the messages or completion."}),
    ],
)
def test_prompts_that_are_too_long(status: int, error: dict[str, Any]) -> None:
    found = failure(Answer(status=status, body={"error": error}))
    assert (found.kind, found.retryable, found.fatal, found.overloaded) == ("prompt.too_long", False, False, False)
    assert found.message.startswith("prompt too long: ")


@pytest.mark.parametrize("said", ["max_tokens must be at least 1", "temperature exceeds the maximum of 2", "bad role"])
def test_other_refusals_are_not_taken_for_long_prompts(said: str) -> None:
    assert failure(Answer(status=400, body={"error": {"message": said}})).kind == "engine"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(body="{"), "sent a reply that is not JSON; it begins: {"),
        (Answer(body=""), "sent a reply that is not JSON; it is empty"),
        (Answer(body="<html>hello</html>"), "sent a reply that is not JSON; it begins: <html>hello</html>"),
        (Answer(body="[" * 100_000), "sent a reply that is not JSON; it begins: [[["),
        (Answer(body={}), "sent a reply without a message; it begins: {}"),
        (Answer(body=[]), "sent a reply without a message; it begins: []"),
        (Answer(body={"choices": []}), "sent a reply without a message"),
        (Answer(body={"choices": [{}]}), "sent a reply without a message"),
        (Answer(body={"choices": [{"message": None}]}), "sent a reply without a message"),
        (Answer(body={"choices": [{"message": {"content": 5}}]}), "sent a reply without a message"),
        (Answer(body={"error": {"message": "x"}}), "sent a reply without a message"),
        (Answer(body=b"not gzip", headers={"content-encoding": "gzip"}), "no readable reply from"),
        (completion("x" * 100), "reset the connection; check the server's log"),
        (completion("x" * 100), "broke off; check the server's log"),
        (Answer(raw=b""), "closed the connection before it answered; check the server's log"),
        (Answer(raw=b"SSH-2.0-OpenSSH\r\n\r\n"), "sent something that is not HTTP"),
    ],
)
def test_replies_that_are_none(answer: Answer, said: str) -> None:
    if "reset" in said or "broke off" in said:
        answer.end = "reset" if "reset" in said else "half"
    error = failure(answer)
    assert said in error.message
    assert "http://127.0.0.1:" in error.message
    assert len(error.message) < 400
    assert (error.retryable, error.fatal, error.overloaded) == (True, False, False)


def test_a_whole_reply_that_holds_an_error_with_a_status() -> None:
    error = failure(Answer(body={"error": {"message": "upstream is full", "code": 429}}))
    assert (error.status, error.overloaded) == (429, True)


def test_secrets_are_kept_out_of_a_look_at_a_reply() -> None:
    assert "it begins: <[key]>" in failure(Answer(body=f"<{KEY}>"), api_key=KEY).message


def test_a_server_that_goes_away_between_calls() -> None:
    async def calls() -> None:
        with FakeServer(chat(completion("x"))) as server:
            engine = OpenAIEngine(server.url)
            await engine.open(concurrency=1)
            await engine.generate(ask())
        with pytest.raises(EngineError) as caught:
            await engine.generate(ask())
        await engine.close()
        assert caught.value.retryable
        assert "nothing listens at" in caught.value.message or "closed the connection" in caught.value.message

    asyncio.run(calls())


def test_calls_on_an_engine_that_is_not_open() -> None:
    with pytest.raises(EngineError, match="is not open"):
        asyncio.run(OpenAIEngine("http://127.0.0.1:9/v1").generate(ask()))


# ---- pool and cancellation


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


# ---- opening


def test_one_model_is_taken_and_contexts_are_read() -> None:
    with FakeServer(lambda call: models({"id": "m", "max_model_len": 4096, "owned_by": "sglang"})) as server:
        assert opened(server) == Capabilities(max_context=4096, schema_decoding=True, models=("m",))


def test_the_context_of_the_model_that_was_named() -> None:
    entries = [{"id": "a", "max_model_len": 10}, {"id": "b", "max_model_len": 20}]
    with FakeServer(lambda call: models(*entries)) as server:
        assert opened(server, model="b").max_context == 20
        assert opened(server, model="elsewhere").max_context is None


def test_several_models_or_none_need_a_name() -> None:
    with FakeServer(lambda call: models("a", "b")) as server, pytest.raises(OptionError) as caught:
        opened(server)
    assert str(caught.value) == f"{server.url} serves several models: a, b; name one with --model"
    for answer in (models(), Answer(status=404), Answer(body={})):
        with (
            FakeServer(lambda call, answer=answer: answer) as server,
            pytest.raises(OptionError, match="does not list its models; name one"),
        ):
            opened(server)


@pytest.mark.parametrize("status", [403, 404, 405])
def test_a_server_without_a_list_of_models_is_fine_where_one_is_named(status: int) -> None:
    with FakeServer(lambda call: Answer(status=status)) as server:
        assert opened(server, model="mine") == Capabilities(schema_decoding=True)


def test_an_address_without_v1() -> None:
    with FakeServer(lambda call: None) as server:
        root = server.url.removesuffix("/v1")
        with pytest.raises(OptionError) as caught:
            opened(root + "/", model="m")
    assert str(caught.value) == f"{root} has no models, but {root}/v1 has; write --engine {root}/v1"


def test_servers_that_cannot_be_reached() -> None:
    with FakeServer(lambda call: None) as server:
        url = server.url
    with pytest.raises(EngineError) as caught:
        opened(url)
    assert caught.value.fatal
    assert caught.value.message == (
        f"nothing listens at {url} (connection refused); is the server running, and is the port right?"
    )


def test_a_server_that_does_not_answer() -> None:
    with (
        FakeServer(lambda call: Answer(end="silence")) as server,
        pytest.raises(EngineError, match=r"gave no answer in 0\.2 seconds; is the server running and ready") as caught,
    ):
        opened(server, open_timeout=0.2)
    assert caught.value.fatal


def test_a_server_that_is_still_loading_is_waited_for() -> None:
    answers = itertools.chain(
        [Answer(status=503, body={"error": {"message": "Loading model"}})], itertools.repeat(None)
    )
    with FakeServer(lambda call: next(answers)) as server:
        assert opened(server).models == ("m",)
    with (
        FakeServer(lambda call: Answer(status=503)) as server,
        pytest.raises(EngineError, match=r"gave no answer in 0\.3 seconds"),
    ):
        opened(server, open_timeout=0.3)


@pytest.mark.parametrize("status", [401, 500, 429])
def test_other_answers_when_opening_stop_the_run(status: int) -> None:
    with FakeServer(lambda call: Answer(status=status, body="no")) as server, pytest.raises(EngineError) as caught:
        opened(server, api_key=KEY)
    assert caught.value.fatal
    assert caught.value.status == status


def test_a_list_of_models_that_is_not_json() -> None:
    with (
        FakeServer(lambda call: Answer(body="<html>a web page</html>")) as server,
        pytest.raises(EngineError, match="sent something that is not JSON for /models; it begins: <html>a web page"),
    ):
        opened(server)


# ---- counting tokens


LLAMA = {"id": "m", "owned_by": "llamacpp", "meta": {"n_ctx": 512, "n_ctx_train": 8192}}


def counting(entry: dict[str, Any], routes: dict[str, Any]) -> Callable[[Call], Answer | None]:
    def respond(call: Call) -> Answer | None:
        if call.route == "/v1/models":
            return models(entry)
        found = routes.get(call.path)
        return None if found is None else Answer(body=found(call.json) if callable(found) else found)

    return respond


@pytest.mark.parametrize(
    ("entry", "routes", "context"),
    [
        ({"id": "m", "owned_by": "vllm", "max_model_len": 64}, {"/tokenize": lambda body: {"count": _words(body)}}, 64),
        (
            LLAMA,
            {
                "/props": {"default_generation_settings": {"n_ctx": 256}},
                "/v1/chat/completions/input_tokens": lambda body: {"input_tokens": _words(body)},
            },
            256,
        ),
        (
            LLAMA,
            {
                "/apply-template": lambda body: {"prompt": body["messages"][0]["content"]},
                "/tokenize": lambda body: {"tokens": list(range(len(body["content"].split())))},
            },
            512,
        ),
    ],
)
def test_servers_that_count_tokens(entry: dict[str, Any], routes: dict[str, Any], context: int) -> None:
    async def call(url: str) -> tuple[Capabilities, int]:
        engine = OpenAIEngine(url)
        capabilities = await engine.open(concurrency=1)
        count = await engine.count_tokens(ask("one two three"))
        await engine.close()
        return capabilities, count

    with FakeServer(counting(entry, routes)) as server:
        capabilities, count = asyncio.run(call(server.url))
    assert count == 3
    assert capabilities.counts_tokens
    assert capabilities.max_context == context
    assert capabilities.reports_cached_tokens == (entry is LLAMA)


def test_servers_that_do_not_count_tokens() -> None:
    async def call(url: str) -> None:
        engine = OpenAIEngine(url)
        assert not (await engine.open(concurrency=1)).counts_tokens
        with pytest.raises(EngineError, match="does not count tokens"):
            await engine.count_tokens(ask())
        await engine.close()

    for entry in (LLAMA, {"id": "m", "owned_by": "vllm"}, {"id": "m", "owned_by": "someone"}):
        with FakeServer(counting(entry, {})) as server:
            asyncio.run(call(server.url))
    assert [call.path for call in server.calls] == ["/v1/models"], "unknown servers are asked for nothing more"


def _words(body: Any) -> int:
    return sum(len(message["content"].split()) for message in body["messages"])


# ---- addresses and secrets


def test_users_and_passwords_of_an_address_are_sent_but_never_shown() -> None:
    with FakeServer(chat(Answer(status=400, body="no hunter2! no aHVudGVy"))) as server:
        url = server.url.replace("http://", "http://ann:hunter2%21@") + "?api-version=5"
        engine = OpenAIEngine(url)
        assert engine.name == server.url
        assert repr(engine) == f"OpenAIEngine({server.url!r}, model=None)"
        with pytest.raises(EngineError) as caught:
            asyncio.run(_one(engine))
    assert "hunter2" not in str(caught.value)
    (call,) = server.chats()
    assert call.headers["authorization"] == "Basic YW5uOmh1bnRlcjIh"
    assert call.path == "/v1/chat/completions?api-version=5"


async def _one(engine: OpenAIEngine) -> Reply:
    await engine.open(concurrency=1)
    try:
        return await engine.generate(ask())
    finally:
        await engine.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://", "not an address of a server: `http://`; expected http://HOST:PORT/v1"),
        ("http://ann:secret@/v1?key=5", "not an address of a server: `/v1`"),
        ("http://host:99999/v1", "not an address of a server"),
        ("http://host:0/v1", "not an address of a server"),
        ("http://host:x/v1", "not an address of a server"),
        ("http://[::1/v1", "not an address of a server"),
        ("ftp://host/v1", "not an address of a server"),
        ("http://host/v1/chat/completions/", "the address goes too far: leave out `/chat/completions`"),
    ],
)
def test_addresses_that_are_none(url: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        OpenAIEngine(url)
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


def test_keys_that_are_none() -> None:
    for key in ("two words", "späť", "a\nb"):
        with pytest.raises(OptionError, match="the API key holds a space or a character that is not ASCII"):
            OpenAIEngine("http://host/v1", api_key=key)
    assert repr(OpenAIEngine("http://host/v1", api_key=f" {KEY}\n")) == "OpenAIEngine('http://host/v1', model=None)"


def test_calls_to_this_machine_use_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with FakeServer(chat(completion("direct"))) as server:
        assert use(server, ask())[0].text == "direct"
    with pytest.raises(EngineError, match=r"no connection to http://helix\.invalid/v1 through the proxy"):
        opened("http://helix.invalid/v1")


def test_closing_twice_and_opening_again() -> None:
    async def calls(url: str) -> None:
        engine = OpenAIEngine(url)
        for _ in range(2):
            await engine.open(concurrency=1)
            assert (await engine.generate(ask())).text == "x"
            await engine.close()
            await engine.close()

    with FakeServer(chat(completion("x"))) as server:
        asyncio.run(calls(server.url))
