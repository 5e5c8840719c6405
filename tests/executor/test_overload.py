"""Calls to an engine that turns many away, in virtual time: few in vain, and back to full pace (contract 11)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from helix.errors import EngineError
from helix.executor.engines.sim.loop import run_virtual
from helix.executor.limits import CutShort, Limits
from helix.executor.overload import Overload
from helix.executor.settings import RunSettings

AT_ONCE = 64
# A server takes or turns away (a wait that it asks for) after so many seconds.
Server = Callable[[float], Awaitable[float | None]]


def limits(**settings: Any) -> Limits:
    made = Limits(RunSettings(**settings), lambda *_, **__: None)
    return made


@dataclass(kw_only=True)
class Load:
    """What a load of calls came to."""

    requests: int = 0
    answered: list[float] = field(default_factory=list)
    seconds: float = 0.0
    gave_up: int = 0


async def load(server: Server, calls: int, *, at_once: int = AT_ONCE, asked: bool = True, **settings: Any) -> Load:
    """Makes so many calls, as `EngineCaller` does; the waits are `asked` for by the server, or its own."""
    loop, bounds, overload = asyncio.get_running_loop(), limits(**settings), Overload()
    found = Load()
    waiting = iter(range(calls))

    async def work() -> None:
        for _ in waiting:
            came = loop.time()
            while True:
                if await overload.enter(bounds, came) is not None:
                    found.gave_up += 1
                    break
                began = loop.time()
                found.requests += 1
                wait = await server(began)
                overload.leave(answered=wait is None)
                if wait is None:
                    found.answered.append(loop.time())
                    break
                overload.met(EngineError("busy", status=429, retry_after=wait if asked else None), began, wait)

    await asyncio.gather(*(work() for _ in range(at_once)))
    found.seconds = loop.time()
    return found


def counting(rate: float, most: float, *, takes: float, asks: float | None, lifts: float = float("inf")) -> Server:
    """A server with a bucket of tokens: `rate` a second, `most` at once; it asks for the time to the next one if
    `asks` is None. After `lifts` seconds it takes all.
    """
    state = {"tokens": most, "at": 0.0}

    async def serve(now: float) -> float | None:
        state["tokens"] = min(most, state["tokens"] + (now - state["at"]) * rate)
        state["at"] = now
        if state["tokens"] >= 1 or now > lifts:
            state["tokens"] -= 1
            await asyncio.sleep(takes)
            return None
        await asyncio.sleep(0.002)
        return (1 - state["tokens"]) / rate if asks is None else asks

    return serve


def holding(most: int, *, takes: float, asks: float, lifts: float = float("inf")) -> Server:
    """A server that works on so many at once and turns others away."""
    state = {"held": 0}

    async def serve(now: float) -> float | None:
        if state["held"] >= most and now <= lifts:
            await asyncio.sleep(0.002)
            return asks
        state["held"] += 1
        await asyncio.sleep(takes)
        state["held"] -= 1
        return None

    return serve


@pytest.mark.parametrize("takes", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("asks", [None, 0.3, 1.0])
@pytest.mark.parametrize("second", [0.02, 0.25, 1.0])
def test_a_server_that_counts_calls_gets_few_in_vain(takes: float, asks: float | None, second: float) -> None:
    """It bears a tenth of what comes; its bucket holds what comes in so much of a second."""
    rate = AT_ONCE / takes / 10
    calls = int(10 * AT_ONCE)
    found = run_virtual(load(counting(rate, max(1.0, second * rate), takes=takes, asks=asks), calls))
    assert len(found.answered) == calls
    assert found.requests < 1.5 * calls


@pytest.mark.parametrize("takes", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("asks", [0.3, 1.0])
def test_a_server_that_holds_few_gets_few_in_vain(takes: float, asks: float) -> None:
    calls = 10 * AT_ONCE
    found = run_virtual(load(holding(6, takes=takes, asks=asks), calls))
    assert len(found.answered) == calls
    assert found.requests < 1.5 * calls


@pytest.mark.parametrize("share", [0.02, 0.2])
def test_calls_that_are_turned_away_by_chance_do_not_bring_the_pace_down_for_good(share: float) -> None:
    """By a server that could take all, and asks for no wait."""
    drawn = random.Random(3)

    async def chance(now: float) -> float | None:
        await asyncio.sleep(0.05)
        return 0.4 if drawn.random() < share else None

    found = run_virtual(load(chance, 1000, asked=False))
    # One after another, each of those turned away holds up all for 0.4 s.
    assert found.seconds < 2 * (1000 * share * 0.4 + 1000 / 15)


def test_most_of_what_a_server_bears_is_used() -> None:
    rate, calls = 64.0, 2560
    found = run_virtual(load(counting(rate, rate, takes=0.1, asks=1.0), calls))
    assert found.seconds < 1.25 * calls / rate


@pytest.mark.parametrize("takes", [0.1, 1.0])
@pytest.mark.parametrize("counts", [True, False])
def test_the_pace_is_back_seconds_after_the_limit_is_lifted(takes: float, counts: bool) -> None:
    pace, lifts = AT_ONCE / takes, 10.0
    server = (
        counting(pace / 10, pace / 10, takes=takes, asks=1.0, lifts=lifts)
        if counts
        else holding(6, takes=takes, asks=1.0, lifts=lifts)
    )
    found = run_virtual(load(server, int(15 * pace)))
    back = lifts + 8
    assert sum(back <= at < back + 2 for at in found.answered) > 0.8 * 2 * pace


def test_a_first_call_that_is_turned_away_holds_everybody_and_the_pause_may_grow() -> None:
    async def main() -> list[float]:
        loop, bounds, overload = asyncio.get_running_loop(), limits(), Overload()
        assert await overload.enter(bounds, 0.0) is None
        overload.leave(answered=False)
        overload.met(EngineError("busy"), 0.0, 0.5)
        loop.call_later(0.2, overload.met, EngineError("busy"), 0.0, 1.0)

        async def one() -> float:
            await overload.enter(bounds, 0.0)
            at = loop.time()
            overload.leave(answered=True)
            return at

        return list(await asyncio.gather(one(), one()))

    assert run_virtual(main()) == [pytest.approx(1.2, abs=0.01)] * 2


def test_who_waits_for_a_full_engine_gives_up_after_the_time_that_a_call_waits() -> None:
    async def full(now: float) -> float | None:
        return 0.5

    found = run_virtual(load(full, 6, at_once=3, wait_limit=10.0))
    assert (found.gave_up, found.answered) == (6, [])
    # Three wait together, then three more.
    assert 20 <= found.seconds < 23
    assert found.requests < 50


def test_the_end_of_the_run_ends_all_waits() -> None:
    async def main() -> None:
        bounds, overload = limits(), Overload()
        assert await overload.enter(bounds, 0.0) is None
        overload.met(EngineError("busy"), 0.0, 60.0)
        asyncio.get_running_loop().call_later(1.0, bounds.halt, "enough", "not_started")
        for result in await asyncio.gather(*(overload.enter(bounds, 0.0) for _ in range(3)), return_exceptions=True):
            assert isinstance(result, CutShort)
        assert asyncio.get_running_loop().time() < 2

    run_virtual(main())
