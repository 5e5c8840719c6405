"""Where brackets and comments stand in a workflow's text: what `format` needs beyond the spans of the syntax tree."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from helix.grammar.strings import MESSAGE
from helix.span import Span

_TOKEN = re.compile(
    r'(?P<block>"""[\s\S]*?""")|(?P<string>"(?>\\[^\n]|[^"\\\n])*+")|(?P<comment>#[^\n]*)|(?P<word>\w+|->)'
    r"|(?P<open>[\[({])|(?P<close>[\])}])|(?P<space>\s+)|(?P<other>.)"
)
_CLOSERS = {"(": ")", "[": "]", "{": "}"}
_CARRIES_ON = re.compile(r"[{})\]\"+*/<>=!.,-]|(?:else|when|and|or|in|as|effects)\b(?!\s*=)|not\s+in\b|from\s+\w+\s+\"")
_BEFORE_MESSAGE = ("system", "user", "assistant", "part")


def statements(text: str) -> list[tuple[int, str]]:
    """A text cut where a line without indentation begins a statement, each piece with its offset.

    Where the brackets fit, only lines outside of them count. The first piece holds the head of the workflow.
    """
    places = Places(text)
    # An odd number of triple quotes: what is text and what is not cannot be told apart.
    if text.count('"""') % 2:
        return [(0, text)]
    starts = [0, *(start for start in places.margins() if not _CARRIES_ON.match(text, start))]
    if len(starts) > 1 and not re.sub(r"#[^\n]*", "", text[: starts[1]]).strip():
        del starts[1]
    return [(start, text[start:end]) for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]


class Places:
    """The brackets, comments and lines with code of one text. Offsets count characters from 0, lines from 1."""

    def __init__(self, text: str) -> None:
        self._lines = [0, *(found.end() for found in re.finditer("\n", text))]
        self._opens: list[int] = []
        self._pairs: dict[int, int] = {}
        self._parents: dict[int, int | None] = {}
        self._comments: list[int] = []
        self._code: set[int] = set()
        self._margin: list[int] = []
        self._words: list[int] = []
        self._arrows: list[int] = []
        self._balanced = True
        self._blank = {number for number, line in enumerate(text.split("\n"), 1) if not line.strip()}
        self._scan(text)
        self._code_lines = sorted(self._code)

    def _scan(self, text: str) -> None:
        stack: list[int] = []
        position, previous = 0, ""
        while position < len(text):
            found = None
            if text[position] == '"' and previous in _BEFORE_MESSAGE:
                found = MESSAGE.match(text, position)
            found = found or _TOKEN.match(text, position)
            if found is None:
                return
            kind, start, position = found.lastgroup, position, found.end()
            if found.re is MESSAGE:
                kind = "string"
            if kind == "space":
                continue
            if kind == "comment":
                self._comments.append(start)
                continue
            previous = found[0] if kind == "word" else ""
            if found[0] == "->":
                self._arrows.append(start)
            if found[0] not in ("(", ")", ","):
                self._words.append(start)
            if found[0] != ",":
                self._code.update(range(self.line(start), self.line(position - 1) + 1))
            if start == 0 or text[start - 1] == "\n":
                self._margin.append(start)
            if kind == "open":
                self._opens.append(start)
                self._parents[start] = stack[-1] if stack else None
                stack.append(start)
            elif kind == "close":
                self._balanced &= bool(stack) and _CLOSERS[text[stack[-1]]] == found[0]
                if stack:
                    self._pairs[stack.pop()] = start
        self._balanced &= not stack

    def line(self, offset: int) -> int:
        """The line of an offset."""
        return bisect_right(self._lines, offset)

    def start(self, span: Span) -> int:
        """The offset at which a span begins."""
        return self._lines[min(span.line, len(self._lines)) - 1] + span.column - 1

    def end(self, span: Span) -> int:
        """The offset at which a span ends."""
        return self._lines[min(span.end_line, len(self._lines)) - 1] + span.end_column - 1

    def word_before(self, offset: int) -> int:
        """Where the word, text or sign before an offset begins; commas and parentheses passed over."""
        at = bisect_left(self._words, offset) - 1
        return self._words[at] if at >= 0 else offset

    def word_from(self, offset: int) -> int:
        """Where the next word, text or sign begins, at an offset or later; commas and parentheses passed over."""
        at = bisect_left(self._words, offset)
        return self._words[at] if at < len(self._words) else offset

    def words(self, offset: int, steps: Sequence[int]) -> list[int | None]:
        """Where the words begin that stand so many words after the one at an offset."""
        at = bisect_left(self._words, offset)
        return [self._words[at + step] if at + step < len(self._words) else None for step in steps]

    def arrow(self, offset: int) -> int | None:
        """The first `->` at an offset or later."""
        at = bisect_left(self._arrows, offset)
        return self._arrows[at] if at < len(self._arrows) else None

    def is_blank(self, line: int) -> bool:
        """Whether a line holds only white space."""
        return line in self._blank

    def around(self, offset: int) -> int | None:
        """The innermost bracket that is open at an offset (one that opens just there not counted), or None."""
        at = bisect_left(self._opens, offset) - 1
        bracket = self._opens[at] if at >= 0 else None
        while bracket is not None and self._pairs.get(bracket, -1) < offset:
            bracket = self._parents[bracket]
        return bracket

    def next_open(self, offset: int) -> int | None:
        """The first bracket that opens at an offset or later."""
        at = bisect_left(self._opens, offset)
        return self._opens[at] if at < len(self._opens) else None

    def close(self, bracket: int) -> int:
        """Where a bracket closes."""
        return self._pairs.get(bracket, bracket)

    def commented(self, start: int, end: int) -> bool:
        """Whether a comment stands between two offsets."""
        at = bisect_left(self._comments, start)
        return at < len(self._comments) and self._comments[at] < end

    def margins(self) -> list[int]:
        """Where code begins in the first column, outside of all brackets if all brackets of the text fit."""
        if not self._balanced:
            return self._margin
        return [start for start in self._margin if self.around(start) is None]

    def code_between(self, line: int, before: int | None) -> bool:
        """Whether a line after `line` and before the line `before` holds more than white space and comments."""
        at = bisect_right(self._code_lines, line)
        return at < len(self._code_lines) and (before is None or self._code_lines[at] < before)

    @property
    def first_code(self) -> int | None:
        """Where the first line with code begins."""
        return self._lines[self._code_lines[0] - 1] if self._code_lines else None
