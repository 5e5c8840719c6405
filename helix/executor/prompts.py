"""An llm step and the values of a row to a request."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from helix.canonical import canonical_text
from helix.executor.engines.base import Message, Request
from helix.functions import ExpressionError
from helix.logical import Generate
from helix.places import static_name
from helix.types import JSON, TEXT, Optional, Type, found, json_schema

ROLES = ("system", "user", "assistant", "tool")


class Prompt:
    """Builds the requests of one llm step. `slots` says where the frame holds each part's value.

    `model` is the name that requests ask for, `parameters` are what decides a reply besides the prompt.
    """

    def __init__(self, node: Generate, slots: Mapping[str, int], model: str | None) -> None:
        self._parts = [(part.role, tuple(slots[value.id] for value in part.content)) for part in node.prompt]
        options = node.model
        self._model = self.model = model or options.name
        self._sampling: dict[str, Any] = {
            "temperature": options.temperature,
            "max_tokens": options.max_tokens,
            "top_p": options.top_p,
            "seed": options.seed,
            "stop": options.stop,
            "extra": tuple((name, json.loads(text)) for name, text in options.extra),
            "schema": reply_schema(node.returns),
        }
        self._step = static_name(node.step)
        identity = {name: value for name, value in self._sampling.items() if value is not None}
        # What decides whether a call fails belongs to it too: else it would depend on timing whose failure is shared.
        self.parameters = {**identity, "returns": str(node.returns), "coerce": node.coerce}
        patience = [node.attempts, node.timeout, node.reask]
        cut = None if node.on_overflow is None else [slots[node.on_overflow.value.id], node.on_overflow.keep]
        parts = [options.engine, self._model, identity, node.coerce, str(node.returns), patience, cut]
        self._identity = _bytes(canonical_text(parts))

    def messages(self, values: Sequence[Any]) -> tuple[Message, ...]:
        """The messages of the prompt. Raises ExpressionError where `history` holds no messages."""
        made: list[Message] = []
        for role, slots in self._parts:
            if role == "history":
                made.extend(_history(values[slots[0]]))
            elif len(slots) == 1:
                made.append(Message(role=role, content=values[slots[0]]))
            else:
                made.append(Message(role=role, content="\n\n".join(values[slot] for slot in slots)))
        return tuple(made)

    def request(self, messages: tuple[Message, ...], row: int, sample: int, name: str) -> Request:
        """The request with these messages, of the call with a name."""
        return Request(
            model=self._model, messages=messages, sample=sample, step=self._step, name=name, row=row, **self._sampling
        )

    def key(self, messages: tuple[Message, ...], sample: int) -> bytes:
        """What two calls must share to be the same call (contract 5, within one run)."""
        digest = sha256(self._identity)
        digest.update(_bytes(canonical_text([[message.role, message.content] for message in messages])))
        digest.update(b"%d" % sample)
        return digest.digest()


def _bytes(text: str) -> bytes:
    """As UTF-8; a lone surrogate, which a reply may hold, has its own three bytes."""
    return text.encode("utf-8", "surrogatepass")


def reply_schema(kind: Type) -> dict[str, Any] | None:
    """The JSON Schema that an engine is asked to decode under; None for text and for any JSON."""
    inner = kind.inner if isinstance(kind, Optional) else kind
    return None if inner in (TEXT, JSON) else json_schema(kind)


def _history(turns: Any) -> list[Message]:
    if turns is None:
        return []
    if not isinstance(turns, list):
        raise ExpressionError(f"`history` needs a list of {{role, content}}, found {found(turns)}")
    made: list[Message] = []
    for position, turn in enumerate(turns):
        if not isinstance(turn, dict) or not isinstance(turn.get("content"), str) or turn.get("role") not in ROLES:
            message = f"`history` needs records with a role ({', '.join(ROLES)}) and a text content"
            raise ExpressionError(f"{message}; item {position} is {found(turn)}")
        made.append(Message(role=turn["role"], content=turn["content"]))
    return made
