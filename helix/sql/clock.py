"""Whether a SQL query may give another result each time it is asked, though the database stays the same.

A query that asks for the time or for chance is such a one, and so is one that reads what its own connection did. What
a view does inside is not seen here; a tool whose view asks for the time is declared `freshness 0`.
"""

from __future__ import annotations

from functools import lru_cache

from helix.sql.lexer import Token, closing, split_at, tokens_of

_KEYWORDS = ("current_date", "current_time", "current_timestamp")
_ALWAYS = ("random", "randomblob", "changes", "total_changes", "last_insert_rowid")
# Functions over a point in time, and the places of their arguments that give it.
_TIMES = {
    "date": (0,), "time": (0,), "datetime": (0,), "julianday": (0,), "unixepoch": (0,), "strftime": (1,),
    "timediff": (0, 1),
}  # fmt: skip
# What such an argument says for the time of the call; `subsec` stands for it where nothing stands before.
_NOW = ("now", "subsec", "subsecond")


@lru_cache(maxsize=4096)
def is_volatile(statement: str) -> bool:
    """Whether a query asks for the time or for chance, or might: then equal queries may not share a result.

    A time that comes in as a parameter may be `now`, and what cannot be read is taken to be volatile. A column is
    taken to hold times, never the text `now`.
    """
    tokens = tokens_of(statement)
    return tokens is None or any(_is_volatile_at(tokens, place) for place in range(len(tokens)))


def _is_volatile_at(tokens: tuple[Token, ...], place: int) -> bool:
    token = tokens[place]
    if token.kind not in ("word", "quoted"):
        return False
    called = place + 1 < len(tokens) and tokens[place + 1].text == "("
    if not called:
        qualified = place > 0 and tokens[place - 1].text == "."
        return token.kind == "word" and not qualified and token.name in _KEYWORDS
    if token.name in _ALWAYS:
        return True
    if token.name not in _TIMES:
        return False
    arguments = split_at(tokens[place + 2 : closing(tokens, place + 1)], ",")
    given = [argument for argument in arguments if argument]
    return any(at >= len(given) or not _is_settled(given[at]) for at in _TIMES[token.name])


def _is_settled(argument: tuple[Token, ...]) -> bool:
    """Whether an argument is a fixed point in time, or one that a column holds."""
    if any(token.kind == "variable" for token in argument):
        return False
    if any(token.kind in ("string", "quoted") and token.name.strip() in _NOW for token in argument):
        return False
    return len(argument) == 1 or any(token.kind in ("word", "quoted") for token in argument)
