"""What a model said in a turn of an agent: how it is kept, and what it asks for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from helix.agents import MOST_CALLS
from helix.canonical import canonical_text
from helix.errors import OutputError, name_help
from helix.executor.engines.base import FinishReason, Reply, ToolUse
from helix.logical import Tool
from helix.replies import completed, parse_reply
from helix.tools.schema import arguments_in_order
from helix.types import JSON, TEXT, Optional, Type, found

# Tokens are taken to be a quarter of the bytes where an engine tells none.
_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A reply in a dialogue as the journal and the store hold it. Token counts are None where the engine tells none."""

    text: str
    calls: tuple[ToolUse, ...] = ()
    finish: FinishReason = "stop"
    prompt_tokens: int | None = None
    completion_tokens: int | None = None

    def packed(self) -> str:
        """The turn as one canonical JSON text."""
        calls = [[call.id, call.name, call.arguments] for call in self.calls]
        tokens = [self.prompt_tokens, self.completion_tokens]
        return canonical_text({"calls": calls, "finish": self.finish, "text": self.text, "tokens": tokens})

    @classmethod
    def unpacked(cls, text: str) -> Turn:
        """The turn that `packed` wrote."""
        held = json.loads(text)
        calls = tuple(ToolUse(id=id, name=name, arguments=arguments) for id, name, arguments in held["calls"])
        prompt, completion = held["tokens"]
        return cls(
            text=held["text"],
            calls=calls,
            finish=held["finish"],
            prompt_tokens=prompt,
            completion_tokens=completion,
        )

    def tokens(self, prompt_bytes: int) -> int:
        """The tokens of the prompt and the reply."""
        prompt = -(-prompt_bytes // _BYTES) if self.prompt_tokens is None else self.prompt_tokens
        reply = len(self.text.encode("utf-8", "surrogatepass"))
        return prompt + (-(-reply // _BYTES) if self.completion_tokens is None else self.completion_tokens)


def pack(reply: Reply) -> str:
    """An engine's reply as it is kept."""
    return Turn(
        text=reply.text,
        calls=reply.calls,
        finish=reply.finish,
        prompt_tokens=reply.prompt_tokens,
        completion_tokens=reply.completion_tokens,
    ).packed()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A call that a model asks for. `tool` and `args` (in the order of its parameters) are there where it can be made,
    else `problem` says what is wrong with it. `id` is that of a native call.
    """

    name: str
    given: Any
    id: str = ""
    tool: Tool | None = None
    args: tuple[Any, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of an agent."""

    value: Any


def read_json(
    text: str, finish: str, returns: Type, tools: Mapping[str, Tool], *, coerce: bool
) -> list[Asked] | Answer:
    """What a reply in JSON asks for, or answers (see `helix.agents.protocol`). Raises OutputError."""
    value = parse_reply(text, JSON, finish)
    if finish == "length" and not isinstance(value, dict):
        raise OutputError("the reply was cut off; raise max_tokens", text=text, kind="truncated")
    forms = 'expected {"tool", "args"}, {"calls"} or {"answer"}'
    if not isinstance(value, dict):
        raise OutputError(f"{forms}, found {found(value)}", text=text)
    keys = value.keys()
    if keys == {"answer"}:
        return Answer(value=_answer(value["answer"], returns, text, coerce=coerce))
    if "tool" in keys and keys <= {"tool", "args"}:
        asked = [value]
    elif keys == {"calls"} and isinstance(value["calls"], list) and value["calls"]:
        asked = value["calls"]
    else:
        raise OutputError(f"{forms}, found {found(value)}", text=text)
    calls: list[Asked] = []
    for each in asked:
        if not isinstance(each, dict) or not isinstance(each.get("tool"), str) or not each.keys() <= {"tool", "args"}:
            raise OutputError(f'a call is {{"tool", "args"}}, found {found(each)}', text=text)
        calls.append(_checked(each["tool"], each.get("args", {}), tools))
    return _bounded(calls)


def read_native(turn: Turn, returns: Type, tools: Mapping[str, Tool], *, coerce: bool) -> list[Asked] | Answer:
    """What a reply with native calls asks for; without any it is the answer. Raises OutputError."""
    if not turn.calls:
        if not turn.text.strip() and turn.finish == "tool":
            raise OutputError("the reply holds neither calls nor an answer", text=turn.text, kind="empty")
        return Answer(value=parse_reply(turn.text, returns, turn.finish, coerce=coerce))
    calls: list[Asked] = []
    for use in turn.calls:
        try:
            given = json.loads(use.arguments or "{}")
        except (ValueError, RecursionError) as error:
            problem = f"the arguments are not JSON: {error}"
            calls.append(Asked(name=use.name, given=use.arguments, id=use.id, problem=problem))
            continue
        calls.append(_checked(use.name, given, tools, use.id))
    return _bounded(calls)


def _answer(value: Any, returns: Type, text: str, *, coerce: bool) -> Any:
    if returns in (TEXT, Optional(TEXT)):
        if isinstance(value, str) or (value is None and returns != TEXT):
            return value
        raise OutputError(f"the answer is a text, found {found(value)}", text=text)
    try:
        return parse_reply(canonical_text(completed(value, returns)), returns, coerce=coerce)
    except OutputError as error:
        raise OutputError(error.message.replace("the reply", "the answer", 1), text=text, kind=error.kind) from None


def _checked(name: str, given: Any, tools: Mapping[str, Tool], id: str = "") -> Asked:
    """A call with its arguments in order, or with what is wrong with it, in words for the model."""
    tool = tools.get(name)
    if tool is None:
        return Asked(
            name=name, given=given, id=id, problem=f"there is no tool `{name}`; {name_help(name, tools, 'tools')}"
        )
    if not isinstance(given, dict):
        return Asked(name=name, given=given, id=id, problem=f"arguments are a JSON object, found {found(given)}")
    try:
        return Asked(name=name, given=given, id=id, tool=tool, args=tuple(arguments_in_order(tool, given)))
    except ValueError as error:
        return Asked(name=name, given=given, id=id, problem=str(error))


def _bounded(calls: list[Asked]) -> list[Asked]:
    """The calls, those beyond the most that a turn may ask for marked as not made."""
    over = f"one turn takes at most {MOST_CALLS} calls; ask again"
    return [
        call if place < MOST_CALLS else Asked(name=call.name, given=call.given, id=call.id, problem=over)
        for place, call in enumerate(calls)
    ]
