"""Calls as the hand-written programs make them, and the record of what any method sent and got."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from openai import AsyncOpenAI

Prompt = Sequence[tuple[str, str]]  # role and text of each message


class Ask(Protocol):
    """Makes the call of a step of a row and gives its reply. Steps are named by their place in the row's results."""

    async def __call__(self, row: int, step: str, prompt: Prompt, max_tokens: int) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call that was answered. Tokens are the server's counts."""

    prompt: tuple[tuple[str, str], ...]
    max_tokens: int
    text: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    temperature: float | None = 0.0

    @property
    def number(self) -> str:
        """What was asked, as a hash: messages and sampling."""
        return asked(self.prompt, self.max_tokens, self.temperature)


def asked(prompt: Prompt, max_tokens: int, temperature: float | None = 0.0) -> str:
    """A hash of a request: every byte of its messages and its sampling."""
    data = json.dumps([[list(message) for message in prompt], max_tokens, temperature], ensure_ascii=False)
    return hashlib.sha256(data.encode()).hexdigest()


class OpenAICalls:
    """Calls with the openai client, at most so many at once.

    `made` keeps what was sent, `texts` what came by row and step.
    """

    def __init__(self, client: AsyncOpenAI, model: str, at_once: int | None = None) -> None:
        self._client = client
        self._model = model
        self._gate: Any = nullcontext() if at_once is None else asyncio.Semaphore(at_once)
        self.made: list[Call] = []
        self.texts: dict[tuple[int, str], str] = {}

    async def __call__(self, row: int, step: str, prompt: Prompt, max_tokens: int) -> str:
        messages: Any = [{"role": role, "content": text} for role, text in prompt]
        async with self._gate:
            reply = await self._client.chat.completions.create(
                model=self._model, messages=messages, temperature=0.0, max_tokens=max_tokens
            )
        text = reply.choices[0].message.content or ""
        usage = reply.usage
        assert usage is not None
        details = usage.prompt_tokens_details
        self.made.append(
            Call(
                prompt=tuple((role, said) for role, said in prompt),
                max_tokens=max_tokens,
                text=text,
                prompt_tokens=usage.prompt_tokens,
                completion_tokens=usage.completion_tokens,
                cached_tokens=(details.cached_tokens or 0) if details else 0,
            )
        )
        self.texts[row, step] = text
        return text


class Replay:
    """Answers from known results, and keeps what was asked: which prompts results follow from."""

    def __init__(self, known: dict[tuple[int, str], str]) -> None:
        self._known = known
        self.asked: list[str] = []

    async def __call__(self, row: int, step: str, prompt: Prompt, max_tokens: int) -> str:
        self.asked.append(asked(prompt, max_tokens))
        return self._known[row, step]


def flat(value: Any, name: str = "") -> dict[str, str]:
    """The texts in lists and records by their place: `views.0`, `panel.1.notes.2`."""
    if isinstance(value, str):
        return {name: value}
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found: dict[str, str] = {}
    for key, inner in items:
        found.update(flat(inner, f"{name}.{key}" if name else str(key)))
    return found
