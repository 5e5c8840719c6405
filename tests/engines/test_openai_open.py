"""Opening the OpenAI-compatible engine: addresses, keys, models, contexts, token counts."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from fake_server import Answer, Call, FakeServer, completion, models
from openai_calls import KEY, ask, chat, opened, use

from helix.errors import EngineError, OptionError
from helix.executor.engines.base import Capabilities, Reply
from helix.executor.engines.openai import OpenAIEngine


def test_one_model_is_taken_and_contexts_are_read() -> None:
    with FakeServer(lambda call: models({"id": "m", "max_model_len": 4096, "owned_by": "sglang"})) as server:
        assert opened(server) == Capabilities(
            max_context=4096, schema_decoding=True, models=("m",), model="m", tool_calls=None
        )


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
        assert opened(server, model="mine") == Capabilities(schema_decoding=True, model="mine", tool_calls=None)


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
        pytest.raises(EngineError, match=r"/v1 was not ready in 0\.2 seconds; is the server running and") as caught,
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
        FakeServer(lambda call: Answer(status=503, body={"error": {"message": "Loading model"}})) as server,
        pytest.raises(
            EngineError, match=r"was not ready in 0\.3 seconds \(http.* answered 503: Loading model\); is the"
        ),
    ):
        opened(server, open_timeout=0.3)


@pytest.mark.parametrize("status", [401, 403, 500])
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


@pytest.mark.parametrize(("owner", "salt"), [("vllm", "ann"), ("sglang", "ann"), ("llamacpp", None), ("org", None)])
def test_tenants(owner: str, salt: str | None) -> None:
    def respond(call: Call) -> Answer | None:
        return models({"id": "m", "owned_by": owner}) if call.route == "/v1/models" else completion("x")

    async def calls(engine: OpenAIEngine) -> list[str]:
        await engine.open(concurrency=1)
        await engine.generate(ask())
        await engine.close()
        return engine.notes

    with FakeServer(respond) as server:
        notes = asyncio.run(calls(OpenAIEngine(server.url, tenant="ann")))
        assert [call.json.get("cache_salt") for call in server.chats()] == [salt]
        what = f"{server.url} cannot be told to keep the cached prefixes of tenants apart; SGLang and vLLM can"
        assert notes == ([] if salt else [what])
        assert asyncio.run(calls(OpenAIEngine(server.url))) == []
        assert "cache_salt" not in server.chats()[-1].json


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
