"""String tokens to texts: escapes of `"..."`, dedenting of triple-quoted blocks, each with the place of every character."""

from __future__ import annotations

import re

from helix.errors import ParseError
from helix.span import Source, Span

Origin = list[tuple[int, int]]

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "/": "/", "'": "'"}
_PIECE = re.compile(
    r"(?P<slot>\{\{(?>[^}\"\n]|\"[^\"\n]*\"|\}(?!\}))*\}\})"
    r"|\\u\{(?P<braced>[0-9A-Fa-f]{1,6})\}|\\u(?P<four>[0-9A-Fa-f]{4})|\\(?P<escape>.)|(?P<plain>.)",
    re.DOTALL,
)


def string_value(token: str, line: int, column: int, source: Source) -> tuple[str, Origin]:
    """The text of a `"..."` token that starts at a line and column (from 1), and where each of its characters stands.

    Inside `{{ }}` nothing is an escape: the template reads it. Raises ParseError for an unknown escape.
    """
    inside = token[1:-1]
    text: list[str] = []
    origin: Origin = []
    for piece in _PIECE.finditer(inside):
        place = (line, column + 1 + piece.start())
        if piece["slot"] is not None:
            text.append(piece["slot"])
            origin.extend((line, place[1] + offset) for offset in range(len(piece["slot"])))
            continue
        code = piece["braced"] or piece["four"]
        if code is not None:
            char = _character(int(code, 16), piece[0], _span(source, place, len(piece[0])))
        elif piece["escape"] is not None:
            char = _ESCAPES.get(piece["escape"], "")
            if not char:
                help = (
                    'escapes are \\n \\t \\r \\" \\\\ \\u{...}; a backslash itself is written \\\\, or use a """ block'
                )
                raise ParseError(f"unknown escape `{piece[0]}`", _span(source, place, 2), help)
        else:
            char = piece["plain"]
        text.append(char)
        origin.append(place)
    origin.append((line, column + 1 + len(inside)))
    return "".join(text), origin


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
