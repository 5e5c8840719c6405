"""Native tool calls on OpenAI-compatible servers: what is sent, what is read, and how it is found out who has them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from fake_server import Answer, Call, FakeServer, completion
from openai_calls import ask, chat, use
from running import run

from helix.errors import EngineError
from helix.executor.engines.base import Message, Request, ToolUse
from helix.executor.engines.openai import OpenAIEngine

TOOL = {"name": "orders", "description": "The orders.", "parameters": {"type": "object", "properties": {}}}
WORKFLOW = """workflow w(ticket: text)
tool orders(customer: text) -> json from python "shop:orders" effects read
answer = agent -> { n: int } { tools [orders] max_turns 3 system "Be kind." user "{{ ticket }}" }
output answer
"""


def called(*calls: tuple[str, Any], content: str | None = None) -> Answer:
    """A reply that calls tools: names and arguments, as text or as an object."""
    made = [
        {"id": f"call_{at}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for at, (name, arguments) in enumerate(calls)
    ]
    answer = completion(content, finish="tool_calls")
    assert isinstance(answer.body, dict)
    answer.body["choices"][0]["message"]["tool_calls"] = made
    return answer


def test_tools_calls_and_results_are_sent_as_the_api_has_them() -> None:
    messages = (
        Message(role="user", content="hi"),
        Message(role="assistant", content="", calls=(ToolUse(id="a", name="orders", arguments='{"x": 1}'),)),
        Message(role="tool", content="[]", answers="a"),
    )
    requests = [
        Request(model=None, messages=messages, tools=(TOOL,)),
        Request(model=None, messages=messages, tools=(TOOL,), answers_only=True, schema={"type": "integer"}),
    ]
    with FakeServer(chat(completion("3"))) as server:
        use(server, *requests)
    free, last = (call.json for call in server.chats())
    assert free == {
        "model": "m",
        "messages": [
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "orders", "arguments": '{"x": 1}'}}
                ],
            },
            {"role": "tool", "content": "[]", "tool_call_id": "a"},
        ],
        "tools": [{"type": "function", "function": TOOL}],
        "tool_choice": "auto",
    }
    assert last["tool_choice"] == "none"
    assert last["tools"] == free["tools"]
    assert last["messages"] == free["messages"]
    assert last["response_format"]["json_schema"]["schema"] == {"type": "integer"}


def test_calls_are_read_with_arguments_as_text_or_as_an_object() -> None:
    with FakeServer(chat(called(("orders", '{"a": 1}'), ("pay", {"b": "ü"}), ("none", None)))) as server:
        (reply,) = use(server, ask())
    assert reply.finish == "tool"
    assert reply.text == ""
    assert [(call.id, call.name, call.arguments) for call in reply.calls] == [
        ("call_0", "orders", '{"a": 1}'),
        ("call_1", "pay", '{"b": "ü"}'),
        ("call_2", "none", "{}"),
    ]


@pytest.mark.parametrize(
    "bad", [[{"id": "x"}], [{"function": {"arguments": "{}"}}], [{"function": {"name": 3}}], ["x"]]
)
def test_calls_that_are_none_are_a_malformed_reply(bad: Any) -> None:
    answer = completion("x")
    assert isinstance(answer.body, dict)
    answer.body["choices"][0]["message"]["tool_calls"] = bad
    with FakeServer(chat(answer)) as server, pytest.raises(EngineError, match="a reply without a message"):
        use(server, ask())


def able(answer: Answer) -> bool | str:
    """Whether a server that answers so is taken to call tools; the message where it is asked in vain."""

    async def ask_it(url: str) -> bool | str:
        engine = OpenAIEngine(url)
        assert (await engine.open(concurrency=1)).tool_calls is None
        try:
            return await engine.calls_tools()
        except EngineError as error:
            return str(error)
        finally:
            await engine.close()

    with FakeServer(chat(answer)) as server:
        return asyncio.run(ask_it(server.url))


def test_a_server_is_asked_with_one_small_question() -> None:
    assert able(called(("weather", '{"city": "Paris"}'))) is True
    # It takes tools and writes calls as plain text: no parser was named at its start.
    assert able(completion('<tool_call>{"name": "weather"}</tool_call>')) is False
    assert able(Answer(status=400, body={"error": {"message": "tools need --enable-auto-tool-choice"}})) is False
    assert able(Answer(status=500, body={"error": {"message": "tools param requires --jinja flag"}})) is False
    assert "API key" in str(able(Answer(status=401, body={"error": {"message": "no"}})))


def agent_on(respond: Any, shop: Path) -> tuple[Any, list[Call]]:
    (shop / "shop.py").write_text("def orders(customer):\n    return [customer]\n")
    with FakeServer(respond) as server:
        ran = run(WORKFLOW, [{"ticket": "ann"}], engine=OpenAIEngine(server.url), folder=shop)
        return ran, server.chats()


def test_an_agent_on_a_server_with_tool_calls(tmp_path: Path) -> None:
    def respond(call: Call) -> Answer | None:
        if call.route != "/v1/chat/completions":
            return None
        body = call.json
        if body["tools"][0]["function"]["name"] == "weather":
            return called(("weather", '{"city": "Paris"}'))
        said = sum(message["role"] == "assistant" for message in body["messages"])
        return called(("orders", '{"customer": "ann"}')) if said == 0 else completion('{"n": 3}')

    ran, calls = agent_on(respond, tmp_path)
    assert ran.column("answer") == [{"n": 3}]
    probe, first, second = (call.json for call in calls)
    assert probe["max_tokens"] == 128
    assert first["messages"][0]["content"].startswith(
        "When you have the answer, reply with JSON of the type { n: int }"
    )
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert [message["role"] for message in second["messages"][2:]] == ["assistant", "tool"]
    assert second["messages"][2]["tool_calls"][0]["id"] == second["messages"][3]["tool_call_id"]
    assert json.loads(second["messages"][3]["content"]) == {"tool": "orders", "result": ["ann"]}
    assert "response_format" not in second


def test_an_agent_on_a_server_without_them_replies_in_json(tmp_path: Path) -> None:
    def respond(call: Call) -> Answer | None:
        if call.route != "/v1/chat/completions":
            return None
        body = call.json
        if "tools" in body:
            return Answer(status=400, body={"error": {"message": "no tools here"}})
        assert body["response_format"]["json_schema"]["schema"]["anyOf"]
        said = sum(message["role"] == "assistant" for message in body["messages"])
        return completion('{"tool": "orders", "args": {"customer": "ann"}}' if said == 0 else '{"answer": {"n": 3}}')

    ran, calls = agent_on(respond, tmp_path)
    assert ran.column("answer") == [{"n": 3}]
    assert len(calls) == 3
    assert '{"name": "orders"' in calls[1].json["messages"][0]["content"]
