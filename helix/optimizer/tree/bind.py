"""Binds the prompts of a plan to the rows of a table, before anything is called.

What the input alone decides is computed as a run would: texts of prompts, conditions of filters and branches, lists
of loops. What an engine or tool will say is unknown: it gets a number that is equal wherever the value is bound to be
equal (the same step over equal inputs), and an estimated size. Where a branch or loop hangs on an unknown value, its
calls are bound with the chance that they are made.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from helix.errors import HelixError
from helix.evaluate import Callables, evaluator
from helix.expr import Arg, Expr, transform
from helix.functions import to_text
from helix.logical import Const, Generate
from helix.optimizer.sizes import Sizes
from helix.optimizer.tokens import Tokenizer
from helix.optimizer.tree.refs import HoleSource, Place, Ref, Resolution
from helix.optimizer.tree.shape import Tree, bits
from helix.optimizer.tree.trie import Paths, unknown_number, value_number
from helix.schema import has_default, is_required
from helix.template import map_template, renderer

Row = Mapping[str, Any]
_MEMO = 65_536
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


@dataclass(slots=True)
class _Code:
    """What is done on entering a frame."""

    computed: list[tuple[int, Callable[[Sequence[Any]], Any]]]
    known: list[tuple[int, Callable[[Sequence[Any]], str], int]]
    unknown: list[tuple[int, int, int]]
    random: list[int]
    columns: list[tuple[int, int]]
    order: list[tuple[int, int]]
    children: list[int]


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
        self._callables = callables or {}
        self._sites = [site for site in found.calls if isinstance(site.node, Generate)]
        self._slots: dict[int, int] = {}
        self._blank: list[Any] = []
        self._classes: dict[tuple[int, ...], int] = {}
        self._serial = 0
        self._memo: dict[str, tuple[int, float]] = {}
        self._left = [float(place.times) if place.kind == "limit" else math.inf for place in found.places]
        self._groups: dict[int, dict[tuple[Any, ...], list[Instance]]] = {}
        self._codes = self._compile()

    # --- compiling ---

    def _compile(self) -> list[_Code]:
        places = self._found.places
        codes = [_Code([], [], [], [], [], [], []) for _ in places]
        for index, place in enumerate(places):
            if place.parent >= 0:
                codes[place.parent].children.append(index)
        homes = self._homes()
        for (key, frame), number in homes.items():
            source = self._found.holes[key]
            if source.known:
                slots = [self._slot(arg, codes) for arg in source.args]
                codes[frame].known.append((number, self._renderer(source, slots), len(slots)))
            else:
                codes[frame].unknown.append((number, key, source.roots))
        needed = 0
        for code in codes:
            for _, _, roots in code.unknown:
                needed |= roots
        for index, place in enumerate(places):
            if place.value is not None and self._found.refs[place.value].known:
                self._slot(place.value, codes)
            elif place.value is not None:
                needed |= self._found.refs[place.value].roots
            if place.kind == "group":
                for value in place.values:
                    if self._found.refs[value].known:
                        self._slot(value, codes)
                    needed |= self._found.refs[value].roots
            if place.kind == "rounds":
                needed |= self._loop_roots(place)
            ops = [op for op, site in enumerate(self._sites) if site.frame == index]
            codes[index].order = self.paths.order(ops)
        for root in bits(needed):
            ref = self._found.refs[root]
            if ref.known and ref.kind in ("column", "item"):
                codes[ref.frame].columns.append((root, self._slot(root, codes)))
            elif ref.random:
                codes[ref.frame].random.append(root)
        return codes

    def _homes(self) -> dict[tuple[int, int], int]:
        """Where each hole is computed: in the frame of what it reads, or of the op where that is not around it."""
        homes: dict[tuple[int, int], int] = {}
        for op, site in enumerate(self._sites):
            around = set(self._around(site.frame))
            for place in self.paths.paths[op]:
                number = self.paths.holes[place]
                if number < 0:
                    continue
                key = self.keys[number]
                frames = [self._found.refs[arg].frame for arg in self._found.holes[key].args]
                deepest = max(frames, default=0)
                homes[key, deepest if deepest in around else site.frame] = number
        return homes

    @property
    def keys(self) -> list[int]:
        """The holes' keys by number."""
        return list(self.paths.keys)

    def _around(self, frame: int) -> Iterator[int]:
        while frame >= 0:
            yield frame
            frame = self._found.places[frame].parent

    def _slot(self, index: int, codes: list[_Code]) -> int:
        """The slot of a known value; what computes it goes to its frame, its inputs first."""
        stack = [index]
        while stack:
            ref = self._found.refs[stack[-1]]
            if ref.index in self._slots:
                stack.pop()
                continue
            waiting = [arg for arg in ref.args if arg not in self._slots] if ref.kind in ("apply", "render") else []
            if waiting:
                stack.extend(waiting)
                continue
            stack.pop()
            slot = self._slots[ref.index] = len(self._blank)
            self._blank.append(json.loads(ref.node.json) if isinstance(ref.node, Const) else None)
            if ref.kind in ("apply", "render"):
                codes[ref.frame].computed.append((slot, self._computer(ref)))
        return self._slots[index]

    def _computer(self, ref: Ref) -> Callable[[Sequence[Any]], Any]:
        slots = [self._slots[arg] for arg in ref.args]
        if ref.expr is not None:
            return evaluator(transform(ref.expr, _moved(slots)), self._callables)
        assert ref.template is not None
        return renderer(map_template(ref.template, _moved(slots)), self._callables)

    def _renderer(self, source: HoleSource, slots: list[int]) -> Callable[[Sequence[Any]], str]:
        return renderer(map_template(source.template, _moved(slots)), self._callables)

    def _loop_roots(self, place: Place) -> int:
        """What decides the values that a loop carries round, from outside it."""
        roots = 0
        for _, start, _ in place.carried:
            roots |= self._found.refs[start].roots
        for carried, _, result in place.carried:
            mask = self._found.refs[result].roots
            roots |= mask & ~(1 << carried)
        inner = self._found.refs[place.carried[0][0]].frame if place.carried else -1
        outside = 0
        for root in bits(roots):
            if self._found.refs[root].frame < inner:
                outside |= 1 << root
        return outside

    # --- running ---

    def run(self, rows: Iterable[Row]) -> Iterator[Instance]:
        """The instances of all frames, those of a row together, those of groups at the end."""
        columns = self._found.plan.scan.columns
        slots = self._table_slots()
        holes = len(self.paths.keys)
        limits = self._limits()
        for number, row in enumerate(rows):
            if any(self._left[frame] <= 0 for frame in limits):
                break
            self.rows += 1
            raw = self._blank.copy()
            complete = True
            for column in columns:
                value = row.get(column.name)
                if value is None:
                    if has_default(column):
                        value = column.default
                    elif is_required(column):
                        complete = False
                        break
                if column.name in slots:
                    raw[slots[column.name]] = value
            if not complete:
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

    def _limits(self) -> list[int]:
        """The limits that end the reading of rows: those that stand over no sort and no grouping."""
        found: list[int] = []
        for frame, place in enumerate(self._found.places):
            kinds = [self._found.places[outer].kind for outer in self._around(frame)]
            if place.kind == "limit" and "sort" not in kinds and "group" not in kinds:
                found.append(frame)
        return found

    def _table_slots(self) -> dict[str, int]:
        places = self._found.places
        return {
            ref.field: self._slots[ref.index]
            for ref in self._found.refs
            if ref.kind == "column" and ref.index in self._slots and places[ref.frame].kind == "rows"
        }

    def _flow(self, first: Instance) -> Iterator[Instance]:
        """An instance and all that runs inside it, the outer before the inner."""
        stack: list[Iterator[Instance]] = [iter((first,))]
        while stack:
            here = next(stack[-1], None)
            if here is None:
                stack.pop()
                continue
            code = self._codes[here.frame]
            self.weights[here.frame] += here.weight
            self._enter(here, code)
            if code.order:
                here.order = self._called(code.order, here.failed) if here.failed else code.order
                yield here
            if code.children:
                stack.append(child for frame in code.children for child in self._children(here, frame))

    def _called(self, order: list[tuple[int, int]], failed: frozenset[int]) -> list[tuple[int, int]]:
        """The ops that are called where some holes have no value: none that reads one, and none that waits for such."""
        lost = 0
        for op in range(len(self._tree.ops)):
            holes = (self.paths.holes[place] for place in self.paths.paths[op])
            if self._tree.ops[op].needs & lost or any(hole in failed for hole in holes):
                lost |= 1 << op
        return self.paths.order(op for op, _ in order if not lost >> op & 1)

    def _enter(self, here: Instance, code: _Code) -> None:
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
        for number, render, _ in code.known:
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
            if len(self._memo) >= _MEMO:
                self._memo.clear()
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
        code = self._codes[frame]
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
        slot = self._slots.get(place.value)
        if slot is None:
            return place.expected
        value = here.raw[slot]
        if value is _FAILED:
            return 0.0
        return float(bool(value)) if place.kind != "otherwise" else float(not value)

    def _items(self, here: Instance, frame: int, place: Place) -> Iterator[Instance]:
        assert place.value is not None
        assert place.item is not None
        slot = self._slots.get(place.value)
        if slot is not None:
            items = here.raw[slot]
            for item in items[:_MOST_ITEMS] if isinstance(items, list) else ():
                made = self._fresh(here, frame, here.weight)
                if place.item in self._slots:
                    made.raw[self._slots[place.item]] = item
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
        over = self._class(here, self._loop_roots(place))
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
            slot = self._slots.get(value)
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
        known = all(value in self._slots for value in place.values[:count])
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
                if ref.index not in self._slots:
                    continue
                slot = self._slots[ref.index]
                if ref.field in names[:count]:
                    made.raw[slot] = first.raw[self._slots[place.values[names.index(ref.field)]]]
                else:
                    columns = list(zip(names[count:], place.values[count:], strict=True))
                    made.raw[slot] = [
                        {name: member.raw[self._slots[value]] for name, value in columns} for member in members
                    ]
            yield made


def _moved(slots: Sequence[int]) -> Callable[[Expr], Expr]:
    """Replaces the position of an input by its slot."""
    return lambda part: Arg(index=slots[part.index]) if isinstance(part, Arg) else part
