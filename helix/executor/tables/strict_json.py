"""JSON as RFC 8259 and I-JSON (RFC 7493) have it, read with the standard library's fast scanner.

Refused beyond what the standard library refuses: NaN and infinities, a number too large for a double, an object
with the same key twice, and a lone surrogate such as `\\ud800`, which no UTF-8 file could hold.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

WHITE_SPACE = " \t\r\n"

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.DOTALL)
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class StrictError(ValueError):
    """Valid for the standard library, refused here."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        raise StrictError("an object has the same key twice")
    return record


def _constant(name: str) -> NoReturn:
    raise StrictError(f"{name} is not a JSON number")


def _float(text: str) -> float:
    number = float(text)
    if number - number != 0:
        raise StrictError(f"the number {text[:40]} is too large")
    return number


STRICT = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_constant, parse_float=_float)
LENIENT = json.JSONDecoder()


def loads(text: str) -> Any:
    """The value of a JSON text. Raises ValueError (StrictError where only the strict rules are broken)."""
    try:
        value = STRICT.decode(text)
    except RecursionError:
        raise ValueError("the value is nested too deeply") from None
    if may_hold_surrogate(text) and holds_surrogate(value):
        raise StrictError("a lone surrogate (half of a \\u pair) is not a character")
    return value


def may_hold_surrogate(text: str, start: int = 0, end: int | None = None) -> bool:
    """Whether the JSON text has an escape that could be a surrogate: a quick look before the exact one."""
    stop = len(text) if end is None else end
    return text.find("\\ud", start, stop) >= 0 or text.find("\\uD", start, stop) >= 0


def holds_surrogate(value: Any) -> bool:
    """Whether a key or a text in the value has half of a surrogate pair."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def explain(text: str) -> tuple[str, int]:
    """Why `loads` refuses a text: a message, and the 0-based character where the fault is."""
    nul = text.find("\0")
    if nul >= 0:
        return "a NUL character is not JSON", nul
    try:
        LENIENT.decode(text)
    except json.JSONDecodeError as error:
        return f"not valid JSON: {error.msg[:1].lower()}{error.msg[1:]}", error.pos
    except RecursionError:
        return "the value is nested too deeply", 0
    except ValueError:
        # The standard library refuses an int of more than 4,300 digits; it says so without a place.
        longest = max(re.finditer(r"\d+", text), key=lambda run: len(run.group()))
        return f"a number of {len(longest.group()):,} digits is too long", longest.start()
    return _explain_strict(text)


def _explain_strict(text: str) -> tuple[str, int]:
    """The first token of a text, valid for the standard library, that the strict rules refuse."""
    # One entry per open bracket: the keys seen of an object, None for a list.
    open_keys: list[set[str] | None] = []
    tokens = list(_TOKEN.finditer(text))
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        shown = token.group()
        if shown[0] == '"':
            decoded = json.loads(shown)
            if _LONE_SURROGATE.search(decoded):
                return "a lone surrogate (half of a \\u pair) is not a character", token.start()
            if following is not None and following.group() == ":" and open_keys and open_keys[-1] is not None:
                if decoded in open_keys[-1]:
                    return f"the key {shown} is in one object twice", token.start()
                open_keys[-1].add(decoded)
        elif shown == "{":
            open_keys.append(set())
        elif shown == "[":
            open_keys.append(None)
        elif shown in ("}", "]"):
            open_keys.pop()
        elif shown in ("NaN", "Infinity", "-Infinity"):
            return f"{shown} is not a JSON number", token.start()
        elif shown[0] in "-0123456789" and shown.lstrip("-") and _overflows(shown):
            return f"the number {shown[:40]} is too large", token.start()
    return "not valid JSON", 0


def _overflows(text: str) -> bool:
    number = float(text)
    return number - number != 0 and any(mark in text for mark in ".eE")
