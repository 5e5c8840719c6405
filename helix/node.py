"""The base of all operators of a plan, and their content ids.

An id is a hash of what an operator is and of the ids of what it reads, taken over the canonical JSON of its fields.
Planning makes thousands of operators, so the text that is hashed is written in one go (`content_text`); `content` gives
the same as JSON values, for plan files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from operator import attrgetter
from typing import Any

from helix.canonical import canonical_text
from helix.span import Span


class Holder:
    """A record of a plan that is no operator and holds some."""

    __slots__ = ()

    @property
    def held(self) -> tuple[Node, ...]:
        """The operators that who holds the record reads, in the order of its fields."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Node:
    """The base of all operators. `id` is 16 hexadecimal digits; the span takes no part in it."""

    span: Span | None = field(default=None, compare=False, repr=False)
    id: str = field(init=False, compare=False, repr=False, default="")
    _inputs: tuple[Node, ...] | None = field(init=False, compare=False, repr=False, default=None)
    # What `helix.traits` has found of the operator: like the id it follows from the rest.
    _traits: object = field(init=False, compare=False, repr=False, default=None)

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", content_id(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The operators this one reads, in the order of its fields; those inside a sub-plan are not among them."""
        found = self._inputs
        if found is None:
            found = tuple(_nodes(tuple(getattr(self, name) for name in _content(type(self)))))
            object.__setattr__(self, "_inputs", found)
        return found


def _nodes(value: Any) -> Iterator[Node]:
    """The operators that a field holds directly, in order."""
    if isinstance(value, Node):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _nodes(item)
    elif isinstance(value, Holder):
        yield from value.held


# --- content as JSON values ---------------------------------------------------------------------------------------


def _by_id(node: Node) -> str | int:
    return node.id


def content(record: Any, refer: Callable[[Node], str | int] = _by_id) -> dict[str, Any]:
    """The fields of an operator or another record of a plan as JSON, without those that take no part in its id."""
    return {name: encode(value, refer) for name, value in _told(record)}


def encode(value: Any, refer: Callable[[Node], str | int] = _by_id) -> Any:
    """A part of a plan as JSON: an operator as a reference, by its id, and a record as its class and its fields.

    Fields at their default are left out, so that ids survive fields that are added later.
    """
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, tuple | list):
        return [encode(item, refer) for item in value]
    if isinstance(value, Node):
        return {"$": refer(value)}
    if isinstance(value, Mapping):
        return {"map": [[key, encode(item, refer)] for key, item in value.items()]}
    if is_dataclass(value) and not isinstance(value, type):
        return {"@": type(value).__name__, **content(value, refer)}
    raise TypeError(f"{type(value).__name__} has no place in a plan")


# What takes no part in ids: where a node was written, what it is called, and what is worked out from the rest.
UNHASHED = ("span", "label", "id", "_inputs", "_traits")
_CONTENT: dict[type, tuple[str, ...]] = {}
_SHAPES: dict[type, tuple[tuple[str, ...], tuple[object, ...], Callable[[Any], Any]]] = {}


def _content(kind: type) -> tuple[str, ...]:
    """The fields of a class that take part in ids."""
    known = _CONTENT.get(kind)
    if known is None:
        known = _CONTENT[kind] = tuple(each.name for each in fields(kind) if each.name not in UNHASHED)
    return known


def _shape(kind: type) -> tuple[tuple[str, ...], tuple[object, ...], Callable[[Any], Any]]:
    """The same fields, their defaults, and what reads them all at once.

    One that has no default has MISSING, which is no value of a field.
    """
    defaults = {each.name: each.default for each in fields(kind)}
    names = _content(kind)
    # Of one name alone it gives the value itself.
    read = attrgetter(*names) if len(names) > 1 else lambda record: tuple([getattr(record, name) for name in names])
    known = _SHAPES[kind] = names, tuple([defaults[name] for name in names]), read
    return known


def _told(record: Any) -> list[tuple[str, Any]]:
    """The fields of a record that take part in its id and are not at their default, by name."""
    kind = type(record)
    names, defaults, read = _SHAPES.get(kind) or _shape(kind)
    return [
        (name, value)
        for name, default, value in zip(names, defaults, read(record), strict=True)
        if value is not default and (type(value) is not type(default) or value != default)
    ]


# --- content as the text that is hashed ---------------------------------------------------------------------------


def content_id(node: Node) -> str:
    """The id of an operator: a hash of what it is and of the ids of what it reads."""
    return hashlib.sha256(content_text(node).encode("utf-8")).hexdigest()[:16]


def content_text(node: Node) -> str:
    """`canonical_text([class, content(node)])`. Raises TypeError for what has no place in a plan."""
    told = ",".join([f'"{name}":{part_text(value)}' for name, value in sorted(_told(node))])
    return f'["{type(node).__name__}",{{{told}}}]'


_quoted = json.encoder.encode_basestring
# Texts of records that hold no operators, by the record itself: the same model, type or template is in many. The record
# is kept with its text, so that no other one can come to its address meanwhile.
_KNOWN: dict[int, tuple[object, str]] = {}
_MOST_KNOWN = 4096


def part_text(value: Any) -> str:
    """`canonical_text(encode(value))`: parts of plans have equal texts just where they are equal."""
    kind = type(value)
    if kind is str:
        return _quoted(value)
    if kind is tuple or kind is list:
        texts = [f'{{"$":"{item.id}"}}' if isinstance(item, Node) else part_text(item) for item in value]
        return f"[{','.join(texts)}]"
    if isinstance(value, Node):
        return f'{{"$":"{value.id}"}}'
    known = _KNOWN.get(id(value))
    if known is not None:
        return known[1]
    return _record_text(value, kind) if is_dataclass(kind) else canonical_text(encode(value))


def _record_text(record: Any, kind: type) -> str:
    text = ",".join(
        [f'"@":"{kind.__name__}"', *[f'"{name}":{part_text(value)}' for name, value in sorted(_told(record))]]
    )
    text = f"{{{text}}}"
    if not issubclass(kind, Holder):
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[id(record)] = record, text
    return text
