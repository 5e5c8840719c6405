"""The server's chat template, learned from the server: a prompt is then written here, token for token as the server
would write it.

SGLang does not give its template away, and its file may lie on another machine, be replaced by a flag, or take
arguments from one. But the server renders messages to tokens (/v1/tokenize) and tokens to text (/v1/detokenize). So for
each sequence of roles, messages of marks show the text around the contents, and whether the template strips them. What
was learned is then held against the server's own tokens for other messages; a template that does not stand this test
(or one that looks into the contents in a way not foreseen here) is not used, and such prompts go through the chat
endpoint.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from helix.errors import EngineError
from helix.executor.engines.base import Message

Ask = Callable[[str, dict[str, Any]], Awaitable[Any]]

BEFORE, AFTER = " \n", "\n "
TRIALS = (
    (" Answer in one word: café №7, 100%.\n", '\n\nWho said "so"?  It isn\'t {x}, <b>or</b> [y].', "Yes.\t"),
    ("Zwei Wörter", "  def f(x):\n    return x\n", "日本語 and 12345 6"),
)
# Templates cut these out of earlier replies.
THOUGHT = re.compile(r"</?(?:think|thought|seed:think|reasoning)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A literal text of the template, and the message whose content follows it."""

    literal: str
    message: int
    left: bool  # the template strips white space before the content
    right: bool  # and after it


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """The template for one sequence of roles."""

    parts: tuple[Part, ...]
    tail: str

    def render(self, messages: Sequence[Message]) -> str | None:
        """The prompt, or None where a content is of a kind that the trials do not cover."""
        if not all(_plain(message) for message in messages):
            return None
        return self._text([message.content for message in messages])

    def beginning(self, messages: Sequence[Message]) -> str | None:
        """The prompt up to the end of the last message's content, after which more of it may come; None where it has to
        be asked from the server.
        """
        last = len(messages) - 1
        if not all(_plain(message) for message in messages[:-1]):
            return None
        if [part.message for part in self.parts[: last + 1]] != list(range(last + 1)):
            return None
        texts = []
        for part, message in zip(self.parts, messages, strict=False):
            content = message.content.lstrip() if part.left else message.content
            texts.append(part.literal + (content.rstrip() if part.right and part.message < last else content))
        return "".join(texts)

    def _text(self, contents: Sequence[str]) -> str:
        texts = []
        for part in self.parts:
            content = contents[part.message]
            content = content.lstrip() if part.left else content
            texts.append(part.literal + (content.rstrip() if part.right else content))
        return "".join(texts) + self.tail


class Templates:
    """The templates of a server by sequences of roles, each learned when it is first needed."""

    def __init__(self, failed: Callable[[tuple[str, ...]], None]) -> None:
        """`failed` hears of each sequence of roles that cannot be learned."""
        self._failed = failed
        self._found: dict[tuple[str, ...], Template | None] = {}
        self._tasks: dict[tuple[str, ...], asyncio.Task[Template | None]] = {}

    async def get(self, roles: tuple[str, ...], ask: Ask) -> Template | None:
        """The template for these roles; None where it cannot be learned. Raises EngineError where no answer comes."""
        if roles in self._found:
            return self._found[roles]
        task = self._tasks.get(roles)
        if task is None:
            task = self._tasks[roles] = asyncio.create_task(learn(roles, ask))
            task.add_done_callback(lambda done: self._keep(roles, done))
        # Others may wait for the same: a caller that is cancelled leaves it running.
        return await asyncio.shield(task)

    def _keep(self, roles: tuple[str, ...], done: asyncio.Task[Template | None]) -> None:
        self._tasks.pop(roles, None)
        if done.cancelled() or done.exception() is not None:
            return
        self._found[roles] = done.result()
        if done.result() is None:
            self._failed(roles)

    async def close(self) -> None:
        """Ends what is still being learned."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def learn(roles: tuple[str, ...], ask: Ask) -> Template | None:
    """Learns the template for these roles and tries it. Raises EngineError where no answer comes."""
    marks = [f"Zq{number}xKw" for number in range(len(roles))]
    messages = [Message(role=role, content=f"{BEFORE}{mark}{AFTER}") for role, mark in zip(roles, marks, strict=True)]
    try:
        ids = await chat_tokens(messages, ask)
        found = _parts(await _text_of(ids, ask), marks)
        if found is None:
            return None
        without_first = await _text_of(ids[:1], ask)
        trials = [_trial(roles, trial) for trial in TRIALS]
        wanted = [await chat_tokens(trial, ask) for trial in trials]
        first = found.parts[0].literal
        # A tokenizer may put a first token before every text; then the text is to be without it.
        for literal in dict.fromkeys((first, first.removeprefix(without_first))):
            template = replace(found, parts=(replace(found.parts[0], literal=literal), *found.parts[1:]))
            texts = [template.render(trial) or "" for trial in trials]
            if await tokens(texts, ask, special=True) == wanted:
                return template
    except EngineError as error:
        if error.status is None or error.overloaded or error.retryable or error.fatal:
            raise
        # The server's template takes no such messages; the chat endpoint will say so.
    except (KeyError, TypeError, ValueError, IndexError):
        pass
    return None


async def chat_tokens(messages: Sequence[Message], ask: Ask) -> list[int]:
    """The tokens of a prompt as the chat endpoint makes it. Raises EngineError, and KeyError, TypeError and ValueError
    for an answer without them.
    """
    shown = [{"role": message.role, "content": message.content} for message in messages]
    return [int(token) for token in (await ask("/v1/tokenize", {"messages": shown}))["tokens"]]


async def tokens(texts: Sequence[str], ask: Ask, *, special: bool) -> list[list[int]]:
    """The tokens of texts; `special` says whether with those that the tokenizer puts before and after every text."""
    body = {"prompt": list(texts), "add_special_tokens": special}
    return [[int(token) for token in found] for found in (await ask("/v1/tokenize", body))["tokens"]]


async def _text_of(ids: list[int], ask: Ask) -> str:
    found = await ask("/v1/detokenize", {"tokens": ids, "skip_special_tokens": False})
    return str(found["text"])


def _trial(roles: tuple[str, ...], texts: tuple[str, ...]) -> list[Message]:
    return [Message(role=role, content=texts[number % len(texts)]) for number, role in enumerate(roles)]


def _plain(message: Message) -> bool:
    """Whether a content is none that templates treat in a way of its own."""
    return bool(message.content.strip()) and not THOUGHT.search(message.content)


def _parts(text: str, marks: list[str]) -> Template | None:
    """The template in the text that it made of the marks; None where a mark is missing, repeated or changed."""
    if not marks or any(text.count(mark) != 1 for mark in marks):
        return None
    parts = []
    at = 0
    for number in sorted(range(len(marks)), key=lambda number: text.index(marks[number])):
        start = text.index(marks[number])
        end = start + len(marks[number])
        left = not text[at:start].endswith(BEFORE)
        right = not text.startswith(AFTER, end)
        parts.append(
            Part(literal=text[at : start if left else start - len(BEFORE)], message=number, left=left, right=right)
        )
        at = end if right else end + len(AFTER)
    return Template(parts=tuple(parts), tail=text[at:])
