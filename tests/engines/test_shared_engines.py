"""Engines that are opened once for several uses, in a loop of their own."""

from __future__ import annotations

import asyncio
import threading

import pytest

from helix.errors import EngineError
from helix.executor.engines.base import Capabilities, Message, Reply, Request
from helix.executor.engines.shared import SharedEngines

ASK = Request(model=None, messages=(Message(role="user", content="a b"),), step="s", row=3)


class Engine:
    """An engine that notes what happens to it and where."""

    name = "mine"

    def __init__(self, fails: bool = False) -> None:
        self.told: list[str] = []
        self.threads: set[str] = set()
        self.fails = fails
        self.started = threading.Event()
        self.tidied = False

    async def open(self, *, concurrency: int) -> Capabilities:
        self.told.append(f"open {concurrency}")
        self.threads.add(threading.current_thread().name)
        if self.fails:
            raise EngineError("it is not there", fatal=True)
        return Capabilities(counts_tokens=True)

    async def generate(self, request: Request) -> Reply:
        self.threads.add(threading.current_thread().name)
        return Reply(text="r")

    async def count_tokens(self, request: Request) -> int:
        return 2

    async def hang(self) -> None:
        self.started.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            self.tidied = True

    async def close(self) -> None:
        self.told.append("close")


class Tokenizing(Engine):
    """One that gives tokens too."""

    notes = ("a note",)

    async def tokenize(self, text: str) -> list[int]:
        return [len(word) for word in text.split()]


def test_it_is_opened_and_closed_once_whoever_asks() -> None:
    inner = Engine()
    with SharedEngines(concurrency=7) as engines:
        engine = engines.get("a", lambda: inner)
        assert engines.get("a", Engine) is engine
        first = engines.wait(engine.open(concurrency=1))
        assert engines.wait(engine.open(concurrency=3)) is first
        engines.wait(engine.close())
        assert engines.wait(engine.generate(ASK)).text == "r"
        assert engines.wait(engine.count_tokens(ASK)) == 2
        assert engine.name == "mine"
        assert engine.notes == []
        assert engines.wait(engine.tokenize("a")) is None
    assert inner.told == ["open 7", "close"]
    assert inner.threads == {"helix-engines"}
    assert [(request.step, request.row, reply.text) for request, reply in engine.calls] == [("s", 3, "r")]


def test_tokens_and_notes_come_through() -> None:
    with SharedEngines(concurrency=1) as engines:
        engine = engines.get(None, Tokenizing)
        assert engines.wait(engine.tokenize("ab c")) == [2, 1]
        assert engine.notes == ["a note"]


def test_one_that_does_not_open_says_so_each_time_and_is_closed() -> None:
    inner = Engine(fails=True)
    with SharedEngines(concurrency=1) as engines:
        engine = engines.get(None, lambda: inner)
        for _ in range(2):
            with pytest.raises(EngineError, match="it is not there"):
                engines.wait(engine.open(concurrency=1))
    assert inner.told == ["open 1", "close"]


def test_an_interrupt_ends_what_is_running_before_the_engines_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = Engine()

    def interrupted(work: object, loop: object) -> object:
        future = original(work, loop)  # type: ignore[arg-type]

        class Interrupting:
            def result(self) -> None:
                inner.started.wait(5)
                raise KeyboardInterrupt

            def cancel(self) -> bool:
                return future.cancel()

        return Interrupting() if getattr(work, "__name__", "") == "hang" else future

    original = asyncio.run_coroutine_threadsafe
    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", interrupted)

    def interrupt() -> None:
        with SharedEngines(concurrency=1) as engines:
            engines.get(None, lambda: inner)
            engines.wait(inner.hang())

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert inner.tidied
    assert inner.told == ["close"]


def test_it_works_inside_a_running_loop() -> None:
    async def main() -> int:
        with SharedEngines(concurrency=1) as engines:
            return engines.wait(engines.get(None, Engine).count_tokens(ASK))

    assert asyncio.run(main()) == 2
    assert "helix-engines" not in {thread.name for thread in threading.enumerate()}
