"""What the engine for SGLang sends, and what it makes of the answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from fake_server import Answer, Call
from fake_sglang import ENDLESS, FakeSGLang, Message, chatml, forgetful, shouting, trimming
from sglang_calls import SCHEMA, SYSTEM, ask, begin, on, until, use, within

from helix.executor.engines.base import Reply
from helix.executor.engines.sglang import SGLangEngine

BEFORE = (("system", SYSTEM), ("user", "Is it open at ten?"), ("assistant", "Yes."))


def test_a_call_carries_its_prompt_and_its_sampling() -> None:
    request = ask(
        temperature=0.7,
        top_p=0.9,
        seed=5,
        stop=("\n", "END"),
        schema=SCHEMA,
        extra=(("top_k", 4), ("lora_path", "own")),
    )
    with FakeSGLang() as server:
        (reply,) = use(server.address, request)
        (body,) = server.bodies("/generate")
    rid = body.pop("rid")
    assert rid.endswith(".")
    schema = body["sampling_params"].pop("json_schema")
    assert json.loads(schema) == SCHEMA
    assert body == {
        "text": "<|start|>user\nName a colour.<|end|>\n<|start|>assistant\n",
        "lora_path": "own",
        "sampling_params": {
            "max_new_tokens": 24,
            "temperature": 0.7,
            "top_p": 0.9,
            "sampling_seed": 5,
            "stop": ["\n", "END"],
            "top_k": 4,
        },
    }
    assert reply == Reply(
        text='{"label": "good", "sure": true}',
        prompt_tokens=len(server.ids(body["text"])),
        completion_tokens=2,
        cached_tokens=2,  # of what the engine tried when it was opened
        rank=0,
        queue_seconds=0.125,
    )


def test_without_a_limit_the_context_is_the_limit() -> None:
    with FakeSGLang() as server:
        use(server.address, ask(max_tokens=None))
        use(server.address, ask(max_tokens=None), max_tokens=7)
        assert [body["sampling_params"]["max_new_tokens"] for body in server.bodies("/generate")] == [None, 7]


def test_ids_differ_and_none_begins_another() -> None:
    with FakeSGLang() as server:
        use(server.address, *(ask() for _ in range(12)))
        rids = [body["rid"] for body in server.bodies("/generate")]
    assert len(set(rids)) == 12
    assert not any(one != other and other.startswith(one) for one in rids for other in rids)


class TestPrompts:
    """A prompt written here is the server's own to the token; where it cannot be, the chat endpoint writes it."""

    def both(self, server: FakeSGLang, messages: Sequence[tuple[str, str]]) -> tuple[list[int], list[int] | None]:
        """The tokens of the chat endpoint, and those of what was sent to /generate (None: nothing)."""
        *before, (role, text) = messages
        assert role == "user"
        use(server.address, ask(text, *before))
        sent = server.bodies("/generate")
        shown = [{"role": role, "content": content} for role, content in messages]
        wanted = server.ids(server._template(shown))
        return wanted, server.ids(server._first + sent[-1]["text"]) if sent else None

    @pytest.mark.parametrize(("template", "first"), [(chatml, ""), (trimming, "<s>"), (trimming, ""), (forgetful, "")])
    @pytest.mark.parametrize(
        "messages",
        [
            [("user", "Name a colour.")],
            [("system", f"  {SYSTEM}\n"), ("user", '\n\nName a <b>colour</b>, "quoted", {braced}.  ')],
            [*BEFORE, ("user", "And at six?")],
        ],
    )
    def test_templates_that_can_be_told(
        self, template: Callable[..., str], first: str, messages: list[tuple[str, str]]
    ) -> None:
        with FakeSGLang(template, first=first) as server:
            wanted, sent = self.both(server, messages)
            assert sent == wanted
            assert not server.bodies("/v1/chat/completions")

    @pytest.mark.parametrize(
        "messages",
        [
            [("user", "What?"), ("assistant", "<think>Hm.</think>Yes."), ("user", "Sure?")],
            [("system", " \n"), ("user", "Sure?")],
        ],
    )
    def test_contents_that_templates_may_look_into(self, messages: list[tuple[str, str]]) -> None:
        with FakeSGLang(forgetful) as server:
            assert self.both(server, messages)[1] is None
            (body,) = server.bodies("/v1/chat/completions")
        assert body["messages"] == [{"role": role, "content": content} for role, content in messages]

    def test_a_template_that_cannot_be_told(self) -> None:
        with FakeSGLang(shouting) as server:
            engine = SGLangEngine(server.address)
            assert self.both(server, [("system", SYSTEM), ("user", "Sure?")])[1] is None
            (body,) = server.bodies("/v1/chat/completions")
            notes = within(server.address, lambda engine: _later(engine.notes))
        # The same sampling whichever way a call goes: nothing comes from a file of the model.
        assert {name: body[name] for name in ("top_p", "top_k", "min_p", "repetition_penalty")} == {
            "top_p": 1.0,
            "top_k": -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
        }
        assert notes == [
            f"{server.address}: prompts go through /v1/chat/completions, since its chat template cannot be told from "
            "outside"
        ]
        assert engine.name == server.address

    def test_a_sequence_of_roles_that_cannot_be_told(self) -> None:
        def late(messages: Sequence[Message]) -> str:
            return shouting(messages) if len(messages) > 2 else chatml(messages)

        async def work(engine: SGLangEngine) -> list[str]:
            for _ in range(2):
                await engine.generate(ask())
                await engine.generate(ask("And at six?", *BEFORE))
            return engine.notes

        with FakeSGLang(late) as server:
            notes = within(server.address, work)
            assert len(server.bodies("/generate")) == 2
            assert len(server.bodies("/v1/chat/completions")) == 2
        assert len(notes) == 1
        assert "its template for the messages system, user, assistant, user cannot be told" in notes[0]

    def test_a_template_is_learned_once_for_calls_at_once(self) -> None:
        async def work(engine: SGLangEngine) -> int:
            before = len(server.calls)
            await asyncio.gather(*(engine.generate(ask(f"Number {n}?", ("system", SYSTEM))) for n in range(6)))
            return len(server.calls) - before

        with FakeSGLang() as server:
            assert within(server.address, work) == 6 + 6

    def test_a_call_that_is_cancelled_while_a_template_is_learned_leaves_it_to_the_others(self) -> None:
        async def work(engine: SGLangEngine) -> Reply:
            first = asyncio.ensure_future(engine.generate(ask("One?", ("system", SYSTEM))))
            second = asyncio.ensure_future(engine.generate(ask("Two?", ("system", SYSTEM))))
            await asyncio.sleep(0)
            first.cancel()
            return await second

        with FakeSGLang() as server:
            assert within(server.address, work).text == "Green"
            assert len(server.bodies("/generate")) == 1

    def test_fields_of_the_chat_endpoint_go_there(self) -> None:
        extra = (("chat_template_kwargs", {"enable_thinking": False}), ("top_k", 3))
        with FakeSGLang() as server:
            (reply,) = use(server.address, ask(schema=SCHEMA, stop=("x",), seed=3, top_p=0.5, extra=extra))
            (body,) = server.bodies("/v1/chat/completions")
        del body["rid"]
        assert body == {
            "model": "tiny",
            "messages": [{"role": "user", "content": "Name a colour."}],
            "return_meta_info": True,
            "temperature": 0.0,
            "top_p": 0.5,
            "top_k": 3,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "seed": 3,
            "max_tokens": 24,
            "stop": ["x"],
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "reply", "strict": True, "schema": SCHEMA},
            },
            "chat_template_kwargs": {"enable_thinking": False},
        }
        assert (reply.rank, reply.queue_seconds, reply.completion_tokens) == (0, 0.125, 2)

    def test_the_chat_endpoint_on_demand_leaves_sampling_to_the_model(self) -> None:
        with FakeSGLang() as server:
            use(f"{server.address}?api=chat", ask())
            (body,) = server.bodies("/v1/chat/completions")
            assert not server.bodies("/generate")
        assert not {"top_p", "top_k", "min_p", "repetition_penalty"} & set(body)


