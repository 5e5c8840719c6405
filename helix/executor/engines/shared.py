"""Engines that are opened once for several uses: to count tokens before a run, and for the run itself.

They live in an event loop of their own, in a thread of its own, so that code outside any loop can ask them too.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Hashable, Iterable
from types import TracebackType
from typing import Any, TypeVar, cast

from helix.executor.engines.base import Capabilities, Engine, Load, ProbingEngine, Reply, Request, WarmingEngine

_Made = TypeVar("_Made")


class SharedEngine:
    """An engine that others open and close as they like: it is opened once, and closed by `SharedEngines`.

    `calls` holds what was asked and answered, in the order of the answers.
    """

    def __init__(self, engine: Engine, concurrency: int) -> None:
        self.inner = engine
        self.calls: list[tuple[Request, Reply]] = []
        self._concurrency = concurrency
        self._opening: asyncio.Task[Capabilities] | None = None

    @property
    def name(self) -> str:
        """The engine's own name."""
        return self.inner.name

    @property
    def notes(self) -> list[str]:
        """What the engine would have a report say."""
        return list(getattr(self.inner, "notes", ()))

    async def open(self, *, concurrency: int) -> Capabilities:
        """What the engine can do. It is opened at the first time, for as many calls as `SharedEngines` was told."""
        if self._opening is None:
            self._opening = asyncio.ensure_future(self.inner.open(concurrency=self._concurrency))
        return await asyncio.shield(self._opening)

    async def generate(self, request: Request) -> Reply:
        """Makes the call and keeps it."""
        reply = await self.inner.generate(request)
        self.calls.append((request, reply))
        return reply

    async def calls_tools(self) -> bool:
        """Whether the engine has tool calls of its own; only asked where it has to find out."""
        return await cast(ProbingEngine, self.inner).calls_tools()

    async def warm(self, request: Request) -> Reply:
        """Computes the beginning of prompts; only called where the engine can."""
        return await cast(WarmingEngine, self.inner).warm(request)

    async def load(self) -> tuple[Load, ...]:
        """What each rank is doing; only called where the engine can tell."""
        return await cast(WarmingEngine, self.inner).load()

    async def count_tokens(self, request: Request) -> int:
        """The prompt's length in tokens."""
        return await self.inner.count_tokens(request)

    async def tokenize(self, text: str) -> list[int] | None:
        """A text's tokens, or None where the engine can only count them."""
        asked = getattr(self.inner, "tokenize", None)
        return None if asked is None else list(await asked(text))

    async def close(self) -> None:
        """Nothing: others may still use the engine."""

    async def end(self) -> None:
        """Closes the engine."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        await self.inner.close()


class SharedEngines:
    """The engines, and the loop that they live in; a context manager, which closes them all.

    `loop_factory` makes the loop (None: an ordinary one); one in virtual time may break off, which whoever waits is
    told.
    """

    def __init__(
        self, *, concurrency: int, loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    ) -> None:
        self._concurrency = concurrency
        self._engines: dict[Hashable, SharedEngine] = {}
        self._loop = asyncio.new_event_loop() if loop_factory is None else loop_factory()
        self._broken: BaseException | None = None
        self._thread = threading.Thread(target=self._turn, name="helix-engines", daemon=True)

    def _turn(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        except BaseException as error:
            self._broken = error
            loop.run_until_complete(_end_all(asyncio.all_tasks(loop)))
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    def __enter__(self) -> SharedEngines:
        self._thread.start()
        return self

    def get(self, key: Hashable, make: Callable[[], Engine]) -> SharedEngine:
        """The engine under a key; `make` makes it where there is none yet."""
        found = self._engines.get(key)
        if found is None:
            found = self._engines[key] = SharedEngine(make(), self._concurrency)
        return found

    def wait(self, work: Coroutine[Any, Any, _Made]) -> _Made:
        """Runs something in the loop of the engines and waits for it. An interrupt cancels it and waits for its end."""
        watch = getattr(self._loop, "watch", None)
        future = asyncio.run_coroutine_threadsafe(work if watch is None else _watched(work, watch), self._loop)
        try:
            return future.result()
        except BaseException:
            if self._broken is not None:
                raise self._broken from None
            if future.cancel():
                # What was cancelled tidies up in the loop: its turn comes before anything asked for later.
                asyncio.run_coroutine_threadsafe(_others_end(), self._loop).result()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._broken is None:
                for engine in self._engines.values():
                    self.wait(engine.end())
        finally:
            if self._broken is None:
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()


async def _watched(work: Coroutine[Any, Any, _Made], watch: Callable[[asyncio.Future[Any]], None]) -> _Made:
    """Does the work, which the loop is told of."""
    task = asyncio.current_task()
    assert task is not None
    watch(task)
    return await work


async def _end_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancels tasks and waits for their ends."""
    for task in (pending := list(tasks)):
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)


async def _others_end() -> None:
    """Waits until nothing else runs in the loop."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)
