"""What the engine for SGLang makes of answers that go wrong, and how it shares calls out over ranks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fake_server import Answer
from fake_sglang import FakeSGLang
from sglang_calls import KEY, SYSTEM, ask, begin, failure, within

from helix.errors import EngineError
from helix.executor.engines.base import Reply
from helix.executor.engines.sglang import SGLangEngine


@pytest.mark.parametrize(
    ("status", "retryable", "overloaded", "fatal"),
    [
        (400, False, False, False),
        (401, False, False, True),
        (404, False, False, True),
        (408, True, False, False),
        (422, False, False, False),
        (429, True, True, False),
        (500, True, False, False),
        (502, True, False, False),
        (503, True, True, False),
    ],
)
def test_statuses(status: int, retryable: bool, overloaded: bool, fatal: bool) -> None:
    error = failure(Answer(status=status, body={"error": {"message": f"so it is, {KEY}"}}), api_key=KEY)
    assert (error.status, error.retryable, error.overloaded, error.fatal) == (status, retryable, overloaded, fatal)
    assert "so it is, [key]" in error.message


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"error": "unknown field `bogus`"}, "answered 400: unknown field `bogus`"),
        ({"detail": "The request queue is full."}, "answered 400: The request queue is full."),
        ("<html>", "answered 400: <html>"),
        ("", "answered 400: no message"),
    ],
)
def test_messages(body: Any, said: str) -> None:
    assert failure(Answer(status=400, body=body)).message.endswith(said)


def test_waits_that_are_asked_for() -> None:
    error = failure(Answer(status=503, headers={"retry-after": "7"}, body={"detail": "full"}))
    assert (error.retry_after, error.overloaded) == (7.0, True)


@pytest.mark.parametrize(
    "said",
    [
        "The input (9001 tokens) is longer than the model's context length (8192 tokens).",
        "Requested token count exceeds the model's maximum context length of 8192 tokens. You requested 9001.",
        "Request prompt exceeds the KV memory budget: input_len=20000.",
        "Input length (20000 tokens) exceeds the maximum allowed length (16384 tokens).",
    ],
)
def test_prompts_that_are_too_long(said: str) -> None:
    error = failure(Answer(status=400, body={"error": {"message": said}}))
    assert (error.kind, error.retryable, error.fatal) == ("prompt.too_long", False, False)
    assert error.message == f"prompt too long: {said}"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(body="{"), "sent a reply that is not JSON; it begins: {"),
        (Answer(body=""), "sent a reply that is not JSON; it is empty"),
        (Answer(body="[" * 100_000), "sent a reply that is not JSON; it begins: [[["),
        (Answer(body=[]), "sent a reply without a text; it begins: []"),
        (Answer(body={}), "sent a reply without a text; it begins: {}"),
        (Answer(body={"text": None, "meta_info": {}}), "sent a reply without a text"),
        (Answer(body={"text": "x"}), "sent a reply without a text"),
        (Answer(body=b"not gzip", headers={"content-encoding": "gzip"}), "broke off; check the server's log"),
        (Answer(body={"text": "x" * 100}, end="reset"), "reset the connection; check the server's log"),
        (Answer(body={"text": "x" * 100}, end="half"), "broke off; check the server's log"),
        (Answer(raw=b""), "closed the connection before it answered; check the server's log"),
        (Answer(raw=b"SSH-2.0-OpenSSH\r\n\r\n"), "sent something that is not HTTP"),
    ],
)
def test_replies_that_are_none(answer: Answer, said: str) -> None:
    error = failure(answer)
    assert said in error.message
    assert "http://127.0.0.1:" in error.message
    assert len(error.message) < 400
    assert (error.retryable, error.fatal, error.overloaded) == (True, False, False)


@pytest.mark.parametrize(
    ("reason", "said", "retryable", "overloaded"),
    [
        (
            {"type": "abort", "message": "Abort in waiting queue"},
            "gave the call up: Abort in waiting queue",
            True,
            False,
        ),
        ({"type": "abort", "status_code": 503, "message": "full"}, "gave the call up (503): full", True, True),
        ({"type": "abort", "status_code": 400, "message": "bad"}, "gave the call up (400): bad", False, False),
        ({"type": "abort"}, "gave the call up: no reason given", True, False),
    ],
)
def test_calls_that_the_server_gives_up(reason: dict[str, Any], said: str, retryable: bool, overloaded: bool) -> None:
    error = failure(Answer(body={"text": "", "meta_info": {"finish_reason": reason}}))
    assert error.message.endswith(said)
    assert (error.retryable, error.overloaded, error.fatal) == (retryable, overloaded, False)


@pytest.mark.parametrize(
    ("meta", "reply"),
    [
        ({}, Reply(text="x", rank=0)),
        ({"finish_reason": None}, Reply(text="x", rank=0)),
        ({"finish_reason": {"type": "length"}}, Reply(text="x", finish="length", rank=0)),
        ({"finish_reason": {"type": "odd"}}, Reply(text="x", finish="other", rank=0)),
        ({"prompt_tokens": "7", "cached_tokens": True, "queue_time": "long"}, Reply(text="x", rank=0)),
        ({"queue_time": -1}, Reply(text="x", rank=0)),
    ],
)
def test_replies_that_tell_little(meta: dict[str, Any], reply: Reply) -> None:
    body = {"text": "x", "meta_info": meta}
    with FakeSGLang(answer=lambda call: Answer(body=body) if call.route == "/generate" else None) as server:
        # The engine learns from such answers that prompts cannot be written here: only `?api=chat` asks nothing.
        async def work(engine: SGLangEngine) -> Reply:
            engine._native = True
            return await engine.generate(ask())

        assert within(server.address, work) == reply


def test_requests_that_cannot_be_written() -> None:
    async def work(engine: SGLangEngine) -> None:
        await engine.generate(ask("half \ud800 a pair"))

    with FakeSGLang() as server, pytest.raises(EngineError, match="cannot be written as JSON in UTF-8") as caught:
        within(server.address, work)
    assert not caught.value.retryable


class TestRanks:
    """Calls go to the rank that they name, else to the least busy one."""

    def test_ranks_of_one_server(self) -> None:
        async def work(engine: SGLangEngine) -> list[Reply]:
            warmed = await engine.warm(begin(("system", SYSTEM), rank=1))
            return [warmed, *[await engine.generate(ask(rank=rank)) for rank in (1, 0, 1)]]

        with FakeSGLang(info={"dp_size": 2}) as server:
            replies = within(server.address, work)
            assert [body["routed_dp_rank"] for body in server.bodies("/generate")] == [1, 1, 0, 1]
        assert [reply.rank for reply in replies] == [1, 1, 0, 1]

    def test_calls_without_a_rank_go_to_the_least_busy(self) -> None:
        async def work(engine: SGLangEngine) -> list[int | None]:
            replies = await asyncio.gather(*(engine.generate(ask(f"Number {n}?")) for n in range(7)))
            return [reply.rank for reply in replies]

        with FakeSGLang(info={"dp_size": 2}) as one, FakeSGLang() as other:
            ranks = within(f"{one.address},127.0.0.1:{other.port}", work)
            assert len(other.bodies("/generate")) == 2
            assert not any("routed_dp_rank" in body for body in other.bodies("/generate"))
        assert ranks == [0, 1, 2, 0, 1, 2, 0]

    def test_ranks_that_are_not_there(self) -> None:
        async def work(engine: SGLangEngine) -> None:
            await engine.generate(ask(rank=1))

        with FakeSGLang() as server, pytest.raises(EngineError, match=r"there is no rank 1; there are 1, from 0"):
            within(server.address, work)

    def test_what_the_server_says_about_the_rank_counts(self) -> None:
        def answer(call: Any) -> Answer | None:
            if call.route == "/generate" and "routed_dp_rank" in call.json:
                return Answer(body={"text": "x", "meta_info": {"dp_rank": 0}})
            return None

        async def work(engine: SGLangEngine) -> Reply:
            return await engine.generate(ask(rank=1))

        with FakeSGLang(info={"dp_size": 2}, answer=answer) as server:
            assert within(server.address, work).rank == 0
