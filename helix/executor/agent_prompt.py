"""The requests of an agent's turns: a prompt that only grows, so that each turn goes on from where the last ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from helix.agents import (
    Functions,
    definitions,
    error_line,
    native_note,
    own_prompt,
    protocol,
    result_line,
    shown_names,
    turn_schema,
)
from helix.canonical import canonical_text, to_json_text
from helix.errors import OutputError
from helix.executor.agent_turns import Answer, Asked, Turn, read_json, read_native
from helix.executor.engines.base import Message, Request, ToolUse
from helix.executor.prompts import Prompt, reply_schema
from helix.logical import Agent
from helix.types import TEXT

# Of a longer result the model is shown so many characters, and told how many there are.
MOST_SHOWN = 32_768
LAST_JSON = 'No more calls can be made. Reply with {"answer": ...} now.'
LAST_NATIVE = "No more calls can be made. Answer now."


class AgentPrompt(Prompt):
    """Builds the requests of an agent's turns, and the messages that a turn adds. `native`: the engine has tool calls
    of its own. `functions` are those of Python tools by name, whose docstrings describe them.
    """

    def __init__(
        self, node: Agent, slots: Mapping[str, int], model: str | None, *, native: bool, functions: Functions
    ) -> None:
        super().__init__(replace(node, prompt=own_prompt(node)), slots, model)
        self.native = native
        self.tools = shown_names(node.tools)
        self._returns = node.returns
        self._coerce = node.coerce
        self._note = native_note(node.returns) if native else protocol(node.tools, node.returns, functions)
        known = definitions(node.tools, functions)
        self._functions = tuple(known) if native else ()
        self._schemas = [self._schema(node, last=last) for last in (False, True)]
        self.parameters.pop("schema", None)
        self.parameters |= {"agent": "native" if native else "schema", "tools": known}
        self._head = sha256(_bytes(canonical_text([self.parameters, self.model, node.model.engine])))

    def _schema(self, node: Agent, *, last: bool) -> dict[str, Any] | None:
        if not self.native:
            return turn_schema(node.tools, node.returns, last=last)
        # Decoding that is held to a schema could not call a tool.
        return reply_schema(node.returns) if last else None

    def messages(self, values: Sequence[Any]) -> tuple[Message, ...]:
        """The messages that a dialogue begins with."""
        made = super().messages(values)
        if not self._note:
            return made
        if made and made[0].role == "system":
            return (replace(made[0], content=f"{self._note}\n\n{made[0].content}"), *made[1:])
        return (Message(role="system", content=self._note), *made)

    def turn(self, messages: tuple[Message, ...], row: int, name: str, *, last: bool) -> Request:
        """The request of a turn of the agent with a name; in the last one the model may only answer."""
        return replace(
            self.request(messages, row, 0, name), schema=self._schemas[last], tools=self._functions, answers_only=last
        )

    def content(self, messages: Iterable[Message], *, last: bool) -> dict[str, Any]:
        """What a turn asks, as keys hold it."""
        shown = [
            [message.role, message.content]
            if not message.calls and message.answers is None
            else [message.role, message.shown, message.answers]
            for message in messages
        ]
        return {"messages": shown, "last": last}

    def turn_key(self, messages: Iterable[Message], *, last: bool) -> bytes:
        """What two turns must share to be the same call (contract 5, within one run)."""
        digest = self._head.copy()
        digest.update(_bytes(canonical_text(self.content(messages, last=last))))
        return digest.digest()

    # --- what a turn adds ---

    def read(self, turn: Turn) -> list[Asked] | Answer:
        """What a turn asks for, or its answer. Raises OutputError."""
        if self.native:
            return read_native(turn, self._returns, self.tools, coerce=self._coerce)
        return read_json(turn.text, turn.finish, self._returns, self.tools, coerce=self._coerce)

    def said(self, turn: Turn, number: int) -> Message:
        """The reply as the next prompt holds it: byte for byte, its calls under ids that equal dialogues share."""
        calls = tuple(
            ToolUse(id=call_id(number, place), name=use.name, arguments=use.arguments)
            for place, use in enumerate(turn.calls)
        )
        return Message(role="assistant", content=turn.text, calls=calls)

    def results(self, number: int, lines: Sequence[str], *, last: bool) -> tuple[Message, ...]:
        """The messages with the results of a turn's calls; `last`: the next turn is the last one."""
        if not self.native:
            return (Message(role="user", content="\n".join((*lines, LAST_JSON) if last else lines)),)
        made = [Message(role="tool", content=line, answers=call_id(number, place)) for place, line in enumerate(lines)]
        return (*made, Message(role="user", content=LAST_NATIVE)) if last else tuple(made)

    def results_begin(self, number: int, asked: Sequence[Asked]) -> tuple[Message, ...]:
        """How the results of a turn's calls will begin, if the first one that has to be made goes well; more follows
        in the last message."""
        lines: list[str] = []
        for each in asked:
            if each.tool is not None:
                lines.append(result_line(each.name, "\0").partition("\0")[0])
                break
            lines.append(line_of(each.name, None, each.problem))
        return self.results(number, lines, last=False)

    def hurry(self) -> tuple[Message, ...]:
        """What is said where a turn was given up, and the next one is the last."""
        return (Message(role="user", content=LAST_NATIVE if self.native else LAST_JSON),)

    def correction(self, error: OutputError, *, last: bool) -> tuple[Message, ...]:
        """What is said to a reply that cannot be used."""
        if self.native:
            want = "" if self._returns == TEXT else f" with JSON of the type {self._returns} only"
            again = LAST_NATIVE if last else f"Call a tool, or answer{want}."
        else:
            again = LAST_JSON if last else "Reply with one JSON object in one of the forms above."
        return (Message(role="user", content=f"That reply cannot be used: {error.message}. {again}"),)


def call_id(turn: int, place: int) -> str:
    """The id of a native call: nine letters and digits, as the strictest servers want them."""
    return f"t{turn:04d}c{place:03d}"


def line_of(name: str, text: str | None, problem: str) -> str:
    """What the model reads of a call: its result, cut where it is long, or what went wrong."""
    if text is None:
        return error_line(name, problem[:MOST_SHOWN])
    if len(text) <= MOST_SHOWN:
        return result_line(name, text)
    note = f"this is the beginning of {len(text):,} characters; ask for less"
    return to_json_text({"tool": name, "result_begins": text[:MOST_SHOWN], "note": note})


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
