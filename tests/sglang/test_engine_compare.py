"""The comparison on a real SGLang, kept alive: a workload at a tiny size from the command line, all methods."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from running import ROOT, environment
from sglang_cpu import Servers

from helix.serving import cpu

pytestmark = [pytest.mark.sglang, pytest.mark.shared, pytest.mark.xdist_group("others")]

SCRIPT = ROOT / "tests" / "benchmarks" / "engine_compare.py"
PATIENCE = 900.0  # twelve small runs and the start of a server, perhaps on a busy machine


def compare(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPT, *arguments],
        env=environment({"HELIX_SGLANG_HOME": str(cpu.home())}),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_all_methods_send_the_same_prompts(sglang_servers: Servers, shared_data: Path, tmp_path: Path) -> None:
    sglang_servers.stop()  # the comparison starts its own; three at once are a lot of memory
    file = tmp_path / "runs.json"
    size = ("--regime", "redundant", "--quick", "--size", "2,2", "--data", shared_data)
    done = compare("--workload", "W1", *size, "--json", file)
    assert done.returncode == 0, done.stderr
    runs = {(run["method"], run["at_once"]): run for run in json.loads(file.read_text())["runs"]}
    assert list(runs) == [
        ("langgraph", None),
        ("langgraph", 16),
        ("fan-out", 16),
        ("everything", None),
        ("helix", None),
    ]
    for run in runs.values():
        assert (run["failures"], run["stray_prompts"], run["miscounted"]) == ([], 0, 0)
        # Four rows, of which one comes twice; eight calls each.
        assert (run["rows"], run["steps"]) == (5, 40)
        assert run["least"] <= run["prefilled"] <= run["prompt_tokens"]
        assert run["prefilled"] <= run["computed"]
    helix = runs.pop(("helix", None))
    assert {run["calls"] for run in runs.values()} == {40}
    # One row of the five is known from yesterday and one is the same as another.
    assert helix["calls"] == 24
    assert helix["prefilled"] < min(run["prefilled"] for run in runs.values())
    assert "best of the others on lpm / Helix: W1 " in done.stdout
    # What is in the file is not run again.
    again = compare("--workload", "W1", *size, "--json", file)
    assert (again.returncode, again.stdout, again.stderr) == (0, done.stdout, "")


def test_a_folder_of_data_that_is_absent(sglang_servers: Servers, tmp_path: Path) -> None:
    done = compare("--data", tmp_path / "none")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"there is no folder {tmp_path / 'none'}; --data names another" in done.stderr
