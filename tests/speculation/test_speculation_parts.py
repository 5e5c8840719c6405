"""The parts of speculation by themselves: epochs, times, value, budgets, breaker, stages, what is kept."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix.errors import OptionError
from helix.executor.speculation.breaker import Breaker
from helix.executor.speculation.budgets import Budgets
from helix.executor.speculation.effect import effect_of, guessable
from helix.executor.speculation.epochs import Epochs
from helix.executor.speculation.settings import SpeculationSettings, mode_of
from helix.executor.speculation.stages import ToolStage, stage_of
from helix.executor.speculation.state import SpeculationState, file_of, version_of
from helix.executor.speculation.times import Times, expected_least
from helix.executor.speculation.value import greedy, worth
from helix.schema import Column
from helix.services import Tool
from helix.types import INT, JSON, TEXT


def tool(name: str = "orders", **traits: Any) -> Tool:
    made: dict[str, Any] = {
        "origin": "python", "target": "shop:orders", "params": (Column("n", INT),), "returns": JSON, "effects": "read",
    }  # fmt: skip
    return Tool(name=name, **{**made, **traits})


# --- effects of a call ---


def test_a_statement_is_classed_call_by_call() -> None:
    sql = tool(origin="sql", target="sqlite:a.db", params=(Column("query", TEXT),))
    read = guessable(sql, {"query": "SELECT * FROM orders JOIN customers USING (id)"})
    assert read is not None
    assert read.reads == ("customers", "orders")
    for trap in ("DELETE FROM orders", "SELECT 1; SELECT 2", "SELECT random()", "", "PRAGMA journal_mode = WAL", None):
        assert guessable(sql, {"query": trap}) is None


def test_a_declaration_is_no_pardon_for_a_statement() -> None:
    sql = tool(origin="sql", target="postgresql://host/db", params=(), query="SELECT nextval('s')", effects="pure")
    assert effect_of(sql, {}).effects == "unknown"
    assert guessable(sql, {}) is None


@pytest.mark.parametrize(
    "traits",
    [
        {"effects": "write"},
        {"effects": "destructive"},
        {"effects": "idempotent_write"},
        {"effects": "unknown"},
        {"freshness": "0"},
        {"open_world": True},
        {"speculate": False},
    ],
)
def test_what_may_not_be_guessed(traits: dict[str, Any]) -> None:
    assert guessable(tool(**traits), {"n": 1}) is None


def test_an_open_world_needs_a_word_of_its_own() -> None:
    assert guessable(tool(open_world=True, speculate=True), {"n": 1}) is not None
    # The word opens the world, not the class.
    assert guessable(tool(effects="write", speculate=True), {"n": 1}) is None
    assert guessable(tool(freshness="0", speculate=True), {"n": 1}) is None


# --- epochs ---


def test_epochs_of_what_is_read() -> None:
    epochs = Epochs(["a", "b"])
    a, b, every = epochs.of(("a",)), epochs.of(("b",)), epochs.of(None)
    epochs.bump(("a.x",))
    assert epochs.of(("a",)) != a
    assert epochs.of(("b",)) == b
    assert epochs.of(None) != every
    assert epochs.of(()) == ()


def test_unknown_writes_touch_everything() -> None:
    epochs = Epochs(["a"])
    before = epochs.of(("a",))
    epochs.bump(None)
    assert epochs.of(("a",)) != before
    # Nobody is known to read it: it may be another name for the same thing.
    before = epochs.of(("a",))
    epochs.bump(("shop",))
    assert epochs.of(("a",)) != before


def test_a_domain_that_nobody_reads_is_one_of_its_own_where_all_readers_say_what_they_read() -> None:
    epochs = Epochs(["a"], strict=False)
    before = epochs.of(("a",)), epochs.of(None)
    epochs.bump(("shop",))
    assert epochs.of(("a",)) == before[0]
    assert epochs.of(None) != before[1]
    epochs.bump(None)
    assert epochs.of(("a",)) != before[0]


def test_a_broken_domain_has_no_epoch() -> None:
    epochs = Epochs(["a", "b"])
    epochs.broke(("a",))
    assert epochs.of(("a",)) != epochs.of(("a",))
    assert epochs.of(("b",)) == epochs.of(("b",))
    epochs.broke(None)
    assert epochs.of(("b",)) != epochs.of(("b",))


@given(
    st.lists(st.one_of(st.none(), st.lists(st.sampled_from(["a", "a.x", "a.y", "b", "c"]), max_size=2)), max_size=8),
    st.one_of(st.none(), st.lists(st.sampled_from(["a", "a.x", "b"]), min_size=1, max_size=2)),
)
def test_a_write_of_what_is_read_is_always_seen(writes: list[list[str] | None], reads: list[str] | None) -> None:
    from helix.tools.effects import overlap

    epochs = Epochs(["a", "b"])
    held = None if reads is None else tuple(reads)
    for write in writes:
        before = epochs.of(held)
        epochs.bump(None if write is None else tuple(write))
        if overlap(held, None if write is None else tuple(write)):
            assert epochs.of(held) != before


# --- times and value ---


@given(st.lists(st.floats(0.001, 1000), min_size=1, max_size=30), st.lists(st.floats(0.001, 1000), min_size=1))
def test_expected_least_is_that_of_all_pairs(one: list[float], other: list[float]) -> None:
    first, second = Times(), Times()
    for seconds in one:
        first.add(seconds)
    for seconds in other:
        second.add(seconds)
    exact = sum(min(a, b) for a in one for b in other) / (len(one) * len(other))
    # A bin is 19 % wide and stands for its middle.
    assert expected_least(first, second) == pytest.approx(exact, rel=0.1)
    assert expected_least(first, second) <= min(first.mean(), second.mean()) * (1 + 1e-9)


def test_what_is_not_known_is_worth_nothing() -> None:
    assert expected_least(Times(), Times(1.0)) == 0.0
    assert not Times().known
    assert Times(2.0).mean() == pytest.approx(2.0, rel=0.1)


def test_value_is_the_formula() -> None:
    settings = SpeculationSettings(second=2.0, work=0.5, money=10.0, fixed=0.01)
    found = worth(settings, p_low=0.4, hidden=1.5, tool_seconds=3.0, fee=0.1, queue=0.2)
    assert found.value == pytest.approx(2.0 * 0.4 * 1.5 - 0.6 * (0.5 * 3.0 + 10.0 * 0.1) - 2.0 * 0.2 - 0.01)


def test_the_default_threshold_is_a_fifth() -> None:
    settings = SpeculationSettings()
    assert worth(settings, p_low=0.21, hidden=1.0, tool_seconds=1.0).value > 0
    assert worth(settings, p_low=0.19, hidden=1.0, tool_seconds=1.0).value < 0


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 5), st.floats(0, 5)), max_size=8), st.integers(0, 4))
def test_greedy_takes_the_best_and_none_below_zero(drawn: list[tuple[float, float, float]], most: int) -> None:
    settings = SpeculationSettings()
    candidates = {
        f"c{place}": worth(settings, p_low=p, hidden=hidden, tool_seconds=seconds)
        for place, (p, hidden, seconds) in enumerate(drawn)
    }
    chosen = greedy(candidates.items(), most)
    assert len(chosen) <= most
    assert all(candidates[name].value > 0 for name in chosen)
    left = [each.rate for name, each in candidates.items() if name not in chosen and each.value > 0]
    if chosen and left:
        assert min(candidates[name].rate for name in chosen) >= max(left)
    assert chosen == greedy(reversed(candidates.items()), most)


# --- budgets ---


def test_budgets() -> None:
    settings = SpeculationSettings(per_session=3, in_flight=2, per_rate_group=1, fees=0.5)
    budgets = Budgets(settings)
    grouped, paid = tool(rate_group="api"), tool("paid", fee=0.4)
    assert budgets.refusal("s", grouped) is None
    budgets.launched("s", grouped)
    assert budgets.refusal("s", tool("other", rate_group="api")) == "rate group"
    budgets.launched("s", paid)
    assert budgets.refusal("s", tool("third")) == "in flight"
    budgets.ended(grouped)
    budgets.ended(paid)
    # What was charged stays charged.
    assert budgets.refusal("s", paid) == "money"
    budgets.launched("s", tool("third"))
    assert budgets.refusal("s", tool("fourth")) == "session"
    assert budgets.refusal("t", tool("fourth")) is None
    budgets.forget("s")
    assert budgets.refusal("s", tool("fourth")) is None


# --- breaker ---


def test_breaker_opens_where_guesses_cost_more_than_they_save() -> None:
    settings = SpeculationSettings(least=5, window=10, cool_off=10.0)
    breaker = Breaker(settings)
    for _ in range(5):
        assert breaker.state(0.0) == "closed"
        breaker.resolved(0.0, p_low=0.3, hit=False, value=-0.2)
    assert breaker.state(0.0) == "open"
    assert "cost" in breaker.reason
    assert breaker.state(9.9) == "open"
    # Then it looks, without acting, and closes where guesses would have been worth it.
    assert breaker.state(10.0) == "shadow"
    for _ in range(5):
        breaker.resolved(11.0, p_low=0.3, hit=True, value=0.5)
    assert breaker.state(11.0) == "closed"


def test_breaker_cools_off_longer_each_time() -> None:
    breaker = Breaker(SpeculationSettings(least=1, cool_off=10.0, longest_cool_off=25.0))
    breaker.resolved(0.0, p_low=0.5, hit=False, value=-1.0)
    assert breaker.state(10.0) == "shadow"
    breaker.resolved(10.0, p_low=0.5, hit=False, value=-1.0)
    assert breaker.state(29.9) == "open"
    assert breaker.state(30.0) == "shadow"
    breaker.resolved(30.0, p_low=0.5, hit=False, value=-1.0)
    assert breaker.state(54.9) == "open"
    assert breaker.state(55.0) == "shadow"


def test_breaker_opens_where_patterns_promise_too_much() -> None:
    breaker = Breaker(SpeculationSettings(least=20, window=50))
    draw = random.Random(1)
    for _ in range(40):
        hit = draw.random() < 0.3
        breaker.resolved(0.0, p_low=0.9, hit=hit, value=1.0 if hit else -0.1)
    assert breaker.state(0.0) == "open"
    assert "less often" in breaker.reason


def test_breaker_stays_closed_where_the_bound_holds() -> None:
    breaker = Breaker(SpeculationSettings(least=20, window=50))
    draw = random.Random(1)
    for _ in range(2000):
        hit = draw.random() < 0.5
        breaker.resolved(0.0, p_low=0.4, hit=hit, value=1.0 if hit else -0.2)
    assert breaker.opened == 0


def test_breaker_opens_on_too_many_requests_and_on_queueing() -> None:
    breaker = Breaker(SpeculationSettings())
    breaker.refused(0.0)
    assert breaker.state(0.0) == "open"
    breaker = Breaker(SpeculationSettings(least=20))
    for number in range(40):
        breaker.real_call(0.0, held_up=number % 4 == 0)
    assert breaker.state(0.0) == "open"
    assert "hold up" in breaker.reason


# --- stages ---


def test_a_tool_is_trusted_step_by_step() -> None:
    settings = SpeculationSettings(shadow_guesses=2, matches=3)
    stage = ToolStage(version="1")
    stage.compared(True, settings)
    assert stage.stage == "replay"
    stage = ToolStage(version="1")
    stage.ready()
    assert stage.stage == "shadow"
    stage.shadowed(0.5, settings)
    assert stage.stage == "shadow"
    stage.shadowed(0.5, settings)
    assert stage.stage == "issue"
    for _ in range(3):
        assert stage.stage == "issue"
        stage.compared(True, settings)
    assert stage.stage == "serve"
    stage.compared(False, settings)
    assert (stage.stage, stage.matches, stage.differences) == ("shadow", 0, 1)


def test_a_shadow_that_would_have_cost_stays_one() -> None:
    settings = SpeculationSettings(shadow_guesses=2)
    stage = ToolStage(version="1", stage="shadow")
    stage.shadowed(0.5, settings)
    stage.shadowed(-0.6, settings)
    assert stage.stage == "shadow"
    assert stage.guesses == 0


@pytest.mark.parametrize(
    "found",
    [None, 7, [], {}, {"stage": "serve"}, {"stage": "served", "guesses": 1}, {"stage": "serve", "matches": "300"}],
)
def test_what_is_stored_badly_is_a_beginner(found: Any) -> None:
    assert stage_of(found, "1").stage == "replay"


def test_a_changed_tool_goes_back_to_the_shadow() -> None:
    served = ToolStage(version="1", stage="serve", matches=300, differences=1)
    assert stage_of(served.to_json(), "1") == served
    changed = stage_of(served.to_json(), "2")
    assert (changed.stage, changed.matches, changed.differences) == ("shadow", 0, 1)
    assert version_of(tool()) != version_of(tool(params=(Column("n", TEXT),)))
    assert version_of(tool()) != version_of(tool(version="2"))


# --- what is kept ---


def test_state_is_kept_for_each_tenant(tmp_path: Path) -> None:
    path = file_of(tmp_path, "acme")
    assert path != file_of(tmp_path, None) != file_of(tmp_path, "other")
    state = SpeculationState(path)
    state.stage(tool()).stage = "serve"
    state.tool_times(tool()).add(2.0)
    state.decision_times("answer").add(4.0)
    state.branch("b")[1] += 3
    state.save()
    again = SpeculationState(path)
    assert again.stage(tool()).stage == "serve"
    assert again.decision_times("answer").mean() == pytest.approx(4.0, rel=0.1)
    assert again.branch("b") == [0.0, 3.0]
    # What this run did not look at stays.
    again.save()
    third = SpeculationState(path)
    assert third.tool_times(tool()).to_json() == state.tool_times(tool()).to_json()
    assert "acme" not in path.name


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 2}', '{"format": "1"}', "\x00", "[" * 100000])
def test_a_file_that_is_none_of_ours_is_left_alone(tmp_path: Path, text: str) -> None:
    path = file_of(tmp_path, None)
    path.write_text(text, encoding="utf-8")
    state = SpeculationState(path)
    state.stage(tool()).stage = "serve"
    state.save()
    assert path.read_text(encoding="utf-8") == text
    assert state.note is not None
    assert path.name in state.note


def test_values_of_a_file_are_looked_at(tmp_path: Path) -> None:
    path = file_of(tmp_path, None)
    bad = {"format": 1, "tools": [1], "times": {"orders": {"x": 1, "3": -1, "4": 1e30, "2": 5}}, "branches": {"b": [1]}}
    path.write_text(json.dumps(bad), encoding="utf-8")
    state = SpeculationState(path)
    assert state.stage(tool()).stage == "replay"
    assert state.tool_times(tool()).to_json() == {"2": 5.0}
    assert state.branch("b") == [0.0, 0.0]


# --- settings ---


@pytest.mark.parametrize(
    "given_settings", [{"second": -1}, {"chances": float("nan")}, {"reserved": 1.0}, {"work": "x"}]
)
def test_settings_are_checked(given_settings: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        SpeculationSettings(**given_settings)


def test_modes() -> None:
    assert [mode_of(name) for name in ("off", "shadow", "on")] == ["off", "shadow", "on"]
    with pytest.raises(OptionError, match=r"speculate is `off`, `shadow` or `on`, found `shadw`.*shadow"):
        mode_of("shadw")
