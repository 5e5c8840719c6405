"""What the OpenAI-compatible engine makes of answers and connections that go wrong."""

from __future__ import annotations

import asyncio
import email.utils
import time
from typing import Any

import pytest
from fake_server import Answer, Call, FakeServer, completion, models
from openai_calls import KEY, ask, chat, failure, use

from helix.errors import EngineError
from helix.executor.engines.openai import OpenAIEngine


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
    ],
)
def test_waits(headers: dict[str, str], low: float, high: float) -> None:
    error = failure(Answer(status=429, headers=headers))
    assert error.retry_after is not None
    assert low <= error.retry_after <= high


@pytest.mark.parametrize(("ahead", "low", "high"), [(3600, 3500, 3600), (-3600, 0, 0)])
def test_waits_until_a_time(ahead: float, low: float, high: float) -> None:
    test_waits({"retry-after": email.utils.formatdate(time.time() + ahead, usegmt=True)}, low, high)


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
