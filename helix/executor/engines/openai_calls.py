"""Tool calls as chat completions APIs write them."""

from __future__ import annotations

import json
from typing import Any

from helix.executor.engines.base import Message, Request, ToolUse
from helix.executor.engines.fields import clean_text

# A question that wants a tool: what a server makes of it tells whether agents may call tools natively there.
TOOL_PROBE = Request(
    model=None,
    messages=(Message(role="user", content="What is the weather in Paris now? Call the tool to find out."),),
    temperature=0.0,
    max_tokens=128,
    tools=(
        {
            "name": "weather",
            "description": "The weather in a city now.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    ),
)


def shown_message(message: Message) -> dict[str, Any]:
    """A message as it is sent: with its calls, or with the call that it answers."""
    shown: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.calls:
        shown["content"] = message.content or None
        shown["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.calls
        ]
    if message.answers is not None:
        shown["tool_call_id"] = message.answers
    return shown


def read_calls(found: Any) -> tuple[ToolUse, ...]:
    """The calls of a reply; arguments that a server sends as an object become text. Raises TypeError, KeyError."""
    calls: list[ToolUse] = []
    for each in found or ():
        function = each["function"]
        arguments = function.get("arguments")
        if not isinstance(arguments, str):
            arguments = json.dumps({} if arguments is None else arguments, ensure_ascii=False)
        name = function["name"]
        if not isinstance(name, str):
            raise TypeError("the name of a tool is no text")
        calls.append(ToolUse(id=str(each.get("id") or ""), name=clean_text(name), arguments=clean_text(arguments)))
    return tuple(calls)
