"""Importers and patterns on public traces: counts, the baseline's rows, and how sure predictions are."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from speculation import SETS

from helix.mining import MinerSettings
from helix.mining.measure import calibration, overall, replay, shares
from helix.mining.report import based, mined
from helix.traces import read_events, sessions_of, write_events

# Next tool among the first 1 and 3, in %, by the longest context.
BASELINE = {
    "tau": {1: (47.5, 71.1), 2: (53.5, 77.0), 3: (57.1, 79.7)},
    "bfcl": {1: (24.4, 36.4), 2: (44.3, 64.1), 3: (44.6, 63.4)},
    "api-bank": {1: (23.0, 38.2), 2: (30.7, 43.5), 3: (33.5, 48.4)},
}


@pytest.fixture(scope="module")
def sessions(shared_data):
    return {name: held.sessions(shared_data / "traces") for name, held in SETS.items()}


@pytest.mark.shared
@pytest.mark.parametrize("name", SETS)
def test_importers_count_what_is_there(sessions, name):
    held, labels = sessions[name], SETS[name].labels
    calls = [call for session in held for call in session.calls]
    found = (
        len(held),
        sum(session.decisions for session in held),
        len(calls),
        sum(labels.reads(c.tool) for c in calls),
    )
    assert found == SETS[name].counts
    assert len({call.tool for call in calls}) == {"tau": 14, "bfcl": 81, "api-bank": 50}[name]


@pytest.mark.shared
@pytest.mark.parametrize("name", SETS)
def test_what_was_imported_is_a_trace(sessions, name, tmp_path):
    events = [event for session in sessions[name] for event in session.events]
    write_events(tmp_path / "t.jsonl", events)
    assert sessions_of(read_events(tmp_path / "t.jsonl")) == sessions[name]


@pytest.mark.shared
@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("name", SETS)
def test_the_baseline_predicts_tools_as_published(sessions, name, order):
    rows = replay(sessions[name], SETS[name].labels, based(order, arguments=False))
    for most, share in zip((1, 3), BASELINE[name][order], strict=True):
        found = overall(shares(rows, lambda row, most=most: None if row.tool is None else row.tool_within(most)))
        assert round(100 * found, 1) == share


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.parametrize(("name", "share"), [("bfcl", 1.0), ("tau", 0.1)])
def test_lower_bounds_are_lower(sessions, name, share):
    """Of each 50 and more predictions of about one lower bound, at least so many are right, within sampling error."""
    labels = SETS[name].labels
    rows = replay(sessions[name], labels, mined(MinerSettings(half_life=None)), share)
    bins = calibration(rows, labels)
    assert sum(each.count for each in bins) > 500
    for each in bins:
        # Two standard errors of a share of so many.
        error = 2 * (each.mean * (1 - each.mean) / each.count) ** 0.5
        assert each.observed >= each.mean - error, (each.mean, each.observed, each.count)
