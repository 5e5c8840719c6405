"""Calls of tools inside a branch whose inputs are there before its condition is: who may guess at them is told so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from helix.executor.frame import Frame
from helix.executor.operators import Branch, BranchWatch, Compute, Given, Operator
from helix.executor.places import Place
from helix.executor.program import Program
from helix.executor.values import PENDING, Failure
from helix.logical import Choose, Invoke, Tool, body_nodes


class Guesser(BranchWatch, Protocol):
    """Who may guess at calls in branches."""

    def ready(self, place: object, name: str, row: int, arm: bool, tool: Tool, args: list[Any]) -> None:
        """The inputs of a call in an arm are there, the condition is not."""


class Foresee(Operator):
    """Waits for the inputs of a call in one arm of a branch. It has no value of its own, and never fails."""

    __slots__ = (
        "_args",
        "_arm",
        "_branch",
        "_captures",
        "_condition",
        "_guesser",
        "_name",
        "_order",
        "_program",
        "_tool",
    )

    def __init__(
        self,
        index: int,
        place: Place,
        guesser: Guesser,
        node: Choose,
        *,
        branch: int,
        arm: bool,
        condition: int,
        tool: Tool,
        program: Program,
        args: tuple[int, ...],
        order: tuple[int, ...],
        captures: dict[int, int],
    ) -> None:
        super().__init__(index, place)
        self._guesser = guesser
        self._name = node.id
        self._branch = branch
        self._arm = arm
        self._condition = condition
        self._tool = tool
        self._program = program
        self._args = args
        self._order = order
        self._captures = captures

    def start(self, frame: Frame, slot: int) -> Any:
        if frame.values[self._condition] is not PENDING:
            return None
        scratch = Frame(
            self._program, frame.row, frame.sequence, frame.path, frame.scope, lambda done: None, frame.items
        )  # fmt: skip
        for inner, outer in self._captures.items():
            scratch.values[inner] = frame.values[outer]
        for number in self._order:
            value = self._program.operators[number].start(scratch, number)
            if value.__class__ is Failure:
                return None
            scratch.values[number] = value
        args = [scratch.values[number] for number in self._args]
        self._guesser.ready((frame, self._branch), self._name, frame.row, self._arm, self._tool, args)
        return None

    def skip(self, frame: Frame, slot: int, failure: Failure) -> Any:
        return None


def foreseen(
    node: Choose, branch: Branch, condition: int, guesser: Guesser
) -> Iterator[tuple[Foresee, tuple[int, ...]]]:
    """The operators that foresee the calls of a branch, each with the slots of the holder that it waits for.

    Only calls at the top of an arm, which are made whenever it is taken, and whose arguments are computed from values
    of outside alone.
    """
    for arm, body, plan in ((True, node.then, branch.then), (False, node.otherwise, branch.otherwise)):
        program = plan.program
        for inner in body_nodes(body):
            if not isinstance(inner, Invoke) or inner.rows.id != body.parameters.id:
                continue
            args = tuple(program.slots[arg.id] for arg in inner.args)
            needed = _needed(program, args)
            if needed is None:
                continue
            captures = {slot: plan.captures[slot] for slot in needed if slot in plan.captures}
            order = tuple(slot for slot in needed if isinstance(program.operators[slot], Compute))
            yield (
                Foresee(
                    branch.index,
                    branch.place,
                    guesser,
                    node,
                    branch=branch.index,
                    arm=arm,
                    condition=condition,
                    tool=inner.tool,
                    program=program,
                    args=args,
                    order=order,
                    captures=captures,
                ),
                tuple(captures.values()),
            )


def _needed(program: Program, slots: tuple[int, ...]) -> tuple[int, ...] | None:
    """All slots that some are computed from, those first; None where a call is among them."""
    found: set[int] = set()
    stack = list(slots)
    while stack:
        slot = stack.pop()
        # The control: that the row is there.
        if slot in found or slot == 0:
            continue
        operator = program.operators[slot]
        if not isinstance(operator, Compute | Given):
            return None
        found.add(slot)
        stack.extend(program.waits[slot])
    # Operators stand behind what they read.
    return tuple(sorted(found))
