"""The quality of plans: what Helix prefills, and how long it takes, may not become worse on any workload.

`quality.json` has the prefilled tokens and the time over the lower bound of small batches. A change that makes one
worse fails; one that makes them better is written down with `pytest --update-golden`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helix.bench.batches import reference_of
from helix.bench.cells import Cell, Outcome
from helix.bench.measure import run_cell

FILE = Path(__file__).with_name("quality.json")
# Figures may be so much worse: what a tie broken another way comes to.
PREFILLED, TIME = 1.01, 1.02
CASES = {
    "w1-mmlu": (16, "ample", 2),
    "w1-tatqa": (6, "ample", 2),
    "w1-tatqa pressure": (8, "pressure", 1),
    "w2-tatqa": (6, "ample", 2),
    "w2-tatqa pressure": (8, "pressure", 1),
    "w3-tatqa": (8, "ample", 1),
    "w3-tatqa pressure": (8, "pressure", 1),
    "w4": (32, "ample", 1),
    "w4 pressure": (100, "pressure", 1),
    "w5": (4, "ample", 1),
    "w5 pressure": (4, "pressure", 1),
    "trading-4": (1, "ample", 1),
    "trading-4 pressure": (8, "pressure", 1),
    "trading-4 redundant": (1, "redundant", 1),
    "w2-tatqa ranks": (8, "ranks", 4),
    "agents-128-2": (32, "ample", 1),
}


def quality(case: str) -> Outcome:
    groups, regime, ranks = CASES[case]
    cell = Cell(
        workload=case.partition(" ")[0],
        groups=groups,
        regime=regime,
        order="shuffled",
        method="helix",
        seed=0,
        ranks=ranks,
    )
    return run_cell(cell, reference_of(cell.batch))


@pytest.mark.parametrize("case", CASES)
def test_no_plan_becomes_worse(case: str, update_golden: bool) -> None:
    found = quality(case)
    assert found.match
    assert found.over_bound >= 1
    known = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}
    if update_golden:
        known[case] = {"prefilled": found.prefilled, "over_bound": round(found.over_bound, 4)}
        FILE.write_text(json.dumps({name: known[name] for name in CASES if name in known}, indent=1) + "\n", "utf-8")
        return
    assert found.prefilled <= PREFILLED * known[case]["prefilled"]
    assert found.over_bound <= TIME * known[case]["over_bound"]