class TestWarming:
    """A warm-up computes what later prompts begin with, and nothing that they do not."""

    PARTS = (
        ([("system", SYSTEM)], [("system", SYSTEM), ("user", "Is it open?")]),
        ([("system", SYSTEM[:31])], [("system", SYSTEM), ("user", "Is it open?")]),
        ([("system", SYSTEM), ("user", "Ticket: ")], [("system", SYSTEM), ("user", "Ticket: hello world")]),
        ([("system", SYSTEM), ("user", "Ticket: hello wor")], [("system", SYSTEM), ("user", "Ticket: hello world")]),
        ([("system", SYSTEM), ("user", "")], [("system", SYSTEM), ("user", "hello")]),
        ([*BEFORE[:2], ("assistant", "Ye")], [*BEFORE, ("user", "And at six?")]),
        ([("user", "Read  \n\n")], [("user", "Read  \n\n  this")]),
    )

    @pytest.mark.parametrize(
        ("template", "first"), [(chatml, ""), (trimming, "<s>"), (forgetful, ""), (shouting, ""), (trimming, "")]
    )
    @pytest.mark.parametrize(("part", "whole"), PARTS)
    def test_what_is_computed(
        self,
        template: Callable[..., str],
        first: str,
        part: list[tuple[str, str]],
        whole: list[tuple[str, str]],
    ) -> None:
        with FakeSGLang(template, first=first) as server:
            (reply,) = within(server.address, lambda engine: _all(engine.warm(begin(*part))))
            (body,) = server.bodies("/generate")
            prompt = server.ids(template([{"role": role, "content": content} for role, content in whole]))
        ids = body.pop("input_ids")
        assert body.pop("rid")
        assert body == {"sampling_params": {"max_new_tokens": 0}}
        shared = next((n for n, (one, two) in enumerate(zip(ids, prompt, strict=False)) if one != two), len(ids))
        assert len(ids) - shared <= 1
        # Nothing is left out but the last word, which may go on, and white space before it.
        text = template([{"role": role, "content": content} for role, content in whole])
        word = (part[-1][1].split()[-1:] or whole[-1][1].split())[0]
        at = max(text.rfind(word), text.rfind(word.upper()))
        assert shared >= len(server.ids(text[:at].rstrip()))
        assert (reply.text, reply.completion_tokens, reply.rank) == ("", 0, 0)

    def test_calls_after_a_warm_up_find_its_prefix(self) -> None:
        async def work(engine: SGLangEngine) -> tuple[Reply, list[Reply]]:
            warmed = await engine.warm(begin(("system", SYSTEM), ("user", "Question: ")))
            asked = [ask(f"Question: {n}?", ("system", SYSTEM)) for n in range(3)]
            return warmed, list(await asyncio.gather(*(engine.generate(request) for request in asked)))

        with FakeSGLang() as server:
            warmed, replies = within(server.address, work)
        assert warmed.prompt_tokens is not None
        assert all((reply.cached_tokens or 0) >= warmed.prompt_tokens for reply in replies)

    def test_a_server_that_tells_no_tokens(self) -> None:
        with FakeSGLang(answer=on("/v1/tokenize", Answer(status=404))) as server:
            (reply,) = within(server.address, lambda engine: _all(engine.warm(begin(("system", SYSTEM)))))
            (body,) = server.bodies("/v1/chat/completions")
        assert body["max_tokens"] == 1
        assert body["messages"][0] == {"role": "system", "content": SYSTEM}
        assert reply.prompt_tokens

    def test_what_prompts_go_on_with_is_computed_as_far_as_they_agree(self) -> None:
        request = begin(("user", "Read the wor"), follows=("ld of one", "ld of two"))
        with FakeSGLang() as server:
            within(server.address, lambda engine: _all(engine.warm(request)))
            (body,) = server.bodies("/generate")
            assert body["input_ids"] == server.ids("<|start|>user\nRead the world of")

    @pytest.mark.parametrize("tokenizes", [True, False])
    def test_tokens_are_drawn_as_those_of_the_calls_behind_it(self, tokenizes: bool) -> None:
        # SGLang draws for a whole batch at once: one call that is not greedy makes each pass of the others slower.
        asked = ask(top_p=0.9, seed=7, stop=("end",), schema=SCHEMA, extra=(("top_k", 5), ("frequency_penalty", 1)))

        async def work(engine: SGLangEngine) -> Reply:
            await engine.warm(replace(asked, schema=None))
            return await engine.generate(asked)

        silent = {} if tokenizes else {"answer": on("/v1/tokenize", Answer(status=404))}
        with FakeSGLang(**silent) as server:
            within(server.address, work)
            warmed, called = server.bodies("/generate" if tokenizes else "/v1/chat/completions")[-2:]
        if tokenizes:
            warmed, called = warmed["sampling_params"], called["sampling_params"]
        seed = "sampling_seed" if tokenizes else "seed"
        drawn = {name: value for name, value in warmed.items() if name in ("temperature", "top_p", "top_k", seed)}
        assert drawn == {"temperature": 0.0, "top_p": 0.9, "top_k": 5, seed: 7}
        assert drawn.items() <= called.items()
        assert {"min_p", "repetition_penalty"} & set(warmed) == {"min_p", "repetition_penalty"} & set(called)
        assert not {"stop", "json_schema", "response_format", "frequency_penalty"} & set(warmed)

    def test_an_adapter_has_a_cache_of_its_own(self) -> None:
        with FakeSGLang(adapters=["own"]) as server:
            within(server.address, lambda engine: _all(engine.warm(begin(("system", SYSTEM), model="own"))))
            (body,) = server.bodies("/v1/chat/completions")
            assert not server.bodies("/generate")
        assert (body["model"], body["max_tokens"]) == ("own", 1)


