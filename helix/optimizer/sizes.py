"""How large values are in tokens before they exist: sizes carried through a plan's expressions.

A size is a rough picture of a value: its tokens as text, and the items or fields it has where it has them. Columns
take theirs from the table, replies from what is known of their length, and expressions make sizes of sizes. All of it
is estimate; what the plan says literally is counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from helix.expr import Arg, Binary, Call, Expr, Field, Index, ListExpr, Literal, RecordExpr, Unary
from helix.functions import to_text
from helix.logical import Const, Generate, Project
from helix.optimizer.lengths import Length
from helix.optimizer.rule import TableStats
from helix.optimizer.tokens import Tokenizer
from helix.optimizer.tree.expected import ITEMS
from helix.optimizer.tree.refs import HoleSource, Ref, Resolution
from helix.templates.template import Block, Slot
from helix.types import BOOL, FLOAT, INT, TEXT, Choice, ListOf, Optional, Record, Table, Type

# Tokens of values of which nothing is known.
COLUMN = 64.0
TOOL = 128.0
_SMALL = 2.0
_TAG = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_MOST_ROUNDS = 32


@dataclass(frozen=True, slots=True)
class Size:
    """A value's tokens; how many items of which size where it is a list, its fields where it is a record."""

    tokens: float
    items: float | None = None
    item: Size | None = None
    fields: tuple[tuple[str, Size], ...] = ()


NOTHING = Size(0.0)


@dataclass(slots=True, kw_only=True)
class Sizes:
    """The sizes of one plan. `holes` gives for each hole its tokens by the round of its innermost `repeat`, from 0;
    outside loops there is one.
    """

    refs: list[Size]
    holes: dict[int, list[float]] = field(default_factory=dict)
    lists: dict[int, float] = field(default_factory=dict)

    def tokens(self, hole: int, round_: int = 0) -> float:
        """The tokens of a hole in a round; later rounds than were looked at are like the last one."""
        found = self.holes[hole]
        return found[min(round_, len(found) - 1)]

    def mean(self, hole: int) -> float:
        """The mean tokens of a hole over its rounds."""
        found = self.holes[hole]
        return sum(found) / len(found)


def estimate_sizes(
    found: Resolution, tokenizer: Tokenizer, stats: TableStats | None, lengths: Mapping[int, Length]
) -> Sizes:
    """The sizes of a plan's values. `lengths` are those of replies by call site."""
    return _Estimator(found, tokenizer, stats, lengths).run()


