"""Threads for work that blocks: as many as are busy, none that keeps the program from ending."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext, suppress
from queue import SimpleQueue
from typing import Any, cast

from helix.errors import ToolError

# Threads still busy with work that nobody waits for any more: beyond these the tool is taken to be stuck.
MOST_LOST = 64

_Job = Callable[[], None]


def charging(seconds: float | None) -> AbstractContextManager[None]:
    """Where time is virtual, work of threads inside takes so many seconds of it; else this does nothing."""
    made = getattr(asyncio.get_running_loop(), "charging", None)
    return nullcontext() if made is None else cast(AbstractContextManager[None], made(seconds))


def holding() -> AbstractAsyncContextManager[None]:
    """Where time is virtual, it stands still while something outside is waited for; else this does nothing."""
    made = getattr(asyncio.get_running_loop(), "outside_work", None)
    return nullcontext() if made is None else cast(AbstractAsyncContextManager[None], made())


class Threads:
    """Runs functions off the loop, one on each thread. Used from one loop.

    The threads of asyncio's own pool are few, and a program waits for them when it ends: a tool that hangs would stop
    all others and keep the command from ending. These are daemons, and one that is stuck is replaced.
    """

    def __init__(self) -> None:
        self._all: list[SimpleQueue[_Job | None]] = []
        self._idle: list[SimpleQueue[_Job | None]] = []
        self._lost = 0

    async def run(self, function: Callable[[], Any]) -> Any:
        """What the function gives or raises. Where the caller stops waiting, the thread goes on by itself."""
        if self._lost >= MOST_LOST:
            raise ToolError(f"{self._lost} calls of tools were given up and are still running; no further one is made")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
        context = contextvars.copy_context()
        queue = self._idle.pop() if self._idle else self._thread()

        def deliver(value: Any, error: BaseException | None) -> None:
            if done.cancelled():
                self._lost -= 1
            else:
                done.set_result((value, error))
            self._idle.append(queue)

        def job() -> None:
            value, raised = None, None
            try:
                value = context.run(function)
            except BaseException as error:
                raised = error
            # A loop that is closed has nobody who waits for this.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(deliver, value, raised)

        queue.put(job)
        try:
            async with holding():
                value, error = await done
        except asyncio.CancelledError:
            if done.cancelled():
                self._lost += 1
            raise
        if error is not None:
            raise error
        return value

    def _thread(self) -> SimpleQueue[_Job | None]:
        queue: SimpleQueue[_Job | None] = SimpleQueue()

        def work() -> None:
            while (job := queue.get()) is not None:
                job()

        self._all.append(queue)
        threading.Thread(target=work, name="helix-tool", daemon=True).start()
        return queue

    def close(self) -> None:
        """Ends the threads: idle ones now, a busy one after its work."""
        while self._all:
            self._all.pop().put(None)
        self._idle.clear()
