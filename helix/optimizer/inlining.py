"""Puts an expression or a template together from those that it reads: what the rule `inline_text` does to one node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from helix.expr import Arg, Binary, Call, Expr, Field, Index, ListExpr, Literal, RecordExpr, transform
from helix.logical import Apply, Render, Value
from helix.optimizer.fallible import Fates
from helix.optimizer.safety import safe_type
from helix.templates.template import Block, Segment, Slot
from helix.types import is_textual

# Texts that repeat each other grow with each step: beyond so many pieces they stay apart.
MOST_SEGMENTS = 400
_MOST_STEPS = 4000

Bound = tuple[Expr, tuple[Value, ...]]


class TooLarge(Exception):
    """What would be put together is too large to be of use."""


class Inliner:
    """Puts together one expression or template; `args` are the inputs of the result.

    `taking` allows to take an item or a field out of a list or record, whose other parts are then not read any more.
    `is_private` says of an expression that nobody else reads it, so that no work is done twice. Raises TooLarge.
    """

    def __init__(self, fates: Fates, is_private: Callable[[Value], bool], *, taking: bool) -> None:
        self._fates = fates
        self._is_private = is_private
        self._taking = taking
        self._steps = 0
        self.args: list[Value] = []

    def _count(self) -> None:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise TooLarge

    def is_text(self, value: Value) -> bool:
        """Whether a value is a text that is put together of others and cannot fail."""
        if not isinstance(value, Apply) or not self._fates.safe(value):
            return False
        try:
            return self._split(*self._head(value.expr, value.args)) is not None
        except TooLarge:
            return False

    # --- expressions ---

    def expanded(self, expr: Expr, args: tuple[Value, ...]) -> Expr:
        """An expression with what it reads put in, over `self.args`."""
        self._count()
        expr, args = self._head(expr, args)
        match expr:
            case Arg(index=index):
                value = args[index]
                if isinstance(value, Apply) and self._fates.safe(value) and self._is_private(value):
                    return self.expanded(value.expr, value.args)
                return self._input(value, expr)
            case Call(function="len", args=(counted,)) if self._taking:
                items = self._items((counted, args))
                if items is not None:
                    return Literal(value=len(items), span=expr.span)
        return self._with_parts(expr, args)

    def _with_parts(self, expr: Expr, args: tuple[Value, ...]) -> Expr:
        match expr:
            case Field(base=base):
                return replace(expr, base=self.expanded(base, args))
            case Index(base=base, index=index):
                return replace(expr, base=self.expanded(base, args), index=self.expanded(index, args))
            case ListExpr(items=items):
                return replace(expr, items=tuple(self.expanded(item, args) for item in items))
            case RecordExpr(fields=fields):
                return replace(expr, fields=tuple((name, self.expanded(value, args)) for name, value in fields))
            case Binary(left=left, right=right):
                return replace(expr, left=self.expanded(left, args), right=self.expanded(right, args))
            case Call(args=given):
                return replace(expr, args=tuple(self.expanded(arg, args) for arg in given))
        return self._over_inputs(expr, args)

    def _over_inputs(self, expr: Expr, args: tuple[Value, ...]) -> Expr:
        return transform(expr, lambda leaf: self._input(args[leaf.index], leaf) if isinstance(leaf, Arg) else leaf)

    def _input(self, value: Value, at: Expr) -> Arg:
        if value not in self.args:
            self.args.append(value)
        return Arg(index=self.args.index(value), span=at.span)

    def _head(self, expr: Expr, args: tuple[Value, ...]) -> Bound:
        """The expression with items and fields taken out of the lists and records that are made in sight."""
        while self._taking:
            taken: Bound | None = None
            match expr:
                case Index(base=base, index=Literal(value=int() as place)) if not isinstance(place, bool):
                    items = self._items((base, args))
                    if items is not None and -len(items) <= place < len(items):
                        taken = items[place]
                case Field(base=base, name=name):
                    inner, given = self._looked_through(base, args)
                    known = dict(inner.fields) if isinstance(inner, RecordExpr) else {}
                    # What is not taken would not be computed any more, so it must not fail.
                    if name in known and self._type(inner, given) is not None:
                        taken = known[name], given
            if taken is None:
                break
            expr, args = taken
        return expr, args

    def _type(self, expr: Expr, args: tuple[Value, ...]) -> object:
        return safe_type(expr, self._fates.kinds(args))

    def _looked_through(self, expr: Expr, args: tuple[Value, ...]) -> Bound:
        """What makes a value: through an input that is an expression which cannot fail."""
        expr, args = self._head(expr, args)
        while isinstance(expr, Arg):
            value = args[expr.index]
            if not isinstance(value, Apply) or not self._fates.safe(value):
                break
            expr, args = self._head(value.expr, value.args)
        return expr, args

    def _items(self, bound: Bound) -> list[Bound] | None:
        """The items of a list that is made in sight and cannot fail."""
        expr, args = self._looked_through(*bound)
        if not isinstance(expr, ListExpr) or self._type(expr, args) is None:
            return None
        return [(item, args) for item in expr.items]

    # --- texts ---

    def segments(self, segments: tuple[Segment, ...], args: tuple[Value, ...]) -> list[Segment]:
        """The pieces of a template with the texts that it reads put in; more than MOST_SEGMENTS are too many."""
        found: list[Segment] = []
        for segment in segments:
            match segment:
                case Slot(value=value):
                    found += self._pieces(value, args)
                case Block(inputs=inputs):
                    given = tuple(self._over_inputs(value, args) for value in inputs)
                    found.append(replace(segment, inputs=given))
                case _:
                    found.append(segment)
            if len(found) > MOST_SEGMENTS:
                break
        return found

    def _pieces(self, expr: Expr, args: tuple[Value, ...]) -> list[Segment]:
        """What a slot shows, in pieces."""
        self._count()
        expr, args = self._head(expr, args)
        value = args[expr.index] if isinstance(expr, Arg) else None
        split: list[Segment] | None = None
        if isinstance(value, Render):
            if self._fates.safe(value):
                return self.segments(value.template.segments, value.args)
        elif isinstance(value, Apply):
            if self._fates.safe(value):
                split = self._split(*self._head(value.expr, value.args))
        elif value is None:
            split = self._split(expr, args)
        return [Slot(value=self.expanded(expr, args))] if split is None else split

    def _split(self, expr: Expr, args: tuple[Value, ...]) -> list[Segment] | None:
        """The pieces of a text that is put together of others; None where it is not, or where it can fail."""
        kinds = self._fates.kinds(args)
        match expr:
            case Literal():
                return [Slot(value=expr)]
            case Arg():
                return self._pieces(expr, args)
            case Binary(op="+", left=left, right=right):
                sides = (safe_type(left, kinds), safe_type(right, kinds))
                if all(side is not None and is_textual(side) for side in sides):
                    return [*self._pieces(left, args), *self._pieces(right, args)]
            case Call(function="text", args=(shown,)) if safe_type(shown, kinds) is not None:
                return self._pieces(shown, args)
            case Call(function="join", args=(listed, *rest)) if safe_type(expr, kinds) is not None:
                items = self._items((listed, args))
                return None if items is None else self._joined(items, [(each, args) for each in rest])
        return None

    def _joined(self, items: list[Bound], separator: list[Bound]) -> list[Segment]:
        found: list[Segment] = []
        for place, (item, args) in enumerate(items):
            for between in separator if place else ():
                found += self._pieces(*between)
            found += self._pieces(item, args)
            if len(found) > MOST_SEGMENTS:
                break
        return found
