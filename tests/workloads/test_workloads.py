"""The shapes of published workloads, and the examples: their plans before and after the rules, their prompts as trees.

Each golden text has the plan as it was written, the rules that fire, the plan after them and the radix tree. The counts
of calls are those that the shapes are published with.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from running import ROOT, command

from helix import api
from helix.explain.explanation import Explanation
from helix.logical import Generate, LogicalPlan, every_node
from helix.optimizer.driver import Optimized, optimize
from helix.optimizer.signature import signature
from helix.optimizer.tokens import estimate
from helix.optimizer.tree import build_tree
from helix.types import TEXT, ListOf

sys.path.insert(0, str(ROOT / "tests" / "optimizer"))
from compared import difference, run_plan

FOLDER = Path(__file__).parent
SHAPES = sorted(FOLDER.glob("*.helix"))
EXAMPLES = sorted((ROOT / "examples").glob("*/*.helix"))
# Calls for a row of six questions or six chunks, before the rules and after them.
CALLS = {
    "map_reduce": (48, 48),
    "debate": (36, 36),
    "reflection": (24, 24),
    "iterative": (6, 6),
    "parallel_chains": (50, 50),
    "trading_4": (59, 56),
    "trading_8": (95, 88),
    "trading_16": (167, 152),
}
TRADING = (4, 8, 16)
SHARED = re.compile(r"shared by (\d+)")


def plan_of(name: str) -> LogicalPlan:
    """The bound plan of a shape."""
    return api.check(api.load(FOLDER / f"{name}.helix")).plan


@cache
def optimized(name: str) -> Optimized:
    return optimize(plan_of(name))


def explained(path: Path) -> Explanation:
    return api.explain(api.load(path))


def rows_of(plan: LogicalPlan, count: int = 2) -> list[dict[str, Any]]:
    """Rows that fit a shape: texts, and lists of six of them."""
    dice = Random(plan.name)
    words = ("margin", "debt", "growth", "risk", "rumour", "order", "plant", "price")

    def text() -> str:
        return " ".join(dice.choice(words) for _ in range(6))

    made: list[dict[str, Any]] = []
    for _ in range(count):
        row: dict[str, Any] = {}
        for column in plan.scan.columns:
            assert column.type in (TEXT, ListOf(TEXT))
            row[column.name] = text() if column.type == TEXT else [text() for _ in range(6)]
        made.append(row)
    return made


@pytest.mark.parametrize("path", [*SHAPES, *EXAMPLES], ids=lambda path: path.stem)
def test_golden(path: Path, update_golden: bool) -> None:
    made = explained(path)
    stages = [made.text(stage=stage, width=110) for stage in ("logical", "optimized", "tree")]
    text = "\n".join(stage.rstrip("\n") + "\n" for stage in stages)
    name = path.stem if path in SHAPES else f"example_{path.stem}"
    golden = FOLDER / "golden" / f"{name}.txt"
    if update_golden:
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def test_what_is_explained_does_not_depend_on_hashes() -> None:
    path = FOLDER / "trading_4.helix"
    shown = [command("explain", path, "--stage", "optimized", env={"PYTHONHASHSEED": seed}) for seed in ("1", "2")]
    assert [done.returncode for done in shown] == [0, 0]
    assert shown[0].stdout == shown[1].stdout
    assert "merges verdicts[1].research, verdicts[2].research, verdicts[3].research into" in shown[0].stdout


def test_each_shape_is_counted() -> None:
    assert {path.stem for path in SHAPES} == CALLS.keys()
    assert len(EXAMPLES) == 9
    assert len(list((FOLDER / "golden").iterdir())) == len(SHAPES) + len(EXAMPLES)


@pytest.mark.parametrize("name", CALLS)
def test_each_shape_makes_the_calls_it_is_published_with(name: str) -> None:
    made = optimized(name)
    rows = rows_of(made.plain)
    for failing in (0.0, 0.1):
        plain = run_plan(made.plain, rows, failing=failing, merge=False)
        better = run_plan(made.plan, rows, failing=failing, merge=False)
        assert difference(plain, better) is None
        if not failing:
            assert (plain.calls, better.calls) == (2 * CALLS[name][0], 2 * CALLS[name][1])


@pytest.mark.parametrize("branches", TRADING)
def test_the_merged_trading_plan_has_no_step_twice(branches: int) -> None:
    made = optimized(f"trading_{branches}")
    steps = [node for node in every_node(made.plan.sink) if isinstance(node, Generate)]
    assert len(steps) == 18 + 5 + 8 * branches + 1
    assert len({signature(step) for step in steps}) == len(steps)
    # Each copy of the loop holds the research manager: they are one step, which keeps the first one's name.
    assert [step.step for step in steps if "research" in step.step] == ["verdicts[0].research"]


@pytest.mark.parametrize("branches", TRADING)
def test_explain_shows_what_trading_prompts_share_across_roles(branches: int) -> None:
    text = explained(FOLDER / f"trading_{branches}.helix").text(stage="tree", width=100)
    steps = 24 + 8 * branches
    lines = text.splitlines()
    assert f"{steps} steps, {steps} prompts" in lines[1]
    # The house rules are those of all roles.
    assert lines[2].startswith("└─ [system] You work for a fund")
    assert f"shared by {steps}" in lines[2]
    # The three risk managers begin alike up to what they are, and each of them the same in all branches.
    shared = [int(found) for line in lines for found in SHARED.findall(line)]
    assert shared.count(2 * branches) >= 3


@pytest.mark.parametrize("branches", TRADING)
def test_prompts_of_roles_meet_in_the_tree(branches: int) -> None:
    plan = optimized(f"trading_{branches}").plan
    tree = build_tree(plan, estimate())
    paths = {op.step: set(tree.path_nodes(op.end)) for op in tree.ops}
    common = set.intersection(*paths.values())
    assert sum(tree.tokens(node) for node in common) > 80
    bold = [path for step, path in paths.items() if step.startswith("verdicts") and ".first[0]" in step]
    assert len(bold) == branches
    assert sum(tree.tokens(node) for node in set.intersection(*bold)) > sum(tree.tokens(node) for node in common)
