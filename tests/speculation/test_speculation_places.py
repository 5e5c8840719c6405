"""Places and calls that were for nothing: guesses make way for real calls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from speculation_bench import LOOK, TAKES, Bench, made_tool


def test_places_are_kept_for_real_calls() -> None:
    bench = Bench((LOOK,), size=4)
    bench.guesses = [("look", {"n": n}, 0.9) for n in range(3)]
    results, seconds = bench.run(bench.turn((LOOK, 2), thinks=0.5))
    # Two of four places are for guesses; the third guess has not begun, so the real call goes ahead of it.
    assert bench.guessed == [("look", 0), ("look", 1)]
    assert (results, seconds) == (["[2, 0]"], TAKES)


def test_a_lane_of_one_place_is_for_real_calls_alone() -> None:
    bench = Bench((LOOK,), size=1)
    bench.guesses = [("look", {"n": 1}, 0.9)]
    bench.run(bench.turn((LOOK, 1)))
    assert bench.guessed == []


def test_no_guess_begins_while_real_calls_have_all_places() -> None:
    bench = Bench((LOOK,), size=4)
    bench.guesses = [("look", {"n": 9}, 0.9)]

    async def scenario() -> Any:
        real = asyncio.gather(*map(bench.calls.call, bench.asks("o", 0, *((LOOK, n) for n in range(4)))))
        found = await bench.turn((LOOK, 1), thinks=0.5)
        await real
        return found

    bench.run(scenario())
    assert bench.guessed == []


@pytest.mark.parametrize("cancellable", [True, False])
def test_a_guess_makes_way_for_real_calls(cancellable: bool) -> None:
    look = made_tool("look", cancellable=cancellable)
    bench = Bench((look,), size=4)
    bench.guesses = [("look", {"n": n}, 0.9) for n in (7, 8)]
    results, seconds = bench.run(bench.turn(*((look, n) for n in range(4)), thinks=0.5))
    assert results == [f"[{n}, 0]" for n in range(4)]
    # Two guesses hold two places for half a second more, unless they can be cancelled.
    assert seconds == pytest.approx(TAKES if cancellable else 0.5 + TAKES)
    # What was given up was to no purpose from the moment of the decision, so that it held up nobody if it could end.
    assert (bench.speculator.figures.delayed > 0) is not cancellable


def test_a_mismatch_cancels_what_can_be() -> None:
    look = made_tool("look", cancellable=True)
    bench = Bench((look,))
    bench.guesses = [("look", {"n": 7}, 0.9)]
    bench.run(bench.turn((look, 1), thinks=0.5))
    assert bench.speculator.figures.cancelled == 1
    assert bench.speculator.figures.wasted_seconds == pytest.approx(0.5, abs=0.01)


def test_a_guess_that_hangs_ends_with_the_run() -> None:
    bench = Bench((LOOK,))
    bench.guesses = [("look", {"n": 7}, 0.9)]

    async def hangs(guessed: bool) -> str:
        if guessed:
            await asyncio.sleep(1e6)
        return "1"

    bench.behave["look"] = hangs
    assert bench.run(bench.turn((LOOK, 1)))[0] == ["1"]