class TestTenantsAndPriorities:
    """What keeps prefixes of users apart, and what keeps prefixes in the cache."""

    @pytest.mark.parametrize("query", ["", "?api=chat"])
    def test_a_tenant_is_named_in_every_call(self, query: str) -> None:
        async def work(engine: SGLangEngine) -> Reply:
            await engine.warm(begin(("system", SYSTEM)))
            return await engine.generate(ask("Why?", ("system", SYSTEM)))

        with FakeSGLang() as server:
            first = within(server.address + query, work, tenant="ann")
            other = within(server.address + query, work, tenant="bob")
            sent = server.bodies("/generate") + server.bodies("/v1/chat/completions")
        assert [body["extra_key"] for body in sent].count("ann") == 2
        assert {body["extra_key"] for body in sent} == {"ann", "bob"}
        # What one has warmed does not serve the other: both find just their own.
        assert first.cached_tokens == other.cached_tokens

    @pytest.mark.parametrize(
        ("info", "wanted", "sent"),
        [
            ({}, 5, None),
            ({"radix_eviction_policy": "priority"}, 5, 5),
            ({"radix_eviction_policy": "priority"}, None, 0),
            ({"enable_priority_scheduling": True, "disable_priority_preemption": True}, 5, 5),
            ({"enable_priority_scheduling": True, "disable_priority_preemption": True}, None, 0),
            (
                {
                    "enable_priority_scheduling": True,
                    "disable_priority_preemption": True,
                    "schedule_low_priority_values_first": True,
                },
                5,
                -5,
            ),
        ],
    )
    def test_priorities(self, info: dict[str, Any], wanted: int | None, sent: int | None) -> None:
        async def work(engine: SGLangEngine) -> list[str]:
            await engine.warm(begin(("system", SYSTEM), priority=wanted))
            await engine.generate(ask(priority=wanted))
            return engine.notes

        with FakeSGLang(info=info) as server:
            notes = within(server.address, work)
            # Where priorities say how long prompts stay, one that is computed ahead counts as one that was answered.
            pins = "radix_eviction_policy" in info
            warmed = sent + 1 if pins and sent is not None else sent
            assert [body.get("priority") for body in server.bodies("/generate")] == [warmed, sent]
        what = (
            "it does not hold on to the prefixes that the plan wants kept; that takes --radix-eviction-policy priority"
        )
        assert notes == ([f"{server.address}: {what}"] if sent is None else [])


