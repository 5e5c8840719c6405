"""What is said to a person on standard error: clean text, numbers with their nouns, times."""

from __future__ import annotations

import sys
from contextlib import suppress
from unicodedata import category

# Control characters, format marks that reorder text, halves of characters, line and paragraph separators.
_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


_KEPT = "\n\t\u200c\u200d"


def clean(text: str) -> str:
    """Text without control characters: what a model wrote must not move the cursor or colour the terminal.

    Line breaks, tabs and the joiners that emoji and some scripts are written with stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char in _KEPT or category(char) not in _HIDDEN else "?" for char in text)


def say(text: str) -> None:
    """One message on standard error, cleaned. If nobody reads there any more, the run goes on all the same."""
    with suppress(OSError, ValueError):
        print(clean(text), file=sys.stderr, flush=True)


def count(number: int, noun: str) -> str:
    """A number with its noun: `1 row`, `2,000 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def clock(seconds: float) -> str:
    """A time in hours, minutes and seconds: `45 s`, `2:05`, `1:02:05`."""
    whole = max(0, round(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours:,}:{minutes:02}:{rest:02}"
    return f"{minutes}:{rest:02}" if minutes else f"{rest} s"


def short(number: float) -> str:
    """A number in few characters: `7.4`, `120`, `12,300`, `4.1 M`."""
    if number >= 9_999_500:
        return f"{number / 1e6:,.1f} M"
    return f"{number:.1f}" if number < 9.95 else f"{number:,.0f}"
