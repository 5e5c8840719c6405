"""The workloads of `helix bench`: their sizes beside the published ones, and that they are drawn the same each time."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from helix.bench.batches import reference_of, rows_of
from helix.bench.cells import Batch, Reference
from helix.bench.texts import Texts, whole, words
from helix.bench.workloads import FAMILIES, WORKLOADS

DATA = Path(__file__).parents[3] / "shared" / "data"
# Published tokens of prompts and replies of a group of rows, in thousands, and calls.
PUBLISHED = {
    "w1-mmlu": (6.7, 4.3, 15),
    "w1-tatqa": (44.7, 17.9, 48),
    "w2-mmlu": (3.9, 2.0, 6),
    "w2-tatqa": (42.3, 14.0, 36),
    "w3-tatqa": (25.1, 6.2, 24),
    "w4": (7.7, 1.9, 6),
    "w5": (92.9, 22.3, 50),
    "trading-8": (304.0, 44.7, 88),
}
GROUPS = {"w1-mmlu": 24, "w2-mmlu": 24, "w4": 24, "trading-8": 2, "w5": 2}


@cache
def reference(name: str, groups: int, *, redundant: bool = False) -> Reference:
    return reference_of(Batch(workload=name, groups=groups, seed=1, redundant=redundant))


@pytest.mark.parametrize("name", PUBLISHED)
def test_sizes_are_the_published_ones(name: str) -> None:
    prompts, replies, calls = PUBLISHED[name]
    groups = GROUPS.get(name, 6)
    found = reference(name, groups)
    assert found.calls == calls * groups == WORKLOADS[name].calls * groups
    assert found.prompt_tokens / groups / 1000 == pytest.approx(prompts, rel=0.06)
    assert found.outputs / groups / 1000 == pytest.approx(replies, rel=0.06)


def test_branches_and_rounds_take_the_published_calls() -> None:
    made = {4: 56, 8: 88, 12: 120, 16: 152}
    assert {each: WORKLOADS[f"trading-{each}"].calls for each in made} == made
    assert [WORKLOADS[f"trading-8-r{rounds}"].calls for rounds in (3, 4, 5)] == [114, 140, 166]
    found = reference("trading-4", 1)
    assert found.calls == 56


def test_agents_send_the_tokens_that_they_are_said_to() -> None:
    found = reference("agents-128-0.5", 128)
    assert found.calls == 1280
    assert found.prompt_tokens / 1e6 == pytest.approx(11.04, rel=0.03)
    assert found.distinct / 1e6 == pytest.approx(1.164, rel=0.03)
    # The longest chain has the gaps of its agent.
    assert found.longest > found.tool_seconds / 128 * 1000


def test_a_redundant_batch_has_no_more_distinct_calls() -> None:
    plain, repeated = reference("w2-tatqa", 6), reference("w2-tatqa", 6, redundant=True)
    assert repeated.rows == plain.rows
    assert 0.4 * plain.calls <= repeated.calls <= 0.6 * plain.calls
    # In Trading it is the workflow that repeats itself.
    assert reference("trading-4", 1, redundant=True).calls == 56


@pytest.mark.parametrize("name", sorted({*FAMILIES["basic"], "trading-4", "p1-mapreduce", "agents-128-2"}))
def test_orders_are_of_the_same_rows(name: str) -> None:
    batch = Batch(workload=name, groups=3, seed=0)
    grouped, shuffled = rows_of(batch, "grouped"), rows_of(batch, "shuffled")
    assert sorted(map(repr, grouped)) == sorted(map(repr, shuffled))
    assert rows_of(Batch(workload=name, groups=3, seed=1), "grouped") != grouped


def test_texts_are_whole_tokens_and_the_same_everywhere() -> None:
    assert len(words("name", 17)) == 4 * 17
    assert len(whole("Ärger, \n  zwei")) % 4 == 0
    assert Texts(3).about("report", 0, 0, 500) == Texts(3).about("report", 0, 0, 500)
    code = "from helix.bench.texts import *; print(words('a', 5), Texts(3).about('report', 1, 2, 9))"
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "7")
    }
    assert len(found) == 1


@pytest.mark.shared
@pytest.mark.parametrize("name", ["w1-mmlu", "w1-tatqa", "w4", "trading-4"])
def test_real_texts_take_the_place_of_made_up_ones(name: str) -> None:
    batch = Batch(workload=name, groups=2, seed=0, data=True)
    made, real = rows_of(batch, "grouped"), rows_of(batch, "grouped", 1, DATA)
    assert [sorted(row) for row in made] == [sorted(row) for row in real]
    assert made != real
    assert reference_of(batch, DATA).calls == 2 * WORKLOADS[name].calls
