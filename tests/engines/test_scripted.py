"""The scripted engine: conditions, answers, the log, files, and what it costs."""

from __future__ import annotations

import asyncio
import json
import re
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from running import run

from helix import types
from helix.errors import EngineError, OptionError
from helix.executor.engines.base import Message, Reply, Request
from helix.executor.engines.scripted import ScriptedEngine
from helix.executor.engines.scripted_rules import Rule


def ask(text: str = "hello", *, system: str | None = None, **more: Any) -> Request:
    messages = [Message(role="user", content=text)]
    if system is not None:
        messages.insert(0, Message(role="system", content=system))
    return Request(**{"model": None, "messages": tuple(messages), **more})


def answer(engine: ScriptedEngine, *requests: Request) -> list[str]:
    async def all_of_them() -> list[str]:
        return [(await engine.generate(request)).text for request in requests]

    return asyncio.run(all_of_them())


def failure(engine: ScriptedEngine, request: Request) -> EngineError:
    with pytest.raises(EngineError) as caught:
        answer(engine, request)
    return caught.value


def scripted(*rules: dict[str, Any], **settings: Any) -> ScriptedEngine:
    return ScriptedEngine(rules=rules, **settings)


OTHER = {"reply": "other"}


@pytest.mark.parametrize(
    ("rule", "hit", "miss"),
    [
        ({"step": "a"}, ask(step="a"), ask(step="b")),
        ({"step": ["a", "b"]}, ask(step="b"), ask(step="c")),
        ({"match": r"^he(l+)o$"}, ask("hello"), ask("hello there")),
        ({"match": re.compile("HELLO", re.IGNORECASE)}, ask("hello"), ask("bye")),
        ({"contains": "(.*)"}, ask("a (.*) b"), ask("a b")),
        ({"contains": "hello"}, ask("hello"), ask("bye", system="hello")),
        ({"prompt_contains": "terse"}, ask(system="be terse"), ask("hello", system="be verbose")),
        ({"prompt_match": r"(?s)be \w+\nhel"}, ask(system="be terse"), ask(system="be")),
        ({"row": 3}, ask(row=3), ask(row=0)),
        ({"row": [0, 2]}, ask(row=0), ask(row=1)),
        ({"sample": 0}, ask(sample=0), ask(sample=1)),
        ({"sample": [1, 2]}, ask(sample=2), ask(sample=0)),
        ({"step": "a", "contains": "x"}, ask("x", step="a"), ask("x", step="b")),
    ],
)
def test_conditions(rule: dict[str, Any], hit: Request, miss: Request) -> None:
    engine = scripted({**rule, "reply": "hit"}, OTHER)
    assert answer(engine, hit, miss) == ["hit", "other"]
    assert engine.hits == [1, 1]


def test_the_last_user_message_counts_not_the_last_message() -> None:
    messages = tuple(Message(role=role, content=role) for role in ("user", "assistant", "system"))
    engine = scripted({"contains": "user", "reply": "hit"}, OTHER)
    assert answer(engine, Request(model=None, messages=messages)) == ["hit"]
    assert answer(engine, Request(model=None, messages=messages[1:])) == ["other"]


def test_the_first_rule_that_holds_answers() -> None:
    engine = scripted({"contains": "ell", "reply": "first"}, {"contains": "hello", "reply": "second"})
    assert answer(engine, ask()) == ["first"]


def test_calls_are_counted_for_each_rule_among_what_meets_its_other_conditions() -> None:
    engine = scripted({"step": "a", "call": [2, 4], "reply": "hit"}, OTHER)
    steps = ["a", "b", "a", "b", "a", "a", "a"]
    replies = answer(engine, *(ask(step=step) for step in steps))
    assert replies == ["other", "other", "hit", "other", "other", "hit", "other"]


def test_attempts_are_counted_for_each_request() -> None:
    engine = scripted({"attempt": [1, 2], "reply": "again"}, {"reply": "done"})
    same = [ask("x"), ask("x"), ask("y"), ask("x"), ask("x", row=1), ask("x", sample=1), ask("x", step="s")]
    assert answer(engine, *same) == ["again", "again", "again", "done", "again", "again", "again"]


@pytest.mark.parametrize(
    ("rule", "text", "reply"),
    [
        ({"match": r"refund of (\d+) (\w+)"}, r"\2 \1!", "EUR 12!"),
        ({"match": r"of (?P<amount>\d+)"}, r"<\g<amount>>", "<12>"),
        ({"match": r"refund( now)?"}, r"[\1]", "[]"),
        ({"match": r"of (\d+)"}, r'{"n": "\\1 \n \1"}', r'{"n": "\1 \n 12"}'),
        ({"prompt_match": r"of (\d+)"}, r"\1", "12"),
        ({"match": "refund (of)", "prompt_match": r"of (\d+)"}, r"\1", "of"),
        ({"contains": "refund"}, r"\1 \g<a>", r"\1 \g<a>"),
        ({}, "{a} %s ${HOME} <|im_start|> \\ ไทย 🎉", "{a} %s ${HOME} <|im_start|> \\ ไทย 🎉"),
    ],
)
def test_replies_take_groups_of_the_match(rule: dict[str, Any], text: str, reply: str) -> None:
    assert answer(scripted({**rule, "reply": text}), ask("refund of 12 EUR")) == [reply]


