"""Names that a workflow can use: which words are free, and which name a step gets."""

from __future__ import annotations

import re
from collections.abc import Mapping

from helix.dsl.markers import refuse_markers
from helix.dsl.places import problem
from helix.functions import ALIASES, FUNCTIONS
from helix.span import Span
from helix.words import RESERVED

_NAME = re.compile(r"[^\W\d]\w*")

# What no step of the text form can be called: the words of expressions, and three that begin something else.
REFUSED = RESERVED | {"for", "llm", "workflow"}
_BUILT_IN = frozenset((*FUNCTIONS, *ALIASES))


def is_name(text: str) -> bool:
    """Whether a text can name a step, an input or a declaration."""
    return bool(_NAME.fullmatch(text)) and text.isidentifier() and text not in REFUSED


def checked_name(name: object, what: str, span: Span | None = None) -> str:
    """The name that a user gave. Raises BindError where it cannot be one."""
    if not isinstance(name, str):
        raise problem(f"the name of {what} is a text, found {type(name).__name__}", span=span)
    refuse_markers(name, f"the name of {what}", "a step has one name for all rows")
    if name in REFUSED:
        raise problem(f"`{name}` is a word of the workflow language and cannot name {what}", span=span)
    if not is_name(name):
        help = "a name is made of letters, digits and `_`, and begins with no digit"
        raise problem(f"`{name}` cannot name {what}", help, span)
    return str(name)


class Taken:
    """The names that are taken, each with what it is. The names of an inner scope come on top of those around it."""

    def __init__(self, names: Mapping[str, str], around: Taken | None = None) -> None:
        self._names = dict(names)
        self._around = around
        self._next: dict[str, int] = {}

    def what(self, name: str) -> str | None:
        """What a name is, or None where it is free."""
        return self._names.get(name) or (None if self._around is None else self._around.what(name))

    def take(self, name: str, what: str) -> None:
        """Marks a name as taken."""
        self._names[name] = what

    def free(self, hint: str | None, fallback: str) -> str:
        """The hint, or the hint with a number where it is taken; without a usable hint the fallback and its number."""
        if hint is None or not is_name(hint) or not hint.strip("_"):
            return self._numbered(fallback, 1)
        return hint if self.what(hint) is None else self._numbered(f"{hint}_", 2)

    def _numbered(self, stem: str, first: int) -> str:
        number = self._last(stem, first)
        while self.what(f"{stem}{number}") is not None:
            number += 1
        # Names are never given back, so the search need not begin anew.
        self._next[stem] = number
        return f"{stem}{number}"

    def _last(self, stem: str, first: int) -> int:
        return self._next.get(stem) or (first if self._around is None else self._around._last(stem, first))


def beside_built_ins(hint: str | None) -> str | None:
    """The name that something called like a function would like: it may not hide a built-in one."""
    return f"{hint}_" if hint in _BUILT_IN else hint
