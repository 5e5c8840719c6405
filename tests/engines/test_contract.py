"""What every engine does alike: one set of tests, run on each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from fake_server import Answer, Call, FakeServer, completion, models
from fake_sglang import FakeSGLang

from helix import types
from helix.errors import EngineError
from helix.executor.engines.base import Engine, Message, Reply, Request
from helix.executor.engines.embedded import EmbeddedEngine
from helix.executor.engines.openai import OpenAIEngine
from helix.executor.engines.scripted import ScriptedEngine
from helix.executor.engines.sglang import SGLangEngine
from helix.executor.engines.sim import SimEngine, SimSettings
from helix.simulation.cost import published_cost

SCHEMA = types.json_schema(types.Record((("label", types.Choice(("good", "bad"))), ("sure", types.BOOL))))
ENDLESS = "Count from one to a million, never stop."
LONG = "word " * 20_000


def ask(text: str = "Name a colour.", **more: Any) -> Request:
    return Request(**{"model": None, "messages": (Message(role="user", content=text),), "max_tokens": 24, **more})


def server_answers(call: Call) -> Answer | None:
    """Behaves as far as these tests look like vLLM: a context, token counts, schemas, and an endless reply."""
    if call.route == "/v1/models":
        return models({"id": "m", "owned_by": "vllm", "max_model_len": 8192})
    text = "".join(message["content"] for message in call.json["messages"])
    if call.path == "/tokenize":
        return Answer(body={"count": len(text) // 4 + 1})
    if len(text) > 4 * 8192:
        return Answer(status=400, body={"error": {"message": "This model's maximum context length is 8192 tokens."}})
    if text == ENDLESS:
        return Answer(end="silence")
    if "response_format" in call.json:
        return completion('{"label": "good", "sure": true}')
    return completion(f"Green {call.json.get('seed', '')}")


@pytest.fixture(
    params=[
        "scripted",
        "simulated",
        "openai",
        "sglang",
        "sglang chat",
        pytest.param("embedded", marks=pytest.mark.embedded),
    ],
)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    match request.param:
        case "scripted":
            yield ScriptedEngine([{"contains": ENDLESS, "hang": True}], max_context=8192)
        case "simulated":
            # On an ordinary loop: it takes the time that it simulates.
            yield SimEngine(SimSettings(kv_tokens=40_000, max_context=8192), published_cost("h100"))
        case "openai":
            with FakeServer(server_answers) as server:
                yield OpenAIEngine(server.url)
        case "sglang" | "sglang chat":
            with FakeSGLang() as sglang:
                yield SGLangEngine(sglang.address + ("?api=chat" if "chat" in request.param else ""))
        case _:
            yield EmbeddedEngine(quiet=True)


class TestContract:
    """An engine opens, answers, stops when told to, and closes."""

    def run(self, engine: Engine, *requests: Request) -> list[Reply]:
        async def calls() -> list[Reply]:
            await engine.open(concurrency=4)
            try:
                return list(await asyncio.gather(*(engine.generate(request) for request in requests)))
            finally:
                await engine.close()

        return asyncio.run(calls())

    def test_a_reply(self, engine: Engine) -> None:
        (reply,) = self.run(engine, ask(temperature=0.0))
        assert reply.text
        assert reply.finish in ("stop", "length")
        assert reply.prompt_tokens is not None
        assert reply.prompt_tokens > 0
        assert reply.completion_tokens is not None
        assert reply.completion_tokens > 0

    def test_a_reply_to_a_schema(self, engine: Engine) -> None:
        (reply,) = self.run(engine, ask("Is water good?", schema=SCHEMA, temperature=0.0, max_tokens=60))
        kind = types.Record((("label", types.Choice(("good", "bad"))), ("sure", types.BOOL)))
        assert types.mismatch(json.loads(reply.text), kind) is None

    def test_samples_differ(self, engine: Engine) -> None:
        requests = [ask("Tell a story.", sample=number, seed=number, temperature=1.5) for number in range(3)]
        assert len({reply.text for reply in self.run(engine, *requests)}) > 1

    def test_cancelling_a_call_leaves_the_engine_usable(self, engine: Engine) -> None:
        async def calls() -> Reply:
            await engine.open(concurrency=2)
            try:
                # A model may think that it has said enough; llama.cpp can be told that it has not.
                endless = ask(ENDLESS, max_tokens=6000, extra=(("ignore_eos", True),))
                call = asyncio.ensure_future(engine.generate(endless))
                await asyncio.sleep(0.3)
                assert not call.done()
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
                async with asyncio.timeout(20):
                    return await engine.generate(ask(max_tokens=2))
            finally:
                await engine.close()

        assert asyncio.run(calls()).text

    def test_counting_tokens(self, engine: Engine) -> None:
        async def calls() -> tuple[int, int]:
            capabilities = await engine.open(concurrency=1)
            assert capabilities.counts_tokens
            try:
                return await engine.count_tokens(ask("a")), await engine.count_tokens(ask("a " * 400))
            finally:
                await engine.close()

        short, long = asyncio.run(calls())
        assert 0 < short < long

    def test_a_prompt_that_is_too_long(self, engine: Engine) -> None:
        async def calls() -> None:
            capabilities = await engine.open(concurrency=1)
            assert capabilities.max_context == 8192
            try:
                assert await engine.count_tokens(ask(LONG)) > 8192
                await engine.generate(ask(LONG))
            finally:
                await engine.close()

        with pytest.raises(EngineError) as caught:
            asyncio.run(calls())
        assert (caught.value.kind, caught.value.retryable, caught.value.fatal) == ("prompt.too_long", False, False)

    def test_closing_twice_and_before_opening(self, engine: Engine) -> None:
        async def calls() -> None:
            await engine.close()
            capabilities = await engine.open(concurrency=1)
            assert capabilities.schema_decoding
            await engine.close()
            await engine.close()

        asyncio.run(calls())
        assert engine.name
