"""String tokens to texts: escapes of `"..."`, indentation of triple-quoted blocks; the place of every character."""

from __future__ import annotations

import re

from helix.errors import ParseError
from helix.span import Source, Span

Origin = list[tuple[int, int]]

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "/": "/", "'": "'"}
# The repetition is possessive and the end optional: a slot without its end is read once, not once for each brace.
SLOT = re.compile(r"""\{\{(?>[^}"'\n]|"[^"\n]*"|'[^'\n]*'|'|\}(?!\}))*+(?P<end>\}\})?+""")
# A `"..."` token of a message.
MESSAGE = re.compile(rf"""\"(?!\"\")(?>\\[^\n]|{SLOT.pattern}|[^"\\\n])*+\"""")
_SLOT_OR_ESCAPE = re.compile(rf"\\.|{SLOT.pattern}", re.DOTALL)
_PIECE = re.compile(
    r"\\u\{(?P<braced>[0-9A-Fa-f]{1,6})\}|\\u(?P<four>[0-9A-Fa-f]{4})|\\(?P<escape>.)|(?P<plain>[^\\]+)", re.DOTALL
)
_HELP = 'escapes are \\n \\t \\r \\" \\\\ \\u{...}; a backslash itself is written \\\\, or use a """ block'


def string_value(token: str, line: int, column: int, source: Source) -> tuple[str, Origin]:
    """The text of a `"..."` token that starts at a line and column (from 1), and where each of its characters stands.

    Raises ParseError for an unknown escape.
    """
    text: list[str] = []
    origin: Origin = []
    _unescape(token[1:-1], line, column + 1, source, text, origin)
    origin.append((line, column + len(token) - 1))
    return "".join(text), origin


def template_value(token: str, line: int, column: int, source: Source) -> tuple[str, Origin]:
    """As `string_value`, for a message: inside `{{ }}` nothing is an escape, since the template reads it."""
    inside = token[1:-1]
    text: list[str] = []
    origin: Origin = []
    position = 0
    for slot in _SLOT_OR_ESCAPE.finditer(inside):
        if slot["end"]:
            _unescape(inside[position : slot.start()], line, column + 1 + position, source, text, origin)
            text.append(slot[0])
            origin.extend((line, column + 1 + offset) for offset in range(slot.start(), slot.end()))
            position = slot.end()
    _unescape(inside[position:], line, column + 1 + position, source, text, origin)
    origin.append((line, column + len(token) - 1))
    return "".join(text), origin


def _unescape(piece: str, line: int, column: int, source: Source, text: list[str], origin: Origin) -> None:
    """Adds the text of a stretch without slots, and the place of each of its characters."""
    for part in _PIECE.finditer(piece):
        place = (line, column + part.start())
        if part["plain"] is not None:
            text.append(part["plain"])
            origin.extend((line, place[1] + offset) for offset in range(len(part["plain"])))
            continue
        code = part["braced"] or part["four"]
        if code is not None:
            char = _character(int(code, 16), part[0], _span(source, place, len(part[0])))
        else:
            char = _ESCAPES.get(part["escape"], "")
            if not char:
                raise ParseError(f"unknown escape `{part[0]}`", _span(source, place, 2), _HELP)
        text.append(char)
        origin.append(place)


def block_value(token: str, line: int, column: int) -> tuple[str, Origin]:
    """The text of a triple-quoted token: first and last line break stripped, the common indentation removed.

    A block is raw: a backslash is a backslash.
    """
    lines = token[3:-3].split("\n")
    rows = list(range(line, line + len(lines)))
    shifts = [column + 3, *([1] * (len(lines) - 1))]
    if len(lines) > 1 and not lines[0].strip():
        lines, rows, shifts = lines[1:], rows[1:], shifts[1:]
    if len(lines) > 1 and not lines[-1].strip():
        lines, rows, shifts = lines[:-1], rows[:-1], shifts[:-1]
    # Text on the line of the opening quotes has no indentation of its own.
    indents = [
        len(text) - len(text.lstrip(" \t"))
        for text, shift in zip(lines, shifts, strict=True)
        if text.strip() and shift == 1
    ]
    indent = min(indents, default=0)
    pieces: list[str] = []
    origin: Origin = []
    for number, (text, row, shift) in enumerate(zip(lines, rows, shifts, strict=True)):
        cut = 0 if shift != 1 else min(indent, len(text) - len(text.lstrip(" \t")))
        kept = text[cut:]
        pieces.append(kept)
        origin.extend((row, shift + cut + offset) for offset in range(len(kept)))
        origin.append((row, shift + len(text)))
        if number + 1 < len(lines):
            pieces.append("\n")
    return "".join(pieces), origin


def _span(source: Source, place: tuple[int, int], width: int) -> Span:
    line, column = place
    return Span(source=source, line=line, column=column, end_line=line, end_column=column + width)


def _character(code: int, shown: str, span: Span) -> str:
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF or code == 0:
        raise ParseError(f"`{shown}` is not a character", span)
    return chr(code)
