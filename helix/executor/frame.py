"""Dataflow over frames: a value that arrives wakes the operators that waited for it.

There is no barrier between steps and no task per step: an operator starts as soon as its last input is there. All of it
runs on one thread; values that arrive are worked off in the order of their arrival.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from helix.executor.program import Program
from helix.executor.values import PENDING, Failure, Order

Done = Callable[["Frame"], None]


class Scope:
    """What frames of one segment share: `closed` once nobody wants their rows any more."""

    __slots__ = ("closed",)

    def __init__(self) -> None:
        self.closed = False


class Frame:
    """One program running for one row.

    `row` is the index of the input row, `sequence` the place of the row in its segment, `path` the way through loops
    and lists to this frame, `items` the positions in the lists alone, `turns` those that no step's name tells: rounds
    of loops and items that rows were spread to. `scope` tells whether the result is still wanted.
    `hooks` are the slots of other frames that take over the value of one of this frame's slots.
    """

    __slots__ = (
        "children",
        "done",
        "hooks",
        "items",
        "needs",
        "on_done",
        "path",
        "program",
        "remaining",
        "row",
        "scope",
        "sequence",
        "tainted",
        "turns",
        "values",
    )

    def __init__(
        self,
        program: Program,
        row: int,
        sequence: int,
        path: Order,
        scope: Scope,
        on_done: Done,
        items: tuple[int, ...] = (),
        turns: tuple[int, ...] = (),
    ) -> None:
        self.program = program
        self.items = items
        self.turns = turns
        self.scope = scope
        self.values = program.initial.copy()
        self.needs = program.needs.copy()
        self.remaining = program.unresolved
        self.row = row
        self.sequence = sequence
        self.path = path
        self.on_done = on_done
        self.hooks: dict[int, list[tuple[Frame, int]]] | None = None
        self.children: list[Frame] | None = None
        self.tainted = False
        self.done = False

    def shed(self, kept: frozenset[int]) -> None:
        """Lets go of what a finished row needs no more while it waits to leave: all values but these, and failures."""
        self.values = [
            value if slot in kept or value.__class__ is Failure else None for slot, value in enumerate(self.values)
        ]
        self.needs = []
        self.hooks = None

    def effect_failure(self) -> Failure | None:
        """The first failure among the steps that run for their effects."""
        return first_failure(self, self.program.also) if self.tainted else None


class Dataflow:
    """Works off arriving values. `settle` may be called from anywhere on the loop's thread."""

    def __init__(self) -> None:
        self._queue: deque[tuple[Frame, int, Any]] = deque()
        self._working = False

    def start(self, frame: Frame, given: dict[int, Any]) -> None:
        """Starts a frame with the values of its given slots; slots linked to other frames come later."""
        program = frame.program
        for slot, value in given.items():
            self._queue.append((frame, slot, value))
        for slot in program.ready:
            value = program.operators[slot].start(frame, slot)
            if value is not PENDING:
                self._queue.append((frame, slot, value))
        self._work()

    def settle(self, frame: Frame, slot: int, value: Any) -> None:
        """Gives a slot its value, once."""
        self._queue.append((frame, slot, value))
        if not self._working:
            self._work()

    def link(self, source: Frame, slot: int, target: Frame, target_slot: int) -> None:
        """Lets a slot of one frame take over the value of another frame's slot, now or when it arrives."""
        value = source.values[slot]
        if value is not PENDING:
            self.settle(target, target_slot, value)
        elif source.hooks is None:
            source.hooks = {slot: [(target, target_slot)]}
        else:
            source.hooks.setdefault(slot, []).append((target, target_slot))

    def _work(self) -> None:
        if self._working:
            return
        self._working = True
        queue = self._queue
        try:
            while queue:
                frame, slot, value = queue.popleft()
                self._arrive(frame, slot, value)
        finally:
            self._working = False

    def _arrive(self, frame: Frame, slot: int, value: Any) -> None:
        frame.values[slot] = value
        frame.remaining -= 1
        if value.__class__ is Failure:
            frame.tainted = True
        if frame.hooks is not None and slot in frame.hooks:
            for target, target_slot in frame.hooks.pop(slot):
                self._queue.append((target, target_slot, value))
        program = frame.program
        needs = frame.needs
        for reader in program.readers[slot]:
            needs[reader] -= 1
            if needs[reader] == 0:
                operator = program.operators[reader]
                failure = first_failure(frame, program.waits[reader]) if frame.tainted else None
                result = operator.start(frame, reader) if failure is None else operator.skip(frame, reader, failure)
                if result is not PENDING:
                    self._queue.append((frame, reader, result))
        if frame.remaining == 0 and not frame.done:
            frame.done = True
            frame.on_done(frame)


def first_failure(frame: Frame, slots: tuple[int, ...]) -> Failure | None:
    """The failure among some slots that comes first in the plan."""
    first: Failure | None = None
    for slot in slots:
        value = frame.values[slot]
        if value.__class__ is Failure and (first is None or value.order < first.order):
            first = value
    return first
