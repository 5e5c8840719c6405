"""Which guesses are made, and which are served: stages, chances, value, secrets, the breaker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from speculation_bench import LOOK, TAKES, Bench, made_tool

from helix.errors import ToolError
from helix.executor.speculation.settings import SpeculationSettings


def test_the_shadow_starts_nothing_and_says_what_it_would_have_saved() -> None:
    bench = Bench((LOOK,), mode="shadow")
    bench.guesses = [("look", {"n": 1}, 0.9)]
    assert bench.run(bench.turn((LOOK, 1)))[1] == TAKES
    assert bench.guessed == []
    assert bench.speculator.figures.shadow_hits == 1
    assert bench.speculator.figures.shadow_hidden == pytest.approx(TAKES)
    assert bench.speculator.figures.launched == bench.speculator.figures.hits == 0


def test_issue_runs_both_and_serves_none() -> None:
    bench = Bench((LOOK,), stage="issue", settings=SpeculationSettings(chances=1, matches=2, patience=0.0))
    bench.guesses = [("look", {"n": 1}, 0.9)]

    async def scenario() -> Any:
        found = [await bench.turn((LOOK, 1), turn=turn) for turn in range(3)]
        return [seconds for _, seconds in found]

    assert bench.run(scenario()) == [TAKES, TAKES, 0.0]
    assert bench.speculator.figures.compared == 2
    assert bench.speculator.state.stage(LOOK).stage == "serve"


def test_a_difference_puts_a_tool_back() -> None:
    bench = Bench((LOOK,), stage="issue")
    bench.guesses = [("look", {"n": 1}, 0.9)]

    async def differs(guessed: bool) -> str:
        await asyncio.sleep(TAKES)
        return "1" if guessed else "2"

    bench.behave["look"] = differs
    assert bench.run(bench.turn((LOOK, 1)))[0] == ["2"]
    stage = bench.speculator.state.stage(LOOK)
    assert (stage.stage, stage.differences) == ("shadow", 1)


def test_a_served_tool_is_looked_at_now_and_then() -> None:
    bench = Bench((LOOK,), settings=SpeculationSettings(chances=1, audit_every=2, patience=0.0))
    bench.guesses = [("look", {"n": 1}, 0.9)]

    async def scenario() -> Any:
        return [(await bench.turn((LOOK, 1), turn=turn))[1] for turn in range(4)]

    assert bench.run(scenario()) == [0.0, TAKES, 0.0, TAKES]


def test_no_more_than_k_and_the_best_of_them() -> None:
    bench = Bench((LOOK,))
    bench.guesses = [("look", {"n": n}, p) for n, p in enumerate((0.3, 0.9, 0.5, 0.8, 0.1))]
    bench.run(bench.turn((LOOK, 9)))
    assert bench.guessed == [("look", 1), ("look", 3), ("look", 2)]


def test_few_chances_and_small_value_launch_nothing() -> None:
    settings = SpeculationSettings(chances=2000, patience=0.0)
    bench = Bench((LOOK,), settings=settings)
    bench.guesses = [("look", {"n": 1}, 0.9)]
    bench.run(bench.turn((LOOK, 1)))
    assert bench.guessed == []
    assert bench.speculator.figures.refused == {"chances": 1}
    bench = Bench((LOOK,))
    bench.guesses = [("look", {"n": 1}, 0.05)]
    bench.run(bench.turn((LOOK, 1)))
    assert bench.guessed == []


def test_a_decision_that_is_there_at_once_is_not_guessed_at() -> None:
    bench = Bench((LOOK,), settings=SpeculationSettings(chances=1))
    bench.guesses = [("look", {"n": 1}, 0.9)]
    bench.run(bench.turn((LOOK, 1), thinks=0.0))
    assert bench.guessed == []


def test_secrets_stay_at_home() -> None:
    asks = made_tool("asks", open_world=True, speculate=True)
    bench = Bench((asks,), hidden="41")
    bench.guesses = [("asks", {"n": 41}, 0.9), ("asks", {"n": 5}, 0.9)]
    bench.run(bench.turn((asks, 41)))
    assert bench.guessed == [("asks", 5)]
    assert bench.speculator.figures.refused == {"secret": 1}


def test_arguments_that_do_not_fit_are_no_guess() -> None:
    bench = Bench((LOOK,))
    bench.guesses = [("look", {"n": "x"}, 0.9), ("look", {}, 0.9), ("look", {"n": 1, "m": 2}, 0.9), ("no", {}, 0.9)]
    bench.run(bench.turn((LOOK, 1)))
    assert bench.guessed == []
    assert bench.speculator.figures.refused == {"arguments": 3, "tool": 1}


def test_all_wrong_opens_the_breaker_and_costs_no_time() -> None:
    settings = SpeculationSettings(chances=1, least=10, patience=0.0)
    bench = Bench((LOOK,), settings=settings)
    bench.guesses = [("look", {"n": 7}, 0.9)]

    async def scenario() -> Any:
        return [(await bench.turn((LOOK, turn % 5), turn=turn))[1] for turn in range(60)]

    seconds = bench.run(scenario())
    # Not one call came later than it would have, to the clock of virtual time.
    assert max(seconds) <= TAKES + settings.fixed
    figures = bench.speculator.figures
    assert figures.hits == 0
    assert figures.breakers
    assert 10 <= figures.launched < 30
    assert figures.refused["breaker"] > 0


def test_too_many_requests_open_the_breaker() -> None:
    bench = Bench((LOOK,))
    bench.guesses = [("look", {"n": 7}, 0.9)]

    async def refuses(guessed: bool) -> str:
        if guessed:
            raise ToolError("HTTP 429 Too Many Requests")
        return "1"

    bench.behave["look"] = refuses

    async def scenario() -> None:
        for turn in range(4):
            await bench.turn((LOOK, 1), turn=turn)

    bench.run(scenario())
    assert len(bench.guessed) == 1


def test_patterns_that_break_are_given_up() -> None:
    bench = Bench((LOOK,))
    bench.predict = None  # type: ignore[method-assign, assignment]

    async def scenario() -> Any:
        return [(await bench.turn((LOOK, 1), turn=turn))[1] for turn in range(2)]

    assert bench.run(scenario()) == [TAKES, TAKES]
    assert "patterns were given up: TypeError" in str(bench.speculator.state.note)
