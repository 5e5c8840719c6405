"""`helix run --report` from the command line: the file, the closing words, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from running import Folder

TEXT = 'workflow t(a: text)\nx = llm { user "{{ a }}" }\noutput a, x\n'


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path)
    folder.workflow(TEXT)
    folder.rows({"a": "p"}, {"a": "q"}, {"a": "p"})
    return folder


def test_the_report_is_written_and_told(folder: Folder) -> None:
    done = folder.run("-o", "out.jsonl", "--no-store", "--report", "run.json")
    assert done.returncode == 0, done.stderr
    made = json.loads((folder.path / "run.json").read_text("utf-8"))
    assert (made["format"], made["version"], made["workflow"]) == ("helix-report", 1, "t")
    assert (made["calls"]["llm"], made["calls"]["merged"]) == (2, 1)
    assert made["rows"] == {"input": 3, "output": 3, "failed": 0}
    assert "without Helix: 3 calls" in done.stderr
    assert done.stderr.splitlines()[-1] == "the report is in run.json"
    assert done.stdout == ""
    assert not [name for name in folder.names if name.endswith(".helix-part")]


def test_without_the_option_nothing_is_said_of_it(folder: Folder) -> None:
    done = folder.run("-o", "out.jsonl", "--no-store")
    assert "without Helix" not in done.stderr
    assert "makespan" not in done.stderr


def test_an_older_report_is_replaced_and_nothing_else(folder: Folder) -> None:
    for _ in range(2):
        assert folder.run("-o", "out.jsonl", "--no-store", "-q", "--report", "run.json").returncode == 0
    folder.write("settings.json", '{"keep": "me"}')
    done = folder.run("-o", "out.jsonl", "--no-store", "--report", "settings.json")
    assert done.returncode == 2
    assert "settings.json exists and is no report" in done.stderr
    assert (folder.path / "settings.json").read_text() == '{"keep": "me"}'


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("run.html", "a report as a page is not part of this version; --report takes a .json file"),
        ("run.txt", "--report takes a .json file, found `run.txt`"),
        ("run", "--report takes a .json file, found `run`"),
        ("nowhere/run.json", "there is no folder nowhere"),
        ("folder.json", "it is a folder"),
        ("./rows.json", "the report ./rows.json is the input or the output"),
    ],
)
def test_what_cannot_be_a_report_is_refused_before_any_call(folder: Folder, given: str, message: str) -> None:
    (folder.path / "folder.json").mkdir()
    folder.write("rows.json", '[{"a": "p"}]')
    before = folder.names
    done = folder.run("-o", "out.jsonl", "--report", given, source="rows.json")
    assert done.returncode == 2
    assert message in done.stderr
    assert folder.names == before


def test_failed_rows_keep_their_exit_code_and_are_in_the_report(folder: Folder) -> None:
    folder.rules({"row": 1, "error": 400})
    done = folder.run("-o", "out.jsonl", "--no-store", "--report", "run.json")
    assert done.returncode == 3
    made = json.loads((folder.path / "run.json").read_text("utf-8"))
    assert (made["outcome"], made["rows"]["failed"], made["calls"]["failed"]) == ("failed_rows", 1, 1)


def test_a_run_that_a_limit_ends_has_a_report(folder: Folder) -> None:
    done = folder.run("-o", "out.jsonl", "--no-store", "--max-calls", "1", "--report", "run.json")
    assert done.returncode == 3
    made = json.loads((folder.path / "run.json").read_text("utf-8"))
    assert made["outcome"] == "stopped"
    assert "budget" in made["stopped"]
    assert made["calls"]["llm"] == 1


def test_a_report_that_cannot_be_written_loses_no_result(folder: Folder) -> None:
    # A link into a folder that goes away while the run is on stands for a disk that is full.
    gone = folder.path / "gone"
    gone.mkdir()
    (folder.path / "w.py").write_text(
        "import shutil\n\n\ndef drop(a: str) -> str:\n    shutil.rmtree('gone', ignore_errors=True)\n    return a\n"
    )
    folder.workflow(
        'workflow t(a: text)\ntool drop(a: text) -> text from python "w:drop" effects read\n'
        'b = drop(a)\nx = llm { user "{{ b }}" }\noutput x\n'
    )
    done = folder.run("-o", "out.jsonl", "--no-store", "--report", "gone/run.json")
    assert done.returncode == 3
    assert "error: the report gone/run.json cannot be written: No such file or directory" in done.stderr
    assert len(folder.read()) == 3
