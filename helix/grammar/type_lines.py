"""A type over several lines: which of its parts go on lines of their own, and where these stand in the source."""

from __future__ import annotations

from dataclasses import dataclass

from helix.types import Choice, ListOf, Optional, Record, Type, quote


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """What opens a type, its labels or fields, and what closes it.

    `steps` counts the words and signs (commas apart) from the beginning of the type to its bracket, to each entry and
    to the closing bracket.
    """

    opening: str
    entries: tuple[str, ...]
    closing: str
    steps: tuple[int, ...]


def broken(kind: Type) -> Broken | None:
    """How a type is broken; None for one that stays on its line. Lists and `?` stay around what they hold."""
    before, after, outer = "", "", 0
    while isinstance(kind, ListOf | Optional):
        if isinstance(kind, ListOf):
            before, after, outer, kind = f"{before}list[", f"]{after}", outer + 2, kind.item
        else:
            after, kind = f"?{after}", kind.inner
    if isinstance(kind, Choice):
        steps = range(outer + 1, outer + 3 + len(kind.labels))
        return Broken(
            opening=f"{before}choice[",
            entries=tuple(quote(label) for label in kind.labels),
            closing=f"]{after}",
            steps=tuple(steps),
        )
    if not isinstance(kind, Record) or not kind.fields:
        return None
    places = [outer, outer + 1]
    for _, field in kind.fields:
        places.append(places[-1] + 2 + _words(field))
    return Broken(
        opening=f"{before}{{",
        entries=tuple(str(Record((field,)))[2:-2] for field in kind.fields),
        closing=f"}}{after}",
        steps=tuple(places),
    )


def _words(kind: Type) -> int:
    """How many words and signs a type takes, commas apart."""
    match kind:
        case Optional(inner):
            return _words(inner) + 1
        case ListOf(item):
            return _words(item) + 3
        case Choice(labels):
            return len(labels) + 3
        case Record(fields):
            return 2 + sum(2 + _words(field) for _, field in fields)
    return 1