def test_a_list_of_replies_goes_by_sample() -> None:
    engine = scripted({"reply": ["a", "b"]})
    assert answer(engine, *(ask(sample=number) for number in range(5))) == ["a", "b", "a", "b", "a"]


def test_finish_and_token_counts() -> None:
    engine = scripted({"reply": "ไทย", "finish": "length"})
    reply = asyncio.run(engine.generate(ask("hello", system="a")))
    assert reply == Reply(text="ไทย", finish="length", prompt_tokens=2, completion_tokens=3)


@pytest.mark.parametrize(
    ("status", "retryable", "overloaded", "fatal"),
    [
        (400, False, False, False),
        (401, False, False, True),
        (402, False, False, True),
        (403, False, False, True),
        (404, False, False, True),
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
        (529, True, False, False),
    ],
)
def test_statuses(status: int, retryable: bool, overloaded: bool, fatal: bool) -> None:
    error = failure(scripted({"error": status, "retry_after": 1.5}), ask())
    assert (error.status, error.retryable, error.overloaded, error.fatal, error.retry_after, error.kind) == (
        status,
        retryable,
        overloaded,
        fatal,
        1.5,
        "engine",
    )
    assert str(status) in error.message


@pytest.mark.parametrize(
    ("name", "status", "retryable", "kind"),
    [
        ("connection", None, True, "engine"),
        ("malformed", 200, True, "engine"),
        ("prompt.too_long", 400, False, "prompt.too_long"),
    ],
)
def test_named_errors(name: str, status: int | None, retryable: bool, kind: str) -> None:
    error = failure(scripted({"error": name, "message": "as told"}), ask())
    assert (error.message, error.status, error.retryable, error.kind) == ("as told", status, retryable, kind)
    assert not error.fatal


def test_a_failed_first_attempt_then_a_reply() -> None:
    engine = scripted({"attempt": 1, "error": 503}, {"reply": "well"})
    assert failure(engine, ask()).status == 503
    assert answer(engine, ask()) == ["well"]


def test_a_prompt_over_the_context_fails() -> None:
    engine = scripted(OTHER, max_context=3)
    assert answer(engine, ask("x" * 12)) == ["other"]
    error = failure(engine, ask("x" * 13))
    assert (error.kind, error.retryable, error.message) == (
        "prompt.too_long",
        False,
        "prompt too long: needs 4 tokens, has 3",
    )


def test_delays_sleep_and_no_delay_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    engine = scripted({"step": "slow", "delay": 2.5, "reply": "late"}, {"delay": 0, "reply": "now"})
    assert answer(engine, ask(step="slow"), ask()) == ["late", "now"]
    assert slept == [2.5]


def test_hanging_ends_by_cancellation_only() -> None:
    engine = scripted({"hang": True})

    async def cancel() -> int:
        task = asyncio.ensure_future(engine.generate(ask()))
        await asyncio.sleep(0.02)
        assert not task.done()
        during = engine.in_flight
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return during

    assert asyncio.run(cancel()) == 1
    assert (engine.in_flight, engine.calls) == (0, 1)


def test_the_default_reply_depends_on_prompt_model_and_sample_only() -> None:
    base = ask("x", system="s")
    same = [base, ask("x", system="s", step="t", row=4, temperature=0.5, max_tokens=9, seed=1)]
    different = [
        base,
        ask("x"),
        ask("y", system="s"),
        ask("x", system="s", sample=1),
        ask("x", system="s", model="m"),
        Request(model=None, messages=(Message(role="user", content="s"), Message(role="user", content="x"))),
        Request(model=None, messages=(Message(role="system", content="sx"), Message(role="user", content=""))),
    ]
    engine = ScriptedEngine()
    assert len(set(answer(engine, *same))) == 1
    assert len(set(answer(engine, *different))) == len(different)
    assert answer(engine, ask("x")) == ["scripted ad15b2f5105b"], "the documented hash must not change"


def test_the_default_reply_satisfies_the_schema() -> None:
    kind = types.Record(
        (
            ("label", types.Choice(("spam", "ham"))),
            ("parts", types.ListOf(types.INT)),
            ("why", types.optional(types.TEXT)),
        )
    )
    texts = answer(ScriptedEngine(), *(ask("x", schema=types.json_schema(kind), sample=number) for number in range(9)))
    assert len(set(texts)) > 5
    for text in texts:
        assert types.mismatch(json.loads(text), kind) is None


