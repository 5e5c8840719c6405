"""What a tool gave, as JSON: which Python values have a form in it, how large a result may be, what errors say.

| Python | JSON |
|---|---|
| None, bool, int, float, str | themselves; NaN and infinities have none |
| list, tuple | a list |
| dict | a record; keys become texts |
| dataclass, pydantic model | a record |
| enum | its value |
| date, time, datetime | a text, ISO 8601 |
| timedelta | seconds |
| Decimal | a number: the nearest float, an int where it is whole |
| UUID, path | a text |
| array or number of numpy | a list or a number |
| set, bytes, anything else | none: the row's error says what to return instead |
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import uuid
from pathlib import PurePath
from typing import Any

from helix.canonical import to_json_text
from helix.errors import ToolError
from helix.replies import completed
from helix.types import Type, mismatch

# The most bytes of JSON that a result may have where its tool does not say.
MAX_BYTES = 16 * 1024 * 1024
# What is shown of the text of an error: an exception may hold a whole document.
_SHOWN = 2000


def result_text(value: Any, kind: Type, name: str, most: int | None = None) -> str:
    """A tool's result as JSON text, checked against its declared type and against `most` bytes. Raises ToolError."""
    limit = most or MAX_BYTES
    try:
        plain = completed(_Plain(limit).value(value, ""), kind)
        bad = mismatch(plain, kind)
        if bad is not None:
            raise ToolError(f"{name} gave a result that does not fit at `{bad[0] or '/'}`: {bad[1]}")
        text = to_json_text(plain)
    except _TooLarge:
        raise too_large(name, limit) from None
    except RecursionError:
        raise ToolError(f"{name} gave a result that is not JSON: nested too deeply, or in itself") from None
    except (TypeError, ValueError) as error:
        raise ToolError(f"{name} gave a result that is not JSON: {error}") from None
    if len(text) > limit or (not text.isascii() and len(text.encode("utf-8", "surrogatepass")) > limit):
        raise too_large(name, limit)
    return text


def too_large(name: str, limit: int) -> ToolError:
    """The error of a result over the limit: nobody reads on to say how large it is."""
    return ToolError(f"{name} gave a result of more than the {limit:,} bytes that `max_bytes` allows")


def plain_json(value: Any) -> Any:
    """Lists, dicts and scalars of what a function gave.

    Raises TypeError or ValueError with what was found, where (a JSON pointer), and what to return instead.
    """
    return _Plain(None).value(value, "")


class _TooLarge(Exception):
    """A result that takes more than its limit."""


class _Plain:
    """Turns values into JSON's own, and stops where their text is sure to take more bytes than the limit."""

    def __init__(self, limit: int | None) -> None:
        self._left = float("inf") if limit is None else limit

    def value(self, value: Any, at: str) -> Any:
        """A value; `at` is its JSON pointer."""
        kind = value.__class__
        # Each value is a character and more, and has one around it.
        self._left -= len(value) + 2 if kind is str else 1
        if self._left < 0:
            raise _TooLarge
        if value is None or kind in (str, int, bool):
            return value
        if kind is float:
            if value - value != 0:
                raise ValueError(f"found {value}{_place(at)}, which JSON has no form for; return None instead")
            return value
        if kind is list or kind is tuple:
            return self._items(value, at)
        if kind is dict:
            return self._record(value, at)
        return self._odd(value, at)

    def _items(self, value: Any, at: str) -> list[Any]:
        return [self.value(item, f"{at}/{place}") for place, item in enumerate(value)]

    def _record(self, value: dict[Any, Any], at: str) -> dict[str, Any]:
        made = {key if isinstance(key, str) else str(key): item for key, item in value.items()}
        if len(made) < len(value):
            raise ValueError(f"two keys{_place(at)} are one as texts")
        self._left -= sum(map(len, made))
        return {key: self.value(item, f"{at}/{key}") for key, item in made.items()}

    def _odd(self, value: Any, at: str) -> Any:
        """What is none of JSON's own types."""
        if isinstance(value, type):
            raise TypeError(f"found the class {value.__name__}{_place(at)}")
        if hasattr(value, "model_dump"):
            return self.value(value.model_dump(mode="json"), at)
        if dataclasses.is_dataclass(value):
            names = [each.name for each in dataclasses.fields(value)]
            return {name: self.value(getattr(value, name), f"{at}/{name}") for name in names}
        if isinstance(value, enum.Enum):
            return self.value(value.value, at)
        if isinstance(value, dict):
            return self._record(value, at)
        if isinstance(value, list | tuple):
            return self._items(value, at)
        # What is a str, int or float by inheritance becomes one in fact.
        for base in (str, int, float):
            if isinstance(value, base) and not hasattr(value, "dtype"):
                return self.value(base.__str__(value) if base is str else base(value), at)
        if isinstance(value, datetime.date | datetime.time):
            return value.isoformat()
        if isinstance(value, datetime.timedelta):
            return value.total_seconds()
        if isinstance(value, decimal.Decimal):
            return _number(value, at)
        if isinstance(value, uuid.UUID | PurePath):
            return str(value)
        if hasattr(value, "dtype") and hasattr(value, "tolist"):
            made = value.tolist()
            return _none(value, at) if hasattr(made, "dtype") else self.value(made, at)
        if isinstance(value, set | frozenset):
            raise TypeError(f"found a set{_place(at)}, which has no order; return a list, such as sorted(...)")
        if isinstance(value, bytes | bytearray | memoryview):
            raise TypeError(f"found bytes{_place(at)}; return a text: decoded, or as base64")
        return _none(value, at)


def _number(value: decimal.Decimal, at: str) -> int | float:
    if not value.is_finite():
        raise ValueError(f"found {value}{_place(at)}, which JSON has no form for; return None instead")
    # A huge exponent would be a huge int.
    return int(value) if value == value.to_integral_value() and abs(value.adjusted()) < 40 else float(value)


def _none(value: Any, at: str) -> Any:
    raise TypeError(f"found {type(value).__name__}{_place(at)}, which JSON has no form for")


def _place(at: str) -> str:
    return f" at `{at}`" if at else ""


def error_words(error: BaseException) -> str:
    """What was raised, in a line's words: its class and its text, as much of it as anybody reads."""
    try:
        text = str(error)
    except Exception:
        text = "(its text cannot be shown)"
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text):,} characters)"
    return f"{type(error).__name__}: {shown}" if shown else type(error).__name__
