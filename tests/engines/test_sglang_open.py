"""What the engine for SGLang reads from servers when it is opened, and what it says about them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fake_server import Answer, Call, FakeServer, models
from fake_sglang import FakeSGLang
from sglang_calls import KEY, ask, begin, on, opened, use, within

from helix.errors import EngineError, OptionError
from helix.executor.engines.base import Capabilities, Load
from helix.executor.engines.sglang import SGLangEngine


def refused(address: str, **options: Any) -> str:
    """The message of the fatal error at opening."""
    with pytest.raises(EngineError) as caught:
        opened(address, **options)
    assert caught.value.fatal
    return caught.value.message


def test_what_one_server_is() -> None:
    info = {"page_size": 16, "max_running_requests": 48, "max_total_num_tokens": 6000, "quantization": "fp8"}
    with FakeSGLang(info=info, adapters=["own"]) as server:
        found, notes = opened(server.address)
    assert found == Capabilities(
        max_context=6000,  # no call can be longer than what the cache holds
        schema_decoding=True,
        reports_cached_tokens=True,
        counts_tokens=True,
        models=("tiny", "own"),
        model="tiny",
        revision="models/tiny tiny v1 quantization=fp8",
        ranks=1,
        kv_tokens=6000,
        page=16,
        max_running=48,
        prefix_cache=True,
        warms=True,
        pass_tokens=256.0,
    )
    assert notes == []


def test_ranks_of_several_servers() -> None:
    with FakeSGLang(info={"dp_size": 2, "max_running_requests": 8}) as one, FakeSGLang() as other:
        found, _ = opened(f"{one.address},127.0.0.1:{other.port}")
    assert (found.ranks, found.max_running, found.kv_tokens) == (3, 8, 16384)


@pytest.mark.parametrize("port", [1, 2])
def test_the_revision_does_not_hold_the_address(port: int) -> None:
    with FakeSGLang() as server:
        found, _ = opened(server.address)
        assert str(server.port) not in str(found.revision)
        chat, _ = opened(f"{server.address}?api=chat")
    assert chat.revision == f"{found.revision} chat"


@pytest.mark.parametrize(
    ("info", "concurrency", "notes"),
    [
        ({}, 144, ["it runs 16 calls at once and the others of 144 wait in it; raise --max-running-requests"]),
        ({}, 16, []),
        ({"max_running_requests": 256}, 256, []),
        ({"max_running_requests": 200}, 329, ["--schedule-policy lpm falls back to fcfs; --concurrency 328 or", "200"]),
        ({"disable_radix_cache": True}, 1, ["its prefix cache is off, so calls share nothing; start it without"]),
        ({"schedule_policy": "fcfs"}, 1, ["it takes waiting calls in the order they come"]),
        (
            {
                "schedule_policy": "fcfs",
                "enable_priority_scheduling": True,
                "radix_eviction_policy": "priority",
            },
            1,
            ["a call of higher priority throws out running ones, which then start again; --disable-priority"],
        ),
    ],
)
def test_notes_on_flags(info: dict[str, Any], concurrency: int, notes: list[str]) -> None:
    with FakeSGLang(info=info) as server:
        found, said = opened(server.address, concurrency=concurrency)
    assert found.warms is found.prefix_cache is not info.get("disable_radix_cache", False)
    assert len(said) == len(notes)
    for note, part in zip(said, notes, strict=True):
        assert note.startswith(f"{server.address}: ")
        assert part in note


@pytest.mark.parametrize(
    ("info", "about", "why"),
    [
        ({}, {"reasoning_parser": "qwen3"}, "it takes thoughts out of replies (--reasoning-parser qwen3)"),
        ({}, {"has_image_understanding": True}, "the model also reads images or sounds"),
        ({"chat_template": "llama-2"}, {}, "it has a chat template of another kind (--chat-template llama-2)"),
    ],
)
def test_servers_whose_chat_endpoint_does_more(info: dict[str, Any], about: dict[str, Any], why: str) -> None:
    with FakeSGLang(info=info, about=about) as server:
        _, notes = opened(server.address)
        use(server.address, ask())
        assert len(server.bodies("/v1/chat/completions")) == 1
    assert notes == [f"{server.address}: prompts go through /v1/chat/completions, since {why}"]


def test_a_chat_template_from_a_file_is_learned_like_any_other() -> None:
    with FakeSGLang(info={"chat_template": "mine.jinja"}) as server:
        found, notes = opened(server.address)
    assert notes == []
    assert found.revision == "models/tiny tiny v1 chat_template=mine.jinja"


def test_a_server_without_newer_answers() -> None:
    def answer(call: Call) -> Answer | None:
        return Answer(status=404) if call.route in ("/v1/loads", "/v1/tokenize") else None

    with FakeSGLang(answer=answer) as server:
        found, notes = opened(server.address)
    assert (found.kv_tokens, found.max_running, found.counts_tokens, found.warms) == (16384, 16, False, True)
    assert notes == [
        f"{server.address}: prompts go through /v1/chat/completions, since it does not tell the tokens of a prompt"
    ]


def test_generate_and_the_chat_endpoint_must_agree() -> None:
    def answer(call: Call) -> Answer | None:
        if call.route == "/generate" and b"return_prompt_token_ids" in call.body:
            return Answer(body={"text": "", "meta_info": {}, "prompt_token_ids": [1, 2, 3]})
        return None

    with FakeSGLang(answer=answer) as server:
        _, notes = opened(server.address)
        use(server.address, ask())
        assert server.bodies("/generate") == []
    assert "its chat template cannot be told from outside" in notes[0]


@pytest.mark.parametrize("name", [None, "tiny", "models/tiny"])
def test_names_of_the_model(name: str | None) -> None:
    with FakeSGLang(about={"served_model_name": "org/tiny"}, adapters=["own"]) as server:
        use(server.address, ask(), model=name)
        use(server.address, ask(model=name))
        assert len(server.bodies("/generate")) == 2


def test_an_adapter_is_called_by_its_name() -> None:
    with FakeSGLang(adapters=["own"]) as server:
        use(server.address, ask(model="own"))
        assert [body["model"] for body in server.bodies("/v1/chat/completions")] == ["own"]


def test_a_model_that_is_not_served() -> None:
    with FakeSGLang(adapters=["own"]) as server:
        message = refused(server.address, model="tinny")
        assert message == (
            f"{server.address} does not serve the model `tinny`; did you mean `tiny`? models served: own, tiny"
        )
        with pytest.raises(EngineError) as caught:
            use(server.address, ask(model="tinny"))
    assert (caught.value.message, caught.value.fatal, caught.value.status) == (message, True, 404)


def test_servers_of_two_models() -> None:
    with FakeSGLang() as one, FakeSGLang(about={"weight_version": "v2"}) as other:
        message = refused(f"{one.address},127.0.0.1:{other.port}")
    assert f"http://127.0.0.1:{one.port} serves `models/tiny tiny v1`" in message
    assert f"but http://127.0.0.1:{other.port} serves `models/tiny tiny v2`" in message


@pytest.mark.parametrize(
    ("info", "about", "said"),
    [
        ({}, {"is_generation": False}, "serves an embedding model, which writes no text"),
        ({"disaggregation_mode": "prefill"}, {}, "is the prefill half of a pair of servers and does not answer alone"),
    ],
)
def test_servers_that_cannot_answer(info: dict[str, Any], about: dict[str, Any], said: str) -> None:
    with FakeSGLang(info=info, about=about) as server:
        assert said in refused(server.address)


def test_a_server_that_is_no_sglang() -> None:
    with FakeServer(lambda call: models("m") if call.route == "/v1/models" else None) as server:
        message = refused(f"sglang://127.0.0.1:{server.port}")
    assert message == (
        f"http://127.0.0.1:{server.port} is not an SGLang server (it has no /server_info); for another server write "
        f"--engine http://127.0.0.1:{server.port}/v1"
    )


@pytest.mark.parametrize("path", ["/server_info", "/model_info", "/v1/models", "/v1/loads", "/v1/tokenize"])
@pytest.mark.parametrize("body", ["<html>", "[]", '"x"', "null", "{}", "", "[1, 2]"])
def test_odd_answers_raise_nothing_but_engine_errors(path: str, body: str) -> None:
    with FakeSGLang(answer=on(path, Answer(body=body))) as server:
        errors: list[EngineError] = []
        try:
            opened(server.address)
        except EngineError as error:
            errors.append(error)
    assert all(error.fatal and "127.0.0.1" in error.message for error in errors)


def test_nothing_listens() -> None:
    with FakeSGLang() as server:
        address = server.address
    message = refused(address)
    assert "nothing listens at http://127.0.0.1:" in message
    assert "is the server running, and is the port right?" in message


def test_a_server_that_is_still_loading() -> None:
    left = [3]

    def answer(call: Call) -> Answer | None:
        if call.route == "/server_info" and left[0]:
            left[0] -= 1
            return Answer(status=503, body={"detail": "loading"})
        return None

    with FakeSGLang(answer=answer) as server:
        assert opened(server.address)[0].models == ("tiny",)
        left[0] = 1000
        message = refused(server.address, open_timeout=0.6)
    assert (
        f"{server.address} was not ready in 0.6 seconds (http://127.0.0.1:{server.port} answered 503: load" in message
    )


def test_keys_are_sent_and_kept_out_of_sight() -> None:
    with FakeSGLang() as server:
        use(server.address, ask(), api_key=KEY)
        assert {call.headers.get("authorization") for call in server.calls} == {f"Bearer {KEY}"}
        use(server.address, ask())
        assert server.calls[-1].headers.get("authorization") is None
    said = {"error": f"Unauthorized {KEY}"}
    with FakeSGLang(answer=on("/server_info", Answer(status=401, body=said))) as server:
        assert "refused the API key (401): Unauthorized [key]; check HELIX_API_KEY" in refused(
            server.address, api_key=KEY
        )
        assert "wants an API key (401)" in refused(server.address)
    assert KEY not in repr(SGLangEngine("sglang://host", api_key=KEY))
    with pytest.raises(OptionError, match="the API key holds a space"):
        SGLangEngine("sglang://host", api_key="a b")


def test_loads() -> None:
    async def work(engine: SGLangEngine) -> tuple[Load, ...]:
        return await engine.load()

    with FakeSGLang(info={"dp_size": 2}) as one, FakeSGLang() as other:
        assert within(f"{one.address},127.0.0.1:{other.port}", work) == (
            Load(rank=0, running=1, waiting=0, held=0.25),
            Load(rank=1, running=2, waiting=0, held=0.25),
            Load(rank=2, running=1, waiting=0, held=0.25),
        )


def test_loads_without_a_server() -> None:
    async def run() -> None:
        with FakeSGLang() as one:
            with FakeSGLang() as other:
                engine = SGLangEngine(f"{one.address},127.0.0.1:{other.port}")
                await engine.open(concurrency=1)
            assert [load.rank for load in await engine.load()] == [0]
        with pytest.raises(EngineError, match="nothing listens"):
            await engine.load()
        await engine.close()

    asyncio.run(run())


def test_looking_whether_a_server_is_back() -> None:
    async def run() -> None:
        with FakeSGLang() as server:
            engine = SGLangEngine(server.address)
            await engine.open(concurrency=1)
            await engine.look()
            server.about["weight_version"] = "v2"
            with pytest.raises(EngineError) as caught:
                await engine.look()
            assert caught.value.fatal
            assert "came back with `models/tiny tiny v2` instead of `models/tiny tiny v1`" in caught.value.message
        with pytest.raises(EngineError) as caught:
            await engine.look()
        assert caught.value.retryable
        assert not caught.value.fatal
        await engine.close()

    asyncio.run(run())


def test_one_of_two_servers_is_enough() -> None:
    async def run() -> None:
        with FakeSGLang() as one:
            with FakeSGLang() as other:
                engine = SGLangEngine(f"{one.address},127.0.0.1:{other.port}")
                await engine.open(concurrency=1)
            await engine.look()
            with pytest.raises(EngineError) as caught:
                await engine.generate(ask(rank=1))
            assert caught.value.retryable
            # The other one is passed over for a while, by calls that were meant for it too.
            replies = [
                await engine.generate(ask(rank=1)),
                await engine.generate(ask()),
                await engine.warm(begin(("user", "x"))),
            ]
            assert [reply.rank for reply in replies] == [0, 0, 0]
        await engine.close()

    asyncio.run(run())


def test_not_opened() -> None:
    engine = SGLangEngine("sglang://127.0.0.1:9")
    for work in (
        engine.generate(ask()),
        engine.look(),
        engine.load(),
        engine.count_tokens(ask()),
        engine.tokenize("x"),
    ):
        with pytest.raises(EngineError, match="is not open"):
            asyncio.run(work)  # type: ignore[arg-type]