def test_a_rule_without_an_answer_delays_the_default_reply() -> None:
    engine = scripted({"finish": "length"})
    reply = asyncio.run(engine.generate(ask()))
    assert reply.finish == "length"
    assert [reply.text] == answer(ScriptedEngine(), ask())


def test_strict_engines_refuse_what_no_rule_matches() -> None:
    error = failure(scripted({"step": "a"}, strict=True), ask(step="b", row=2))
    assert error.message == "no scripted rule for step `b`, row 2, sample 0"
    assert not error.retryable


async def _later(request: Request) -> str:
    await asyncio.sleep(0)
    return f"later {request.row}"


@pytest.mark.parametrize(
    ("respond", "text"),
    [
        (lambda request: request.messages[-1].content.upper(), "HELLO"),
        (lambda request: Reply(text="whole", finish="tool"), "whole"),
        (_later, "later 0"),
        (lambda request: None, "by rule"),
        (lambda request: "", ""),
    ],
)
def test_python_replies(respond: Any, text: str) -> None:
    assert answer(scripted({"reply": "by rule"}, reply=respond), ask()) == [text]


def test_python_replies_can_fail() -> None:
    told = EngineError("told to", status=500, retryable=True)
    assert failure(ScriptedEngine(reply=lambda request: told), ask()) is told


def test_rule_objects() -> None:
    engine = ScriptedEngine(rules=[Rule(step=("a",), reply=("yes",)), {"reply": "no"}])
    assert answer(engine, ask(step="a"), ask(step="b")) == ["yes", "no"]


def test_the_log_and_the_counters() -> None:
    engine = scripted({"delay": 0.02})

    async def together() -> None:
        await asyncio.gather(*(engine.generate(ask(row=number)) for number in range(5)))

    asyncio.run(together())
    assert [request.row for request in engine.requests] == [0, 1, 2, 3, 4]
    assert (engine.calls, engine.in_flight, engine.peak_in_flight) == (5, 0, 5)
    assert repr(engine) == "ScriptedEngine('scripted', rules=1, calls=5)"


def test_open_close_and_count() -> None:
    engine = ScriptedEngine(max_context=100, models=["a", "b"])

    async def use() -> None:
        capabilities = await engine.open(concurrency=7)
        assert (capabilities.max_context, capabilities.models) == (100, ("a", "b"))
        assert capabilities.schema_decoding
        assert capabilities.counts_tokens
        assert await engine.count_tokens(ask("é" * 3, system="abc")) == 3
        await engine.close()
        await engine.close()

    asyncio.run(use())
    assert (engine.opened, engine.closed, engine.concurrency, engine.name) == (1, 2, 7, "scripted")


def test_no_log_means_flat_memory_and_low_cost() -> None:
    engine = scripted({"step": "a", "reply": "x"}, {"match": "zzz", "reply": "x"}, keep_log=False)
    request = ask("hello " * 100, step="b")

    async def many(count: int) -> None:
        for _ in range(count):
            await engine.generate(request)

    asyncio.run(many(100))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    asyncio.run(many(2000))
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 20_000
    assert engine.requests == []
    start = time.process_time()
    asyncio.run(many(5000))
    assert (time.process_time() - start) / 5000 < 100e-6
    assert engine.calls == 7100


def test_texts_that_are_not_unicode_do_no_harm() -> None:
    assert len(answer(ScriptedEngine(), ask("\ud800"), ask("\udfff"))) == 2


FILE = r"""
[engine]
max_context = 50
models = ["m"]
keep_log = false

[[rule]]
step = ["triage", "other"]
match = 'refund of (?P<n>\d+)'
reply = 'amount \g<n>'

[[rule]]
row = [1, 2]
error = 429
retry_after = 2
"""


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "replies.toml"
    path.write_bytes(b"\xef\xbb\xbf" + FILE.encode())
    engine = ScriptedEngine.from_file(path)
    assert engine.name == f"scripted:{path}"
    assert answer(engine, ask("refund of 9", step="triage")) == ["amount 9"]
    error = failure(engine, ask(row=2))
    assert (error.status, error.retry_after) == (429, 2.0)
    assert engine.requests == []
    capabilities = asyncio.run(engine.open(concurrency=1))
    assert (capabilities.max_context, capabilities.models) == (50, ("m",))


