"""The operators of a program: what happens when the last input of a slot is there.

`start` gives the value at once, or PENDING and settles the slot later. `skip` is called instead where an input failed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from helix.errors import ExecutionError, ToolError
from helix.executor.frame import Dataflow, Frame
from helix.executor.places import Place
from helix.executor.program import Level, Program
from helix.executor.values import DROPPED, PENDING, Failure, Order

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_ITEMS = 100_000
# How many items of one list are worked on at once: a long list must not take memory for all of them.
ACTIVE_ITEMS = 1024


class Operator:
    """The base of all operators. `index` is its number in the plan, `place` where it stands in the workflow."""

    __slots__ = ("index", "place")

    def __init__(self, index: int, place: Place) -> None:
        self.index = index
        self.place = place

    def start(self, frame: Frame, slot: int) -> Any:
        """Computes the value of the slot, or PENDING."""
        return PENDING

    def skip(self, frame: Frame, slot: int, failure: Failure) -> Any:
        """What the slot is where an input failed: the same failure."""
        return failure

    def failure(self, frame: Frame, kind: str, message: str, traceback: str = "") -> Failure:
        """A failure that begins here."""
        items = frame.items
        return Failure(kind, message, step=self.place.name(items), order=self.place.order(items), traceback=traceback)

    def failed(self, frame: Frame, error: Exception) -> Failure:
        """The failure of a value that could not be computed."""
        if isinstance(error, ExecutionError):
            trace = error.traceback if isinstance(error, ToolError) else ""
            return self.failure(frame, error.kind, error.message, trace)
        return self.failure(frame, "expression", f"{type(error).__name__}: {error}")


class Given(Operator):
    """A slot set from outside: an input, an import, an output of a branch or loop."""

    __slots__ = ()


class Compute(Operator):
    """A pure expression or template over the values of the frame."""

    __slots__ = ("_run",)

    def __init__(self, index: int, place: Place, run: Callable[[Sequence[Any]], Any]) -> None:
        super().__init__(index, place)
        self._run = run

    def start(self, frame: Frame, slot: int) -> Any:
        try:
            return self._run(frame.values)
        except Exception as error:
            # One row's value must never end the run: whatever an expression raises is that row's error.
            return self.failed(frame, error)


class Keep(Operator):
    """A filter: its slot holds True for a row that goes on."""

    __slots__ = ("_condition",)

    def __init__(self, index: int, place: Place, condition: int) -> None:
        super().__init__(index, place)
        self._condition = condition

    def start(self, frame: Frame, slot: int) -> Any:
        return True if frame.values[self._condition] else DROPPED


class SubPlan:
    """A body ready to run: its program, and which slot of the holder each parameter takes over."""

    __slots__ = ("_flow", "captures", "program")

    def __init__(self, flow: Dataflow, program: Program, captures: dict[str, int]) -> None:
        self._flow = flow
        self.program = program
        self.captures = {program.inputs[name]: slot for name, slot in captures.items() if name in program.inputs}

    def run(
        self,
        holder: Frame,
        path: Order,
        given: dict[str, Any],
        on_done: Callable[[Frame], None],
        items: tuple[int, ...] | None = None,
        turns: tuple[int, ...] | None = None,
    ) -> Frame:
        """Starts the body in a frame of its own. `given` are parameters with values that are there."""
        places = holder.items if items is None else items
        rounds = holder.turns if turns is None else turns
        frame = Frame(self.program, holder.row, holder.sequence, path, holder.scope, on_done, places, rounds)
        values = {0: True} | {self.program.inputs[name]: v for name, v in given.items() if name in self.program.inputs}
        self._flow.start(frame, values)
        for slot, source in self.captures.items():
            self._flow.link(holder, source, frame, slot)
        return frame


class MapOver(Operator):
    """Runs a body for each item of a list; its value is the list of what the body yields."""

    __slots__ = ("_body", "_flow", "_over", "_result", "_variable")

    def __init__(
        self, index: int, place: Place, flow: Dataflow, over: int, variable: str, body: SubPlan, result: int
    ) -> None:
        super().__init__(index, place)
        self._flow = flow
        self._over = over
        self._variable = variable
        self._body = body
        self._result = result

    def start(self, frame: Frame, slot: int) -> Any:
        items = frame.values[self._over]
        if items is None:
            return None
        problem = list_problem(items, "`for`")
        if problem is not None:
            return self.failure(frame, "expression", problem)
        if not items:
            return []
        results: list[Any] = [PENDING] * len(items)
        begun = 0
        left = len(items)

        def begin() -> None:
            nonlocal begun
            position = begun
            begun += 1
            path = (*frame.path, self.index, position)
            self._body.run(frame, path, {self._variable: items[position]}, finished, (*frame.items, position))

        def finished(child: Frame) -> None:
            nonlocal left
            results[child.path[-1]] = child.effect_failure() or child.values[self._result]
            left -= 1
            if left == 0:
                failures = [value for value in results if value.__class__ is Failure]
                self._flow.settle(frame, slot, min(failures, key=_by_order) if failures else results)
            elif begun < len(items):
                begin()

        while begun < len(items) and begun < ACTIVE_ITEMS:
            begin()
        return PENDING


class BranchWatch(Protocol):
    """Hears of the branches of rows. A branch in a row is known by any object, over all rows by its name."""

    def decided(self, place: object, name: str, taken: bool | None) -> None:
        """The condition holds, does not, or failed (None)."""

    def finished(self, place: object) -> None:
        """The arm that was taken has ended."""


class Branch(Operator):
    """Runs one of two bodies; `outputs` are the slots of this frame that take over the body's results by name.

    `watch`, where somebody is interested, hears which one, under the name of the branch over all rows.
    """

    __slots__ = ("_condition", "_flow", "name", "otherwise", "outputs", "then", "watch")

    def __init__(
        self, index: int, place: Place, flow: Dataflow, condition: int, then: SubPlan, otherwise: SubPlan
    ) -> None:
        super().__init__(index, place)
        self._flow = flow
        self._condition = condition
        self.then = then
        self.otherwise = otherwise
        self.outputs: dict[str, int] = {}
        self.name = ""
        self.watch: BranchWatch | None = None

    def start(self, frame: Frame, slot: int) -> Any:
        taken = bool(frame.values[self._condition])
        body = self.then if taken else self.otherwise
        path = (*frame.path, self.index, 0 if taken else 1)
        if self.watch is not None:
            self.watch.decided((frame, self.index), self.name, taken)
        child = body.run(frame, path, {}, lambda done: self._ended(frame, slot, done))
        for name, output in self.outputs.items():
            self._flow.link(child, body.program.results[name], frame, output)
        return PENDING

    def _ended(self, frame: Frame, slot: int, done: Frame) -> None:
        if self.watch is not None:
            self.watch.finished((frame, self.index))
        self._flow.settle(frame, slot, done.effect_failure() or True)

    def skip(self, frame: Frame, slot: int, failure: Failure) -> Any:
        if self.watch is not None:
            self.watch.decided((frame, self.index), self.name, None)
            self.watch.finished((frame, self.index))
        for output in self.outputs.values():
            self._flow.settle(frame, output, failure)
        return failure


class Loop(Operator):
    """Runs a body up to `times` times, until its result `until` holds; carried names go from round to round."""

    __slots__ = ("_body", "_carried", "_flow", "_times", "_until", "outputs")

    def __init__(
        self,
        index: int,
        place: Place,
        flow: Dataflow,
        times: int,
        carried: dict[str, int],
        body: SubPlan,
        until: str | None,
    ) -> None:
        super().__init__(index, place)
        self._flow = flow
        self._times = times
        self._carried = carried
        self._body = body
        self._until = None if until is None else body.program.results[until]
        self.outputs: dict[str, int] = {}

    def start(self, frame: Frame, slot: int) -> Any:
        self._round(frame, slot, 0, None, None)
        return PENDING

    def _round(self, frame: Frame, slot: int, number: int, previous: Frame | None, trouble: Failure | None) -> None:
        def finished(child: Frame) -> None:
            self._after(frame, slot, number, child, trouble or child.effect_failure())

        turns = (*frame.turns, number)
        child = self._body.run(frame, (*frame.path, self.index, number), {}, finished, turns=turns)
        program = self._body.program
        for name, outside in self._carried.items():
            if name not in program.inputs:
                continue
            if previous is None:
                self._flow.link(frame, outside, child, program.inputs[name])
            else:
                self._flow.link(previous, program.results[name], child, program.inputs[name])

    def _after(self, frame: Frame, slot: int, number: int, child: Frame, trouble: Failure | None) -> None:
        verdict = False if self._until is None else child.values[self._until]
        if verdict.__class__ is Failure:
            self._flow.settle(frame, slot, self.skip(frame, slot, verdict))
        elif verdict or number + 1 == self._times:
            for name, output in self.outputs.items():
                self._flow.link(child, self._body.program.results[name], frame, output)
            self._flow.settle(frame, slot, trouble or True)
        else:
            self._round(frame, slot, number + 1, child, trouble)

    def skip(self, frame: Frame, slot: int, failure: Failure) -> Any:
        for output in self.outputs.values():
            self._flow.settle(frame, output, failure)
        return failure


class SpreadRows(Operator):
    """Starts a frame of the next level for each item of a list; a failed list gives one failed row."""

    __slots__ = ("_below", "_flow", "_imports", "_name", "_value")

    def __init__(
        self, index: int, place: Place, flow: Dataflow, value: int, name: str, below: Level, imports: dict[int, int]
    ) -> None:
        super().__init__(index, place)
        self._flow = flow
        self._value = value
        self._name = name
        self._below = below
        self._imports = imports

    def start(self, frame: Frame, slot: int) -> Any:
        items = frame.values[self._value]
        if items is None:
            frame.children = []
            return True
        problem = list_problem(items, "`spread`")
        if problem is not None:
            return self.skip(frame, slot, self.failure(frame, "expression", problem))
        return self._children(frame, slot, items, None)

    def skip(self, frame: Frame, slot: int, failure: Failure) -> Any:
        if failure is DROPPED:
            frame.children = []
            return failure
        return self._children(frame, slot, [failure], failure)

    def _children(self, frame: Frame, slot: int, items: list[Any], failure: Failure | None) -> Any:
        children: list[Frame] = []
        frame.children = children
        if not items:
            return True
        program = self._below.program
        left = len(items)

        def begin() -> None:
            position = len(children)
            path = (*frame.path, self.index, position)
            turns = (*frame.turns, position)
            child = Frame(program, frame.row, frame.sequence, path, frame.scope, finished, turns=turns)
            children.append(child)
            given = {0: failure or True}
            if self._name in program.inputs:
                given[program.inputs[self._name]] = items[position]
            self._flow.start(child, given)
            for source, target in self._imports.items():
                self._flow.link(frame, source, child, target)

        def finished(child: Frame) -> None:
            nonlocal left
            child.shed(self._below.kept)
            left -= 1
            if left == 0:
                self._flow.settle(frame, slot, True)
            elif len(children) < len(items):
                begin()

        while len(children) < len(items) and len(children) < ACTIVE_ITEMS:
            begin()
        return PENDING


def list_problem(items: Any, what: str) -> str | None:
    """What is wrong with a value that should be a list to run over; None where nothing is."""
    from helix.types import found

    if not isinstance(items, list):
        return f"{what} needs a list, found {found(items)}"
    if len(items) > MAX_ITEMS:
        return f"{what} runs over at most {MAX_ITEMS} items, found {len(items)}"
    return None


def _by_order(failure: Failure) -> Order:
    return failure.order
