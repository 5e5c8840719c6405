"""Python objects as JSON values: what rows given in memory may hold, and what becomes of it.

NaN counts as missing, so it is null; an infinity is refused. Decimals become numbers: an int where they have no
decimals, else the nearest double. Dates, times and UUIDs become ISO text, tuples lists. numpy scalars and arrays become
the plain values they stand for. Bytes, sets, durations and anything else are refused.
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Mapping
from typing import Any

PLAIN = frozenset({int, bool, type(None)})


def json_value(value: Any) -> Any:
    """The JSON value of a Python object. Raises ValueError with what was found where there is none."""
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is str:
        return checked_text(value)
    if kind is float:
        return finite(value)
    if kind is list or kind is tuple:
        return [json_value(item) for item in value]
    if isinstance(value, Mapping):
        return {_key(key): json_value(item) for key, item in value.items()}
    return _foreign_value(value)


def finite(value: float) -> float | None:
    """The number, or null for NaN. Raises ValueError for an infinity."""
    if value - value == 0:
        return value
    if value != value:
        return None
    raise ValueError("an infinite number has no JSON form")


def decimal_number(value: decimal.Decimal) -> int | float | None:
    """The number of a decimal: an int where it was written without decimals, else the nearest double."""
    if not value.is_finite():
        return finite(float(value))
    exponent = value.as_tuple().exponent
    return int(value) if isinstance(exponent, int) and exponent >= 0 else finite(float(value))


def checked_text(value: str) -> str:
    """The text. Raises ValueError where it has half of a surrogate pair, which no UTF-8 file could hold."""
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"character {error.start + 1} of the text is a lone surrogate") from None
    return value


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise ValueError(f"a record's key is {type(key).__name__} {key!r:.40}, not text")
    return checked_text(str(key))


def _foreign_value(value: Any) -> Any:
    """The JSON value of what is none of the plain types."""
    if isinstance(value, str):
        return checked_text(str.__str__(value))
    if isinstance(value, datetime.date | datetime.time):
        # pandas has a timestamp that is not one; its text would be NaT.
        return None if value != value else value.isoformat()
    if isinstance(value, decimal.Decimal):
        return decimal_number(value)
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, bool | int | float):
        # A subclass, such as an IntEnum or numpy's float64.
        return finite(float(value)) if isinstance(value, float) else int(value)
    if type(value).__module__.partition(".")[0] == "numpy" and hasattr(value, "tolist"):
        plain = value.tolist()
        if type(plain) is not type(value):
            return json_value(plain)
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    raise ValueError(f"{type(value).__name__} has no JSON form")
