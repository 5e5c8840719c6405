"""Lines of workflow text in the making: what fits goes on one line, what is too long or holds comments is broken."""

from __future__ import annotations

from collections.abc import Sequence

from helix.expr import Call, Expr, ListExpr, Literal, RecordExpr
from helix.grammar.comments import Line
from helix.grammar.places import Places
from helix.grammar.texts import block_token
from helix.grammar.type_lines import broken
from helix.span import Source, Span
from helix.types import Type, is_word, quote
from helix.unparse import unparse_chain, unparse_expr

WIDTH = 100


class Layout:
    """Collects lines, each with the line of the source where it begins.

    Offsets and brackets are those of the source; they are None for a tree that has no workflow text.
    """

    def __init__(self, source: Source | None) -> None:
        self.lines: list[Line] = []
        self._source = source
        self.places = Places(source.text) if source is not None and source.text is not None else None

    # --- places in the source ---

    def start(self, span: Span | None) -> int | None:
        """The offset where a span begins."""
        if self.places is None or span is None or span.source != self._source:
            return None
        return self.places.start(span)

    def end(self, span: Span | None) -> int | None:
        """The offset where a span ends."""
        if self.places is None or span is None or span.source != self._source:
            return None
        return self.places.end(span)

    def bracket_after(self, offset: int | None) -> int | None:
        """The first bracket that opens at an offset or later."""
        return self.places.next_open(offset) if self.places is not None and offset is not None else None

    def bracket_around(self, span: Span | None) -> int | None:
        """The bracket that is open where a span begins."""
        offset = self.start(span)
        return self.places.around(offset) if self.places is not None and offset is not None else None

    def closing(self, bracket: int | None) -> int | None:
        """Where a bracket closes."""
        return self.places.close(bracket) if self.places is not None and bracket is not None else None

    def word_before(self, offset: int | None) -> int | None:
        """Where the word before an offset begins."""
        return self.places.word_before(offset) if self.places is not None and offset is not None else None

    def word_from(self, offset: int | None) -> int | None:
        """Where the next word begins, at an offset or later."""
        return self.places.word_from(offset) if self.places is not None and offset is not None else None

    def commented(self, start: int | None, end: int | None) -> bool:
        """Whether a comment stands between two offsets."""
        if self.places is None or start is None or end is None:
            return False
        return self.places.commented(start, end)

    def commented_inside(self, bracket: int | None) -> bool:
        """Whether a comment stands between a bracket and its end."""
        return self.commented(bracket, self.closing(bracket))

    # --- lines ---

    def add(self, depth: int, text: str, at: int | None, *, opens: bool = False, closes: bool = False) -> None:
        """One line that begins at an offset of the source."""
        line = self.places.line(at) if self.places is not None and at is not None else None
        self.lines.append(Line(depth=depth, text=text, start=line, opens=opens, closes=closes))

    @staticmethod
    def fits(depth: int, text: str) -> bool:
        """Whether a text is a single line of at most the usual width."""
        return "\n" not in text and 2 * depth + len(text) <= WIDTH

    def value(
        self,
        depth: int,
        prefix: str,
        expr: Expr,
        suffix: str = "",
        *,
        at: int | None,
        opens: bool = False,
        closes: bool = False,
    ) -> None:
        """A line that holds an expression, broken at its outermost bracket or before its operators where need be."""
        text = prefix + unparse_expr(expr) + suffix
        if isinstance(expr, Literal) and isinstance(expr.value, str) and "\n" in expr.value and not suffix:
            text = prefix + (block_token(expr.value, depth) or quote(expr.value))
        chain = unparse_chain(expr)
        commented = bool(chain) and self.commented(self.end(chain[0][1].span), self.start(chain[-1][1].span))
        if chain and (commented or not self.fits(depth, text)):
            (_, _, shown), *others = chain
            self.add(depth, prefix + shown, at, closes=closes)
            for operator, operand, shown in others[:-1]:
                self.add(depth + 1, f"{operator} {shown}", self._operand(operand))
            operator, operand, shown = others[-1]
            self.add(depth + 1, f"{operator} {shown}{suffix}", self._operand(operand), opens=opens)
            return
        bracket = self.bracket_after(self.start(expr.span))
        opening, parts, closing = _parts(expr)
        if not parts or (self.fits(depth, text) and not self.commented_inside(bracket)):
            self.add(depth, text, at, opens=opens, closes=closes)
            return
        self.add(depth, prefix + opening, at, opens=True, closes=closes)
        place = bracket
        for name, part in parts:
            # The name of a field or an argument has no span: it is what follows the part before.
            self.value(depth + 1, name, part, at=self.word_from(None if place is None else place + 1))
            place = self.end(part.span)
        self.add(depth, closing + suffix, self.closing(bracket), opens=opens, closes=True)

    def _operand(self, operand: Expr) -> int | None:
        """Where the line of an operand begins: at its operator, unless that ends the line before."""
        start = self.start(operand.span)
        operator = self.word_before(start)
        before = self.word_before(operator)
        if self.places is None or operator is None or before is None:
            return start
        return start if self.places.line(before) == self.places.line(operator) else operator

    def items(self, depth: int, prefix: str, items: Sequence[tuple[str, Span | None]], at: int | None) -> None:
        """Items with commas between them: filled up to the width, or one a line where comments stand among them."""
        if self.commented(self.end(items[0][1]), self.start(items[-1][1])):
            for position, (text, span) in enumerate(items):
                comma = "," if position + 1 < len(items) else ""
                begins = position == 0
                self.add(
                    depth if begins else depth + 1, prefix * begins + text + comma, at if begins else self.start(span)
                )
            return
        lines = [prefix + items[0][0]]
        for text, _ in items[1:]:
            pad = depth if len(lines) == 1 else 0
            if self.fits(pad, f"{lines[-1]}, {text},"):
                lines[-1] += f", {text}"
            else:
                lines[-1] += ","
                lines.append("  " * (depth + 1) + text)
        self.add(depth, "\n".join(lines), at)

    def type_places(self, kind: Type | None, start: int | None) -> list[int | None]:
        """Where the bracket, the entries and the end of the type after the next `->` stand; empty where not known."""
        parts = broken(kind) if kind is not None else None
        arrow = self.places.arrow(start) if self.places is not None and start is not None else None
        if self.places is None or arrow is None or parts is None:
            return []
        return self.places.words(arrow, [1 + step for step in parts.steps])

    def kind(
        self,
        depth: int,
        prefix: str,
        kind: Type,
        suffix: str,
        *,
        at: int | None,
        places: list[int | None],
        closes: bool,
    ) -> None:
        """The line of a type, which opens a block; labels or fields go one a line if it is too long or has comments."""
        text = f"{prefix}{kind}{suffix}"
        parts = broken(kind)
        commented = bool(places) and self.commented(places[0], places[-1])
        if parts is None or (self.fits(depth, text) and not commented):
            self.add(depth, text, at, opens=True, closes=closes)
            return
        starts = places or [None] * len(parts.steps)
        self.add(depth, prefix + parts.opening, at, opens=True, closes=closes)
        for entry, start in zip(parts.entries, starts[1:-1], strict=True):
            self.add(depth + 1, entry, start)
        self.add(depth, parts.closing + suffix, starts[-1], opens=True, closes=True)


def _parts(expr: Expr) -> tuple[str, list[tuple[str, Expr]], str]:
    """What an expression can be broken into: what opens it, its parts with what stands before each, what closes it."""
    match expr:
        case ListExpr(items=items):
            return "[", [("", item) for item in items], "]"
        case RecordExpr(fields=fields):
            return "{", [(f"{name if is_word(name) else quote(name)}: ", value) for name, value in fields], "}"
        case Call(function=function, args=args, named=named):
            return f"{function}(", [*(("", arg) for arg in args), *((f"{name}: ", value) for name, value in named)], ")"
    return "", [], ""
