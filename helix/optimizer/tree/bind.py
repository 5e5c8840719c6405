"""Binds the prompts of a plan to the rows of a table, before anything is called.

What the input alone decides is computed as a run would: texts of prompts, conditions of filters and branches, lists
of loops. What an engine or tool will say is unknown: it gets a number that is equal wherever the value is bound to be
equal (the same step over equal inputs), and an estimated size. Where a branch or loop hangs on an unknown value, its
calls are bound with the chance that they are made.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from helix.errors import HelixError
from helix.evaluate import Callables
from helix.functions import to_text
from helix.optimizer.sizes import Sizes
from helix.optimizer.tokens import Tokenizer
from helix.optimizer.tree.frames import Code, Frames, around_frame
from helix.optimizer.tree.refs import Place, Resolution
from helix.optimizer.tree.shape import Tree, bits
from helix.optimizer.tree.trie import Paths, unknown_number, value_number
from helix.schema import has_default, is_required
from helix.types import JSON, TEXT

Row = Mapping[str, Any]
# Texts whose numbers are remembered, by their characters together.
_MEMO = 16_000_000
_MOST_ITEMS = 100_000


class _Failed:
    """A value that a row has not: its steps are not called."""


_FAILED = _Failed()


@dataclass(slots=True)
class Instance:
    """One run of a frame: a row, an item, a round, an arm.

    `order` are the ops of the frame that are called, as `Paths.order` gives them. By the number of the hole:
    `numbers` and `tokens` of its value, `texts` where it is known. `weight` is the chance that it runs.
    """

    row: int
    frame: int
    weight: float
    round: int
    raw: list[Any]
    numbers: list[int]
    tokens: list[float]
    texts: list[str | None]
    roots: list[int]
    failed: frozenset[int]
    order: Sequence[tuple[int, int]] = ()


class Binder:
    """Binds the rows of one table, once.

    `callables` are the declared functions by name; `resolve_plan` was given their names.
    """

    def __init__(
        self,
        found: Resolution,
        tree: Tree,
        sizes: Sizes,
        tokenizer: Tokenizer,
        callables: Callables | None = None,
    ) -> None:
        self.paths = Paths(tree)
        self.failed_rows = 0
        self.rows = 0
        # How often each frame ran.
        self.weights = [0.0] * len(found.places)
        self._found = found
        self._tree = tree
        self._sizes = sizes
        self._tokenizer = tokenizer
        self._classes: dict[tuple[int, ...], int] = {}
        self._serial = 0
        self._memo: dict[str, tuple[int, float]] = {}
        self._memo_size = 0
        self._left = [float(place.times) if place.kind == "limit" else math.inf for place in found.places]
        self._groups: dict[int, dict[tuple[Any, ...], list[Instance]]] = {}
        self._frames = Frames(found, self.paths, callables or {})

    # --- running ---

    def run(self, rows: Iterable[Row]) -> Iterator[Instance]:
        """The instances of all frames, those of a row together, those of groups at the end."""
        slots = self._table_slots()
        holes = len(self.paths.keys)
        limits = self._limits()
        for number, row in enumerate(rows):
            if any(self._left[frame] <= 0 for frame in limits):
                break
            self.rows += 1
            raw = self._table_row(row, slots)
            if raw is None:
                self.failed_rows += 1
                continue
            first = Instance(
                number, 0, 1.0, 0, raw, [0] * holes, [0.0] * holes, [None] * holes,
                [0] * len(self._found.refs), frozenset(),
            )  # fmt: skip
            yield from self._flow(first)
        # A grouping over a grouping is filled while the first one is emptied.
        for frame, place in enumerate(self._found.places):
            if place.kind == "group":
                for made in self._emptied(frame, place):
                    yield from self._flow(made)

    def _table_row(self, row: Row, slots: Mapping[str, int]) -> list[Any] | None:
        """The values of an input row by slot; None where one that is needed is not there or blank."""
        raw = self._frames.blank.copy()
        for column in self._found.plan.scan.columns:
            value = row.get(column.name)
            if value is None:
                if has_default(column):
                    value = column.default
                elif is_required(column) and column.type != JSON:
                    return None
            elif (
                value.__class__ is str
                and (not value or value.isspace())
                and is_required(column)
                and column.type == TEXT
            ):
                return None
            if column.name in slots:
                raw[slots[column.name]] = value
        return raw

    def _limits(self) -> list[int]:
        """The limits that end the reading of rows: those that stand over no sort and no grouping."""
        found: list[int] = []
        for frame, place in enumerate(self._found.places):
            kinds = [self._found.places[outer].kind for outer in around_frame(self._found, frame)]
            if place.kind == "limit" and "sort" not in kinds and "group" not in kinds:
                found.append(frame)
        return found

    def _table_slots(self) -> dict[str, int]:
        places = self._found.places
        return {
            ref.field: self._frames.slots[ref.index]
            for ref in self._found.refs
            if ref.kind == "column" and ref.index in self._frames.slots and places[ref.frame].kind == "rows"
        }

    def _flow(self, first: Instance) -> Iterator[Instance]:
        """An instance and all that runs inside it, the outer before the inner."""
        stack: list[Iterator[Instance]] = [iter((first,))]
        while stack:
            here = next(stack[-1], None)
            if here is None:
                stack.pop()
                continue
            code = self._frames.codes[here.frame]
            self.weights[here.frame] += here.weight
            self._enter(here, code)
            if code.order:
                here.order = self._called(code.order, here.failed) if here.failed else code.order
                yield here
            if code.children:
                stack.append(self._below(here, code))

    def _below(self, here: Instance, code: Code) -> Iterator[Instance]:
        for frame in code.children:
            yield from self._children(here, frame)

    def _called(self, order: list[tuple[int, int]], failed: frozenset[int]) -> list[tuple[int, int]]:
        """The ops that are called where some holes have no value: none that reads one, and none that waits for such."""
        lost = 0
        for op in range(len(self._tree.ops)):
            holes = (self.paths.holes[place] for place in self.paths.paths[op])
            if self._tree.ops[op].needs & lost or any(hole in failed for hole in holes):
                lost |= 1 << op
        return self.paths.order(op for op, _ in order if not lost >> op & 1)

    def _enter(self, here: Instance, code: Code) -> None:
        raw = here.raw
        for slot, run in code.computed:
            try:
                raw[slot] = run(raw)
            except (HelixError, TypeError, ValueError, AttributeError, LookupError, RecursionError):
                raw[slot] = _FAILED
        for root in code.random:
            self._serial -= 1
            here.roots[root] = self._serial
        for root, slot in code.columns:
            here.roots[root] = self._number(raw[slot])[0]
        for number, render in code.known:
            try:
                text = render(raw)
            except (HelixError, TypeError, ValueError, AttributeError, LookupError, RecursionError):
                here.failed |= {number}
                continue
            here.texts[number] = text
            here.numbers[number], here.tokens[number] = self._text(text)
        if code.unknown:
            classes: dict[int, int] = {}
            count = len(self.paths.keys)
            for number, key, roots in code.unknown:
                found = classes.get(roots)
                if found is None:
                    found = classes[roots] = self._class(here, roots)
                here.numbers[number] = unknown_number(found * count + number)
                here.tokens[number] = self._sizes.tokens(key, here.round)

    def _text(self, text: str) -> tuple[int, float]:
        known = self._memo.get(text)
        if known is None:
            self._memo_size += len(text) + 100
            if self._memo_size > _MEMO:
                self._memo.clear()
                self._memo_size = len(text) + 100
            known = self._memo[text] = (value_number(text), float(self._tokenizer.count(text)))
        return known

    def _number(self, value: Any) -> tuple[int, float]:
        """A number for a value that decides others, by its text."""
        if value.__class__ is str:
            return self._text(value)
        try:
            return value_number("\0" + to_text(value)), 0.0
        except (HelixError, TypeError, ValueError):
            return value_number("\0" + repr(value)), 0.0

    def _class(self, here: Instance, roots: int) -> int:
        """A number for the values of some roots together."""
        key = (roots, *(here.roots[root] for root in bits(roots)))
        return self._classes.setdefault(key, len(self._classes))

    def _children(self, here: Instance, frame: int) -> Iterator[Instance]:
        place = self._found.places[frame]
        match place.kind:
            case "filter" | "then" | "otherwise":
                weight = here.weight * self._chance(here, place)
                if weight > 0:
                    yield self._inside(here, frame, weight)
            case "items" | "spread":
                yield from self._items(here, frame, place)
            case "rounds":
                yield from self._rounds(here, frame, place)
            case "group":
                self._grouped(here, frame, place)
            case "limit":
                if self._left[frame] > 0:
                    self._left[frame] -= here.weight
                    yield self._inside(here, frame, here.weight)
            case _:
                yield self._inside(here, frame, here.weight)

    def _inside(self, here: Instance, frame: int, weight: float) -> Instance:
        code = self._frames.codes[frame]
        if not (code.computed or code.known or code.unknown or code.random or code.columns):
            # Nothing is written in the frame, so it may read what its parent holds.
            return Instance(
                here.row, frame, weight, here.round, here.raw, here.numbers, here.tokens, here.texts, here.roots,
                here.failed,
            )  # fmt: skip
        return Instance(
            here.row, frame, weight, here.round, here.raw.copy(), here.numbers.copy(), here.tokens.copy(),
            here.texts.copy(), here.roots.copy(), here.failed,
        )  # fmt: skip

    def _chance(self, here: Instance, place: Place) -> float:
        assert place.value is not None
        slot = self._frames.slots.get(place.value)
        if slot is None:
            return place.expected
        value = here.raw[slot]
        if value is _FAILED:
            return 0.0
        return float(bool(value)) if place.kind != "otherwise" else float(not value)

    def _items(self, here: Instance, frame: int, place: Place) -> Iterator[Instance]:
        assert place.value is not None
        assert place.item is not None
        slot = self._frames.slots.get(place.value)
        if slot is not None:
            items = here.raw[slot]
            for item in items[:_MOST_ITEMS] if isinstance(items, list) else ():
                made = self._fresh(here, frame, here.weight)
                if place.item in self._frames.slots:
                    made.raw[self._frames.slots[place.item]] = item
                else:
                    made.roots[place.item] = self._number(item)[0]
                yield made
            return
        expected = self._sizes.lists.get(frame, place.expected)
        over = self._class(here, self._found.refs[place.value].roots)
        for position in range(math.ceil(expected)):
            made = self._fresh(here, frame, here.weight * min(1.0, expected - position))
            made.roots[place.item] = self._classes.setdefault((-1, frame, over, position), len(self._classes))
            yield made

    def _fresh(self, here: Instance, frame: int, weight: float) -> Instance:
        return Instance(
            here.row, frame, weight, here.round, here.raw.copy(), here.numbers.copy(), here.tokens.copy(),
            here.texts.copy(), here.roots.copy(), here.failed,
        )  # fmt: skip

    def _rounds(self, here: Instance, frame: int, place: Place) -> Iterator[Instance]:
        over = self._class(here, self._frames.loop_roots(place))
        if any(
            self._found.refs[root].random
            for _, _, result in place.carried
            for root in bits(self._found.refs[result].roots)
        ):
            self._serial -= 1
            over = self._serial
        for number in range(place.times):
            weight = 1.0 if place.source == "plan" else max(0.0, 1 - number / place.times)
            made = self._fresh(here, frame, here.weight * weight)
            made.round = number
            for carried, _, _ in place.carried:
                made.roots[carried] = self._classes.setdefault((-2, carried, over, number), len(self._classes))
            yield made

    # --- groups ---

    def _grouped(self, here: Instance, frame: int, place: Place) -> None:
        keys: list[Any] = []
        count = len(place.node.keys)  # type: ignore[attr-defined]
        for value in place.values[:count]:
            slot = self._frames.slots.get(value)
            if slot is None:
                keys.append(("?", self._class(here, self._found.refs[value].roots)))
            else:
                if here.raw[slot] is _FAILED:
                    return
                keys.append(self._number(here.raw[slot])[0])
        self._groups.setdefault(frame, {}).setdefault(tuple(keys), []).append(here)

    def _emptied(self, frame: int, place: Place) -> Iterator[Instance]:
        """The groups as rows, in the order in which they first came. Unknown keys give about as many as expected."""
        groups = self._groups.pop(frame, {})
        count = len(place.node.keys)  # type: ignore[attr-defined]
        names = [name for name, _ in (*place.node.keys, *place.node.columns)]  # type: ignore[attr-defined]
        known = all(value in self._frames.slots for value in place.values[:count])
        total = sum(member.weight for members in groups.values() for member in members)
        limit = math.inf if known else max(1.0, place.expected * total)
        for members in groups.values():
            if limit <= 0:
                return
            first = members[0]
            weight = min(1.0, limit, sum(member.weight for member in members))
            limit -= 1
            made = self._fresh(first, frame, weight)
            for ref in self._found.refs:
                if ref.kind != "column" or ref.frame != frame:
                    continue
                self._serial -= 1
                made.roots[ref.index] = self._serial
                if ref.index not in self._frames.slots:
                    continue
                slot = self._frames.slots[ref.index]
                if ref.field in names[:count]:
                    made.raw[slot] = first.raw[self._frames.slots[place.values[names.index(ref.field)]]]
                else:
                    columns = list(zip(names[count:], place.values[count:], strict=True))
                    made.raw[slot] = [
                        {name: member.raw[self._frames.slots[value]] for name, value in columns} for member in members
                    ]
            yield made
