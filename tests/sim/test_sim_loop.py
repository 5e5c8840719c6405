"""The virtual loop: its clock moves by timers alone, waits for threads, and finds deadlocks."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from helix.executor.engines.sim import run_virtual
from helix.executor.engines.sim.loop import LEAST, DeadlockError, VirtualLoop
from helix.executor.engines.sim.timeline import ARRIVAL, SECOND, STEP_START, Timeline
from helix.executor.tools.threads import Threads


def now() -> float:
    return asyncio.get_running_loop().time()


def test_a_day_passes_in_no_time() -> None:
    async def work() -> list[float]:
        async def wait(seconds: float) -> float:
            await asyncio.sleep(seconds)
            return now()

        return await asyncio.gather(wait(86_400), wait(0.5), wait(3600))

    began = time.monotonic()
    assert run_virtual(work()) == [86_400, 0.5, 3600]
    assert time.monotonic() - began < 5


def test_timeouts_and_their_order() -> None:
    async def work() -> list[str]:
        seen: list[str] = []
        asyncio.get_running_loop().call_later(2, seen.append, "two")
        asyncio.get_running_loop().call_later(1, seen.append, "one")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await asyncio.Event().wait()
        assert now() == 3
        return seen

    assert run_virtual(work()) == ["one", "two"]


def test_threads_hold_the_clock_and_are_charged_for() -> None:
    async def work() -> tuple[float, float, bool]:
        ticks: list[float] = []
        asyncio.get_running_loop().call_later(10, lambda: ticks.append(now()))
        await asyncio.to_thread(time.sleep, 0.05)
        first = now()
        threads = Threads()
        await threads.run(lambda: time.sleep(0.05))
        threads.close()
        return first, now(), bool(ticks)

    assert run_virtual(work()) == (0.0, LEAST, False)
    assert run_virtual(work(), job_seconds=4.0) == (0.0, 4.0, False)


def test_what_a_tool_declares_is_charged_for_its_threads() -> None:
    async def work() -> list[float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        threads = Threads()
        ends: list[float] = []

        async def job(seconds: float | None) -> None:
            with loop.charging(seconds):
                await threads.run(lambda: None)
            ends.append(now())

        async def own() -> None:
            with loop.charging(3.0):
                await asyncio.to_thread(time.sleep, 0.01)
                ends.append(now())
                # What is waited for on the loop takes its own time.
                await asyncio.sleep(0.5)
            await asyncio.to_thread(time.sleep, 0.01)
            ends.append(now())

        await asyncio.gather(job(2.0), job(0.25), job(None), own())
        threads.close()
        return ends

    assert run_virtual(work()) == [LEAST, 0.25, 2.0, 3.0, 3.5]
    assert run_virtual(work(), job_seconds=1.0) == [0.25, 1.0, 2.0, 3.0, 3.5]


@pytest.mark.parametrize("seconds", [None, 1.5])
def test_threads_of_one_time_end_in_the_order_in_which_they_began(seconds: float | None) -> None:
    async def work() -> list[int]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        threads = Threads()
        order: list[int] = []

        async def job(number: int) -> None:
            with loop.charging(seconds):
                # The first one is the slowest.
                await threads.run(lambda: time.sleep(0.02 * (4 - number)))
            order.append(number)

        await asyncio.gather(*map(job, range(5)))
        threads.close()
        return order

    assert run_virtual(work()) == [0, 1, 2, 3, 4]


def test_an_error_of_a_thread_comes_when_its_time_is_over() -> None:
    async def work() -> float:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        with loop.charging(2.0), pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        return now()

    assert run_virtual(work()) == 2.0


def test_a_thread_that_does_not_come_back_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helix.executor.engines.sim.loop.PATIENCE", 0.05)
    stop = threading.Event()

    async def work() -> None:
        threads = Threads()
        try:
            async with asyncio.timeout(1):
                await threads.run(stop.wait)
        finally:
            threads.close()

    with pytest.raises(DeadlockError, match=r"not come back within 0\.05 s; the clock stands at 0\.0"):
        run_virtual(work())
    stop.set()


def test_nothing_to_wait_for_is_an_error_that_names_the_tasks() -> None:
    async def work() -> None:
        waiting = asyncio.create_task(asyncio.Event().wait(), name="the one that waits")
        await waiting

    with pytest.raises(DeadlockError, match="the one that waits"):
        run_virtual(work())


def test_a_thread_that_it_was_not_told_of_is_waited_for() -> None:
    async def work() -> str:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[str] = loop.create_future()
        threading.Timer(0.05, lambda: loop.call_soon_threadsafe(done.set_result, "woken")).start()
        return await done

    assert run_virtual(work()) == "woken"


def test_events_fire_by_time_then_rank_then_order() -> None:
    async def work() -> list[tuple[str, int]]:
        fired: list[tuple[str, int]] = []
        timeline = Timeline(asyncio.get_running_loop(), lambda error: None)
        for name, at, rank in (
            ("b", 5, STEP_START),
            ("late", SECOND, ARRIVAL),
            ("a", 5, ARRIVAL),
            ("c", 5, STEP_START),
        ):
            timeline.at(at, rank, lambda time, name=name: fired.append((name, time)))  # type: ignore[misc]
        await asyncio.sleep(2)
        return fired

    assert run_virtual(work()) == [("a", 5), ("b", 5), ("c", 5), ("late", SECOND)]


def test_an_error_in_an_event_is_told_and_ends_the_events() -> None:
    async def work() -> list[str]:
        told: list[str] = []

        def fail(time: int) -> None:
            raise ValueError("broken")

        timeline = Timeline(asyncio.get_running_loop(), lambda error: told.append(str(error)))
        timeline.at(1, ARRIVAL, fail)
        timeline.at(2, ARRIVAL, lambda time: told.append("never"))
        await asyncio.sleep(1)
        return told

    assert run_virtual(work()) == ["broken"]
