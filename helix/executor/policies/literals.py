"""Where the values of a prompt begin and end: the literal texts of its template, found again in what it became."""

from __future__ import annotations

import json

from helix.executor.engines.base import Message
from helix.functions import to_text
from helix.logical import Const, Generate, Render, Value
from helix.templates.template import Text


def literals_of(step: Generate) -> tuple[tuple[str, ...], ...]:
    """The literal texts of each message of a prompt, in order; of prompts with `history` only those before it."""
    made: list[tuple[str, ...]] = []
    for part in step.prompt:
        if part.role == "history":
            break
        made.append(tuple(text for content in part.content for text in _texts(content) if text))
    return tuple(made)


def _texts(content: Value) -> list[str]:
    match content:
        case Const(json=text):
            return [to_text(json.loads(text))]
        case Render(template=template):
            return [segment.text for segment in template.segments if isinstance(segment, Text)]
    return []


def segments_of(messages: tuple[Message, ...], literals: tuple[tuple[str, ...], ...]) -> list[str]:
    """A prompt cut where its literal texts begin and end, and where messages do, each with its role."""
    made: list[str] = []
    for number, message in enumerate(messages):
        made.append(f"\x1e{message.role}\x1f")
        at = 0
        for text in literals[number] if number < len(literals) else ():
            found = message.content.find(text, at)
            if found < 0:
                break
            if found > at:
                made.append(message.content[at:found])
            made.append(text)
            at = found + len(text)
        if at < len(message.content):
            made.append(message.content[at:])
    return made