def test_a_cancelled_call_is_aborted() -> None:
    async def work(engine: SGLangEngine) -> Reply:
        call = asyncio.ensure_future(engine.generate(ask(ENDLESS)))
        await until(lambda: server.bodies("/generate"))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        return await engine.generate(ask())

    with FakeSGLang() as server:
        assert within(server.address, work).text == "Green"
        endless, _ = server.bodies("/generate")
        assert server.bodies("/abort_request") == [{"rid": endless["rid"]}]
        assert server.left == 1


def test_closing_waits_for_aborts() -> None:
    async def work(engine: SGLangEngine) -> None:
        call = asyncio.ensure_future(engine.generate(ask(ENDLESS)))
        await until(lambda: server.bodies("/generate"))
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)

    with FakeSGLang() as server:
        within(server.address, work)
        assert len(server.bodies("/abort_request")) == 1


def test_aborts_that_are_refused_are_said_once() -> None:
    async def work(engine: SGLangEngine) -> list[str]:
        for _ in range(2):
            call = asyncio.ensure_future(engine.generate(ask(ENDLESS)))
            await asyncio.sleep(0.1)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            await asyncio.sleep(0.1)
        return engine.notes

    with FakeSGLang(answer=on("/abort_request", Answer(status=401, body={"error": "Unauthorized"}))) as server:
        notes = within(server.address, work)
    assert notes == [
        f"{server.address}: calls that are cancelled run on for some seconds, since aborts take the server's admin key"
    ]


