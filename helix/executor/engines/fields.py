"""Fields of servers' answers, read with care: what a field does not hold as it should becomes nothing, not an error."""

from __future__ import annotations

import json
from typing import Any


def count_of(value: Any) -> int | None:
    """A number of tokens, or None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def positive(value: Any) -> int | None:
    """A number above zero, or None for anything else."""
    found = count_of(value)
    return found if found is not None and found > 0 else None


def clean_text(text: str) -> str:
    """The text with halves of surrogate pairs, which no file can hold, as U+FFFD."""
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def schema_key(schema: dict[str, Any] | None) -> str:
    """A schema as a text: equal for equal schemas."""
    return json.dumps(schema, sort_keys=True)
