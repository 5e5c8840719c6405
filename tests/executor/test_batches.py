"""Calls that wait for a tool are answered together; each keeps its place in line, its budget and its errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from helix.errors import ToolError
from helix.executor.batches import BatchCaller
from helix.executor.calls import Call, Dispatcher, Outcome
from helix.executor.limits import Limits
from helix.executor.settings import RunSettings
from helix.results import StepReport


async def until(condition: Callable[[], bool]) -> None:
    """Lets others run until a condition holds."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to that")


class Desk:
    """A tool that is asked for one key or for many, with a log of both; and the calls of a step that asks it."""

    def __init__(self, *, workers: int = 1, size: int = 64, max_calls: int | None = None) -> None:
        self.asked: list[Any] = []
        self.answer: Callable[[Any], str | None] = lambda key: f'"{key}"'
        self.hold: asyncio.Event | None = None
        self.report = StepReport()
        self.limits = Limits(RunSettings(max_calls=max_calls), self._stop)
        self.caller = BatchCaller(self._one, self._many, self.limits, self.report, None, size=size)
        self.dispatcher = Dispatcher({"": workers})
        self.outcomes: dict[Any, Outcome] = {}
        self.unwanted: set[Any] = set()

    def _stop(self, reason: str, **how: Any) -> None:
        self.limits.halt(reason, how.get("kind", "not_started"))

    async def _one(self, args: list[Any], call: Call) -> str:
        self.asked.append(args[0])
        if self.hold is not None:
            await self.hold.wait()
        text = self.answer(args[0])
        if text is None:
            raise ToolError(f"{args[0]} is not there")
        return text

    async def _many(self, calls: list[list[Any]]) -> list[str | None]:
        self.asked.append([args[0] for args in calls])
        if self.hold is not None:
            await self.hold.wait()
        return [self.answer(args[0]) for args in calls]

    def submit(self, key: Any, priority: int = 0) -> None:
        def settle(outcome: Outcome) -> None:
            self.outcomes[key] = outcome

        call = Call(
            step="find",
            order=(),
            priority=(priority,),
            key=f"{key}".encode(),
            lane="",
            make=lambda call: self.caller.make([key], call),
            settle=settle,
            wanted=lambda: key not in self.unwanted,
        )
        known = self.dispatcher.submit(call)
        if known is None:
            self.caller.expect([key], call)
        else:
            settle(known)

    def run(self, *keys: Any) -> None:
        """Submits all keys at once and waits until each has its outcome."""

        async def main() -> None:
            for key in keys:
                self.submit(key)
            await self.settled(len(set(keys)))
            await self.dispatcher.cancel()

        asyncio.run(main())

    async def settled(self, count: int) -> None:
        await until(lambda: len(self.outcomes) >= count)

    @property
    def texts(self) -> dict[Any, str | None]:
        return {key: outcome.text for key, outcome in self.outcomes.items()}


def test_what_waits_is_asked_together() -> None:
    desk = Desk(workers=3)
    desk.run(*range(10))
    assert desk.asked == [list(range(10))]
    assert desk.texts == {key: f'"{key}"' for key in range(10)}
    assert [desk.outcomes[key].merged for key in range(10)] == [False] + [True] * 9
    assert (desk.report.calls, desk.report.done) == (1, 1)


def test_a_batch_takes_no_more_than_its_size() -> None:
    desk = Desk(size=4)
    desk.run(*range(10))
    assert desk.asked == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert desk.report.calls == 3


def test_a_call_by_itself_is_no_batch() -> None:
    desk = Desk()
    desk.run("a")
    assert desk.asked == ["a"]
    assert desk.report.calls == 1


def test_equal_calls_stand_for_one_another() -> None:
    desk = Desk()

    async def main() -> None:
        for key in ("a", "b", "a", "b", "c"):
            desk.submit(key)
        await desk.settled(3)
        desk.submit("b")
        await desk.dispatcher.cancel()

    asyncio.run(main())
    assert desk.asked == [["a", "b", "c"]]


def test_what_a_batch_does_not_answer_is_asked_by_itself() -> None:
    desk = Desk()
    desk.answer = lambda key: None if key == 2 else f'"{key}"'
    desk.run(*range(4))
    assert desk.asked == [[0, 1, 2, 3], 2]
    failure = desk.outcomes[2].failure
    assert failure is not None
    assert failure.message == "2 is not there"
    assert (desk.report.calls, desk.report.done) == (2, 1)


def test_a_batch_that_answers_nothing_is_no_call_and_the_next_is_smaller() -> None:
    desk = Desk(size=4)
    desk.answer = lambda key: None
    desk.run(*range(8))
    # Four, two of the next four, then one by one: each key is asked once by itself, and counted once.
    assert [each for each in desk.asked if isinstance(each, list)] == [[0, 1, 2, 3], [4, 5]]
    assert sorted(each for each in desk.asked if isinstance(each, int)) == list(range(8))
    assert desk.report.calls == desk.limits.calls == 8


def test_a_batch_that_raises_leaves_each_call_to_itself() -> None:
    desk = Desk()
    calls = iter([ValueError("no"), None])

    def answer(key: Any) -> str:
        error = next(calls, None)
        if error is not None:
            raise error
        return f'"{key}"'

    desk.answer = answer
    desk.run("a", "b")
    assert desk.asked == [["a", "b"], "a", "b"]
    assert desk.texts == {"a": '"a"', "b": '"b"'}
    assert desk.report.calls == 2


def test_a_budget_counts_a_batch_as_one_call() -> None:
    desk = Desk(max_calls=1, size=4)
    desk.run(*range(6))
    assert [desk.outcomes[key].text is not None for key in range(6)] == [True] * 4 + [False] * 2
    assert {outcome.failure.kind for outcome in desk.outcomes.values() if outcome.failure} == {"limit"}


def test_what_nobody_wants_any_more_is_not_asked() -> None:
    desk = Desk()

    async def main() -> None:
        for key in range(4):
            desk.submit(key)
        desk.unwanted.add(2)
        await desk.settled(4)
        await desk.dispatcher.cancel()

    asyncio.run(main())
    assert desk.asked == [[0, 1, 3]]
    assert desk.outcomes[2].failure is not None


def test_a_batch_that_is_cancelled_leaves_nobody_waiting() -> None:
    desk = Desk(workers=3)

    async def main() -> None:
        desk.hold = asyncio.Event()
        for key in range(5):
            desk.submit(key)
        await until(lambda: len(desk.asked) == 1)
        async with asyncio.timeout(5):
            await desk.dispatcher.cancel()

    asyncio.run(main())
    assert desk.asked == [[0, 1, 2, 3, 4]]
    assert desk.outcomes == {}


def test_calls_that_come_meanwhile_make_the_next_batch() -> None:
    desk = Desk(workers=2)

    async def main() -> None:
        desk.hold = asyncio.Event()
        desk.submit("a")
        await until(lambda: len(desk.asked) == 1)
        for key in "bcd":
            desk.submit(key)
        await until(lambda: len(desk.asked) == 2)
        for key in "ef":
            desk.submit(key)
        desk.hold.set()
        await desk.settled(6)
        await desk.dispatcher.cancel()

    asyncio.run(main())
    assert desk.asked == ["a", ["b", "c", "d"], ["e", "f"]]
