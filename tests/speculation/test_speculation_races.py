"""Single guesses and what may happen to them: writes in between, promotion, errors, other owners, budgets, places."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from speculation_world import Predicted, Remembered

from helix.errors import ToolError
from helix.executor.engines.sim.loop import run_virtual
from helix.executor.speculation.settings import Mode, SpeculationSettings
from helix.executor.speculation.speculator import Speculator
from helix.executor.speculation.stages import Stage
from helix.executor.speculation.state import SpeculationState
from helix.executor.tool_calls import Deciding, Decision, ToolCall, ToolCalls
from helix.schema import Column
from helix.services import Tool
from helix.types import INT, JSON

THINKS = 2.0
TAKES = 1.0
SERVED = SpeculationSettings(chances=1, audit_every=0, patience=0.0)


def made_tool(name: str, **traits: Any) -> Tool:
    held: dict[str, Any] = {"effects": "read", "reads": ("shop",), "timeout": 5.0, "cost": TAKES, **traits}
    if held["effects"] in ("write", "unknown"):
        held["reads"] = None
    return Tool(name=name, origin="python", target="t:t", params=(Column("n", INT),), returns=JSON, **held)


@dataclass
class Bench:
    """One agent by hand. `value` is the state that reads see; `behave` may replace what a tool does."""

    tools: tuple[Tool, ...]
    mode: Mode = "on"
    stage: Stage = "serve"
    settings: SpeculationSettings = SERVED
    size: int = 8
    tenant: str | None = None
    hidden: str = "\0"

    def __post_init__(self) -> None:
        self.value = 0
        self.started: list[tuple[str, int, bool, float]] = []
        self.guesses: list[tuple[str, Mapping[str, Any], float]] = []
        self.behave: dict[str, Callable[[bool], Coroutine[Any, Any, Any]]] = {}
        state = SpeculationState()
        for tool in self.tools:
            state.stage(tool).stage = self.stage
        # What a decision takes is known from before.
        for _ in range(5):
            state.decision_times("agent").add(THINKS)
        self.speculator = Speculator(
            self.settings, self.mode, state=state, lanes=lambda tool: ("lane", self.size),
            run=lambda tool, args: self.do(tool, args, True), predictor=self, history=Remembered, tools=self.tools,
            tenant=self.tenant, hidden_from=lambda text: self.hidden in text,
        )  # fmt: skip

        async def limited(tool: Tool, work: Any) -> str:
            async with asyncio.timeout(tool.timeout):
                text: str = await work
                return text

        self.calls = ToolCalls(limited)
        self.calls.around = self.speculator
        self.calls.watchers.append(self.speculator)
        bench = self

        class Opened:
            def __init__(self, tool: Tool) -> None:
                self.tool = tool

            async def __call__(self, args: list[Any]) -> str:
                return await bench.do(self.tool, args, False)

            def close(self) -> None:
                """Nothing is held."""

        for tool in self.tools:
            self.calls.add(tool, Opened(tool))

    def predict(self, history: Remembered, *, most: int) -> list[Predicted]:
        return [Predicted(name, args, p, p, 1000) for name, args, p in self.guesses]

    async def do(self, tool: Tool, args: list[Any], guessed: bool) -> str:
        self.started.append((tool.name, args[0], guessed, asyncio.get_running_loop().time()))
        if tool.name in self.behave:
            return str(await self.behave[tool.name](guessed))
        if tool.effects in ("pure", "read"):
            seen = self.value
            await asyncio.sleep(TAKES)
            return f"[{args[0]}, {seen}]"
        await asyncio.sleep(TAKES)
        self.value += 1
        return "true"

    def deciding(self, session: str, turn: int) -> None:
        self.calls.deciding(
            Deciding(session=session, row=0, step="agent", turn=turn, told=("hello",), tools=self.tools)
        )  # fmt: skip

    def asks(self, session: str, turn: int, *wanted: tuple[Tool, int]) -> list[ToolCall]:
        calls = [
            ToolCall(tool=tool, args={"n": n}, row=0, step="agent", session=session, turn=turn, position=place)
            for place, (tool, n) in enumerate(wanted)
        ]
        self.calls.decided(
            Decision(session=session, row=0, step="agent", turn=turn, told=(), text="", calls=tuple(calls))
        )  # fmt: skip
        return calls

    async def turn(self, *wanted: tuple[Tool, int], session: str = "s", turn: int = 0, thinks: float = THINKS) -> Any:
        """A whole turn; gives the results of its calls and the seconds that they took."""
        self.deciding(session, turn)
        await asyncio.sleep(thinks)
        loop = asyncio.get_running_loop()
        began = loop.time()
        results = await asyncio.gather(*(self.calls.call(call) for call in self.asks(session, turn, *wanted)))
        return list(results), loop.time() - began

    def run(self, scenario: Coroutine[Any, Any, Any]) -> Any:
        async def whole() -> Any:
            try:
                return await scenario
            finally:
                await self.speculator.close()

        return run_virtual(whole())

    @property
    def guessed(self) -> list[tuple[str, int]]:
        return [(name, n) for name, n, guessed, _ in self.started if guessed]

    @property
    def real(self) -> list[tuple[str, int]]:
        return [(name, n) for name, n, guessed, _ in self.started if not guessed]


LOOK = made_tool("look")
KEEP = made_tool("keep", freshness=Tool.UNTIL_WRITE)
WRITE = made_tool("change", effects="write", writes=("shop",))


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


def test_a_guess_that_hangs_ends_with_the_run() -> None:
    bench = Bench((LOOK,))
    bench.guesses = [("look", {"n": 7}, 0.9)]

    async def hangs(guessed: bool) -> str:
        if guessed:
            await asyncio.sleep(1e6)
        return "1"

    bench.behave["look"] = hangs
    assert bench.run(bench.turn((LOOK, 1)))[0] == ["1"]


def test_patterns_that_break_are_given_up() -> None:
    bench = Bench((LOOK,))
    bench.predict = None  # type: ignore[method-assign, assignment]

    async def scenario() -> Any:
        return [(await bench.turn((LOOK, 1), turn=turn))[1] for turn in range(2)]

    assert bench.run(scenario()) == [TAKES, TAKES]
    assert "patterns were given up: TypeError" in str(bench.speculator.state.note)
