"""A value for a JSON schema, drawn from a seed: what the scripted engine answers where no rule says
otherwise.

Covered: type (also a list of types), enum, const, properties, required, items, prefixItems, minItems,
maxItems, uniqueItems, minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf, minLength, maxLength,
anyOf, oneOf, allOf, and `$ref` within the schema. `pattern` and `format` are not read: a text is a text.
"""

from __future__ import annotations

import json
import math
from hashlib import blake2b
from typing import Any, TypeGuard

DEEP = 6  # below this depth a recursive schema takes its smallest form, so that every value ends
BOTTOM = 60  # only a schema that no finite value satisfies comes here


class Draw:
    """Numbers drawn from a seed: equal seeds give equal numbers, on every machine and in every process."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._count = 0

    def number(self) -> int:
        """The next 64-bit number."""
        self._count += 1
        raw = blake2b(self._seed, digest_size=8, salt=self._count.to_bytes(8, "big")).digest()
        return int.from_bytes(raw, "big")

    def between(self, low: int, high: int) -> int:
        """A number from low to high, both included."""
        return low + self.number() % (high - low + 1)


def schema_value(schema: dict[str, Any], seed: bytes) -> Any:
    """A JSON value that satisfies the schema; equal schema and seed give an equal value."""
    return _value(schema, Draw(seed), schema, 0)


def _value(schema: Any, draw: Draw, root: dict[str, Any], depth: int) -> Any:
    if not isinstance(schema, dict):
        return _text({}, draw)
    if depth > BOTTOM:
        return None
    schema = _resolved(schema, root)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][draw.number() % len(schema["enum"])]
    for word in ("anyOf", "oneOf"):
        if schema.get(word):
            rest = {key: value for key, value in schema.items() if key != word}
            return _value(_merged([rest, _picked(schema[word], draw, depth)]), draw, root, depth)
    kind = schema.get("type")
    if isinstance(kind, list) and kind:
        kind = "null" if depth > DEEP and "null" in kind else kind[draw.number() % len(kind)]
    if kind is None:
        kind = "object" if "properties" in schema else "array" if "items" in schema else "string"
    match kind:
        case "object":
            return _record(schema, draw, root, depth)
        case "array":
            return _list(schema, draw, root, depth)
        case "integer":
            return _integer(schema, draw)
        case "number":
            return _number(schema, draw)
        case "boolean":
            return bool(draw.number() % 2)
        case "null":
            return None
    return _text(schema, draw)


def _resolved(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    """The schema with its own `$ref` and `allOf` folded in."""
    seen: set[str] = set()
    while "$ref" in schema or schema.get("allOf"):
        parts = [{key: value for key, value in schema.items() if key not in ("$ref", "allOf")}]
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference not in seen:
            seen.add(reference)
            parts.append(_target(reference, root))
        parts += [part for part in schema.get("allOf", ()) if isinstance(part, dict)]
        schema = _merged(parts)
    return schema


def _target(reference: str, root: dict[str, Any]) -> dict[str, Any]:
    """What `#/$defs/Name` points at; an empty schema where it points nowhere."""
    found: Any = root
    for part in reference.removeprefix("#").split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        found = found.get(part) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _merged(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """One schema that asks for all that the parts ask for, as far as they do not contradict one another."""
    whole: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            if key == "properties" and key in whole:
                whole[key] = {**whole[key], **value}
            elif key == "required" and key in whole:
                whole[key] = [*whole[key], *(name for name in value if name not in whole[key])]
            elif key == "allOf" and key in whole:
                whole[key] = [*whole[key], *value]
            else:
                whole[key] = value
    return whole


def _picked(options: list[Any], draw: Draw, depth: int) -> dict[str, Any]:
    """One of the alternatives; null where the value is already deep and may be null."""
    null = next((option for option in options if option == {"type": "null"}), None)
    option = null if depth > DEEP and null is not None else options[draw.number() % len(options)]
    return option if isinstance(option, dict) else {}


def _record(schema: dict[str, Any], draw: Draw, root: dict[str, Any], depth: int) -> dict[str, Any]:
    fields: dict[str, Any] = schema.get("properties") or {}
    required = schema.get("required") or ()
    kept = [name for name in fields if depth <= DEEP or name in required]
    value = {name: _value(fields[name], draw, root, depth + 1) for name in kept}
    rest = schema.get("additionalProperties")
    extra = rest if isinstance(rest, dict) else {}
    return value | {name: _value(extra, draw, root, depth + 1) for name in required if name not in value}


def _list(schema: dict[str, Any], draw: Draw, root: dict[str, Any], depth: int) -> list[Any]:
    fixed = schema.get("prefixItems") or []
    low = max(int(schema.get("minItems", 0)), len(fixed))
    high = len(fixed) if schema.get("items") is False else int(schema.get("maxItems", max(low, 1) + 2))
    high = max(low, min(high, max(low, 1) + 2))
    size = low if depth > DEEP else draw.between(max(low, min(1, high)), high)
    items: list[Any] = []
    seen: set[str] = set()
    for _ in range(size):
        item = schema.get("items", {}) if len(items) >= len(fixed) else fixed[len(items)]
        value = _value(item, draw, root, depth + 1)
        for _ in range(100 if schema.get("uniqueItems") else 0):
            if json.dumps(value, sort_keys=True) not in seen:
                break
            value = _value(item, draw, root, depth + 1)
        if schema.get("uniqueItems") and json.dumps(value, sort_keys=True) in seen:
            break
        seen.add(json.dumps(value, sort_keys=True))
        items.append(value)
    return items


def _bounds(schema: dict[str, Any]) -> tuple[float, float, bool, bool]:
    """The lower and the upper bound, and whether each is itself left out. Unbounded sides are 100 wide."""
    low, high = schema.get("minimum"), schema.get("maximum")
    low_out, high_out = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    lowers = [value for value in (low, low_out) if _is_number(value)]
    uppers = [value for value in (high, high_out) if _is_number(value)]
    lower: float | None = max(lowers, default=None)
    upper: float | None = min(uppers, default=None)
    if lower is None:
        lower = 0 if upper is None or upper >= 0 else upper - 100
    if upper is None:
        upper = max(lower + 100, 100)
    return lower, upper, lower == low_out, upper == high_out


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _integer(schema: dict[str, Any], draw: Draw) -> int:
    lower, upper, low_out, high_out = _bounds(schema)
    low = math.floor(lower) + 1 if low_out else math.ceil(lower)
    high = math.ceil(upper) - 1 if high_out else math.floor(upper)
    step = schema.get("multipleOf", 1)
    step = int(step) if _is_number(step) and step >= 1 else 1
    first = -(-low // step)
    return step * draw.between(first, max(first, high // step))


def _number(schema: dict[str, Any], draw: Draw) -> float:
    step = schema.get("multipleOf")
    if _is_number(step) and step == int(step):
        return _integer(schema, draw)
    lower, upper, _, _ = _bounds(schema)
    share = draw.between(1, 999) / 1000  # strictly inside, so bounds that are left out are kept too
    value = round(lower + (upper - lower) * share, 6)
    if _is_number(step):
        whole = math.ceil if value + step <= upper else math.floor
        return round(whole(value / step) * step, 12)
    return value if lower <= value <= upper else lower


def _text(schema: dict[str, Any], draw: Draw) -> str:
    text = f"text {draw.number() % 1_000_000:06d}"
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    if len(text) < least:
        text += "." * (int(least) - len(text))
    return text[-int(most) :] if most is not None and len(text) > most > 0 else "" if most == 0 else text
