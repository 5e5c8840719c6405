"""Short ways to call the engine for SGLang on the servers of a test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from fake_server import Answer, Call
from fake_sglang import FakeSGLang

from helix.errors import EngineError
from helix.executor.engines.base import Capabilities, Message, Reply, Request
from helix.executor.engines.sglang import SGLangEngine

Made = TypeVar("Made")
KEY = "sk-very-secret-0123456789"
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
SYSTEM = "Answer in one word. Policy: the office opens at nine, and closes at five."


def ask(text: str = "Name a colour.", *before: tuple[str, str], **more: Any) -> Request:
    messages = [Message(role=role, content=content) for role, content in (*before, ("user", text))]
    return Request(**{"model": None, "messages": tuple(messages), "temperature": 0.0, "max_tokens": 24, **more})


def begin(*messages: tuple[str, str], **more: Any) -> Request:
    """The request of a warm-up."""
    shown = tuple(Message(role=role, content=content) for role, content in messages)
    return Request(**{"model": None, "messages": shown, **more})


def within(address: str, work: Callable[[SGLangEngine], Awaitable[Made]], concurrency: int = 8, **options: Any) -> Made:
    """What is done with an engine between opening and closing it."""

    async def run() -> Made:
        engine = SGLangEngine(address, **options)
        await engine.open(concurrency=concurrency)
        try:
            return await work(engine)
        finally:
            await engine.close()

    return asyncio.run(run())


def use(address: str, *requests: Request, **options: Any) -> list[Reply]:
    """The replies to requests, one after the other."""

    async def work(engine: SGLangEngine) -> list[Reply]:
        return [await engine.generate(request) for request in requests]

    return within(address, work, **options)


def opened(address: str, concurrency: int = 8, **options: Any) -> tuple[Capabilities, list[str]]:
    """What an engine is when it is opened, and its notes."""

    async def run() -> tuple[Capabilities, list[str]]:
        engine = SGLangEngine(address, **options)
        try:
            return await engine.open(concurrency=concurrency), engine.notes
        finally:
            await engine.close()

    return asyncio.run(run())


async def until(happened: Callable[[], object]) -> None:
    """Waits until something has happened on the server's side."""
    for _ in range(1000):
        if happened():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not happen")


def on(path: str, answer: Answer) -> Callable[[Call], Answer | None]:
    """Gives every call of a path this answer, but for those at opening."""
    return lambda call: answer if call.route == path and b"return_prompt_token_ids" not in call.body else None


def failure(answer: Answer, *, request: Request | None = None, **options: Any) -> EngineError:
    """The error that an answer of /generate becomes."""
    with FakeSGLang(answer=on("/generate", answer)) as server, pytest.raises(EngineError) as caught:
        use(server.address, request or ask(), **options)
    error = caught.value
    assert KEY not in f"{error} {error!r} {error.__cause__!r} {error.__context__!r}"
    return error
