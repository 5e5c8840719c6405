"""Tables as plain text."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int) -> list[str]:
    """Lines of a table: the first `left` columns begin at the left, the others end at the right."""
    held = [list(head), *(list(row) for row in rows)]
    widths = [max(len(row[at]) for row in held) for at in range(len(head))]
    lines: list[str] = []
    for row in held:
        cells = [
            cell.ljust(width) if at < left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