def test_a_schema_that_is_refused_is_left_out_from_then_on() -> None:
    def answer(call: Call) -> Answer | None:
        if call.route == "/generate" and b"json_schema" in call.body:
            said = 'Failed to compile json grammar: [12:00:00] /x.cc:4175: Unsupported type "odd"'
            return Answer(status=400, body={"error": {"message": said}})
        return None

    async def work(engine: SGLangEngine) -> list[str]:
        for _ in range(2):
            await engine.generate(ask(schema={"type": "odd"}, step="triage"))
        return engine.notes

    with FakeSGLang(answer=answer) as server:
        notes = within(server.address, work)
        assert ["json_schema" in body["sampling_params"] for body in server.bodies("/generate")] == [True, False, False]
    assert len(notes) == 1
    assert "refused the schema of step `triage`, so replies are checked but not constrained" in notes[0]


def test_seeds_that_do_nothing_are_said_once() -> None:
    async def work(engine: SGLangEngine) -> list[str]:
        await engine.generate(ask(seed=1, temperature=0.0))
        assert not engine.notes
        for seed in range(2):
            await engine.generate(ask(seed=seed, temperature=1.0))
        return engine.notes

    with FakeSGLang() as server:
        assert within(server.address, work) == [
            f"{server.address}: seeds do not make replies repeat; that takes --enable-deterministic-inference"
        ]
    with FakeSGLang(info={"enable_deterministic_inference": True}) as server:
        assert within(server.address, work) == []


def test_tokens() -> None:
    async def work(engine: SGLangEngine) -> tuple[int, list[int]]:
        return await engine.count_tokens(ask("a b", ("system", "c"))), await engine.tokenize("a b c")

    with FakeSGLang(trimming, first="<s>") as server:
        count, ids = within(server.address, work)
        messages = [{"role": "system", "content": "c"}, {"role": "user", "content": "a b"}]
        assert count == len(server.ids(trimming(messages)))
        assert ids == server.ids("a b c")


async def _all(*work: Any) -> list[Any]:
    return [await one for one in work]


async def _later(value: list[str]) -> list[str]:
    return value
