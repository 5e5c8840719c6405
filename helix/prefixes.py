"""The literal text of a step's prompts: what all its calls begin with, or all that they say, whatever the row."""

from __future__ import annotations

import json

from helix.expr import Arg
from helix.functions import to_text
from helix.logical import Const, Fetch, Generate, Render, Value
from helix.replies import parse_reply
from helix.templates.template import Slot, Text

# Marks the beginning of a message in a prefix: no text of a prompt holds them by chance.
_ROLE, _TEXT = "\x1e", "\x1f"


def static_prefix(step: Generate) -> str:
    """The messages of a prompt as one text, up to the first value that a row or a call may change."""
    shown: list[str] = []
    for part in step.prompt:
        if part.role == "history":
            break
        shown.append(f"{_ROLE}{part.role}{_TEXT}")
        whole = True
        for number, content in enumerate(part.content):
            text, whole = _literal(content)
            shown.append(("\n\n" if number else "") + text)
            if not whole:
                return "".join(shown)
    return "".join(shown)


def literal_messages(step: Generate) -> tuple[tuple[str, str], ...] | None:
    """The messages of a prompt that no row changes, each as its role and its text; None where anything may change."""
    made: list[tuple[str, str]] = []
    for part in step.prompt:
        texts = [_literal(content) for content in part.content]
        if part.role == "history" or not all(whole for _, whole in texts):
            return None
        made.append((part.role, "\n\n".join(text for text, _ in texts)))
    return tuple(made)


def _literal(content: Value) -> tuple[str, bool]:
    """The literal beginning of a text, and whether that is all of it."""
    match content:
        case Const(json=text):
            return to_text(json.loads(text)), True
        case Fetch(text=text, returns=returns, coerce=coerce):
            return to_text(parse_reply(text, returns, coerce=coerce)), True
        case Render(template=template, args=args):
            shown = ""
            for segment in template.segments:
                if isinstance(segment, Text):
                    shown += segment.text
                    continue
                whole = False
                if isinstance(segment, Slot) and isinstance(segment.value, Arg):
                    text, whole = _literal(args[segment.value.index])
                    shown += text
                if not whole:
                    return shown, False
            return shown, True
    return "", False
