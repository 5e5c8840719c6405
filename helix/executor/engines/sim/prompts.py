"""Prompts and replies as the simulated engine holds them: four bytes of UTF-8 are a token.

Every message begins on a token of its own, so that a reply's tokens are those of the message that it is in later turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from helix.executor.engines.base import Message

# Characters of a token.
WIDTH = 4
_PAD = "\0"


class Spelling(Protocol):
    """Texts as whole tokens of WIDTH characters, each up to U+00FF: another tokenizer than four bytes a token."""

    def prompt(self, messages: Sequence[Message]) -> str:
        """A prompt up to the place where the reply begins."""

    def beginning(self, messages: Sequence[Message]) -> str:
        """The beginning of prompts with these messages, whatever follows in the last one."""

    def reply(self, text: str) -> str:
        """A reply."""


def prompt_text(messages: Sequence[Message]) -> str:
    """A prompt up to the place where the reply begins; a whole number of tokens."""
    return "".join(_header(message.role) + padded(message.content) for message in messages) + _header("assistant")


def beginning_text(messages: Sequence[Message]) -> str:
    """The beginning of prompts with these messages, whatever follows in the last one; a last token that what follows
    may change is left out.
    """
    if not messages:
        return ""
    *whole, last = messages
    text = "".join(_header(message.role) + padded(message.content) for message in whole)
    text += _header(last.role) + _bytes(last.content)
    return text[: len(text) // WIDTH * WIDTH]


def padded(text: str) -> str:
    """A text as whole tokens, a character for each byte."""
    raw = _bytes(text)
    return raw + _PAD * (-len(raw) % WIDTH)


def _header(role: str) -> str:
    return padded(f"\x1e{role}\x1f")


def _bytes(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "surrogatepass").decode("latin-1")


class FourBytes:
    """The usual spelling."""

    def prompt(self, messages: Sequence[Message]) -> str:
        return prompt_text(messages)

    def beginning(self, messages: Sequence[Message]) -> str:
        return beginning_text(messages)

    def reply(self, text: str) -> str:
        return padded(text)


FOUR_BYTES = FourBytes()
