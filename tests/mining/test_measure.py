"""The protocol by which predictions are measured."""

from __future__ import annotations

import random

import pytest
from mining_sessions import shops

from helix.mining import MinerSettings
from helix.mining.measure import Guess, Labels, Replayed, calibration, gate, interval, overall, replay, shares, split
from helix.mining.report import based, measured, mined, report_json, report_text

LABELS = Labels(read_only=("get_*",), ignored=("think",))


def row(tool, *guesses, session="s", group="g", args=""):
    key = None if tool is None else f"{tool}{args}"
    return Replayed(group, session, tool, key, tool is not None and LABELS.reads(tool), [], list(guesses))


def guess(tool, p, args=""):
    return Guess(tool, f"{tool}{args}", p, p / 2)


def test_groups_are_split_as_written_down():
    ids = sorted(str(number) for number in range(12))
    random.Random(7).shuffle(ids)
    folds = split([str(number) for number in range(12)] * 2)
    assert folds == [ids[place::5] for place in range(5)]


def test_no_group_is_on_both_sides():
    seen = []

    class Nothing:
        def tools(self, history):
            return []

        def calls(self, history):
            return []

    def learned(sessions):
        seen.append({session.group for session in sessions})
        return Nothing()

    held = shops(10)
    rows = replay(held, LABELS, learned)
    assert len(rows) == sum(session.decisions for session in held)
    assert [len(each) for each in seen] == [8] * 5
    assert [row.session for row in rows[::6]] == [session.id for session in held]
    small = []
    replay(held, LABELS, lambda sessions: (small.append(len(sessions)), Nothing())[1], 0.25)
    assert small == [2] * 5


def test_the_gate_keeps_a_result_until_something_is_written():
    rows = [
        row("get_a", guess("get_b", 0.9), guess("get_c", 0.1), guess("put", 0.9)),  # get_b is launched
        row("think"),
        row("get_b"),  # a hit
        row("get_b"),  # and again
        row("put", guess("get_d", 0.5)),  # get_d is launched, and dropped by the write
        row("get_d", guess("get_d", 0.1)),
        row(None, guess("get_e", 0.9)),  # launched for nothing
        row("get_e", session="t"),  # another session has nothing
    ]
    found = gate(rows, LABELS, 0.2)
    assert (found.launched, found.hits, found.used, found.reads) == (3, 2, 1, 5)
    assert found.seconds == 8 * 2 + 7 * 1
    assert found.hit_share == pytest.approx(0.4)
    assert found.wasted == pytest.approx(2 / 5)
    assert found.hidden == pytest.approx(2 / 23)
    assert found.limit == pytest.approx(5 / 23)
    assert gate(rows, LABELS, 0.2, by_bound=True).launched == 3
    assert gate(rows, LABELS, 0.3, by_bound=True).launched == 2


def test_the_gate_launches_three_at_most_and_nothing_twice():
    many = [guess(f"get_{letter}", 0.9) for letter in "abcde"]
    assert gate([row(None, *many), row(None, *many)], LABELS, 0.0).launched == 3
    assert gate([row(None)], Labels(), 0.0).hit_share == 0.0


def test_shares_and_their_intervals():
    by_group = shares(
        [row("get_a", guess("get_a", 1.0), group=str(n % 4)) for n in range(40)], lambda r: r.call_within(1)
    )
    assert overall(by_group) == 1.0
    assert interval(by_group) == (1.0, 1.0)
    draw = random.Random(0)
    first = {str(n): (sum(draw.random() < 0.7 for _ in range(10)), 10) for n in range(60)}
    second = {name: (max(0, hits - 1), of) for name, (hits, of) in first.items()}
    low, high = interval(first)
    assert low < overall(first) < high
    low, high = interval(first, second)
    assert low > 0.0
    assert high == pytest.approx(0.1)
    assert interval({}) == (0.0, 0.0)
    assert interval(first) == interval(first)


def test_bins_of_lower_bounds():
    rows = [row("get_a", Guess("get_a", "get_a", 0.9, 0.8)) for _ in range(80)]
    rows += [row("get_a", Guess("get_b", "get_b", 0.5, 0.1)) for _ in range(80)]
    bins = calibration(rows, LABELS)
    assert [each.count for each in bins] == [50, 50, 50]
    assert bins[0].observed == 0.0
    assert bins[-1].observed == 1.0
    assert bins[-1].mean == pytest.approx(0.8)


def test_a_report_of_easy_sessions():
    held = shops(20)
    found = measured(held, LABELS, [0.2], MinerSettings(half_life=None))
    assert (found.sessions, found.decisions, found.calls, found.reads) == (20, 120, 80, 80)
    tools, calls, reads = found.lines
    assert tools.ours[1] == 1.0
    assert reads.ours == calls.ours
    assert calls.ours[0] > 0.95
    ours, _ = found.gates[0]
    assert ours.hit_share > 0.9
    text = report_text(found)
    assert "20 sessions, 120 decisions, 80 calls, 80 of them read-only" in text
    assert "launched ahead" in text
    assert '"sessions": 20' in report_json(found)


def test_the_baseline_finds_what_it_has_functions_for():
    rows = replay(shops(20), LABELS, based())
    assert overall(shares(rows, lambda r: r.call_within(1) if r.reads else None)) > 0.9
    assert replay(shops(6), LABELS, mined(MinerSettings())) == replay(shops(6), LABELS, mined(MinerSettings()))
