"""What is said to those who hold the command the wrong way: one message, and what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from running import inside

WORKFLOW = 'workflow w(a: text, b: text)\nx = llm { user "{{ a }} {{ b }}" }\noutput x\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "w.helix").write_text(WORKFLOW)
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    (tmp_path / "semicolons.csv").write_text("a;b\n1;2\n")
    (tmp_path / "tabs.csv").write_text("a\tb\n1\t2\n")
    (tmp_path / "w.py").write_text(
        "import helix as hx\n\n\n@hx.workflow\ndef w(a, b: str):\n    return hx.output(x=hx.llm(user=b))\n"
    )
    return tmp_path


@pytest.fixture
def helix(folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> Callable[..., CompletedProcess[str]]:
    """The command, in the folder and in this process."""
    return lambda *words: inside(*words, cwd=folder, monkeypatch=monkeypatch, capfd=capfd)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "rows.csv"], "rows.csv is a table; a workflow stands here, and its rows behind --input"),
        (["run", "w.helix", "rows.csv"], "help: rows are named by an option: --input rows.csv"),
        (["explain", "w.helix", "rows.csv"], "help: rows are named by an option: --input rows.csv"),
        (["run", "w.helix", "-i", "semicolons.csv"], "cells seem to be divided by `;`; divide them by commas"),
        (["run", "w.helix", "-i", "tabs.csv"], "cells seem to be divided by tabs; name it .tsv, or give"),
        (["run", "w.py", "-i", "rows.csv"], "help: write `a: str`"),
        (["explain", "w.helix", "-o", "plan.pdf"], "add --format text, json, mermaid, dot or html"),
        (["explain", "w.helix", "-o", "nowhere/plan.html"], "there is no folder nowhere"),
    ],
)
def test_one_message_says_what_to_write(words: list[str], said: str, helix: Any) -> None:
    done = helix(*words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_other_mistakes_of_usage_have_the_words_of_click(helix: Any) -> None:
    done = helix("run", "w.helix", "--inptu", "rows.csv")
    assert done.returncode == 2
    assert "help:" not in done.stderr


def test_an_explanation_goes_into_a_file(folder: Path, helix: Any) -> None:
    done = helix("explain", "w.helix", "-o", "plan.html")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "plan.html: written\n")
    assert (folder / "plan.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    done = helix("explain", "w.helix", "-o", "plan.txt", "--format", "mermaid", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    assert (folder / "plan.txt").read_text(encoding="utf-8").startswith("flowchart")
