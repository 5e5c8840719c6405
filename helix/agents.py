"""What an agent is told of its tools and what it may reply: one text and one schema for all rows and turns.

There are two ways of asking for a call. Where an engine has tool calls of its own, tools go out as function definitions
and calls come back as such. Everywhere else the model replies with one JSON object, decoding held to a schema: a call,
several calls, or the answer. What it needs to know for that is the beginning of its prompt, the same for all rows, so
that an engine computes it once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from helix.canonical import constant_text, to_json_text
from helix.logical import Agent, Const, Generate, PromptPart
from helix.services import Tool
from helix.tools.schema import function_definition
from helix.types import JSON, TEXT, ListOf, Record, Type, json_schema

# The calls that one turn may ask for.
MOST_CALLS = 16
MAX_TURNS = 8
MOST_TURNS = 1000

Functions = Mapping[str, Callable[..., Any]]
_NONE: Functions = MappingProxyType({})
_NATIVE_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def shown_names(tools: Iterable[Tool]) -> dict[str, Tool]:
    """The tools by the names that a model calls them by: without the path of a sub-workflow.

    A name that APIs for tool calls refuse becomes `tool_1`, `tool_2`, ... in both ways of calling.
    """
    found: dict[str, Tool] = {}
    for number, tool in enumerate(tools, 1):
        name = tool.name.rpartition("#")[2]
        if not _NATIVE_NAME.fullmatch(name) or name in found:
            name = f"tool_{number}"
        found[name] = tool
    return found


def definitions(tools: Iterable[Tool], functions: Functions = _NONE) -> list[dict[str, Any]]:
    """Each tool as `{name, description, parameters}`, as chat completions APIs take it.

    `functions` are those of Python tools by name: a docstring describes a tool that has no description of its own.
    """
    return [
        {**function_definition(tool, functions.get(tool.name)), "name": name}
        for name, tool in shown_names(tools).items()
    ]


def protocol(tools: tuple[Tool, ...], returns: Type, functions: Functions = _NONE) -> str:
    """The instructions for replies in JSON: what an agent's prompt begins with. `functions` as in `definitions`."""
    answer = "a text" if returns == TEXT else f"JSON of the type {returns}"
    lines = [
        "You can call tools. Reply with one JSON object and nothing else, in one of these forms:",
        '{"tool": NAME, "args": {...}} calls a tool.',
        '{"calls": [{"tool": NAME, "args": {...}}, ...]} calls several at once.',
        '{"answer": ANSWER} ends the work.',
        "The results of your calls come with the next message. The tools are:",
        *(to_json_text(each) for each in definitions(tools, functions)),
        f"ANSWER is {answer}.",
    ]
    return "\n".join(lines)


def own_prompt(step: Generate) -> tuple[PromptPart, ...]:
    """The prompt of a step as its author wrote it: without what an agent is told first."""
    told = protocol_of(step)
    if told is None:
        return step.prompt
    kept = (replace(part, content=tuple(value for value in part.content if value is not told)) for part in step.prompt)
    return tuple(part for part in kept if part.content)


def protocol_of(step: Generate) -> Const | None:
    """The instructions for replies in JSON, where a step is an agent and its prompt has them."""
    if not isinstance(step, Agent):
        return None
    told = constant_text(protocol(step.tools, step.returns))
    values = (value for part in step.prompt if part.role == "system" for value in part.content)
    return next((value for value in values if isinstance(value, Const) and value.json == told), None)


def native_note(returns: Type) -> str:
    """What an agent that calls tools natively is told of its answer; nothing where that is a text."""
    return (
        "" if returns == TEXT else f"When you have the answer, reply with JSON of the type {returns} and nothing else."
    )


def turn_schema(tools: tuple[Tool, ...], returns: Type, *, last: bool) -> dict[str, Any]:
    """The JSON Schema of a reply: a call, several, or the answer; in the `last` turn only the answer."""
    answer = _closed({"answer": json_schema(returns)})
    if last:
        return answer
    calls = [
        _closed({"tool": {"type": "string", "enum": [each["name"]]}, "args": each["parameters"]})
        for each in definitions(tools)
    ]
    one = calls[0] if len(calls) == 1 else {"anyOf": calls}
    several = _closed({"calls": {"type": "array", "items": one, "minItems": 1, "maxItems": MOST_CALLS}})
    return {"anyOf": [*calls, several, answer]}


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def value_type(returns: Type, *, trace: bool) -> Type:
    """The type of an agent's value: its answer, or with `trace` a record of the answer and the turns."""
    return Record((("answer", returns), ("trace", ListOf(JSON)))) if trace else returns


def result_line(name: str, text: str) -> str:
    """What a model reads of a call that gave a result; `text` is the result as JSON."""
    return f'{{"tool": {to_json_text(name)}, "result": {text}}}'


def error_line(name: str, message: str) -> str:
    """What a model reads of a call that gave none."""
    return to_json_text({"tool": name, "error": message})
