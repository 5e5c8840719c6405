"""What is done in each frame of a plan when rows are bound to it: compiled once, before the first row."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from helix.evaluate import Callables, evaluator
from helix.expr import Arg, Expr, transform
from helix.logical import Const, Generate
from helix.optimizer.tree.refs import HoleSource, Place, Ref, Resolution
from helix.optimizer.tree.shape import bits
from helix.optimizer.tree.trie import Paths
from helix.templates.template import map_template, renderer


@dataclass(slots=True)
class Code:
    """What is done on entering a frame.

    `computed` are known values by slot, their inputs first. `known` are holes that the table decides, by number;
    `unknown` the others, each with its key and what decides it. `random` and `columns` are the roots that get their
    number here, the columns from their slots. `order` are the ops of the frame, `children` the frames inside it.
    """

    computed: list[tuple[int, Callable[[Sequence[Any]], Any]]]
    known: list[tuple[int, Callable[[Sequence[Any]], str]]]
    unknown: list[tuple[int, int, int]]
    random: list[int]
    columns: list[tuple[int, int]]
    order: list[tuple[int, int]]
    children: list[int]


class Frames:
    """The code of all frames. `slots` says where a known value lies in a row's values, `blank` are those of no row."""

    def __init__(self, found: Resolution, paths: Paths, callables: Callables) -> None:
        self.slots: dict[int, int] = {}
        self.blank: list[Any] = []
        self._found = found
        self._paths = paths
        self._callables = callables
        self._sites = [site for site in found.calls if isinstance(site.node, Generate)]
        self.codes = [Code([], [], [], [], [], [], []) for _ in found.places]
        self._compile()

    def _compile(self) -> None:
        places, codes = self._found.places, self.codes
        for index, place in enumerate(places):
            if place.parent >= 0:
                codes[place.parent].children.append(index)
        homes = self._homes()
        for (key, frame), number in homes.items():
            source = self._found.holes[key]
            if source.known:
                slots = [self._slot(arg) for arg in source.args]
                codes[frame].known.append((number, self._renderer(source, slots)))
            else:
                codes[frame].unknown.append((number, key, source.roots))
        needed = 0
        for code in codes:
            for _, _, roots in code.unknown:
                needed |= roots
        for index, place in enumerate(places):
            if place.value is not None and self._found.refs[place.value].known:
                self._slot(place.value)
            elif place.value is not None:
                needed |= self._found.refs[place.value].roots
            if place.kind == "group":
                for value in place.values:
                    if self._found.refs[value].known:
                        self._slot(value)
                    needed |= self._found.refs[value].roots
            if place.kind == "rounds":
                needed |= self.loop_roots(place)
            ops = [op for op, site in enumerate(self._sites) if site.frame == index]
            codes[index].order = self._paths.order(ops)
        for root in bits(needed):
            ref = self._found.refs[root]
            if ref.known and ref.kind in ("column", "item"):
                codes[ref.frame].columns.append((root, self._slot(root)))
            elif ref.random:
                codes[ref.frame].random.append(root)

    def _homes(self) -> dict[tuple[int, int], int]:
        """Where each hole is computed: in the frame of what it reads, or of the op where that is not around it."""
        homes: dict[tuple[int, int], int] = {}
        keys = list(self._paths.keys)
        for op, site in enumerate(self._sites):
            around = set(around_frame(self._found, site.frame))
            for place in self._paths.paths[op]:
                number = self._paths.holes[place]
                if number < 0:
                    continue
                key = keys[number]
                frames = [self._found.refs[arg].frame for arg in self._found.holes[key].args]
                deepest = max(frames, default=0)
                homes[key, deepest if deepest in around else site.frame] = number
        return homes

    def _slot(self, index: int) -> int:
        """The slot of a known value; what computes it goes to its frame, its inputs first."""
        stack = [index]
        while stack:
            ref = self._found.refs[stack[-1]]
            if ref.index in self.slots:
                stack.pop()
                continue
            waiting = [arg for arg in ref.args if arg not in self.slots] if ref.kind in ("apply", "render") else []
            if waiting:
                stack.extend(waiting)
                continue
            stack.pop()
            slot = self.slots[ref.index] = len(self.blank)
            self.blank.append(json.loads(ref.node.json) if isinstance(ref.node, Const) else None)
            if ref.kind in ("apply", "render"):
                self.codes[ref.frame].computed.append((slot, self._computer(ref)))
        return self.slots[index]

    def _computer(self, ref: Ref) -> Callable[[Sequence[Any]], Any]:
        slots = [self.slots[arg] for arg in ref.args]
        if ref.expr is not None:
            return evaluator(transform(ref.expr, _moved(slots)), self._callables)
        assert ref.template is not None
        return renderer(map_template(ref.template, _moved(slots)), self._callables)

    def _renderer(self, source: HoleSource, slots: list[int]) -> Callable[[Sequence[Any]], str]:
        return renderer(map_template(source.template, _moved(slots)), self._callables)

    def loop_roots(self, place: Place) -> int:
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


def around_frame(found: Resolution, frame: int) -> Iterator[int]:
    """A frame and those that it is in, from the inside out."""
    while frame >= 0:
        yield frame
        frame = found.places[frame].parent


def _moved(slots: Sequence[int]) -> Callable[[Expr], Expr]:
    """Replaces the position of an input by its slot."""
    return lambda part: Arg(index=slots[part.index]) if isinstance(part, Arg) else part
