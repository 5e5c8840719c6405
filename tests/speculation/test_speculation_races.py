"""Single guesses and what may come between: writes, promotion, cancels, errors, calls that take too long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from speculation_bench import KEEP, LOOK, TAKES, WRITE, Bench, made_tool

from helix.errors import ToolError
from helix.schema import Column
from helix.services import Tool
from helix.types import INT, JSON


def test_a_right_guess_is_served_at_once() -> None:
    bench = Bench((LOOK,))
    bench.guesses = [("look", {"n": 1}, 0.9)]
    assert bench.run(bench.turn((LOOK, 1))) == (["[1, 0]"], 0.0)
    assert (bench.guessed, bench.real) == ([("look", 1)], [])
    figures = bench.speculator.figures
    assert (figures.launched, figures.hits, figures.late_hits, figures.wasted) == (1, 1, 0, 0)
    assert figures.hidden == pytest.approx(TAKES)
    assert figures.limit == pytest.approx(TAKES)


def test_a_late_guess_is_waited_for_and_not_started_again() -> None:
    bench = Bench((LOOK,))
    bench.guesses = [("look", {"n": 1}, 0.9)]
    results, seconds = bench.run(bench.turn((LOOK, 1), thinks=0.4))
    assert results == ["[1, 0]"]
    assert seconds == pytest.approx(0.6)
    assert bench.real == []
    assert bench.speculator.figures.late_hits == 1
    assert bench.speculator.figures.hidden == pytest.approx(0.4)


def test_a_wrong_guess_is_wasted_and_delays_nothing() -> None:
    bench = Bench((LOOK,))
    bench.guesses = [("look", {"n": 1}, 0.9)]
    results, seconds = bench.run(bench.turn((LOOK, 2)))
    assert (results, seconds) == (["[2, 0]"], TAKES)
    figures = bench.speculator.figures
    assert (figures.launched, figures.hits, figures.wasted) == (1, 0, 1)


@pytest.mark.parametrize("writes", [("shop",), ("shop.orders",), None])
@pytest.mark.parametrize("moment", [0.2, 1.5])
def test_a_write_over_a_guess_discards_it(writes: Any, moment: float) -> None:
    change = made_tool("change", effects="write", writes=writes)
    bench = Bench((LOOK, change))
    bench.guesses = [("look", {"n": 1}, 0.9)]

    async def scenario() -> Any:
        async def other() -> None:
            await asyncio.sleep(moment)
            for call in bench.asks("other", 0, (change, 0)):
                await bench.calls.call(call)

        writing = asyncio.ensure_future(other())
        found = await bench.turn((LOOK, 1), thinks=3.0)
        await writing
        return found

    results, _ = bench.run(scenario())
    # Read anew: what it shows is the state after the write.
    assert results == ["[1, 1]"]
    assert ("look", 1) in bench.real
    assert bench.speculator.figures.hits == 0
    assert bench.speculator.figures.stale == 1


@pytest.mark.parametrize("tables", [True, False])
def test_a_write_by_another_name(tables: bool) -> None:
    """Where tables are read of which nobody says to what domain they belong, a domain without readers may be theirs."""
    change = made_tool("change", effects="write", writes=("elsewhere",))
    sql = Tool(
        name="ask", origin="sql", target="sqlite:a.db", params=(Column("n", INT),), returns=JSON, effects="read",
        query="SELECT :n", reads=None if tables else ("shop",),
    )  # fmt: skip
    bench = Bench((LOOK, change, sql))
    bench.guesses = [("look", {"n": 1}, 0.9)]

    async def scenario() -> Any:
        async def other() -> None:
            await asyncio.sleep(0.2)
            await bench.calls.call(bench.asks("other", 0, (change, 0))[0])

        writing = asyncio.ensure_future(other())
        found = await bench.turn((LOOK, 1), thinks=3.0)
        await writing
        return found

    assert bench.run(scenario())[1] == (TAKES if tables else 0.0)
    assert bench.speculator.figures.stale == int(tables)


def test_a_guess_that_began_during_a_write_is_not_served() -> None:
    bench = Bench((KEEP, WRITE))
    bench.guesses = [("keep", {"n": 1}, 0.9)]

    async def scenario() -> Any:
        async def other() -> None:
            for call in bench.asks("other", 0, (WRITE, 0)):
                await bench.calls.call(call)

        writing = asyncio.ensure_future(other())
        await asyncio.sleep(0.1)
        found = await bench.turn((KEEP, 1), thinks=2.5)
        await writing
        return found

    results, _ = bench.run(scenario())
    assert results == ["[1, 1]"]


def test_a_write_of_another_domain_leaves_it() -> None:
    look = made_tool("look")
    other = made_tool("count", reads=("stock",))
    change = made_tool("change", effects="write", writes=("stock",))
    bench = Bench((look, other, change))
    bench.guesses = [("look", {"n": 1}, 0.9)]

    async def scenario() -> Any:
        writing = asyncio.ensure_future(asyncio.gather(*map(bench.calls.call, bench.asks("o", 0, (change, 0)))))
        found = await bench.turn((look, 1))
        await writing
        return found

    assert bench.run(scenario())[1] == 0.0


def test_a_write_that_was_given_up_leaves_its_domain_unknown() -> None:
    change = made_tool("change", effects="write", writes=("shop",), timeout=0.5)
    bench = Bench((KEEP, change))
    bench.guesses = [("keep", {"n": 1}, 0.9)]

    async def scenario() -> Any:
        call = bench.asks("o", 0, (change, 0))[0]
        with pytest.raises(TimeoutError):
            await bench.calls.call(call)
        return await bench.turn((KEEP, 1))

    # The tool may still be at work: nothing that was read on a guess is believed any more.
    assert bench.run(scenario())[1] == TAKES
    assert bench.speculator.figures.hits == 0


@pytest.mark.parametrize("cancellable", [True, False])
def test_a_write_while_a_call_waits_for_a_guess(cancellable: bool) -> None:
    look = made_tool("look", cancellable=cancellable)
    bench = Bench((look, WRITE))
    bench.guesses = [("look", {"n": 1}, 0.9)]

    async def scenario() -> Any:
        async def other() -> None:
            await asyncio.sleep(0.6)
            await bench.calls.call(bench.asks("o", 0, (WRITE, 0))[0])

        writing = asyncio.ensure_future(other())
        found = await bench.turn((look, 1), thinks=0.4)
        await writing
        return found

    results, seconds = bench.run(scenario())
    # It is called again as soon as the write begins, not only when the guess has ended.
    assert seconds == pytest.approx(0.2 + TAKES)
    assert bench.real.count(("look", 1)) == 1
    assert results == ["[1, 0]"]


def test_a_caller_that_is_cancelled_leaves_the_guess_alone() -> None:
    bench = Bench((KEEP,))
    bench.guesses = [("keep", {"n": 1}, 0.9)]

    async def scenario() -> Any:
        bench.deciding("s", 0)
        await asyncio.sleep(0.3)
        one, two = bench.asks("s", 0, (KEEP, 1), (KEEP, 1))
        first = asyncio.ensure_future(bench.calls.call(one))
        second = asyncio.ensure_future(bench.calls.call(two))
        await asyncio.sleep(0.1)
        first.cancel()
        return await second

    assert bench.run(scenario()) == "[1, 0]"
    assert bench.guessed == [("keep", 1)]
    assert bench.real == []


def test_an_error_is_never_served() -> None:
    bench = Bench((LOOK,))
    bench.guesses = [("look", {"n": 1}, 0.9)]

    async def fails_once(guessed: bool) -> str:
        await asyncio.sleep(TAKES)
        if guessed:
            raise ToolError("the connection was lost")
        return "1"

    bench.behave["look"] = fails_once
    assert bench.run(bench.turn((LOOK, 1)))[0] == ["1"]
    assert bench.real == [("look", 1)]
    assert bench.speculator.figures.errors == 1
    assert bench.speculator.figures.hits == 0


def test_an_error_while_a_call_waits_leaves_it_all_its_time() -> None:
    look = made_tool("look", timeout=1.2)
    bench = Bench((look,))
    bench.guesses = [("look", {"n": 1}, 0.9)]

    async def fails_late(guessed: bool) -> str:
        await asyncio.sleep(TAKES)
        if guessed:
            raise ToolError("the connection was lost")
        return "1"

    bench.behave["look"] = fails_late
    results, seconds = bench.run(bench.turn((look, 1), thinks=0.1))
    assert results == ["1"]
    assert seconds == pytest.approx(0.9 + TAKES)


def test_what_takes_longer_than_a_call_may_is_not_served() -> None:
    look = made_tool("look", timeout=0.8)
    bench = Bench((look,))
    bench.guesses = [("look", {"n": 1}, 0.9)]
    with pytest.raises(TimeoutError):
        bench.run(bench.turn((look, 1)))
