"""The ways in which Helix writes a JSON value as text: for people, for constants of plans, and for prompts and hashes.

All write floats by `repr` (the shortest text that reads back as the same number), so `-0.0`, `0.0`, `0`, `1` and `1.0`
are all told apart, and all refuse NaN and infinities with ValueError, since JSON has none.
"""

from __future__ import annotations

import json
from typing import Any

_TEXT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(", ", ": "))
_HELD = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_HASHED = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)


def to_json_text(value: Any) -> str:
    """JSON as CSV cells and JSON lines show it: keys in their own order, a space after `,` and `:`, no escapes beyond
    those that JSON needs.

    A lone surrogate in a text stays as it is; who writes the text as UTF-8 has to escape it.
    """
    return _TEXT.encode(value)


def constant_text(value: Any) -> str:
    """JSON as plans hold constants: no white space, keys in their own order, which a column of the result shows."""
    return _HELD.encode(value)


def canonical_text(value: Any) -> str:
    """The canonical form as text: what a prompt shows for a record or a list, so that equal values share a prefix."""
    return _HASHED.encode(value)


def canonical_bytes(value: Any) -> bytes:
    """JSON as keys are hashed: keys sorted by code point at every depth, no white space, UTF-8.

    Equal values have equal bytes whatever the order of their keys. A lone surrogate is refused (UnicodeEncodeError, a
    ValueError): it has no UTF-8 form.
    """
    return _HASHED.encode(value).encode("utf-8")
