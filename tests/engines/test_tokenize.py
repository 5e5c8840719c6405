"""The tokens of a text, asked of servers that have a tokenizer to ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from fake_server import Answer, Call, FakeServer, models

from helix.errors import EngineError
from helix.executor.engines.embedded import EmbeddedEngine
from helix.executor.engines.openai import OpenAIEngine

VLLM = {"id": "m", "owned_by": "vllm"}
LLAMA = {"id": "m", "owned_by": "llamacpp", "meta": {}}


def server(entry: dict[str, Any], tokenize: Callable[[Any], Any]) -> FakeServer:
    def respond(call: Call) -> Answer | None:
        if call.route == "/v1/models":
            return models(entry)
        if call.route == "/tokenize":
            return Answer(body=tokenize(call.json))
        return Answer(body={"prompt": "x"}) if call.route == "/apply-template" else None

    return FakeServer(respond)


def tokens(url: str, text: str) -> list[int]:
    async def main() -> list[int]:
        engine = OpenAIEngine(url)
        await engine.open(concurrency=1)
        try:
            return await engine.tokenize(text)
        finally:
            await engine.close()

    return asyncio.run(main())


def test_each_server_is_asked_in_its_own_way() -> None:
    with server(VLLM, lambda body: {"count": 2, "tokens": [7, 8]}) as vllm:
        assert tokens(vllm.url, "a b") == [7, 8]
    assert vllm.calls[-1].json == {"model": "m", "prompt": "a b", "add_special_tokens": False}
    with server(LLAMA, lambda body: {"tokens": [9]}) as llama:
        assert tokens(llama.url, "a b") == [9]
    assert llama.calls[-1].json == {"content": "a b", "add_special": False}


def test_an_answer_without_tokens_and_a_server_without_a_tokenizer() -> None:
    with server(VLLM, lambda body: {"count": 2}) as vllm, pytest.raises(EngineError, match="gave no tokens"):
        tokens(vllm.url, "a")
    with (
        server({"id": "m", "owned_by": "somebody"}, lambda body: {}) as other,
        pytest.raises(EngineError, match="does not count tokens"),
    ):
        tokens(other.url, "a")


@pytest.mark.embedded
def test_the_embedded_model_gives_its_tokens() -> None:
    async def main() -> tuple[list[int], list[int], list[int]]:
        engine = EmbeddedEngine(quiet=True)
        await engine.open(concurrency=1)
        try:
            return await engine.tokenize("Hello"), await engine.tokenize("Hello world"), await engine.tokenize("")
        finally:
            await engine.close()

    one, two, none = asyncio.run(main())
    assert none == []
    assert two[: len(one)] == one
    assert len(two) == len(one) + 1
