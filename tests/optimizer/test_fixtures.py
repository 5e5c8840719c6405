"""Each rule by itself, on the workflows of its fixture file: the plan that comes out, and that nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from compared import Asked, difference, make_shop, run_plan
from fixture_files import UNCHANGED, Fixture, identifiers, read, with_shared, write
from random_workflows import value_of
from rules_support import plan_of

from helix.logical import Limit, LogicalPlan, every_node, spine
from helix.optimizer.driver import optimize
from helix.optimizer.rule import describe
from helix.optimizer.rules import RULES
from helix.schema import has_default
from helix.show import plan_text
from helix.types import Optional
from helix.verify import verify

FILES = sorted((Path(__file__).parent / "fixtures").glob("*.txt"))
FIXTURES = [each for file in FILES for each in with_shared(read(file))]
KNOWN = {function.__name__: function for function in RULES}
FAILING = (0.0, 0.3)


def rows_for(plan: LogicalPlan, seed: str) -> list[dict[str, Any]]:
    """Rows that fit a plan: some equal, some with nulls, and one that fails before its first step."""
    dice = Random(seed)
    columns = plan.scan.columns
    rows = [{column.name: value_of(dice, column.type) for column in columns} for _ in range(4)]
    rows.insert(2, dict(rows[0]))
    broken = dict(rows[1])
    for column in columns:
        if not isinstance(column.type, Optional) and not has_default(column):
            broken[column.name] = None
            rows.insert(1, broken)
            break
    return rows


def after(fixture: Fixture, plan: LogicalPlan) -> LogicalPlan:
    return optimize(plan, fixture.context, [KNOWN[fixture.rule]]).plan


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_golden_files_are_up_to_date(file: Path, update_golden: bool) -> None:
    made: list[Fixture] = []
    labels: set[str] = set()
    for each in read(file):
        plan = plan_of(each.workflow)
        changed = after(each, plan)
        shown = UNCHANGED if changed.id == plan.id and not each.label else plan_text(changed)
        made.append(replace(each, after="" if each.label in labels else shown))
        labels |= {each.label} - {""}
    if update_golden:
        write(file, made)
    assert made == read(file)


@pytest.mark.parametrize("fixture", FIXTURES, ids=identifiers(FIXTURES))
def test_plan(fixture: Fixture) -> None:
    plan = plan_of(fixture.workflow)
    changed = after(fixture, plan)
    assert fixture.after == (UNCHANGED if changed.id == plan.id and not fixture.label else plan_text(changed))
    verify(changed)
    rule = KNOWN[fixture.rule]
    again = optimize(changed, fixture.context, [rule])
    assert again.plan is changed
    assert rule(changed, fixture.context) is changed


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the database that the workflows' SQL tools read."""
    folder = tmp_path_factory.mktemp("shop")
    make_shop(folder)
    return folder


@pytest.mark.parametrize("fixture", FIXTURES, ids=identifiers(FIXTURES))
def test_results_stay(fixture: Fixture, shop: Path) -> None:
    plan = plan_of(fixture.workflow)
    rule = describe(KNOWN[fixture.rule])
    limited = any(isinstance(relation, Limit) for relation in spine(plan.sink.rows))
    for salt in range(3):
        rows = rows_for(plan, f"{fixture.title} {salt}")
        for failing in FAILING:
            # A store that knows replies knows those of this engine.
            store = Asked(failing=failing, salt=salt) if fixture.context.known else None
            changed = optimize(plan, replace(fixture.context, known=store), [KNOWN[fixture.rule]]).plan
            plain = run_plan(plan, rows, failing=failing, salt=salt, folder=shop)
            better = run_plan(changed, rows, failing=failing, salt=salt, folder=shop)
            problem = difference(plain, better, calls=rule.fewer_calls, tokens=rule.fewer_tokens, effects=not limited)
            assert problem is None, f"{problem}\n{rows}"


def test_each_label_stands_for_one_plan() -> None:
    labels: dict[tuple[str, str], set[str]] = {}
    for each in FIXTURES:
        if each.label:
            labels.setdefault((each.rule, each.label), set()).add(after(each, plan_of(each.workflow)).id)
    assert labels
    assert all(len(plans) == 1 for plans in labels.values()), labels


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_file_shows_when_its_rule_fires_and_when_it_must_not(file: Path) -> None:
    assert file.stem in KNOWN
    fixtures = with_shared(read(file))
    titles = [each.title for each in fixtures]
    assert len(titles) == len(set(titles))
    assert sum(each.after == UNCHANGED for each in fixtures) >= 2
    assert sum(each.after != UNCHANGED for each in fixtures) >= 2


def test_every_rule_has_a_file() -> None:
    assert {file.stem for file in FILES} == KNOWN.keys()


def test_fixtures_use_all_kinds_of_operators() -> None:
    found = {type(node).__name__ for each in FIXTURES for node in every_node(plan_of(each.workflow).sink)}
    assert {
        "Choose",
        "Filter",
        "Generate",
        "GroupReduce",
        "Invoke",
        "Limit",
        "Map",
        "Repeat",
        "Sort",
        "Unnest",
    } <= found
