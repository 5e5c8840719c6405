"""How a value travels through an f-string: as a private marker in the text, which a prompt splits again.

A marker holds the number of the trace and of the expression in it, between two characters of the last private-use
plane. Its letters are of both cases, so that `.upper()` and the like break it and are noticed. Markers never reach a
plan: they are taken apart where a text enters a workflow, or refused there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from helix.dsl.places import problem
from helix.expr import Expr

if TYPE_CHECKING:
    from helix.dsl.trace import Trace

OPEN = "\U0010f1e5"
CLOSE = "\U0010f1e6"
_MARKER = re.compile(f"{OPEN}hX(\\d+)\\.(\\d+){CLOSE}")
_TRACE_OF_REPR = re.compile(f"(?:{OPEN}|\\\\U0010f1e5)<value (.*?)>(?:{CLOSE}|\\\\U0010f1e6)", re.DOTALL)


def marker(trace: int, number: int) -> str:
    """The text that stands for an expression of a trace."""
    return f"{OPEN}hX{trace}.{number}{CLOSE}"


def holds_marker(text: str) -> bool:
    """Whether a value of a workflow, or what is left of one, is in a text."""
    return OPEN in text or CLOSE in text or "\\U0010f1e5" in text


def split_markers(text: str, trace: Trace) -> list[str | Expr]:
    """A text as its literal stretches, byte for byte, and the expressions between them.

    Raises BindError where a marker was changed on its way, came by `repr`, or is of another workflow.
    """
    pieces: list[str | Expr] = []
    position = 0
    for found in _MARKER.finditer(text):
        pieces.append(_literal(text[position : found.start()]))
        pieces.append(trace.marked(int(found[1]), int(found[2])))
        position = found.end()
    pieces.append(_literal(text[position:]))
    return [piece for piece in pieces if piece != ""]


def refuse_markers(text: str, where: str, help: str) -> str:
    """The text, which must be a constant: an option, a name, a label. Raises BindError where it holds a value."""
    if holds_marker(text):
        raise problem(f"{where} must be a constant, found a text with a value of the workflow in it", help)
    return text


def _literal(text: str) -> str:
    by_repr = _TRACE_OF_REPR.search(text)
    if by_repr:
        name = by_repr[1]
        raise problem(
            f"a value is put in by `repr`, as `{{{name}!r}}` or `{{{name}=}}` do",
            f"write `{{{name}}}`; a value in quotes or as JSON is `{{hx.fn.json({name})}}`",
        )
    if holds_marker(text):
        help = "put the value in as it is, and change it with functions: `hx.upper(value)`, `hx.fn.replace(...)`"
        raise problem("a text with a value in it was changed before it came here (cut, upper-cased, escaped)", help)
    bad = next((char for char in text if char == "\0" or 0xD800 <= ord(char) <= 0xDFFF), None)
    if bad is not None:
        raise problem(f"character U+{ord(bad):04X} cannot stand in a workflow")
    return text
