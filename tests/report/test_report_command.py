"""`helix run --report` from the command line: the file, the closing words, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from running import Folder

import helix
from helix.errors import OptionError
from helix.report.files import read_report, refuse_report, write_report

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
        ("run.txt", "--report takes a .html or a .json file, found `run.txt`"),
        ("run", "--report takes a .html or a .json file, found `run`"),
        ("nowhere/run.html", "there is no folder nowhere"),
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


# --- as a page ----------------------------------------------------------------------------------------------------


def test_a_page_is_written_and_the_next_run_compared_with_it(folder: Folder) -> None:
    done = folder.run("-o", "out.jsonl", "--no-store", "--report", "run.html", "--prices", "100,200")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "the report is in run.html"
    page = (folder.path / "run.html").read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert "<span>cost</span>" in page
    assert "Compared with an earlier run" not in page
    # The page that is compared with may be the one that is written over.
    done = folder.run("-o", "out.jsonl", "--no-store", "--report", "run.html", "--compare", "run.html")
    assert done.returncode == 0, done.stderr
    assert "Compared with an earlier run" in (folder.path / "run.html").read_text("utf-8")
    assert not [name for name in folder.names if name.endswith(".helix-part")]


def test_a_page_that_is_no_report_is_not_replaced(folder: Folder) -> None:
    folder.write("mine.html", "<!doctype html>\n<p>mine")
    done = folder.run("-o", "out.jsonl", "--no-store", "--report", "mine.html")
    assert done.returncode == 2
    assert "mine.html exists and is no report; write the report to another file" in done.stderr
    assert (folder.path / "mine.html").read_text() == "<!doctype html>\n<p>mine"


def test_a_report_is_read_again_from_both_kinds_of_file(tmp_path: Path) -> None:
    measures = helix.loads(TEXT).run([{"a": "p"}], engine="scripted", report=True).run_report
    assert measures is not None
    for name in ("run.json", "run.html"):
        path = str(tmp_path / name)
        write_report(path, measures)
        assert read_report(path) == measures.to_json()
        refuse_report(path)


BLOCK = '<script type="application/json" id="helix-report">'


@pytest.mark.parametrize("held", [f"{BLOCK}{{}}</script>", f"{BLOCK}{{", f"{BLOCK}{'[' * 99_999}</script>", "", "\xff"])
def test_pages_that_look_like_a_report_are_kept_too(tmp_path: Path, held: str) -> None:
    page = tmp_path / "mine.html"
    page.write_bytes(held.encode("latin-1"))
    with pytest.raises(OptionError, match="exists and is no report"):
        refuse_report(str(page))


REPORT = '{"format": "helix-report", "version": %s}'


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (None, "cannot read the report .*old.json: No such file"),
        (b'{"a": "p"}', "old.json is no report of a run; --compare takes what --report wrote"),
        (b"\xff\xfe\x00", "old.json is no report of a run"),
        (b"[" * 99_999, "old.json is no report of a run"),
        ((REPORT % "NaN").encode(), "old.json is no report of a run"),
        ((REPORT % 2).encode(), "old.json is of another version; expected 1, found 2"),
    ],
)
def test_what_is_no_report_is_not_compared_with(tmp_path: Path, held: bytes | None, message: str) -> None:
    if held is not None:
        (tmp_path / "old.json").write_bytes(held)
    with pytest.raises(OptionError, match=message):
        read_report(str(tmp_path / "old.json"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--compare", "old.json"], "--compare is part of a report: give --report FILE.html too"),
        (
            ["--report", "run.json", "--compare", "old.json"],
            "--compare is shown on a page: --report takes a .html file then, found `run.json`",
        ),
        (["--report", "run.html", "--compare", "rows.jsonl"], "rows.jsonl is no report of a run; --compare takes"),
        (["--report", "run.html", "--prices", "1"], "prices are two or three numbers: prompt, reply, cached prompt"),
    ],
)
def test_what_a_page_cannot_take_is_refused_before_any_call(folder: Folder, options: list[str], message: str) -> None:
    folder.write("old.json", REPORT % 1)
    before = folder.names
    done = folder.run("-o", "out.jsonl", *options)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert folder.names == before
