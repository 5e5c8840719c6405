"""Workflows on the simulated engine: the executor unchanged, with every policy, in virtual time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from running import ROOT

import helix
from helix.executor.engines.sim import SimEngine, SimSettings
from helix.executor.policies.choose import FORMS
from helix.results import RunResult
from helix.simulation.cost import published_cost

POLICIES = tuple(form.partition("[")[0].replace("ROWS", "3") for form in FORMS)
WORDS = ("margin", "debt", "growth", "risk", "rumour", "order", "plant", "price")
SHAPES = ("map_reduce", "debate", "iterative")


def text(dice: Random, words: int) -> str:
    return " ".join(dice.choice(WORDS) for _ in range(words))


def rows_of(name: str, count: int) -> list[dict[str, Any]]:
    """Rows for a workload: long contexts, short questions; in no order, so that equal contexts are apart."""
    dice = Random(name)
    contexts = [text(dice, 250) for _ in range(max(1, count // 2))]
    made: list[dict[str, Any]] = []
    for at in range(count):
        row: dict[str, Any] = {}
        for column in helix.load(ROOT / "tests" / "workloads" / f"{name}.helix").check().plan.scan.columns:
            listed = "list" in str(column.type).lower()
            row[column.name] = [text(dice, 12) for _ in range(4)] if listed else contexts[at % len(contexts)]
        made.append(row)
    return made


def simulated(name: str, policy: str, *, rows: int = 10, **changes: Any) -> tuple[RunResult, SimEngine]:
    settings = {"kv_tokens": 24_000, "max_running": 32, "policy": "lpm", "reply_tokens": 60, **changes}
    engine = SimEngine(SimSettings(**settings), published_cost("h100"))
    workflow = helix.load(ROOT / "tests" / "workloads" / f"{name}.helix")
    return workflow.run(rows_of(name, rows), engine=engine, policy=policy), engine


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_runs_and_gives_the_same_rows(policy: str) -> None:
    began = time.monotonic()
    result, engine = simulated("map_reduce", policy, ranks=2)
    plain, _ = simulated("map_reduce", "plan", kv_tokens=400_000)
    assert result.rows == plain.rows
    assert result.report.failed_rows == 0
    assert result.report.policy.partition(":")[0] == policy.partition(":")[0]
    # The time of the report is that of the simulation.
    assert result.report.seconds > 1
    assert result.report.seconds >= max(worker.figures.busy for worker in engine.workers) / 1e9
    assert time.monotonic() - began < 60
    figures = engine.figures
    assert figures.prefilled == figures.asked - figures.cached
    assert result.report.total("prompt_tokens") <= figures.asked


@pytest.mark.parametrize("name", SHAPES)
def test_helix_prefills_no_more_than_the_baselines(name: str) -> None:
    prefilled = {}
    for policy in ("helix", "fcfs", "random", "operator-wise", "query-wise:4"):
        result, engine = simulated(name, policy)
        assert result.report.failed_rows == 0
        prefilled[policy] = engine.figures.prefilled
    assert min(prefilled, key=lambda policy: prefilled[policy]) == "helix", prefilled


def test_the_beginnings_of_a_row_stay_on_its_rank() -> None:
    result, engine = simulated("map_reduce", "helix", ranks=2, rows=8)
    assert result.report.warmups > 0
    assert all(worker.figures.ended for worker in engine.workers)


SCRIPT = """
import json, sys

sys.path[:0] = {paths!r}
from test_sim_runs import simulated
made = [simulated(name, policy, rows=4, ranks=2) for name in ("map_reduce", "debate") for policy in ("helix", "fcfs")]
print(json.dumps([[engine.log.digest, engine.log.count, result.rows] for result, engine in made]))
"""


def test_equal_runs_have_equal_logs_under_any_hash_seed() -> None:
    paths = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "sim")]
    outputs = []
    for seed in ("0", "4242"):
        made = subprocess.run(
            [sys.executable, "-c", SCRIPT.format(paths=paths)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.append(json.loads(made.stdout))
    assert outputs[0] == outputs[1]
    digests = [run[0] for run in outputs[0]]
    assert len(set(digests)) == len(digests)


def test_another_seed_gives_other_replies_and_another_log() -> None:
    (one, first), (two, second) = (simulated("iterative", "helix", rows=3, seed=seed) for seed in (0, 1))
    assert first.log.digest != second.log.digest
    assert one.rows != two.rows
    _, again = simulated("iterative", "helix", rows=3)
    assert again.log.digest == first.log.digest


def test_a_tool_takes_no_time_of_the_simulation(tmp_path: Path) -> None:
    (tmp_path / "simtools.py").write_text(
        "import time\n\n\ndef look(x: str) -> str:\n    time.sleep(0.01 * len(x))\n    return x * 2\n", encoding="utf-8"
    )
    (tmp_path / "w.helix").write_text(
        "workflow w(x: text)\n"
        'tool look(x: text) -> text from python "simtools:look"\n'
        "model m { temperature: 0 }\n"
        "y = look(x)\n"
        'a = llm { user "Say {{ y }}" }\n'
        "output a\n",
        encoding="utf-8",
    )
    found = []
    for _ in range(2):
        engine = SimEngine(SimSettings(kv_tokens=10_000), published_cost("h100"))
        rows = [{"x": "a" * (1 + at % 4)} for at in range(12)]
        result = helix.load(tmp_path / "w.helix").run(rows, engine=engine, concurrency=2)
        assert result.report.failed_rows == 0
        found.append((result.report.seconds, [row["a"] for row in result.rows]))
    assert found[0] == found[1]
