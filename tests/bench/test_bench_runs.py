"""Runs of `helix bench`: the same each time, with the same results whatever the method, and kept in a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helix.bench.batches import reference_of
from helix.bench.cells import Cell, Outcome
from helix.bench.compare import compare
from helix.bench.layout import Block, figure, median
from helix.bench.measure import run_cell
from helix.bench.methods import METHODS, compared, family, method_of, variants
from helix.bench.results import Results
from helix.bench.runner import make_runs
from helix.bench.tables import TABLES, Wish, blocks_of
from helix.errors import InputError, OptionError


def cell(method: str, **changed: object) -> Cell:
    given = {"workload": "w2-tatqa", "groups": 3, "regime": "ample", "order": "grouped", "seed": 0, **changed}
    return Cell(method=method, **given)  # type: ignore[arg-type]


def ran(made: Cell) -> Outcome:
    return run_cell(made, reference_of(made.batch))


@pytest.mark.parametrize(
    "method", ["query-wise@2", *(name for name in compared() if not METHODS[name].tried), "cap@16"]
)
def test_every_method_comes_to_the_same_rows(method: str) -> None:
    found = ran(cell(method))
    assert found.match
    assert (found.rows, found.failed) == (18, 0)
    assert found.calls == 3 * 36
    assert found.run >= found.bound > 0
    assert found.distinct <= found.prefilled <= found.prompt_tokens
    assert found.p50 is not None
    assert found.p50 <= found.p95 <= found.p99 <= found.run  # type: ignore[operator]


def test_a_run_is_the_same_each_time() -> None:
    one, other = ran(cell("helix")), ran(cell("helix"))
    assert (one.log, one.run, one.prefilled) == (other.log, other.run, other.prefilled)
    assert ran(cell("helix", seed=1)).log != one.log


@pytest.mark.parametrize(
    ("regime", "order"), [("pressure", "shuffled"), ("redundant", "shuffled"), ("ranks", "grouped")]
)
def test_regimes(regime: str, order: str) -> None:
    made = cell("helix", regime=regime, order=order, ranks=4 if regime == "ranks" else 2)
    reference = reference_of(made.batch)
    found = run_cell(made, reference)
    assert found.match
    if regime == "pressure":
        assert reference.held >= 4 * found.kv_tokens * made.ranks or found.kv_tokens == 4 * reference.longest_call
    if regime == "redundant":
        # Equal rows take no calls of their own; without rules and merging they do.
        assert found.calls == reference.calls
        assert ran(cell("fcfs", regime=regime, order=order)).calls == 3 * 36


def test_the_day_before_is_told_apart_and_warms() -> None:
    made = cell("helix", workload="trading-4", groups=1)
    reference = reference_of(made.batch)
    found = run_cell(made, reference)
    assert found.match
    assert found.warm > 0
    assert found.calls == reference.calls == 56
    # What all rows begin with is there from the first day.
    assert found.prefilled < reference.distinct


def test_results_are_kept_and_not_made_again(tmp_path: Path) -> None:
    file = tmp_path / "runs.json"
    cells = [cell("helix"), cell("fcfs")]
    seen: list[str] = []
    make_runs(cells, Results(file), progress=lambda done, total, each, outcome: seen.append(each.method))
    assert seen == ["helix", "fcfs"]
    kept = Results(file)
    make_runs(cells, kept, progress=lambda done, total, each, outcome: seen.append("again"))
    assert "again" not in seen
    assert [len(kept.runs[each].log) for each in cells] == [16, 16]
    written = json.loads(file.read_text("utf-8"))
    assert {each["outcome"]["log"] for each in written["runs"]} == {kept.runs[each].log for each in cells}


@pytest.mark.slow
def test_processes_make_the_same_runs(tmp_path: Path) -> None:
    cells = [cell("helix"), cell("fcfs"), cell("helix", seed=1)]
    alone, beside = Results(tmp_path / "a.json"), Results(tmp_path / "b.json")
    make_runs(cells, alone)
    make_runs(cells, beside, jobs=2)
    assert {each: run.log for each, run in alone.runs.items()} == {each: run.log for each, run in beside.runs.items()}
    assert alone.references == beside.references


@pytest.mark.parametrize("text", ["", "[]", '{"format": "other", "version": 1}', '{"format": "helix-bench"}'])
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "runs.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"runs\.json"):
        Results(file)


def test_methods_by_name() -> None:
    assert method_of("fcfs@64").calls == 64
    assert method_of("query-wise@8").policy == "query-wise:8"
    assert method_of("helix:no-ledger").policy == "helix:no-ledger"
    assert (method_of("lpm").mixed, method_of("lpm+mixed").mixed, method_of("helix").mixed) == (False, True, True)
    assert (method_of("fcfs+mixed@64").calls, method_of("fcfs+mixed@64").mixed) == (64, True)
    assert [method_of(name).mixed for name in ("helix:no-balance", "helix-apart")] == [True, False]
    assert variants("helix") == ("helix",)
    assert [family(name) for name in variants("cap")] == ["cap"] * len(METHODS["cap"].tried)
    assert family("fcfs@64") == "fcfs@64"
    for wrong in ("lspff", "helix@0", "cap@x", "helium:other"):
        with pytest.raises(OptionError, match=wrong.partition("@")[0].partition(":")[0]):
            method_of(wrong)


@pytest.mark.parametrize("name", sorted(TABLES))
def test_every_table_asks_for_runs(name: str) -> None:
    cells = TABLES[name].cells(Wish(seeds=2))
    # That of optima makes no runs.
    assert len(cells) == len(set(cells)) > (-1 if name == "table5" else 0)
    for each in cells:
        method_of(each.method)
    # A table of nothing has no figure to show, and says so.
    for block in blocks_of(TABLES[name], Results(), cells, Wish()):
        assert len({len(row) for row in (block.header, *block.rows)}) == 1


def test_the_best_of_several_numbers_counts() -> None:
    made = {each: ran(each) for each in (cell("helix"), cell("cap@16"), cell("cap@128"))}
    results = Results()
    results.runs.update(made)
    (methods,) = compare(results, made).values()
    best = min(("cap@16", "cap@128"), key=lambda name: made[cell(name)].total)
    assert list(methods) == ["helix", "cap"]
    assert methods["cap"].name == best


def test_layout() -> None:
    block = Block(title="T", header=("method", "s"), rows=(("helix", "1.0"), ("lspf", "12.3")), notes=("n",))
    assert block.text() == "T\nmethod     s\nhelix    1.0\nlspf    12.3\n  n\n"
    assert "| helix | 1.0 |" in block.markdown()
    assert [figure(value) for value in (0.1234, 12.345, 1234.5, None)] == ["0.12", "12.3", "1,234", "-"]
    assert median([1.0, 3.0, 2.0]) == "2.00 (1.00-3.00)"
    assert median([]) == median([None]) == "-"
