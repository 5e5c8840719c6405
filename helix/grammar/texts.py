"""Texts to string tokens: `"..."` or a triple-quoted block, whichever reads back as exactly the same text."""

from __future__ import annotations

import re

from helix.grammar.strings import SLOT, block_value
from helix.templates.template import Template
from helix.types import quote
from helix.unparse import unparse_template

# In a block these would be changed or overlooked by an editor; in quotes they are written as escapes.
_NOT_IN_BLOCK = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_ONE_BLOCK = re.compile(r'"""[\s\S]*?"""')
_PIECE = re.compile(rf"{SLOT.pattern}|[^{{]+|\{{")


def template_token(subject: Template, depth: int) -> str:
    """The token of a message on a line at a depth of indentation (in levels of two spaces)."""
    text = unparse_template(subject)
    quoted = quote_template(text)
    if "\n" in text:
        return block_token(text, depth) or quoted
    escaped = len(quoted) > len(text) + 2
    if escaped and "\\" not in quote(text.replace("\\", "").replace('"', "")):
        # Only quotes and backslashes took escapes: they stand in a block as they are.
        return block_token(text, depth) or quoted
    return quoted


def quote_template(text: str) -> str:
    """A template in double quotes: what stands in a slot as it is, all else with escapes."""
    pieces: list[str] = []
    for found in _PIECE.finditer(text):
        piece = found[0]
        if not piece.startswith("{{"):
            pieces.append(quote(piece)[1:-1])
        elif found["end"] and not _NOT_IN_BLOCK.search(piece):
            pieces.append(piece)
        else:
            # Not a slot for the lexer, though the template may read it as one.
            pieces.append("{\\u{7b}" + quote(piece[2:])[1:-1].replace("{{", "{\\u{7b}"))
    return f'"{"".join(pieces)}"'


def block_token(text: str, depth: int) -> str | None:
    """A text in triple quotes, its lines one level deeper than the first; None where a block cannot hold it exactly."""
    lines = text.split("\n")
    if (
        _NOT_IN_BLOCK.search(text)
        or not text.strip()
        or (len(lines) > 1 and any(line and not line.strip(" \t") for line in lines))
    ):
        return None
    token = f'"""{text}"""'
    if len(lines) > 1:
        pad = "  " * (depth + 1)
        inside = "\n".join(pad + line if line else "" for line in lines)
        token = f'"""\n{inside}\n{"  " * depth}"""'
    whole = _ONE_BLOCK.match(token)
    exact = whole is not None and whole.end() == len(token) and block_value(token, 1, 1)[0] == text
    return token if exact else None
