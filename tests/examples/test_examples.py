"""Every folder of `examples`: the workflow is clean, its commands run as its header says, and its two forms are one."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from running import ROOT, command, lines

from helix import api
from helix.logical import Generate, every_node

FOLDER = ROOT / "examples"
TEXTS = sorted(FOLDER.glob("*/*.helix"))
PYTHON = sorted(path for path in FOLDER.glob("*/*.py") if path.stem == path.parent.name)

every_example = pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)


def commands(path: Path) -> list[list[str]]:
    """The commands that the comment at the head of a workflow gives, as arguments of `helix`."""
    head = path.read_text(encoding="utf-8").partition("\nworkflow ")[0]
    return [shlex.split(line)[1:] for line in re.findall(r"^#   (helix .*)$", head, flags=re.MULTILINE)]


def scripted(path: Path) -> list[str]:
    """The command of a workflow's head that needs no model."""
    (found,) = (each for each in commands(path) if any(word.startswith("scripted:") for word in each))
    return found


def plan(workflow: Any) -> Any:
    return api.check(workflow).plan


def test_there_are_nine_each_in_a_folder_of_its_name_and_in_the_index():
    assert len(TEXTS) == 9
    folders = sorted(path.name for path in FOLDER.iterdir() if path.is_dir() and path.name != "__pycache__")
    assert [path.stem for path in TEXTS] == [path.parent.name for path in TEXTS] == folders
    index = re.findall(
        r"^\| \[(\w+)\]\((\S+)\) .*\| (?:no|\[yes\]\((\S+)\)) \|$", (FOLDER / "README.md").read_text(), re.M
    )
    assert sorted(name for name, _, _ in index) == folders
    assert {file for _, *files in index for file in files if file} == {
        path.relative_to(FOLDER).as_posix() for path in [*TEXTS, *PYTHON]
    }


@every_example
def test_it_has_no_mistake_no_warning_and_the_one_layout(path):
    workflow = api.load(path)
    assert api.check(workflow).warnings == ()
    assert api.to_text(workflow) == path.read_text(encoding="utf-8")
    assert workflow.name == path.stem


def test_the_commands_check_and_fmt_say_so_too():
    checked = command("check", *TEXTS)
    assert (checked.returncode, checked.stderr.splitlines()) == (0, [f"{path}: ok" for path in TEXTS])
    formatted = command("fmt", "--check", *TEXTS)
    assert (formatted.returncode, formatted.stderr) == (0, "")


@every_example
def test_its_plan_is_explained(path):
    workflow = api.load(path)
    text = str(api.explain(workflow, width=120))
    calls = {node.step for node in every_node(plan(workflow).sink) if isinstance(node, Generate)}
    assert calls
    for step in calls:
        assert re.search(rf"\b{re.escape(step)}\b", text), step
    assert "calls per row:" in text


@every_example
def test_the_files_of_its_commands_are_there(path):
    found = commands(path)
    assert [each[0] for each in found][:1] == ["run"]
    for words in found:
        inputs = [
            value.removeprefix("scripted:") for option, value in pairwise(words) if option in ("--input", "--engine")
        ]
        written = {value for each in found for option, value in pairwise(each) if option == "--output"}
        for file in [words[1], *inputs]:
            assert (ROOT / file).is_file() or file in written, file


@every_example
def test_it_runs_on_the_scripted_engine(path, update_golden):
    expected = path.with_name("expected.jsonl")
    done = command(*scripted(path), cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    if update_golden:
        expected.write_text(done.stdout, encoding="utf-8")
    assert done.stdout == expected.read_text(encoding="utf-8")
    rows = lines(done.stdout)
    assert rows
    assert all(row["_error"] is None for row in rows)


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: path.stem)
def test_its_python_form_makes_the_same_plan_and_the_same_result(path):
    text = path.with_suffix(".helix")
    ours, theirs = plan(api.load_python(path)), plan(api.load(text))
    assert ours.sink.id == theirs.sink.id
    assert ours == theirs
    words = [str(path) if word.endswith(".helix") else word for word in scripted(text)]
    done = command(*words, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout == path.with_name("expected.jsonl").read_text(encoding="utf-8")


def test_the_committee_has_sixteen_branches_that_wait_for_nothing():
    found = plan(api.load(FOLDER / "trading" / "trading.helix"))
    branches = [
        node for node in every_node(found.sink) if isinstance(node, Generate) and re.match(r"[a-z]+_", node.step)
    ]
    assert len(branches) == 16
    steps = {node.step for node in branches}
    for node in branches:
        assert not steps & {below.step for below in every_node(node) if isinstance(below, Generate) and below != node}


def test_a_tool_is_called_only_for_the_rows_that_need_it():
    triage = api.load(FOLDER / "triage" / "triage.helix")
    result = triage.run(FOLDER / "triage" / "tickets.jsonl", engine=f"scripted:{FOLDER}/triage/replies.toml")
    deliveries = [row for row in result.rows if row["category"] == "delivery"]
    assert 0 < len(deliveries) < len(result.rows)
    # The two tickets of one customer share a call only where both wait for a parcel.
    assert result.report.steps["history"].calls == len(deliveries)


@pytest.mark.embedded
def test_triage_runs_on_the_embedded_model(tmp_path):
    words = commands(FOLDER / "triage" / "triage.helix")[0]
    output = tmp_path / "triage.jsonl"
    words[words.index("--output") + 1] = str(output)
    done = command(*words, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = lines(output.read_text(encoding="utf-8"))
    assert [row["_row"] for row in rows] == list(range(12))
    assert {row["category"] for row in rows} <= {"delivery", "billing", "defect", "other"}
    # A tiny model, but not one that gives everything the same label.
    assert len({row["category"] for row in rows}) >= 3
    assert {row["urgent"] for row in rows} == {True, False}
    assert all(row["reply"].strip() and row["_error"] is None for row in rows)
    assert re.search(r"12 rows, \d+ calls, .* in [\d.]+ s", done.stderr)
    shown = command("show", output)
    assert shown.returncode == 0
    assert "T-112" in shown.stdout


@pytest.mark.embedded
def test_the_help_desk_runs_on_the_embedded_model(tmp_path):
    """A tiny model calls what it likes; every row gets an answer of the type all the same."""
    words = commands(FOLDER / "helpdesk" / "helpdesk.helix")[0]
    output = tmp_path / "helpdesk.jsonl"
    words[words.index("--output") + 1] = str(output)
    done = command(*words, "--store", tmp_path / "store", cwd=ROOT, timeout=300)
    rows = lines(output.read_text(encoding="utf-8"))
    assert len(rows) == 4, done.stderr
    answered = [row for row in rows if row["_error"] is None]
    # Of what a model this small writes some is cut off at max_tokens.
    assert {row["_error"]["kind"] for row in rows if row["_error"] is not None} <= {"truncated"}
    assert len(answered) >= 2
    assert all(isinstance(row["reply"], str) and isinstance(row["sure"], bool) for row in answered)
    assert all(1 <= row["turns"] <= 4 for row in answered)
