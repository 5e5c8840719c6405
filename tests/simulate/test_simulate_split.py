"""`helix simulate` with prefill and decoding on ranks of their own: `--pd` and `--what-if-pd`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from running import inside, jsonl

import helix
from helix.errors import OptionError

TEXT = """
workflow letters(policy: text, question: text)

model main { name: "llama-3.1-8b", temperature: 0, max_tokens: 80 }

answer = llm main { system "By this policy: {{ policy }}" user "{{ question }}" }
letter = llm main { system "By this policy: {{ policy }}" user "{{ question }} Write that {{ answer }}" }

output letter
"""
ROWS = [
    {"policy": f"Number {at % 3}. " + "Whoever sends a thing back gets the money. " * 20, "question": f"Lamp {at}?"}
    for at in range(12)
]


@pytest.fixture
def simulate(tmp_path: Path, monkeypatch: Any, capfd: Any) -> Any:
    """Runs the command over the rows, in this process."""
    (tmp_path / "rows.jsonl").write_text(jsonl(ROWS), encoding="utf-8")
    (tmp_path / "letters.helix").write_text(TEXT, encoding="utf-8")

    def run(*more: str) -> Any:
        arguments = ("simulate", "letters.helix", "-i", "rows.jsonl", "--no-plain", *more)
        return inside(*arguments, cwd=tmp_path, monkeypatch=monkeypatch, capfd=capfd)

    return run


def test_ranks_that_prefill_and_ranks_that_decode(simulate: Any) -> None:
    made = json.loads(simulate("--pd", "1:2", "--no-what-if", "--format", "json").stdout)["optimized"]
    assert (made["deployment"]["ranks"], made["deployment"]["decode_ranks"], made["deployment"]["gpus"]) == (3, 2, 3)
    first, *others = made["ranks"]
    assert first["prefill"] > 0
    assert first["decode"] == 0
    assert all(each["prefill"] == 0 and each["decode"] > 0 for each in others)
    bounds, makespan = made["bounds"], made["seconds"]["makespan"]
    assert 0 < bounds["engine"] <= bounds["lower_bound"] <= makespan
    whole = json.loads(simulate("--ranks", "3", "--no-what-if", "--format", "json").stdout)["optimized"]
    # The same calls and replies; but where decoding is apart no reply is in the cache of prompts.
    assert whole["calls"] == made["calls"] | {"warmups": whole["calls"]["warmups"]}
    assert whole["tokens"]["generated"] == made["tokens"]["generated"]
    assert whole["log"] != made["log"]


def test_splits_stand_in_the_what_if_table(simulate: Any, tmp_path: Path) -> None:
    options = ("--what-if-ranks", "1,4", "--what-if-gpus", "h100", "--what-if-pd", "1:3,2:2")
    ran = simulate("--pd", "1:1", *options)
    assert ran.returncode == 0, ran.stderr
    assert "simulated on 2 x h100 (pd 1:1), llama-3.1-8b" in " ".join(ran.stdout.split())
    lines = ran.stdout.splitlines()
    first = next(at for at, line in enumerate(lines) if line.split()[:3] == ["GPU", "ranks", "GPUs"])
    rows = lines[first + 1 : first + 6]
    assert [row.split()[:3] for row in rows] == [
        ["h100", "1", "1"], ["h100", "4", "4"], ["h100", "1:1", "2"], ["h100", "2:2", "4"], ["h100", "1:3", "4"],
    ]  # fmt: skip
    cases = json.loads(simulate("--pd", "1:1", *options, "--format", "json").stdout)["what_if"]
    assert [(case["ranks"], case["decode_ranks"]) for case in cases] == [(1, 0), (4, 0), (2, 1), (4, 2), (4, 3)]
    for case in cases:
        bound = case["simulated"]["bounds"]
        assert bound["lower_bound"] <= case["simulated"]["seconds"]["makespan"]
    page = simulate("--pd", "1:1", *options, "-o", "page.html")
    assert page.returncode == 0, page.stderr
    assert "h100 pd 1:3" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_what_cannot_be_split_is_a_row_of_the_table(simulate: Any) -> None:
    ran = simulate(
        "--what-if-ranks", "1", "--what-if-gpus", "h100", "--what-if-pd", "1:1", "--server", "mixed_chunk=on"
    )
    assert ran.returncode == 0, ran.stderr
    assert "simulated engine" in ran.stdout.split("1:1", 1)[1].splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--pd", "3"], "how many ranks of a simulated engine prefill and how many decode, as in 1:3; found `3`"),
        (["--pd", "0:2"], "as in 1:3; found `0:2`"),
        (["--what-if-pd", "1:1,x"], "as in 1:3; found `x`"),
        (["--pd", "1:3", "--ranks", "2"], "two numbers of ranks: 2, and 4 in pd 1:3; give one"),
        (["--pd", "1:3", "--gpu", "h100x2"], "two numbers of ranks: 2, and 4 in pd 1:3; give one"),
        (["--pd", "1:1", "--server", "mixed_chunk=on"], "ranks that only prefill mix nothing"),
    ],
)
def test_what_is_wrong_is_said(arguments: list[str], message: str, simulate: Any) -> None:
    ran = simulate(*arguments)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert message in ran.stderr


def test_from_python() -> None:
    workflow = helix.loads(TEXT)
    made = workflow.simulate(ROWS, pd="1:2", what_if_ranks=[], what_if_pd=["2:1"], what_if_gpus=[], plain=False)
    assert [case.split for case in made.cases] == ["2:1", "1:2"]
    assert made.cases[1].trial is made.optimized
    with pytest.raises(OptionError, match="found `1-2`"):
        workflow.simulate(ROWS, pd="1-2")


def test_the_report_of_a_run_knows_who_decodes() -> None:
    """Bounds of a run at an address are those of all its ranks, each with its own part of the work."""
    run = helix.loads(TEXT).run(ROWS, engine="sim:h100/llama-3.1-8b?pd=1:2", report=True)
    assert run.run_report is not None
    bounds = run.run_report.bounds
    assert bounds is not None
    assert 0 < bounds.engine <= bounds.lower_bound <= run.report.seconds
