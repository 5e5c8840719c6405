"""One form for equal arguments, so that they have one key and compare as equal."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import Any

from helix.canonical import canonical_bytes, canonical_text

# An argument that must not be seen is recorded as {"$secret": "hmac-sha256:..."}.
SECRET = "$secret"  # a field's name  # nosec B105


def canonical_args(args: Mapping[str, Any], schema: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The arguments of a call with sorted keys at every depth and the defaults of the tool's JSON schema filled in.

    What is absent stays absent where the schema has no default: it differs from null. 1 and 1.0 are one value where
    the schema says `number` (it is written as 1.0) and two where it does not.
    """
    known = schema or {}
    filled = {**_defaults(known), **args}
    found = _shaped(filled, known)
    assert isinstance(found, dict)
    return found


def same_args(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether two sets of canonical arguments are equal; 1, 1.0 and true are three values."""
    return canonical_text(dict(first)) == canonical_text(dict(second))


def schema_hash(schema: Mapping[str, Any]) -> str:
    """A name for a tool's schema: patterns that were learned for another one are not to be served."""
    return hashlib.sha256(canonical_bytes(dict(schema))).hexdigest()[:32]


def hide_secrets(args: Mapping[str, Any], names: Iterable[str], key: bytes) -> dict[str, Any]:
    """The arguments with keyed hashes (HMAC-SHA256) in place of those that are secret."""
    hidden = dict(args)
    for name in names:
        if name in hidden:
            digest = hmac.new(
                key, canonical_text([name, hidden[name]]).encode("utf-8", "surrogatepass"), hashlib.sha256
            ).hexdigest()
            hidden[name] = {SECRET: f"hmac-sha256:{digest}"}
    return hidden


def is_secret(value: Any) -> bool:
    """Whether a recorded value stands for one that is secret: it is never mapped."""
    return isinstance(value, Mapping) and len(value) == 1 and SECRET in value


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    held = schema.get("properties")
    if not isinstance(held, Mapping):
        return {}
    return {name: part["default"] for name, part in held.items() if isinstance(part, Mapping) and "default" in part}


def _shaped(value: Any, schema: Any) -> Any:
    known = schema if isinstance(schema, Mapping) else {}
    if isinstance(value, Mapping):
        parts = known.get("properties")
        parts = parts if isinstance(parts, Mapping) else {}
        return {name: _shaped(value[name], parts.get(name)) for name in sorted(value)}
    if isinstance(value, list | tuple):
        return [_shaped(item, known.get("items")) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and _says_number(known):
        return float(value)
    return value


def _says_number(schema: Mapping[str, Any]) -> bool:
    kinds = schema.get("type")
    kinds = (kinds,) if isinstance(kinds, str) else tuple(kinds or ())
    return "number" in kinds and "integer" not in kinds
