"""What a run has done, how fast it goes, when it will be done, and what it waits for: at times that the test tells."""

from __future__ import annotations

import pytest
from progress_runs import report

from helix.optimizer.cost import Prices
from helix.progress.measures import KEPT, Measures, Meter, Pace
from helix.results import Phase


def meter(rows: int | None = 100, prices: Prices | None = None) -> Meter:
    made = Meter(rows, prices)
    made.start(1000.0)
    return made


def test_the_time_left_is_at_the_pace_of_the_rows() -> None:
    made = meter()
    for second in range(11):
        measures = made.read(report(2 * second), 1000.0 + second)
    assert (measures.seconds, measures.done, measures.rows) == (10.0, 20, 100)
    assert measures.left == pytest.approx(40.0)


def test_nothing_is_foretold_before_a_row_is_done_or_of_an_unknown_number() -> None:
    assert meter().read(report(0), 1005.0).left is None
    made = meter(None)
    for second in range(5):
        measures = made.read(report(second), 1000.0 + second)
    assert (measures.rows, measures.left) == (None, None)


def test_a_resumed_run_counts_its_rows_as_done_and_goes_by_its_own_pace() -> None:
    made = meter(1000)
    first = made.read(report(600, calls=0, known=600), 1000.5)
    assert (first.done, first.known, first.left) == (600, 600, None)
    assert (first.state, first.why) == ("known", "600 rows known from before")
    made.read(report(900, calls=0, known=900), 1001.0)
    for second in range(10):
        measures = made.read(report(900 + second, calls=second + 1, known=900), 1001.0 + second)
    # One row a second, though 900 took no time at all: 91 are left.
    assert measures.left == pytest.approx(91.0)
    assert (measures.done, measures.known, measures.state) == (909, 900, "running")


def test_rows_known_before_in_between_do_not_make_the_run_look_faster() -> None:
    made = meter(1000)
    for second in range(1, 11):
        measures = made.read(report(50 * second, calls=second, known=49 * second), 1000.0 + second)
    assert measures.left == pytest.approx(500.0)


def test_the_wait_for_an_engine_that_is_away_says_nothing_of_the_pace() -> None:
    made = meter()
    for second in range(11):
        made.read(report(second), 1000.0 + second)
    away = made.read(report(10, waiting="waiting for an engine"), 1600.0)
    assert (away.state, away.why) == ("outage", "waiting for an engine")
    assert away.left == pytest.approx(90.0)
    back = made.read(report(11), 1601.0)
    assert back.left == pytest.approx(89.0, rel=0.1)
    assert back.seconds == 601.0


def test_a_pace_follows_a_change() -> None:
    pace = Pace()
    for second in range(101):
        pace.add(float(second), 10 * min(second, 50) + max(0, second - 50))
    assert pace.rate() == pytest.approx(1.0)


def test_a_pace_over_a_gap_is_that_of_the_whole_time() -> None:
    pace = Pace()
    for second in range(20):
        pace.add(float(second), min(5, second))
    assert pace.rate() == pytest.approx(5 / 19)


def test_a_pace_keeps_few_looks_however_long_a_run_is() -> None:
    pace = Pace()
    for second in range(100_000):
        pace.add(float(second), 3 * second)
    assert len(pace._times) <= KEPT + 1
    assert (pace._times[0], pace._times[-1]) == (0.0, 99_999.0)
    assert pace.rate() == pytest.approx(3.0)


def test_tokens_hit_rate_and_cost() -> None:
    made = meter(prices=Prices(prompt=1.0, output=4.0, cached=0.5))
    for second in range(30):
        measures = made.read(report(100 * second, seconds=float(second)), 1000.0 + second)
    assert measures.prompt_rate == pytest.approx(1000.0)
    assert measures.completion_rate == pytest.approx(500.0)
    assert measures.hit_rate == pytest.approx(0.6)
    # A call: 4 tokens at 1, 6 cached ones at 0.5, 5 replied at 4, for a million each.
    assert measures.cost == pytest.approx(2900 * (4 * 1.0 + 6 * 0.5 + 5 * 4.0) / 1e6)
    assert measures.currency == "USD"
    untold = made.read(report(3000, step={"untold": 1}), 1031.0)
    assert untold.hit_rate is None
    assert meter().read(report(5), 1001.0).cost is None


def read(**more: object) -> Measures:
    return meter().read(report(5, **more), 1001.0)  # type: ignore[arg-type]


def test_what_a_run_waits_for() -> None:
    assert read().state == "running"
    assert read(calls=0).state == "starting"
    paused = read(paused=95.2)
    assert (paused.state, paused.why) == ("paused", "the engine is overloaded and asked to wait, 1:35 left")
    tools = read(tools=8)
    assert (tools.state, tools.why) == ("tools", "for 8 calls of tools")
    assert read(tools=7).state == "running"
    memory = read(no_room=True, queued=40)
    assert (memory.state, memory.why) == ("memory", "40 calls in line for room in the cache of the engine")
    ending = read(stopped="interrupted", paused=3.0, in_flight=2)
    assert (ending.state, ending.why, ending.left) == ("stopping", "interrupted; 2 calls in flight", None)


def test_a_plan_with_a_group_has_phases_with_a_pace_each() -> None:
    made = meter(100)
    rows = Phase(done=100, known=0, all=100, over=True)
    for second in range(11):
        groups = Phase(done=second, known=0, all=20, over=False)
        now = report(100, calls=100 + second, phases=(rows, groups))
        measures = made.read(now, 1000.0 + second)
    assert (measures.phase, measures.phases, measures.phase_done, measures.phase_rows) == (2, 2, 10, 20)
    assert measures.left == pytest.approx(10.0)
    waits = Phase(done=0, known=0, all=None, over=False)
    first = meter().read(report(10, phases=(Phase(done=10, known=0, all=None, over=False), waits)), 1001.0)
    assert (first.phase, first.phase_done, first.phase_rows) == (1, 10, 100)


def test_failed_rows_count_though_they_are_not_written_yet() -> None:
    assert meter().read(report(9, failed=4), 1001.0).failed == 4


def test_a_report_without_an_activity_will_do() -> None:
    bare = report(7)
    bare.activity = None
    measures = meter().read(bare, 1002.0)
    assert (measures.done, measures.phases, measures.state, measures.in_flight) == (7, 1, "running", 0)


def test_the_number_of_rows_is_as_the_run_tells_where_nobody_else_does() -> None:
    told = report(5, phases=(Phase(done=5, known=0, all=80, over=False),))
    assert Meter(None).read(told, 1.0).rows == 80
    assert Meter(90).read(told, 1.0).rows == 90
