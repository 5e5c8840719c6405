"""Threads for tools: reused, given up when nobody waits, never in the way of the program's end."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from typing import Any

import pytest

from helix.errors import ToolError
from helix.executor.tools import threads as module
from helix.executor.tools.threads import Threads


def test_work_runs_off_the_loop_and_threads_are_used_again() -> None:
    async def main() -> None:
        threads = Threads()
        names = {await threads.run(threading.get_ident) for _ in range(5)}
        assert len(names) == 1
        assert threading.get_ident() not in names
        together = await asyncio.gather(
            *(threads.run(lambda: time.sleep(0.02) or threading.get_ident()) for _ in range(4))
        )
        assert len(set(together)) == 4
        threads.close()

    asyncio.run(main())


def test_what_is_raised_comes_back() -> None:
    async def main() -> None:
        threads = Threads()
        with pytest.raises(KeyError, match="k"):
            await threads.run(lambda: {}["k"])
        assert await threads.run(lambda: "still there") == "still there"
        threads.close()

    asyncio.run(main())


def test_context_variables_are_seen() -> None:
    async def main() -> None:
        variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable")
        variable.set(7)
        threads = Threads()
        assert await threads.run(variable.get) == 7
        threads.close()

    asyncio.run(main())


def test_work_that_nobody_waits_for_is_given_up_and_its_thread_used_again() -> None:
    async def main() -> None:
        threads, gate = Threads(), threading.Event()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(threads.run(gate.wait), 0.05)
        assert threads._lost == 1
        gate.set()
        async with asyncio.timeout(5):
            while threads._lost:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert len(threads._idle) == 1
        threads.close()

    asyncio.run(main())


def test_too_many_that_are_stuck_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_LOST", 3)

    async def main() -> None:
        threads, gate = Threads(), threading.Event()
        stuck: list[Any] = [asyncio.wait_for(threads.run(gate.wait), 0.05) for _ in range(3)]
        await asyncio.gather(*stuck, return_exceptions=True)
        with pytest.raises(ToolError, match="3 calls of tools were given up and are still running"):
            await threads.run(lambda: 1)
        gate.set()
        threads.close()

    asyncio.run(main())


def test_a_loop_that_ends_before_the_work_does_no_harm() -> None:
    gate = threading.Event()

    async def main() -> None:
        threads = Threads()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(threads.run(gate.wait), 0.01)
        threads.close()

    asyncio.run(main())
    gate.set()
    ends = time.monotonic() + 5
    while any(thread.name == "helix-tool" for thread in threading.enumerate()):
        assert time.monotonic() < ends
        time.sleep(0.01)
