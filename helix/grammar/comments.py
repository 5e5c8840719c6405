"""Puts the comments and blank lines of a workflow's text between the lines of its formatted text."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from helix.grammar.places import Places
from helix.syntax import Comment


@dataclass(slots=True, kw_only=True)
class Line:
    """A line of formatted text (with line breaks of its own where it ends in a block or is wrapped).

    `start` is the line of the source where it begins (None: where the line before it does). After a line that `opens`
    and before one that `closes` stands no blank line. `gap` asks for a blank line before it where there is no source.
    """

    depth: int
    text: str
    start: int | None
    opens: bool = False
    closes: bool = False
    gap: bool = False


def merge(lines: Sequence[Line], comments: Sequence[Comment], places: Places | None) -> str:
    """The whole text: each comment once, on the line it ended, or on a line of its own before what it preceded."""
    starts = _starts(lines)
    before: dict[int, list[Comment]] = defaultdict(list)
    hoisted: dict[int, list[Comment]] = defaultdict(list)
    trailing: dict[int, Comment] = {}
    for comment in sorted(comments, key=lambda comment: comment.line):
        index = bisect_right(starts, comment.line) - 1 if places is not None else -1
        following = starts[index + 1] if index + 1 < len(starts) else None
        if index >= 0 and places is not None and places.code_between(comment.line, following):
            hoisted[index].append(comment)
        elif comment.alone or index < 0:
            before[index + 1].append(comment)
        else:
            if index in trailing:
                hoisted[index].append(trailing[index])
            trailing[index] = comment
    writer = _Writer(places)
    for index, line in enumerate(lines):
        for comment in before[index]:
            writer.comment(comment, line.depth + line.closes, blank=_blank(places, comment.line - 1))
        is_first = index == 0 or starts[index] > starts[index - 1]
        blank = (is_first and _blank(places, starts[index] - 1)) or (places is None and line.gap)
        writer.blank_line(blank and not line.closes)
        for comment in hoisted[index]:
            writer.comment(comment, line.depth + line.closes, blank=False)
        writer.line(line, trailing.get(index))
    for comment in before[len(lines)]:
        writer.comment(comment, 0, blank=_blank(places, comment.line - 1))
    return "\n".join(writer.written) + "\n"


def _blank(places: Places | None, line: int) -> bool:
    return places is not None and places.is_blank(line)


def _starts(lines: Sequence[Line]) -> list[int]:
    """The source line of each line, never decreasing."""
    starts: list[int] = []
    for line in lines:
        last = starts[-1] if starts else 0
        starts.append(max(last, line.start or last))
    return starts


class _Writer:
    def __init__(self, places: Places | None) -> None:
        self.written: list[str] = []
        self._fresh = True  # nothing stands yet in the file or in the block
        self._opened = False  # the last line written opens a block and holds no comment

    def blank_line(self, wanted: bool) -> None:
        if wanted and not self._fresh and self.written[-1]:
            self.written.append("")

    def comment(self, comment: Comment, depth: int, *, blank: bool) -> None:
        self.blank_line(blank)
        self.written.append("  " * depth + comment.text)
        self._fresh = self._opened = False

    def line(self, line: Line, trailing: Comment | None) -> None:
        shown = f"{line.text}  {trailing.text}" if trailing is not None else line.text
        if line.closes and self._opened:
            self.written[-1] += shown
        else:
            self.written.append("  " * line.depth + shown)
        self._fresh = line.opens
        self._opened = line.opens and trailing is None