def test_a_rule_for_a_step_that_is_not_there_is_told() -> None:
    engine = ScriptedEngine([{"step": ["x", "z"], "reply": "a"}, {"step": "z", "row": 1}])
    text = 'workflow w(a: text)\nxs = for i in ["p", "q"] {\n  x = llm { user "{{ i }}" }\n  yield x\n}\noutput xs\n'
    ran = run(text, [{"a": "1"}], engine=engine)
    assert ran.report.notes == [
        "scripted has a rule for step `x`, which is not there; did you mean `xs`? steps: xs, xs.x",
        "scripted has a rule for step `z`, which is not there; steps: xs, xs.x",
    ]
    found = ScriptedEngine([{"step": "xs.x", "reply": "a"}])
    ran = run(text, [{"a": "1"}], engine=found)
    assert (ran.report.notes, ran.rows[0]["xs"]) == ([], ["a", "a"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[rule]]\nstpe = 'a'", "rule 1: unknown key `stpe`; did you mean `step`?"),
        ("[[rules]]\nstep = 'a'", "unknown key `rules`; did you mean `rule`?"),
        ("[rule]\nstep = 'a'", "`rule` must be written as [[rule]] tables"),
        ("rule = [1]", "`rule` must be written as [[rule]] tables"),
        ("engine = 1", "`engine` must be written as an [engine] table"),
        ("[engine]\nmaxcontext = 5", "[engine]: unknown key `maxcontext`; did you mean `max_context`?"),
        ("[engine]\nmax_context = 0", "`max_context` must be a whole number from 1, found 0"),
        ("[engine]\nmax_context = true", "`max_context` must be a whole number from 1, found True"),
        ("[engine]\nstrict = 'yes'", "`strict` must be true or false, found 'yes'"),
        ("[engine]\nmodels = []", "`models` must be a text or a list of texts, found []"),
        ("[[rule]]\n[[rule]]\nmatch = '('", "rule 2: `match` is not a regular expression: missing )"),
        ("[[rule]]\nmatch = 5", "`match` must be a text, found 5"),
        ("[[rule]]\nstep = 5", "`step` must be a text or a list of texts, found 5"),
        ("[[rule]]\nreply = ['a', 1]", "`reply` must be a text or a list of texts, found ['a', 1]"),
        ("[[rule]]\nrow = -1", "`row` must be a whole number from 0, found -1"),
        ("[[rule]]\nrow = []", "`row` must be a whole number from 0 or a list of them, found []"),
        ("[[rule]]\ncall = 0", "`call` must be a whole number from 1, found 0"),
        ("[[rule]]\nsample = 1.5", "`sample` must be a whole number from 0, found 1.5"),
        ("[[rule]]\ndelay = -1", "`delay` must be a number of seconds from 0, found -1"),
        ("[[rule]]\ndelay = inf", "`delay` must be a number of seconds from 0, found inf"),
        ("[[rule]]\nfinish = 'end'", "`finish` must be one of stop, length, tool, other, found 'end'"),
        ("[[rule]]\nerror = 200", "`error` must be a status from 400 to 599 or one of connection,"),
        ("[[rule]]\nerror = 'refused'", "`error` must be a status from 400 to 599 or one of connection,"),
        ("[[rule]]\nhang = 1", "`hang` must be true or false, found 1"),
        ("[[rule]]\nreply = 'a'\nerror = 500", "one of `reply`, `calls`, `answer`, `error` and `hang`, not several"),
        ("[[rule]]\nhang = true\nerror = 500", "one of `reply`, `calls`, `answer`, `error` and `hang`, not several"),
        ("[[rule]]\nreply = 'a'\nretry_after = 1", "`retry_after` needs an `error`"),
        ("[[rule]]\nmessage = 'a'", "`message` needs an `error`"),
        ("[[rule]]\nerror = 500\nfinish = 'stop'", "`finish` needs a reply"),
        ("[[rule]]\nmatch = '(a)'\nreply = '\\2'", r"the reply uses \2, but /(a)/ has 1 groups"),
        (
            "[[rule]]\nmatch = '(?P<name>a)'\nreply = '\\g<nam>'",
            r"the reply uses \g<nam>, but /(?P<name>a)/ has none; did you mean `name`?",
        ),
        ("[[rule]\n", "not TOML: "),
        ("a = \n", "(at line 1, column 5)"),
    ],
)
def test_mistakes_in_files(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "replies.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(OptionError) as caught:
        ScriptedEngine.from_file(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="cannot read the scripted replies: No such file"):
        ScriptedEngine.from_file(tmp_path / "absent.toml")
    (tmp_path / "latin.toml").write_bytes(b"a = '\xe9'")
    with pytest.raises(OptionError, match="not UTF-8 at byte 5"):
        ScriptedEngine.from_file(tmp_path / "latin.toml")


def test_mistakes_in_python() -> None:
    with pytest.raises(OptionError, match="rule 1: unknown key `stpe`; did you mean `step`"):
        ScriptedEngine(rules=[{"stpe": "a"}])
    with pytest.raises(OptionError, match="scripted engine: unknown key `max_contex`"):
        ScriptedEngine(max_contex=5)
