"""JSON Schema as Helix types, and names of elsewhere as names of the language: how a server's tool is declared here."""

from __future__ import annotations

import re
from typing import Any

from helix.schema import NO_DEFAULT, Column
from helix.types import BOOL, FLOAT, INT, JSON, TEXT, Choice, ListOf, Record, Type, mismatch, optional
from helix.words import RESERVED

_DEEPEST = 20
_SCALARS: dict[str, Type] = {"string": TEXT, "integer": INT, "number": FLOAT, "boolean": BOOL}


def type_of_schema(schema: Any, root: Any = None, depth: int = 0) -> Type:
    """The type whose values a schema describes; `json` where no type of the language says as much."""
    root = schema if root is None else root
    schema = _resolved(schema, root)
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return JSON
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            return _alternatives([_resolved(each, root) for each in schema[key]], root, depth)
    kind = schema.get("type")
    if isinstance(kind, list):
        return _alternatives([{**schema, "type": each} for each in kind], root, depth)
    labels = schema.get("enum")
    if isinstance(labels, list) and labels and all(isinstance(each, str) for each in labels):
        return Choice(tuple(dict.fromkeys(labels)))
    if kind == "array":
        return ListOf(type_of_schema(schema.get("items", {}), root, depth + 1))
    properties = schema.get("properties")
    if kind == "object" and isinstance(properties, dict) and properties:
        needed = schema.get("required")
        needed = needed if isinstance(needed, list) else []
        made = {name: type_of_schema(each, root, depth + 1) for name, each in properties.items()}
        return Record(tuple((name, each if name in needed else optional(each)) for name, each in made.items()))
    return _SCALARS.get(kind, JSON) if isinstance(kind, str) else JSON


def _alternatives(schemas: list[Any], root: Any, depth: int) -> Type:
    """One of several schemas: a type that may be null where the other is null, else any value."""
    others = [each for each in schemas if not (isinstance(each, dict) and each.get("type") == "null")]
    if len(others) != 1:
        return JSON
    made = type_of_schema(others[0], root, depth + 1)
    return made if len(others) == len(schemas) else optional(made)


def _resolved(schema: Any, root: Any) -> Any:
    """What a reference within the schema refers to (`#/$defs/name`), followed as far as it leads."""
    for _ in range(_DEEPEST):
        if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
            return schema
        pointer = schema["$ref"]
        found: Any = root if pointer.startswith("#") else None
        for part in pointer.removeprefix("#").strip("/").split("/"):
            part = part.replace("~1", "/").replace("~0", "~")
            found = found.get(part) if isinstance(found, dict) else None
        schema = found
    return None


def word(name: str) -> str:
    """A name of elsewhere as the language can write it: `search-pages` is `search_pages`."""
    made = re.sub(r"\W", "_", name, flags=re.ASCII) or "_"
    made = f"_{made}" if made[0].isdigit() else made
    return f"{made}_" if made in RESERVED else made


def columns_of_schema(schema: Any) -> tuple[tuple[str, Column], ...]:
    """The parameters that a tool's input schema describes, each with the server's own name for it.

    One that is not required may be null, unless it has a default that fits.
    """
    schema = schema if isinstance(schema, dict) else {}
    properties = schema.get("properties")
    needed = schema.get("required")
    found: dict[str, tuple[str, Column]] = {}
    for name, each in (properties if isinstance(properties, dict) else {}).items():
        kind = type_of_schema(each, schema)
        default = each.get("default", NO_DEFAULT) if isinstance(each, dict) else NO_DEFAULT
        if default is not NO_DEFAULT and (default is None or mismatch(default, kind) is not None):
            default = NO_DEFAULT
        if name not in (needed if isinstance(needed, list) else []) and default is NO_DEFAULT:
            kind = optional(kind)
        own = word(name)
        while own in found:
            own += "_"
        found[own] = (name, Column(own, kind, default))
    return tuple(found.values())
