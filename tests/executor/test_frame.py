"""The dataflow by itself: values wake their readers once, failures pass them by, links work early and late."""

from __future__ import annotations

from typing import Any

from helix.executor.frame import Dataflow, Frame, Scope
from helix.executor.operators import Compute, Given, Operator
from helix.executor.places import NOWHERE
from helix.executor.program import Program
from helix.executor.values import DROPPED, PENDING, Failure

ADD = ("a", "b")


class Late(Operator):
    """Is settled by the test."""


def program(*slots: tuple[Operator, tuple[int, ...]]) -> Program:
    """A program of the control and these operators, each with the slots it waits for."""
    from helix.executor.compile import _wire

    made = Program()
    for operator, waits in ((Given(0, NOWHERE), ()), *slots):
        made.operators.append(operator)
        made.waits.append(waits)
        made.initial.append(PENDING)
    _wire(made)
    return made


def given() -> Operator:
    return Given(0, NOWHERE)


def add(left: int, right: int) -> tuple[Operator, tuple[int, ...]]:
    return Compute(1, NOWHERE, lambda values: values[left] + values[right]), (left, right)


def started(made: Program, values: dict[int, Any]) -> tuple[Dataflow, Frame, list[Frame]]:
    flow, done = Dataflow(), []
    frame = Frame(made, 0, 0, (), Scope(), done.append)
    flow.start(frame, values)
    return flow, frame, done


def failure(order: int, message: str = "bad") -> Failure:
    return Failure("engine", message, step="s", order=(order,))


def test_a_value_is_computed_once_all_it_reads_is_there() -> None:
    flow, frame, done = started(program((given(), ()), (given(), ()), add(1, 2)), {0: True, 1: 20})
    assert frame.values[3] is PENDING
    flow.settle(frame, 2, 22)
    assert frame.values[3] == 42
    assert done == [frame]


def test_a_frame_is_done_once_after_its_last_slot() -> None:
    flow, frame, done = started(program((Late(1, NOWHERE), (0,)), (Late(2, NOWHERE), (0,))), {0: True})
    flow.settle(frame, 2, "second")
    assert done == []
    flow.settle(frame, 1, "first")
    assert done == [frame]
    assert frame.values == [True, "first", "second"]


def test_a_failure_passes_by_what_reads_it() -> None:
    _, frame, done = started(program((given(), ()), (given(), ()), add(1, 2)), {0: True, 1: failure(1), 2: 2})
    assert frame.values[3] is frame.values[1]
    assert done == [frame]


def test_of_several_failures_the_first_in_the_plan_is_passed_on_whatever_came_first() -> None:
    early, late = failure(1), failure(2)
    for values in ({1: early, 2: late}, {2: late, 1: early}):
        _, frame, _ = started(program((given(), ()), (given(), ()), add(1, 2)), {0: True, **values})
        assert frame.values[3] is early


def test_a_dropped_row_wins_over_failures() -> None:
    _, frame, _ = started(program((given(), ()), (given(), ()), add(1, 2)), {0: True, 1: failure(0), 2: DROPPED})
    assert frame.values[3] is DROPPED


def test_what_a_computation_raises_is_a_failure() -> None:
    _, frame, _ = started(program((given(), ()), (given(), ()), add(1, 2)), {0: True, 1: "a", 2: 1})
    assert isinstance(frame.values[3], Failure)
    assert frame.values[3].kind == "expression"
    assert "TypeError" in frame.values[3].message


def test_a_link_passes_a_value_on_now_or_later() -> None:
    made = program((given(), ()))
    flow = Dataflow()
    source = Frame(made, 0, 0, (), Scope(), lambda done: None)
    flow.start(source, {0: True})
    early, late = (Frame(made, 0, 0, (), Scope(), lambda done: None) for _ in range(2))
    for target in (early, late):
        flow.start(target, {0: True})
    flow.link(source, 1, early, 1)
    assert early.values[1] is PENDING
    flow.settle(source, 1, "value")
    flow.link(source, 1, late, 1)
    assert early.values[1] == late.values[1] == "value"


def test_a_long_chain_needs_no_deep_stack() -> None:
    length = 20_000
    chain = [
        (Compute(number, NOWHERE, lambda values, at=number: values[at] + 1), (number,)) for number in range(1, length)
    ]
    _, frame, done = started(program((given(), ()), *chain), {0: True, 1: 0})
    assert frame.values[length] == length - 1
    assert done == [frame]


def test_a_frame_that_waits_keeps_only_what_it_leaves_with() -> None:
    bad = failure(3)
    _, frame, _ = started(
        program((given(), ()), (given(), ()), (given(), ())), {0: True, 1: "x" * 99, 2: "kept", 3: bad}
    )
    frame.shed(frozenset((2,)))
    assert frame.values == [None, None, "kept", bad]
