"""Text that fits into so many terminal cells: wrapped paragraphs, tables, and colours."""

from __future__ import annotations

from collections.abc import Sequence

from helix.show import cells

_CODES = {"heading": "1", "quiet": "2", "name": "36", "good": "32", "warning": "33"}
# Narrower than that a word is cut rather than its paragraph squeezed further.
_LEAST = 8


def paint(text: str, style: str, color: bool) -> str:
    """Text in a style, where colours are wanted."""
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if color and text else text


def wrapped(text: str, width: int, *, first: str = "", then: str | None = None) -> list[str]:
    """Lines of at most `width` cells. The first begins with `first`, the others with `then` (spaces of its length)."""
    hang = " " * cells(first) if then is None else then
    hang = hang if width - cells(hang) >= _LEAST else ""
    lines: list[str] = []
    line, bare = first, True
    for word in text.split():
        while word:
            gap = "" if bare else " "
            if cells(line) + len(gap) + cells(word) <= width:
                line, bare, word = f"{line}{gap}{word}", False, ""
            elif not bare:
                lines.append(line)
                line, bare = hang, True
            else:
                part = _beginning(word, max(1, width - cells(line)))
                lines.append(line + part)
                line, word = hang, word[len(part) :]
    return [*lines, line] if not bare or not lines else lines


def _beginning(text: str, room: int) -> str:
    """The longest beginning that fits; one character at least."""
    end = 1
    while end < len(text) and cells(text[: end + 1]) <= room:
        end += 1
    return text[:end]


def shortened(text: str, room: int) -> str:
    """A text in no more than `room` cells, `...` in place of its end."""
    if cells(text) <= room:
        return text
    return _beginning(text, room - 3) + "..." if room > 3 else "..."[:room]


def padded(text: str, room: int, *, right: bool = False) -> str:
    """A text in exactly `room` cells, where it has no more."""
    space = " " * max(0, room - cells(text))
    return space + text if right else text + space


def fits(rows: Sequence[Sequence[str]], width: int, *, indent: str = "  ") -> bool:
    """Whether a table is not too wide."""
    return cells(indent) + sum(_sizes(rows)) + 2 * (len(rows[0]) - 1) <= width


def _sizes(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(cells(row[at]) for row in rows) for at in range(len(rows[0]))]


def table(rows: Sequence[Sequence[str]], width: int, *, indent: str = "  ", color: bool = False) -> list[str]:
    """A table, its first row the heads, its first column names and the others figures, right-aligned.

    Where it is too wide each row becomes a block: its name, then a line for each figure that there is.
    """
    sizes = _sizes(rows)
    lines: list[str] = []
    if fits(rows, width, indent=indent):
        for place, row in enumerate(rows):
            figures = [padded(text, size, right=True) for text, size in zip(row[1:], sizes[1:], strict=True)]
            line = (indent + "  ".join([padded(row[0], sizes[0]), *figures])).rstrip()
            lines.append(paint(line, "quiet", color) if not place else line)
        return lines
    heads = max(cells(name) for name in rows[0][1:])
    for row in rows[1:]:
        lines.append(indent + shortened(row[0], width - cells(indent)))
        for name, text in zip(rows[0][1:], row[1:], strict=True):
            if text:
                lines.append(shortened(f"{indent}  {padded(name, heads)}  {text}", width))
    return lines
