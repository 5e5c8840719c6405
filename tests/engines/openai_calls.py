"""Short ways to call the OpenAI-compatible engine on the server of a test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from fake_server import Answer, Call, FakeServer

from helix.errors import EngineError
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
