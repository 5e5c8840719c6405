"""`helix bench` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from running import command


def test_a_table_of_runs_that_is_kept(tmp_path: Path) -> None:
    arguments = ("bench", "w4", "--groups", "4", "--seeds", "1", "--policy", "helix,lspf", "--regime", "ample")
    first = command(*arguments, "--order", "grouped", "-o", "runs.json", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "w4 (iterative), 4 groups = 4 rows, ample, grouped" in first.stdout
    assert "2 of 2 runs" in first.stderr
    again = command(*arguments, "--order", "grouped", "-o", "runs.json", cwd=tmp_path)
    assert again.stdout == first.stdout
    assert again.stderr == ""
    shown = command(*arguments, "--order", "grouped", "-o", "runs.json", "--json", cwd=tmp_path)
    drawn = command(*arguments, "--order", "grouped", "-o", "runs.json", "--plots", "plots", cwd=tmp_path)
    assert "wrote plots/runs.svg" in drawn.stderr
    assert (tmp_path / "plots" / "runs.svg").read_text("utf-8").startswith("<svg")
    found = json.loads(shown.stdout)
    assert [each["cell"]["method"] for each in found["runs"]] == ["helix", "lspf"]
    assert all(each["outcome"]["match"] for each in found["runs"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("w9",), "unknown workload `w9`"),
        (("--table", "table9"), "unknown table `table9`"),
        (("--regime", "amplee"), "unknown regime `amplee`; did you mean `ample`?"),
        (("--order", "sorted"), "unknown order `sorted`"),
        (("--policy", "lspff"), "unknown method `lspff`; did you mean `lspf`?"),
        (("--gpu", "h1000"), "no cost model for GPU `h1000`"),
        (("--ranks", "two"), "--ranks takes numbers of at least 1"),
        (("--data", "nowhere"), "--data"),
    ],
)
def test_mistakes_are_told_before_any_run(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    ran = command("bench", *arguments, "--quick", cwd=tmp_path)
    assert ran.returncode == 2
    assert said in ran.stderr
    assert ran.stdout == ""


@pytest.mark.slow
def test_a_first_look(tmp_path: Path) -> None:
    ran = command("bench", "--quick", "--table", "stand", cwd=tmp_path, timeout=180)
    assert ran.returncode == 0, ran.stderr
    assert "w5 8 ample shuffled W2" in ran.stdout
