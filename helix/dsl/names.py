"""Names that a workflow can use: which words are free, and which name a step gets."""

from __future__ import annotations

import itertools
import re
from collections.abc import Container

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


def free_name(hint: str | None, taken: Container[str], fallback: str) -> str:
    """The hint, or the hint with a number where it is taken; without a usable hint the fallback and its number."""
    if hint is None or not is_name(hint) or not hint.strip("_"):
        return next(name for number in itertools.count(1) if (name := f"{fallback}{number}") not in taken)
    if hint not in taken:
        return hint
    return next(name for number in itertools.count(2) if (name := f"{hint}_{number}") not in taken)


def beside_built_ins(hint: str | None) -> str | None:
    """The name that something called like a function would like: it may not hide a built-in one."""
    return f"{hint}_" if hint in _BUILT_IN else hint
