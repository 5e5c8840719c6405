"""No simulated run is faster than its lower bound, whatever the engine."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from running import ROOT

import helix
from helix.executor.engines.sim import SimSettings
from helix.forecast.measures import Trial
from helix.simulating.trial import TrialRun
from helix.simulating.wanted import Place, Wanted
from helix.simulation.cost import published_cost

WORDS = ("margin", "debt", "growth", "risk", "rumour", "order", "plant", "price")
SHAPES = ("map_reduce", "debate", "iterative")


def simulated(seed: int) -> tuple[Place, Trial]:
    """A workload with few rows or many, on an engine that holds and runs little or much, by one of the policies."""
    dice = Random(seed)
    workflow = helix.load(ROOT / "tests" / "workloads" / f"{dice.choice(SHAPES)}.helix")
    contexts = [" ".join(dice.choices(WORDS, k=dice.choice((20, 250)))) for _ in range(4)]
    rows: list[dict[str, Any]] = []
    for _ in range(dice.choice((1, 4, 24))):
        row: dict[str, Any] = {}
        for column in workflow.check().plan.scan.columns:
            parts = [" ".join(dice.choices(WORDS, k=12)) for _ in range(4)]
            row[column.name] = parts if "list" in str(column.type).lower() else dice.choice(contexts)
        rows.append(row)
    vllm = dice.random() < 0.25
    settings = SimSettings(
        kv_tokens=dice.choice((6_000, 20_000, 200_000)),
        max_running=dice.choice((1, 4, 64)),
        ranks=dice.choice((1, 1, 2, 3)),
        chunk=dice.choice((64, 512, 8192)),
        mixed_chunk=not vllm and dice.random() < 0.5,
        policy="fcfs" if vllm else dice.choice(("lpm", "fcfs")),
        dialect="vllm" if vllm else "sglang",
        seed=seed,
    )
    place = Place(gpu="h100", tp=1, model="m", cost=published_cost("h100"), settings=settings, given={})
    policy = dice.choice(("helix", "fcfs", "lpm", "operator-wise"))
    wanted = Wanted(rows=rows, policy=policy, output_tokens=dice.choice((1, 12, 80)), seed=seed)
    return place, TrialRun(workflow, wanted, place, dice.choice(("optimized", "plain"))).trial


@pytest.mark.parametrize("seed", range(24))
def test_no_run_is_faster_than_its_bound(seed: int) -> None:
    place, trial = simulated(seed)
    assert trial.failed_rows == 0
    assert trial.bounds is not None
    assert not trial.bounds.estimated
    assert 0 < trial.bounds.lower_bound <= trial.makespan, (place, trial.bounds)