class _Estimator:
    def __init__(
        self, found: Resolution, tokenizer: Tokenizer, stats: TableStats | None, lengths: Mapping[int, Length]
    ) -> None:
        self._found = found
        self._tokenizer = tokenizer
        self._stats = stats
        self._lengths = lengths
        self._sizes: list[Size] = [NOTHING] * len(found.refs)
        self._replies = {site.ref: site.index for site in reversed(found.calls)}
        self._rounds = self._loops()
        self._own: dict[int, list[HoleSource]] = {}
        for source in found.holes.values():
            frame = max((found.refs[arg].frame for arg in source.args), default=0)
            self._own.setdefault(self._rounds[frame], []).append(source)
        self._done: set[int] = set()
        self._made = Sizes(refs=self._sizes)

    def run(self) -> Sizes:
        for ref in self._found.refs:
            self._take(ref)
        for source in self._own.get(-1, ()):
            self._made.holes[source.hole.key] = [self.hole(source)]
        for loop, sources in self._own.items():
            if loop >= 0 and loop not in self._done:
                self._simulate(loop, len(self._found.refs))
            for source in sources:
                self._made.holes.setdefault(source.hole.key, [self.hole(source)])
        for index, place in enumerate(self._found.places):
            if place.kind in ("items", "spread") and place.value is not None:
                self._made.lists[index] = self._length(place.value)
        return self._made

    def _loops(self) -> list[int]:
        """For each frame the innermost `repeat` that it is in or is, -1 for none."""
        made: list[int] = []
        for index, place in enumerate(self._found.places):
            made.append(index if place.kind == "rounds" else made[place.parent] if place.parent >= 0 else -1)
        return made

    def _within(self, frame: int, loop: int) -> bool:
        while frame > loop:
            frame = self._found.places[frame].parent
        return frame == loop

    def _take(self, ref: Ref) -> None:
        if ref.kind == "repeat" and ref.inner >= 0 and ref.inner not in self._done:
            self._simulate(ref.inner, ref.index)
        self._sizes[ref.index] = self._size(ref)

    def _simulate(self, loop: int, until: int) -> None:
        """Goes through a loop's rounds, so that what it carries round grows as it will; notes its holes by round."""
        self._done.add(loop)
        place = self._found.places[loop]
        inside = [ref for ref in self._found.refs[:until] if self._within(ref.frame, loop) and ref.kind != "carried"]
        rounds = max(1, min(_MOST_ROUNDS, round(place.expected + 0.49)))
        for number in range(rounds):
            if number:
                carried = [(ref, self._sizes[result]) for ref, _, result in place.carried]
                for ref, size in carried:
                    self._sizes[ref] = size
                for inner in inside:
                    self._sizes[inner.index] = self._size(inner)
            for source in self._own.get(loop, ()):
                self._made.holes.setdefault(source.hole.key, []).append(self.hole(source))

    def _length(self, ref: int) -> float:
        size = self._sizes[ref]
        return ITEMS if size.items is None else size.items

    # --- values ---

    def _size(self, ref: Ref) -> Size:
        args = [self._sizes[arg] for arg in ref.args]
        places = self._found.places
        match ref.kind:
            case "const":
                assert isinstance(ref.node, Const)
                return self.of_value(json.loads(ref.node.json))
            case "column":
                return self._column(ref, args)
            case "item":
                return args[0].item or self.of_type(ref.type, args[0].tokens / (args[0].items or ITEMS))
            case "carried":
                return args[0]
            case "reply":
                assert isinstance(ref.node, Generate)
                one = self.of_type(ref.node.returns, self._lengths[self._replies[ref.index]].mean)
                return one if ref.node.sample == 1 else self._list(float(ref.node.sample), one)
            case "tool":
                return self.of_type(ref.type, TOOL)
            case "map":
                return self._list(self._length(ref.args[0]), args[1])
            case "choose":
                share = places[ref.inner].expected
                chosen = args[1] if args[1].tokens >= args[2].tokens else args[2]
                tokens = share * args[1].tokens + (1 - share) * args[2].tokens
                return Size(tokens, chosen.items, chosen.item, chosen.fields)
            case "repeat":
                return args[0]
            case "apply":
                assert ref.expr is not None
                return self.expr(ref.expr, args)
            case "render":
                assert ref.template is not None
                tokens = 0.0
                for segment in ref.template.segments:
                    if isinstance(segment, Slot):
                        tokens += self.expr(segment.value, args).tokens
                    elif isinstance(segment, Block):
                        tokens += self._block(segment, args)
                    else:
                        tokens += self._tokenizer.count(segment.text)
                return Size(tokens)
        raise AssertionError(ref.kind)

    def _column(self, ref: Ref, args: list[Size]) -> Size:
        place = self._found.places[ref.frame]
        if place.kind == "group":
            if not isinstance(ref.node, Project) or ref.field != "rows":
                return args[0] if args else Size(COLUMN)
            names = [name for name, _ in place.node.columns]  # type: ignore[attr-defined]
            record = self._record(tuple(zip(names, args, strict=False)))
            return self._list(1 / place.expected if place.expected else 1.0, record)
        known = self._stats.columns.get(ref.field) if self._stats is not None else None
        if known is None:
            return self.of_type(ref.type, COLUMN)
        made = self.of_type(ref.type, known.tokens)
        if known.items is None:
            return made if not isinstance(ref.type, ListOf | Table) else Size(made.tokens)
        inner = ref.type.inner if isinstance(ref.type, Optional) else ref.type
        kind: Type = inner.item if isinstance(inner, ListOf) else TEXT
        share = known.tokens / known.items if known.items else 0.0
        return Size(known.tokens, known.items, self.of_type(kind, max(0.0, share - _SMALL / 2)))

    def of_type(self, kind: Type, tokens: float) -> Size:
        """A value of a type that takes so many tokens: shared out over its items or fields."""
        match kind:
            case Optional(inner):
                return self.of_type(inner, tokens)
            case ListOf(item):
                return Size(tokens, ITEMS, self.of_type(item, max(0.0, tokens / ITEMS - 1)))
            case Table():
                return Size(tokens, ITEMS, Size(tokens / ITEMS))
            case Record(fields):
                small = {name: self._small(field_kind) for name, field_kind in fields}
                rest = tokens - sum(size for size in small.values() if size is not None) - 3 * len(fields)
                large = sum(size is None for size in small.values())
                sizes = tuple(
                    (
                        name,
                        self.of_type(field_kind, max(1.0, rest / large) if small[name] is None else small[name] or 0),
                    )
                    for name, field_kind in fields
                )
                return Size(tokens, None, None, sizes)
        own = self._small(kind)
        return Size(tokens if own is None else own)

    def _small(self, kind: Type) -> float | None:
        """The tokens of values of a type that are short whatever they are; None for others."""
        if isinstance(kind, Optional):
            return self._small(kind.inner)
        if isinstance(kind, Choice):
            return sum(self._tokenizer.count(label) for label in kind.labels) / len(kind.labels)
        short: dict[Type, float] = {INT: _SMALL, FLOAT: _SMALL + 1, BOOL: 1.0}
        return short.get(kind)

    def of_value(self, value: Any) -> Size:
        """The size of a value that is there."""
        tokens = float(self._tokenizer.count(to_text(value)))
        if isinstance(value, list):
            items = [self.of_value(item) for item in value]
            return Size(tokens, float(len(items)), self._mean(items))
        if isinstance(value, dict):
            return Size(tokens, None, None, tuple((name, self.of_value(item)) for name, item in value.items()))
        return Size(tokens)

    def _mean(self, items: Sequence[Size]) -> Size | None:
        if not items:
            return None
        tokens = sum(item.tokens for item in items) / len(items)
        return Size(tokens, items[0].items, items[0].item, items[0].fields)

    def _list(self, count: float, item: Size) -> Size:
        return Size(count * (item.tokens + 1) + 2, count, item)

    def _record(self, fields: tuple[tuple[str, Size], ...]) -> Size:
        tokens = sum(size.tokens + self._tokenizer.count(name) + 3 for name, size in fields) + 1
        return Size(tokens, None, None, fields)

    # --- holes and expressions ---

    def hole(self, source: HoleSource) -> float:
        """The tokens that a hole takes in the prompt."""
        args = [self._sizes[arg] for arg in source.args]
        segment = source.template.segments[0]
        if isinstance(segment, Slot):
            return self.expr(segment.value, args).tokens
        return self._block(segment, args) if isinstance(segment, Block) else 0.0

    def _block(self, block: Block, args: Sequence[Size]) -> float:
        """A block's values, and its own text once for each item of what it loops over."""
        inputs = [self.expr(value, args) for value in block.inputs]
        literal = self._tokenizer.count(_TAG.sub("", block.source))
        often = max((size.items or 1.0 for size in inputs), default=1.0) if "{% for" in block.source else 1.0
        return literal * often + sum(size.tokens for size in inputs)

    def expr(self, expr: Expr, args: Sequence[Size]) -> Size:
        """The size of an expression over sizes."""
        match expr:
            case Literal(value=value):
                return self.of_value(value)
            case Arg(index=index):
                return args[index]
            case Field(base=base, name=name):
                inner = self.expr(base, args)
                return dict(inner.fields).get(name) or Size(inner.tokens / max(2, len(inner.fields) or 4))
            case Index(base=base):
                inner = self.expr(base, args)
                return inner.item or Size(inner.tokens / (inner.items or ITEMS))
            case ListExpr(items=items):
                sizes = [self.expr(item, args) for item in items]
                tokens = sum(size.tokens + 1 for size in sizes) + 1
                return Size(tokens, float(len(sizes)), self._mean(sizes))
            case RecordExpr(fields=fields):
                return self._record(tuple((name, self.expr(value, args)) for name, value in fields))
            case Unary(op="not"):
                return Size(1.0)
            case Unary(operand=operand):
                return self.expr(operand, args)
            case Binary(op=op, left=left, right=right):
                return self._binary(op, self.expr(left, args), self.expr(right, args))
            case Call():
                return self._call(expr.function, [self.expr(arg, args) for arg in expr.args], expr)
        return NOTHING

    def _binary(self, op: str, left: Size, right: Size) -> Size:
        if op in ("and", "or"):
            return left if left.tokens >= right.tokens else right
        if op != "+":
            return Size(1.0 if op not in ("-", "*", "/") else _SMALL)
        if left.items is None and right.items is None:
            return Size(left.tokens + right.tokens)
        count = (left.items or 0.0) + (right.items or 0.0)
        item = right.item if right.item is not None else left.item
        if left.item is not None and right.item is not None and count:
            tokens = (left.item.tokens * (left.items or 0) + right.item.tokens * (right.items or 0)) / count
            item = Size(tokens, right.item.items, right.item.item, right.item.fields)
        return Size(left.tokens + right.tokens, count, item)

    def _call(self, name: str, args: list[Size], call: Call) -> Size:
        first = args[0] if args else NOTHING
        items = ITEMS if first.items is None else first.items
        item = first.item or Size(first.tokens / items if items else 0.0)
        match name:
            case "join":
                separator = args[1].tokens if len(args) > 1 else 0.0
                return Size(items * item.tokens + max(0.0, items - 1) * separator)
            case "len" | "sum" | "int" | "float" | "round" | "abs":
                return Size(_SMALL)
            case "first" | "last" | "min" | "max":
                return item if first.items is not None else Size(1.0)
            case "take":
                limit = call.args[1].value if len(call.args) > 1 and isinstance(call.args[1], Literal) else None
                if first.items is None or not isinstance(limit, int):
                    return first
                count = min(first.items, float(limit))
                return self._list(count, item)
            case "split":
                return Size(first.tokens, ITEMS, Size(first.tokens / ITEMS))
            case "range":
                return Size(2 * ITEMS, ITEMS, Size(1.0))
            case "default":
                other = args[1] if len(args) > 1 else NOTHING
                return first if first.tokens >= other.tokens else other
            case "text" | "json" | "lower" | "upper" | "trim" | "replace" | "reverse" | "sort" | "unique":
                return first
        # A declared function: its result is taken to be as long as what it is given.
        return Size(max((size.tokens for size in args), default=_SMALL))
