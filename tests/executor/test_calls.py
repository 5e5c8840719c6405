"""The dispatcher: order of release, bounded lanes, equal calls made once, an end that loses no call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from helix.executor.calls import Call, Dispatcher, Outcome
from helix.executor.values import Failure


class Desk:
    """A dispatcher with a log of the calls that were made and settled."""

    def __init__(self, size: int = 1, *, merge: bool = True, **lanes: int) -> None:
        self.dispatcher = Dispatcher({"": size, **lanes}, merge=merge)
        self.made: list[str] = []
        self.settled: dict[str, Outcome] = {}
        self.active = self.peak = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.wanted: dict[str, bool] = {}
        self.changed = asyncio.Event()

    def call(
        self, name: str, *priority: int, key: bytes | None = None, lane: str = "", failure: Failure | None = None
    ) -> Call:
        async def make(call: Call) -> Outcome:
            self.made.append(name)
            self.active += 1
            self.peak = max(self.peak, self.active)
            await asyncio.sleep(0)
            await self.gate.wait()
            self.active -= 1
            return Outcome(None, failure) if failure is not None else Outcome(f"reply to {name}")

        return Call(
            step=name,
            order=priority,
            priority=priority,
            key=key,
            lane=lane,
            make=make,
            settle=lambda outcome: self.take(name, outcome),
            wanted=lambda: self.wanted.get(name, True),
        )

    def take(self, name: str, outcome: Outcome) -> None:
        self.settled[name] = outcome
        self.changed.set()

    def submit(self, *calls: Call) -> list[Outcome | None]:
        return [self.dispatcher.submit(call) for call in calls]

    async def settle(self, *names: str) -> None:
        async with asyncio.timeout(5):
            while not set(names) <= self.settled.keys():
                self.changed.clear()
                await self.changed.wait()


def on_desk(test: Callable[[Desk], Coroutine[Any, Any, None]], size: int = 1, **options: Any) -> None:
    async def main() -> None:
        desk = Desk(size, **options)
        try:
            await test(desk)
        finally:
            await desk.dispatcher.cancel()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_waiting_calls_are_released_in_the_order_of_their_priority() -> None:
    async def test(desk: Desk) -> None:
        desk.submit(*(desk.call(name, *priority) for name, priority in calls.items()))
        await desk.settle(*calls)
        assert desk.made == ["row 0 step 0", "row 0 step 1", "row 1 step 0", "row 2 step 0"]

    calls = {"row 2 step 0": (2, 0), "row 0 step 1": (0, 1), "row 1 step 0": (1, 0), "row 0 step 0": (0, 0)}
    on_desk(test)


def test_calls_of_one_priority_are_released_as_they_came() -> None:
    async def test(desk: Desk) -> None:
        names = [str(number) for number in range(20)]
        desk.submit(*(desk.call(name, 0) for name in names))
        await desk.settle(*names)
        assert desk.made == names

    on_desk(test)


@pytest.mark.parametrize("size", [1, 3, 16])
def test_no_more_calls_than_workers_are_in_flight(size: int) -> None:
    async def test(desk: Desk) -> None:
        names = [str(number) for number in range(50)]
        desk.submit(*(desk.call(name, 0) for name in names))
        await desk.settle(*names)
        assert desk.peak == size
        assert desk.dispatcher.in_flight == desk.dispatcher.waiting == 0

    on_desk(test, size)


def test_lanes_have_workers_of_their_own() -> None:
    async def test(desk: Desk) -> None:
        desk.gate.clear()
        desk.submit(desk.call("model", 0), desk.call("tool", 0, lane="tools"), desk.call("waits", 1))
        for _ in range(5):
            await asyncio.sleep(0)
        assert desk.made == ["model", "tool"]
        desk.gate.set()
        await desk.settle("model", "tool", "waits")

    on_desk(test, 1, tools=1)


def test_an_equal_call_joins_the_one_in_flight() -> None:
    async def test(desk: Desk) -> None:
        desk.submit(desk.call("a", 0, key=b"k"), desk.call("b", 1, key=b"k"), desk.call("c", 2, key=b"other"))
        await desk.settle("a", "b", "c")
        assert desk.made == ["a", "c"]
        assert [desk.settled[name].text for name in "abc"] == ["reply to a", "reply to a", "reply to c"]
        assert [desk.settled[name].merged for name in "abc"] == [False, True, False]

    on_desk(test)


def test_an_equal_call_later_is_answered_at_once() -> None:
    async def test(desk: Desk) -> None:
        desk.submit(desk.call("a", 0, key=b"k"))
        await desk.settle("a")
        (outcome,) = desk.submit(desk.call("b", 1, key=b"k"))
        assert outcome is not None
        assert (outcome.text, outcome.merged) == ("reply to a", True)
        assert desk.made == ["a"]

    on_desk(test)


def test_a_failure_is_shared_like_a_reply() -> None:
    async def test(desk: Desk) -> None:
        failure = Failure("engine", "down", step="a")
        desk.submit(desk.call("a", 0, key=b"k", failure=failure), desk.call("b", 1, key=b"k"))
        await desk.settle("a", "b")
        (outcome,) = desk.submit(desk.call("c", 2, key=b"k"))
        assert desk.made == ["a"]
        assert desk.settled["b"].failure is failure
        assert outcome is not None
        assert outcome.failure is failure

    on_desk(test)


def test_a_call_that_was_cut_short_is_not_remembered() -> None:
    async def test(desk: Desk) -> None:
        cut = Failure("limit", "no budget", step="a")
        desk.submit(desk.call("a", 0, key=b"k", failure=cut))
        await desk.settle("a")
        desk.submit(desk.call("b", 1, key=b"k"))
        await desk.settle("b")
        assert desk.made == ["a", "b"]
        assert desk.settled["b"].text == "reply to b"

    on_desk(test)


@pytest.mark.parametrize("key", [None, b"k"])
def test_without_a_key_or_with_merging_off_every_call_is_made(key: bytes | None) -> None:
    async def test(desk: Desk) -> None:
        desk.submit(desk.call("a", 0, key=key), desk.call("b", 1, key=key))
        await desk.settle("a", "b")
        assert desk.made == ["a", "b"]
        assert not desk.settled["b"].merged

    on_desk(test, 1, merge=key is None)


def test_an_unwanted_call_is_not_made_and_an_equal_one_that_is_wanted_takes_its_place() -> None:
    async def test(desk: Desk) -> None:
        desk.wanted = {"gone": False}
        desk.submit(desk.call("gone", 0, key=b"k"), desk.call("here", 1, key=b"k"), desk.call("too", 2, key=b"k"))
        await desk.settle("gone", "here", "too")
        assert desk.made == ["here"]
        assert desk.settled["gone"].failure is not None
        assert desk.settled["gone"].failure.kind == "not_started"
        assert (desk.settled["here"].text, desk.settled["here"].merged) == ("reply to here", False)
        assert (desk.settled["too"].text, desk.settled["too"].merged) == ("reply to here", True)

    on_desk(test)


def test_closing_fails_what_waits_in_order_and_lets_what_is_in_flight_end() -> None:
    async def test(desk: Desk) -> None:
        def reason(call: Call) -> Failure:
            return Failure("not_started", f"no {call.step}", step=call.step)

        desk.gate.clear()
        desk.submit(desk.call("a", 0), desk.call("c", 2), desk.call("b", 1), desk.call("joined", 3, key=b"k"))
        desk.submit(desk.call("joins", 4, key=b"k"))
        for _ in range(3):
            await asyncio.sleep(0)
        desk.dispatcher.close(reason)
        assert list(desk.settled) == ["b", "c", "joined", "joins"]
        assert {name: outcome.failure.message for name, outcome in desk.settled.items() if outcome.failure} == {
            "b": "no b",
            "c": "no c",
            "joined": "no joined",
            "joins": "no joined",
        }
        (outcome,) = desk.submit(desk.call("late", 5))
        assert outcome is not None
        assert outcome.failure is not None
        assert outcome.failure.message == "no late"
        desk.gate.set()
        await desk.settle("a")
        assert desk.settled["a"].text == "reply to a"
        assert desk.made == ["a"]

    on_desk(test)


def test_a_call_handed_to_a_worker_just_before_closing_is_not_made() -> None:
    async def test(desk: Desk) -> None:
        desk.submit(desk.call("first", 0))
        await desk.settle("first")
        desk.submit(desk.call("a", 1))
        desk.dispatcher.close(lambda call: Failure("not_started", "over", step=call.step))
        await desk.settle("a")
        assert desk.made == ["first"]

    on_desk(test)


@pytest.mark.parametrize("error", [RuntimeError("our own"), asyncio.CancelledError()])
def test_an_error_of_our_own_is_told_and_does_not_hang(error: BaseException) -> None:
    async def test(desk: Desk) -> None:
        told = asyncio.Event()
        desk.dispatcher.on_error = told.set
        broken = desk.call("a", 0)

        async def make(call: Call) -> Outcome:
            raise error

        broken.make = make
        desk.submit(broken)
        async with asyncio.timeout(5):
            await told.wait()
        assert desk.dispatcher.error is error

    on_desk(test)


def test_engines_that_never_wait_leave_the_loop_alive() -> None:
    async def test(desk: Desk) -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        async def make(call: Call) -> Outcome:
            return Outcome("at once")

        clock = asyncio.get_running_loop().create_task(tick())
        names = [str(number) for number in range(2000)]
        for name in names:
            call = desk.call(name, 0)
            call.make = make
            desk.submit(call)
        await desk.settle(*names)
        clock.cancel()
        await asyncio.gather(clock, return_exceptions=True)
        assert ticks > 20

    on_desk(test)
