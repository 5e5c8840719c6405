"""The tokens of a SQL statement as SQLite reads them: what text may be changed without changing what it says.

What a statement means is asked of sqlglot; where its pieces stand in the text only the text can tell.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

TokenKind = Literal["word", "quoted", "string", "number", "blob", "variable", "sign"]

_ID = r"[A-Za-z0-9_$\u0080-\U0010ffff]"
_TOKEN = re.compile(
    rf"""
      (?P<space>[ \t\n\f\r]+|--[^\n]*|/\*(?:.*?\*/|.*\Z))
    | (?P<blob>[xX]'[0-9A-Fa-f]*')
    | (?P<word>[A-Za-z_\u0080-\U0010ffff]{_ID}*)
    | (?P<string>'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\])
    | (?P<number>0[xX][0-9A-Fa-f]+|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?!{_ID})
    | (?P<variable>\?[0-9]*|[$@:](?:{_ID}|::)+)
    | (?P<sign>->>|->|\|\||<=|<>|<<|>=|>>|==|!=|[-()+*/%,&~|=<>;.])
    """,
    re.VERBOSE | re.DOTALL,
)
_QUOTES = {'"': '"', "`": "`", "'": "'", "[": "]"}


@dataclass(frozen=True, slots=True)
class Token:
    """One token: its text as it is written, and where it begins and ends in the statement."""

    kind: TokenKind
    text: str
    start: int
    end: int

    @property
    def lower(self) -> str:
        """A word in small letters, as SQLite compares words; other tokens as they are."""
        return self.text.lower() if self.kind == "word" else self.text

    @property
    def name(self) -> str:
        """What a word or a quoted name says, in small letters; a text without its quotes."""
        if self.kind in ("quoted", "string"):
            close = _QUOTES[self.text[0]]
            return self.text[1:-1].replace(close * 2, close).lower()
        return self.text.lower()


def tokens_of(statement: str) -> tuple[Token, ...] | None:
    """The tokens of a statement, without white space and comments; None where SQLite could not read it either."""
    found: list[Token] = []
    position = 0
    while position < len(statement):
        match = _TOKEN.match(statement, position)
        if match is None:
            return None
        kind = match.lastgroup
        if kind != "space":
            found.append(Token(kind, match[0], match.start(), match.end()))  # type: ignore[arg-type]
        position = match.end()
    return tuple(found)


def closing(tokens: tuple[Token, ...], opening: int) -> int:
    """The place of the bracket that closes the one at `opening`; the number of tokens where none does."""
    depth = 0
    for place in range(opening, len(tokens)):
        if tokens[place].text == "(":
            depth += 1
        elif tokens[place].text == ")":
            depth -= 1
            if depth == 0:
                return place
    return len(tokens)


def split_at(tokens: tuple[Token, ...], sign: str) -> list[tuple[Token, ...]]:
    """The stretches between signs (or words) that stand outside all brackets."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.text == "(") - (token.text == ")")
        if depth == 0 and token.lower == sign:
            parts.append([])
        else:
            parts[-1].append(token)
    return [tuple(part) for part in parts]
