"""How the shapes of published workloads, and the examples, are scheduled on two ranks: the order of their steps, the
groups of rows on each rank, and what is computed ahead. Figures are left out, so that the texts change only with the
schedule.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from running import ROOT, environment

from helix import api
from helix.explain.explanation import Explanation
from helix.logical import LogicalPlan
from helix.optimizer.tokens import ESTIMATE
from helix.optimizer.tree import build_tree
from helix.optimizer.tree.shape import bits
from helix.types import TEXT

FOLDER = Path(__file__).parent
SHAPES = sorted(FOLDER.glob("*.helix"))
EXAMPLES = sorted((ROOT / "examples").glob("*/*.helix"))
TABLES = {
    "debate": "motions.csv", "group_reduce": "reviews.jsonl", "map_reduce": "questions.jsonl",
    "parallel_chains": "reviews.csv", "refinement": "logs.jsonl", "reflection": "notices.jsonl",
    "trading": "tickers.jsonl", "triage": "tickets.jsonl", "helpdesk": "questions.jsonl",
}  # fmt: skip
WORDS = ("margin", "debt", "growth", "risk", "rumour", "order", "plant", "price", "chart", "report")


def rows_of(plan: LogicalPlan) -> list[dict[str, Any]]:
    """Twelve rows that fit a shape. Its first column, what the questions are about, has four values, in no order."""
    dice = Random(plan.name)

    def text(words: int) -> str:
        return " ".join(dice.choice(WORDS) for _ in range(words))

    first, *others = plan.scan.columns
    contexts = [text(120) if first.type == TEXT else [text(40) for _ in range(6)] for _ in range(4)]
    return [
        {first.name: contexts[number * 5 % 4]}
        | {column.name: text(20) if column.type == TEXT else [text(12) for _ in range(6)] for column in others}
        for number in range(12)
    ]


def explained(path: Path, **options: Any) -> Explanation:
    workflow = api.load(path)
    if path in SHAPES:
        rows: Any = rows_of(api.check(workflow).plan)
    else:
        rows = path.parent / TABLES[path.stem]
    return api.explain(workflow, rows, ranks=2, kv_tokens=16_384, **options)


def shape_of(text: str) -> str:
    """The tree of a schedule without its figures."""
    tree, _, wanted = text.partition("\n\n")
    lines = [line.split("  ")[0] if "─ " not in line else _entry(line) for line in tree.splitlines()]
    lines = [line for line in lines[1:] if line]
    flags = re.findall(r"^  (--\S+)", wanted, re.MULTILINE)
    return "\n".join([*lines, f"wants {' '.join(flags)}", ""])


def _entry(line: str) -> str:
    lead, mark, rest = line.partition("─ ")
    return f"{lead}{mark}{rest.split('  ')[0]}"


@pytest.mark.parametrize("path", [*SHAPES, *EXAMPLES], ids=lambda path: path.stem)
def test_golden(path: Path, update_golden: bool) -> None:
    found = shape_of(explained(path).text(stage="physical", width=400, verbose=True))
    name = path.stem if path in SHAPES else f"example_{path.stem}"
    golden = FOLDER / "schedules" / f"{name}.txt"
    if update_golden:
        golden.write_text(found, encoding="utf-8")
    assert found == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", [*SHAPES, *EXAMPLES], ids=lambda path: path.stem)
def test_every_step_comes_after_what_it_needs(path: Path) -> None:
    made = explained(path, plan_budget=0.05)
    physical, tree = made.report.physical, build_tree(made.plan, ESTIMATE)
    names = [step.step for step in physical.steps]
    assert len({step.node for step in physical.steps}) == len(names)
    for op in tree.ops:
        for other in bits(op.needs):
            # Steps of one name in several arms cannot be told apart by it.
            mine, before = op.step, tree.ops[other].step
            if names.count(mine) == names.count(before) == 1 and mine != before:
                assert names.index(before) < names.index(mine)
    assert all(step.rank_up > 0 for step in physical.steps)
    rows = sum(group.rows for group in physical.groups)
    assert rows in (0, physical.rows)
    assert all(set(group.ranks) <= {0, 1} for group in physical.groups)


def test_schedules_do_not_depend_on_hashes_or_on_the_order_of_rows(tmp_path: Path) -> None:
    path = FOLDER / "map_reduce.helix"
    rows = rows_of(api.check(api.load(path)).plan)
    shown = []
    for seed in ("1", "77"):
        Random(seed).shuffle(rows)
        file = tmp_path / f"rows{seed}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        options = ("--stage", "physical", "--ranks", "3", "--kv-tokens", "9000", "--width", "90")
        done = subprocess.run(
            [sys.executable, "-m", "helix", "explain", str(path), "-i", str(file), *options],
            env=environment({"PYTHONHASHSEED": seed}),
            capture_output=True,
            timeout=120,
            check=True,
        )
        shown.append(done.stdout)
    assert shown[0] == shown[1]
    assert max(len(line) for line in shown[0].decode().splitlines()) <= 90


def test_there_is_a_golden_text_for_each() -> None:
    assert len(list((FOLDER / "schedules").iterdir())) == len(SHAPES) + len(EXAMPLES)
