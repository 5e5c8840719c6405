"""The program that makes the tables of the benchmark page."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from helix.bench.batches import reference_of
from helix.bench.cells import Cell
from helix.bench.measure import run_cell
from helix.bench.methods import method_of
from helix.bench.results import Results

ROOT = Path(__file__).parents[2]
PROGRAM, PAGE = ROOT / "tests" / "benchmarks" / "policy_tables.py", ROOT / "docs" / "reference" / "benchmark-tables.md"


@pytest.fixture(scope="module")
def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("policy_tables", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    made = sys.modules["policy_tables"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_every_part_has_its_place_on_the_page_and_runs_to_make(program: ModuleType) -> None:
    lines = PAGE.read_text("utf-8").splitlines()
    for name, part in program.PARTS.items():
        assert lines.count(f"<!-- {name} -->") == 1, name
        cells = part.cells(5)
        assert len(cells) == len(set(cells)) > 0
        # With fewer seeds the same runs, so that what is there is not made again.
        assert set(part.cells(1)) <= set(cells)
        for cell in cells:
            method_of(cell.method)


def test_tables_go_where_they_belong(program: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = Results(tmp_path / "runs.json")
    for method in ("helix", "lpm"):
        cell = Cell(workload="w4", groups=64, regime="ample", order="shuffled", method=method, seed=0)
        small = Cell(workload="w4", groups=4, regime="ample", order="shuffled", method=method, seed=0)
        results.runs[cell] = run_cell(small, reference_of(small.batch))
    results.save()
    page = tmp_path / "page.md"
    page.write_text(
        "# Page\n\n<!-- ample -->\nold\n<!-- end -->\n\nkept\n\n<!-- ranks -->\nother\n<!-- end -->\n", "utf-8"
    )
    arguments = [
        "policy_tables.py",
        "--runs",
        str(tmp_path / "runs.json"),
        "--page",
        str(page),
        "--parts",
        "ample,ranks",
    ]
    monkeypatch.setattr(sys, "argv", arguments)
    program.main()
    text = page.read_text("utf-8")
    assert "| w4 64 ample shuffled W2 |" in text
    assert "old" not in text
    # Of what there is no run the page keeps what it has.
    assert "\nkept\n\n<!-- ranks -->\nother\n<!-- end -->\n" in text
    again = page.read_text("utf-8")
    program.main()
    assert page.read_text("utf-8") == again
