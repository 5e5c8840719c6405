"""Words that cannot be names: the language or its templates read them as operators and constants."""

from __future__ import annotations

RESERVED = frozenset(
    ["and", "or", "not", "in", "is", "if", "else", "true", "false", "null", "none", "True", "False", "None"]
)
