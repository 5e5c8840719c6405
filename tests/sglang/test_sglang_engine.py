"""The engine `sglang://` on a real SGLang: prompts, warm-ups, aborts, ranks, tenants, and a run of the command."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from running import Folder, said_calls
from sglang_cpu import Server, Servers

from helix.errors import EngineError
from helix.executor.engines.base import Message, Reply, Request
from helix.executor.engines.sglang import SGLangEngine

pytestmark = [pytest.mark.sglang, pytest.mark.xdist_group("lpm")]

Made = TypeVar("Made")
SENTENCE = "The clerk at desk {k} files form {i} before noon and notes the colour of its stamp. "
CHAT = (("system", "Be brief.\n"), ("user", '\n\nIs <b>it</b> "open" at {ten}? 日本語 №7 '), ("assistant", " Yes."))


def policy(k: int, sentences: int = 16) -> str:
    return f"Policy {k}. " + "".join(SENTENCE.format(k=k, i=i) for i in range(sentences))


def messages(*pairs: tuple[str, str]) -> tuple[Message, ...]:
    return tuple(Message(role=role, content=content) for role, content in pairs)


def ask(*pairs: tuple[str, str], **more: Any) -> Request:
    return Request(**{"model": None, "messages": messages(*pairs), "temperature": 0.0, "max_tokens": 4, **more})


def address(*servers: Server) -> str:
    return "sglang://" + ",".join(server.address.partition("://")[2] for server in servers)


def within(where: str, work: Callable[[SGLangEngine], Awaitable[Made]], **options: Any) -> Made:
    async def run() -> Made:
        # A busy machine of two cores may take long to answer at all.
        engine = SGLangEngine(where, open_timeout=120.0, **options)
        await engine.open(concurrency=16)
        try:
            return await work(engine)
        finally:
            await engine.close()

    return asyncio.run(run())


def chat_ids(server: Server, pairs: Sequence[tuple[str, str]]) -> list[int]:
    """The tokens that the chat endpoint itself makes of messages."""
    body = {
        "model": "x",
        "messages": [{"role": role, "content": content} for role, content in pairs],
        "max_tokens": 1,
        "return_prompt_token_ids": True,
    }
    ids: list[int] = server.json("/v1/chat/completions", body)["choices"][0]["prompt_token_ids"]
    return ids


def test_what_the_server_says_of_itself(sglang_server: Server) -> None:
    async def work(engine: SGLangEngine) -> list[str]:
        capabilities = await engine.open(concurrency=16)
        assert (capabilities.ranks, capabilities.page, capabilities.prefix_cache) == (1, 1, True)
        assert (capabilities.max_context, capabilities.max_running) == (8192, 16)
        assert capabilities.kv_tokens is not None
        assert capabilities.kv_tokens >= 8192
        assert capabilities.warms
        assert capabilities.revision
        assert str(sglang_server.port) not in capabilities.revision
        (load,) = await engine.load()
        assert (load.rank, load.running, load.waiting, load.held) == (0, 0, 0, 0.0)
        await engine.look()
        return engine.notes

    async def run() -> list[str]:
        engine = SGLangEngine(address(sglang_server), open_timeout=120.0)
        try:
            return await work(engine)
        finally:
            await engine.close()

    assert asyncio.run(run()) == []


@pytest.mark.parametrize(
    "pairs",
    [
        [("user", "Name a colour.")],
        [CHAT[0], ("user", "  Name a colour.\n")],
        [*CHAT, ("user", "And at six?")],
        [*CHAT[1:], ("user", "And <|im_end|> at six?")],
        [*CHAT, ("user", "Why?"), ("assistant", "Since it is.\n\n"), ("user", "Sure?")],
    ],
)
def test_prompts_are_those_of_the_chat_endpoint(sglang_server: Server, pairs: list[tuple[str, str]]) -> None:
    async def work(engine: SGLangEngine) -> tuple[str | None, int]:
        request = ask(*pairs)
        template = await engine._template(request.messages, engine._places[0])
        assert template is not None
        return template.render(request.messages), await engine.count_tokens(request)

    text, count = within(address(sglang_server), work)
    body = {"text": text, "sampling_params": {"max_new_tokens": 0}, "return_prompt_token_ids": True}
    wanted = chat_ids(sglang_server, pairs)
    assert sglang_server.json("/generate", body)["prompt_token_ids"] == wanted
    assert count == len(wanted)


@pytest.mark.parametrize("query", ["", "?api=chat"])
def test_warm_prefixes_are_found_by_calls_at_once(sglang_server: Server, query: str) -> None:
    """Twelve calls over three prefixes, cold and after three warm-ups."""
    requests = [
        ask(("system", policy(k)), ("user", f"Question {q}: which desk, and why?"), max_tokens=8)
        for q in range(4)
        for k in range(3)
    ]

    async def work(engine: SGLangEngine) -> list[Reply]:
        for k in range(3):
            warmed = await engine.warm(ask(("system", policy(k)), ("user", "Question ")))
            assert (warmed.completion_tokens, warmed.text) == (0, "")
        return list(await asyncio.gather(*(engine.generate(request) for request in requests)))

    replies = within(address(sglang_server) + query, work)
    ids = [chat_ids(sglang_server, [(m.role, m.content) for m in request.messages]) for request in requests[:6]]
    shared = sum(4 * _shared(ids[k], ids[k + 3]) for k in range(3))
    cached = sum(reply.cached_tokens or 0 for reply in replies)
    assert shared > 3700
    assert cached >= 0.986 * shared
    assert all(reply.queue_seconds is not None for reply in replies)


@pytest.mark.parametrize(
    ("begun", "rest"),
    [
        ("The clerk at desk ", "4 files form"),
        ("Ticket: ", "Hello wor"),
        ("Ticket:\n", "\n\nHello"),
        ("Read the wor", "ld news"),
        ("Count: 12", "345"),
        ('Say "', 'yes" now'),
        ("日本", "語です"),
        ("", "Hello"),
    ],
)
def test_what_half_a_message_leaves_to_be_computed(sglang_server: Server, begun: str, rest: str) -> None:
    part = (("system", policy(7, 4)), ("user", begun))
    whole = (("system", policy(7, 4)), ("user", begun + rest + " and so on."))

    async def work(engine: SGLangEngine) -> tuple[Reply, Reply]:
        return await engine.warm(ask(*part)), await engine.generate(ask(*whole, max_tokens=1))

    warmed, reply = within(address(sglang_server), work)
    # What a client could know at best: the tokens that end within the text that is there.
    ids = chat_ids(sglang_server, whole)
    text = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in part).removesuffix("<|im_end|>\n")
    known = max(n for n in range(len(ids) - 25, len(ids)) if text.startswith(_text(sglang_server, ids[:n])))
    assert known - (reply.cached_tokens or 0) <= 1
    assert (warmed.prompt_tokens or 0) - (reply.cached_tokens or 0) <= 2


@pytest.mark.parametrize("query", ["", "?api=chat"])
def test_cancelled_calls_stop_on_the_server(sglang_server: Server, query: str) -> None:
    async def work(engine: SGLangEngine) -> float:
        endless = [ask(("user", f"Count {n}"), max_tokens=3000, extra=(("ignore_eos", True),)) for n in range(3)]
        calls = [asyncio.ensure_future(engine.generate(request)) for request in endless]
        for _ in range(600):
            (load,) = await engine.load()
            if load.running == 3:
                break
            await asyncio.sleep(0.1)
        assert load.running == 3
        began = time.monotonic()
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert all(call.cancelled() for call in calls)
        while (await engine.load())[0].running:
            assert time.monotonic() - began < 30
            await asyncio.sleep(0.05)
        return time.monotonic() - began

    # Three times 3,000 tokens take a minute and more; SGLang by itself looks for gone clients every four seconds.
    assert within(address(sglang_server) + query, work) < 10


def test_tenants_share_nothing(sglang_server: Server) -> None:
    request = ask(("system", policy(3)), ("user", "Why?"))

    async def work(engine: SGLangEngine) -> list[int]:
        await engine.warm(request)
        return [(await engine.generate(request)).cached_tokens or 0]

    assert within(address(sglang_server), work, tenant="ann")[0] > 300
    body = {
        "model": "x",
        "messages": [{"role": m.role, "content": m.content} for m in request.messages],
        "max_tokens": 1,
    }
    for tenant in (None, "bob"):
        found = sglang_server.json("/v1/chat/completions", {**body, **({"extra_key": tenant} if tenant else {})})
        assert found["usage"]["prompt_tokens_details"]["cached_tokens"] < 40


def test_schemas_stops_and_errors(sglang_server: Server) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}

    async def work(engine: SGLangEngine) -> None:
        reply = await engine.generate(ask(("user", "Give a number."), schema=schema, max_tokens=40))
        assert reply.text.strip().startswith("{")
        assert not engine.notes
        await engine.generate(ask(("user", "Give a number."), schema={"type": "odd"}))
        assert "refused an output schema" in engine.notes[0]
        stopped = await engine.generate(ask(("user", "Say hi."), stop=("e",), max_tokens=60))
        assert "e" not in stopped.text
        with pytest.raises(EngineError) as caught:
            await engine.generate(ask(("user", "word " * 9000)))
        assert caught.value.kind == "prompt.too_long"
        assert "8192" in caught.value.message
        assert await engine.tokenize("hello there") == (await engine.tokenize("hello there, you"))[:2]

    within(address(sglang_server), work)


KEEPING = ("--schedule-policy", "lpm", "--radix-eviction-policy", "priority", "--max-total-tokens", "4096")


@pytest.mark.xdist_group("others")
def test_what_is_computed_ahead_outlives_older_prompts_that_were_answered(sglang_servers: Servers) -> None:
    """The server has the prompt of a call that has ended one above its reply; a warm-up has no reply."""
    server = sglang_servers(*KEEPING)

    async def work(engine: SGLangEngine) -> tuple[int, int]:
        answered = [ask(("system", policy(k, 40)), ("user", "Why?"), max_tokens=4) for k in range(11, 16)]
        for request in answered[:4]:
            await engine.generate(request)
        await engine.warm(ask(("system", policy(20))))
        await engine.generate(answered[4])
        found = await engine.generate(ask(("system", policy(20)), ("user", "Why?"), max_tokens=4))
        oldest = await engine.generate(answered[0])
        return found.cached_tokens or 0, oldest.cached_tokens or 0

    found, left = within(address(server), work)
    assert found > 300
    # A prompt of 850 tokens that was put in by chunks of 512, of which some had to go.
    assert left < 600


@pytest.mark.xdist_group("others")
def test_priorities_keep_prefixes(sglang_servers: Servers) -> None:
    """A warm prefix with a priority outlives more than the cache holds; without, it does not."""
    server = sglang_servers(*KEEPING)

    async def work(engine: SGLangEngine) -> list[int]:
        await engine.warm(ask(("system", policy(1)), priority=5))
        await engine.warm(ask(("system", policy(2))))
        for k in range(3, 9):
            await engine.warm(ask(("system", policy(k, 40))))
        asked = [ask(("system", policy(k)), ("user", "Why?")) for k in (1, 2)]
        return [(await engine.generate(request)).cached_tokens or 0 for request in asked]

    kept, lost = within(address(server), work)
    assert kept > 300
    assert lost < 40


def test_several_servers_are_several_ranks(sglang_servers: Servers) -> None:
    flags = ("--schedule-policy", "lpm")
    servers = [sglang_servers(*flags), sglang_servers(*flags, "--random-seed", "1")]
    request = ask(("system", policy(5)), ("user", "Why?"))

    async def work(engine: SGLangEngine) -> list[tuple[int | None, bool]]:
        await engine.warm(ask(("system", policy(5)), rank=1))
        replies = [await engine.generate(ask(*[(m.role, m.content) for m in request.messages], rank=r)) for r in (1, 0)]
        assert [load.rank for load in await engine.load()] == [0, 1]
        return [(reply.rank, (reply.cached_tokens or 0) > 300) for reply in replies]

    assert within(address(*servers), work) == [(1, True), (0, False)]


def test_a_run_from_the_command_line(tmp_path: Path, sglang_server: Server) -> None:
    folder = Folder(tmp_path)
    folder.workflow(
        f"""
workflow triage(ticket: text)

category = llm(temperature: 0, max_tokens: 12) -> choice["late", "open", "lost"] {{
  system "{policy(1)}"
  user "{{{{ ticket }}}}"
}}
output ticket, category
"""
    )
    tickets = ["My parcel came a week late.", "The box was open.", "It never came."]
    folder.rows(*({"ticket": ticket} for ticket in tickets))
    done = folder.run("-o", "out.jsonl", "--tenant", "ann", engine=address(sglang_server), timeout=180.0)
    assert done.returncode == 0, done.stderr
    assert [row["ticket"] for row in folder.read()] == tickets
    assert all(row["category"] in ("late", "open", "lost") for row in folder.read())
    assert said_calls(done.stderr) == 3
    assert "prompts go through" not in done.stderr


def _shared(one: list[int], other: list[int]) -> int:
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def _text(server: Server, ids: list[int]) -> str:
    """The text of tokens; a character of which only some bytes are there is U+FFFD."""
    return str(server.json("/v1/detokenize", {"tokens": ids, "skip_special_tokens": False})["text"])
