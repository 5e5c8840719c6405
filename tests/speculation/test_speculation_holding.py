"""For whom, and how long, the result of a guess holds."""

from __future__ import annotations

import asyncio
from typing import Any

from speculation_bench import KEEP, LOOK, TAKES, WRITE, Bench, made_tool


def test_a_result_holds_for_the_decision_it_was_made_for() -> None:
    bench = Bench((LOOK,))
    bench.guesses = [("look", {"n": 1}, 0.9)]

    async def scenario() -> Any:
        await bench.turn((LOOK, 2))
        bench.guesses = []
        return await bench.turn((LOOK, 1), turn=1)

    assert bench.run(scenario())[1] == TAKES
    assert bench.speculator.figures.hits == 0


def test_a_result_that_holds_until_a_write_is_kept() -> None:
    bench = Bench((KEEP, WRITE))
    bench.guesses = [("keep", {"n": 1}, 0.9)]

    async def scenario() -> Any:
        await bench.turn((KEEP, 2))
        bench.guesses = []
        kept = await bench.turn((KEEP, 1), turn=1)
        other = await bench.turn((KEEP, 1), session="other")
        await bench.turn((WRITE, 0), turn=2)
        written = await bench.turn((KEEP, 1), turn=3)
        return kept, other, written

    kept, other, written = bench.run(scenario())
    assert kept == other == (["[1, 0]"], 0.0)
    assert written == (["[1, 1]"], TAKES)


def test_a_result_that_holds_for_a_time_is_kept_so_long() -> None:
    timed = made_tool("timed", freshness="4s")
    bench = Bench((timed,))
    bench.guesses = [("timed", {"n": 1}, 0.9)]

    async def scenario() -> Any:
        await bench.turn((timed, 2))
        bench.guesses = []
        young = await bench.turn((timed, 1), turn=1, thinks=0.5)
        await asyncio.sleep(4.0)
        return young, await bench.turn((timed, 1), turn=2)

    young, old = bench.run(scenario())
    assert young[1] == 0.0
    assert old[1] == TAKES


def test_another_tenant_is_served_nothing() -> None:
    """Runs of two tenants share no table at all; and a key of one is none of the other."""
    one, two = Bench((KEEP,), tenant="one"), Bench((KEEP,), tenant="two")
    keys = [
        each.speculator.table.key(KEEP, "call", each_effect(), ("s", 0)) for each in (one, two, Bench((KEEP,)))
    ]  # fmt: skip
    assert len(set(keys)) == 3


def each_effect() -> Any:
    from helix.executor.speculation.effect import effect_of

    return effect_of(KEEP, {"n": 1})
