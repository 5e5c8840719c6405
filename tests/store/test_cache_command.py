"""`helix cache show` and `helix cache clear`, the options of `helix run` about them, and disks that are full."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from running import Folder, environment, inside, said_calls

from helix.commands.cache import shown_size, size_in_bytes
from helix.errors import OptionError
from helix.executor.store.database import FILE

TEXT = 'workflow t(a: text)\nx = llm { user "{{ a }}" }\noutput a, x'


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path)
    made.workflow(TEXT)
    made.rows(*({"a": f"row {number}"} for number in range(5)))
    return made


@pytest.fixture
def helix(folder: Folder, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    """Runs a command of `helix` in the folder."""

    def run(*arguments: str) -> Any:
        return inside(*arguments, cwd=folder.path, monkeypatch=monkeypatch, capfd=capfd)

    return run


RUN = ("run", "w.helix", "-i", "rows.jsonl", "-e", "scripted", "-o", "out.jsonl")


def test_show_tells_results_by_model_and_step_and_runs(folder: Folder, helix: Any) -> None:
    assert helix("cache", "show").returncode == 2
    helix(*RUN)
    folder.workflow(TEXT.replace("x = llm", "y = llm").replace("output a, x", "output a, y"))
    helix(*RUN)
    out = helix("cache", "show").stdout
    assert "5 results" in out
    assert "fetched 5 times" in out
    found = json.loads(helix("cache", "show", "--format", "json").stdout)
    (held,) = found["held"]
    assert (held["step"], held["results"], held["hits"], held["model"]["name"]) == ("x", 5, 5, "scripted")
    assert sorted((run["workflow"], run["state"], run["calls"]) for run in found["runs"]) == [("t", "finished", 5)] * 2
    assert found["bytes"] == held["bytes"] < found["file_bytes"]


def test_clear_asks_and_then_removes_everything(folder: Folder, helix: Any) -> None:
    helix(*RUN)
    refused = helix("cache", "clear")
    assert refused.returncode == 2
    assert "holds 5 results and 1 run; --yes says that they may go" in refused.stderr
    assert "removed 5 results and 1 run" in helix("cache", "clear", "--yes").stderr
    assert list((folder.path / ".helix" / "runs").iterdir()) == []
    assert said_calls(helix(*RUN).stderr) == 5


def test_clear_may_keep_runs_and_what_was_used_lately(folder: Folder, helix: Any) -> None:
    helix(*RUN)
    assert "removed 0 results and 0 runs" in helix("cache", "clear", "-y", "--older-than", "1h").stderr
    assert "removed 5 results and 0 runs" in helix("cache", "clear", "-y", "--keep-runs").stderr
    assert said_calls(helix(*RUN).stderr) == 0
    (run,) = (folder.path / ".helix" / "runs").iterdir()
    for file in run.iterdir():
        os.utime(file, (time.time() - 7200,) * 2)
    assert "and 1 run" in helix("cache", "clear", "-y", "--older-than", "1h").stderr
    assert helix("cache", "clear", "-y", "--older-than", "soon").returncode == 2


def test_a_run_that_goes_on_is_left_alone(folder: Folder, helix: Any) -> None:
    folder.rules({"delay": 5.0, "reply": "r"})
    process = folder.start("-o", "out.jsonl")
    try:
        ends = time.monotonic() + 20
        while not list((folder.path / ".helix").glob("runs/*/run.json")):
            assert time.monotonic() < ends
            time.sleep(0.02)
        shown = json.loads(helix("cache", "show", "--format", "json").stdout)
        assert [run["state"] for run in shown["runs"]] == ["running"]
        assert "1 run of other processes were left alone" in helix("cache", "clear", "--yes").stderr
        second = folder.run("-o", "other.jsonl")
        assert second.returncode == 2
        assert f"going on in another process (process {process.pid})" in second.stderr
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("content", [b"no database", b""])
def test_a_store_that_is_none_is_one_message_everywhere(folder: Folder, helix: Any, content: bytes) -> None:
    (folder.path / ".helix").mkdir()
    path = folder.path / ".helix" / FILE
    path.write_bytes(content)
    for arguments in (RUN, ("cache", "show"), ("cache", "clear", "--yes")):
        done = helix(*arguments)
        assert done.returncode == 2
        assert done.stderr.startswith("error: .helix/store.db is no result store of Helix; it was left as it is: ")
        assert path.read_bytes() == content
    assert helix(*RUN, "--no-store").returncode == 0
    assert helix(*RUN, "--store", "elsewhere").returncode == 0
    assert (folder.path / "elsewhere" / FILE).is_file()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--no-store", "--fresh"), "--fresh has no meaning with --no-store"),
        (("--no-store", "--store", "x"), "--store has no meaning with --no-store"),
        (("--fresh", "--retry-failed"), "leave out --retry-failed"),
        (("--store-size", "much"), "--store-size takes a size such as 500MB or 2GB, found `much`"),
    ],
)
def test_options_that_do_not_fit(helix: Any, options: tuple[str, ...], said: str) -> None:
    done = helix(*RUN, *options)
    assert done.returncode == 2
    assert said in done.stderr


def test_no_store_leaves_nothing_behind(folder: Folder, helix: Any) -> None:
    assert said_calls(helix(*RUN, "--no-store").stderr) == 5
    assert not (folder.path / ".helix").exists()


def test_the_store_of_the_environment(folder: Folder, helix: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIX_STORE", "shared")
    helix(*RUN)
    assert (folder.path / "shared" / FILE).is_file()
    assert said_calls(helix(*RUN).stderr) == 0
    assert said_calls(helix(*RUN, "--no-store").stderr) == 5


@pytest.mark.parametrize(
    ("text", "size"), [("1000", 1000), ("2GB", 2 << 30), ("500 MB", 500 << 20), ("1.5k", 1536), ("3 GiB", 3 << 30)]
)
def test_sizes(text: str, size: int) -> None:
    assert size_in_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1", "1 XB"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(OptionError):
        size_in_bytes(text)


def test_sizes_are_shown_for_people() -> None:
    assert [shown_size(size) for size in (0, 1023, 1536, 5 << 20, 3 << 30)] == [
        "0 B",
        "1023 B",
        "1.5 KB",
        "5.0 MB",
        "3.0 GB",
    ]


# --- a full disk, by a limit on the size of files ---


def limited(folder: Folder, size: int, *more: str) -> subprocess.CompletedProcess[bytes]:
    script = (
        "import resource, signal, sys\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))\n"
        "from helix.cli import main\nmain()\n"
    )
    return subprocess.run(
        [sys.executable, "-c", script, *RUN[:-2], *more],
        cwd=folder.path,
        capture_output=True,
        env=environment(None),
        timeout=30,
        check=False,
    )


def test_a_journal_that_cannot_grow_ends_the_run_and_loses_nothing(folder: Folder, helix: Any) -> None:
    """The store has room at first; the journal and the store are then full, and the disk is given back."""
    folder.rows(*({"a": f"row {number}"} for number in range(60)))
    folder.rules({"reply": "r" * 5000})
    engine = ("-e", "scripted:replies.toml", "-c", "1")
    assert helix(*RUN, *engine, "--max-calls", "2").returncode == 3
    (journal,) = (folder.path / ".helix" / "runs").glob("*/journal")
    done = limited(folder, 150_000, *engine, "--quiet")
    words = done.stderr.decode()
    assert done.returncode == 3, words
    assert b"Traceback" not in done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == 60
    kinds = {None if row["_error"] is None else row["_error"]["kind"] for row in rows}
    assert kinds == {None, "not_started"}
    assert journal.stat().st_size <= 150_000
    again = helix(*RUN, *engine)
    assert again.returncode == 0
    assert all(row["x"] == "r" * 5000 for row in folder.read())
    assert said_calls(again.stderr) < 60


def test_a_store_that_cannot_be_made_is_one_message(folder: Folder) -> None:
    done = limited(folder, 20_000)
    assert done.returncode == 2
    (message,) = done.stderr.decode().splitlines()
    assert message.startswith("error: results cannot be kept in .helix: ")
    assert message.endswith("free some space, name another folder with --store, or run with --no-store")
    assert not list((folder.path / ".helix").glob(".store.db*"))


def test_a_folder_that_cannot_be_made_is_a_note_unless_it_was_named(folder: Folder, helix: Any) -> None:
    (folder.path / ".helix").write_text("in the way")
    done = helix(*RUN)
    assert done.returncode == 0
    assert "note: results cannot be kept in .helix: File exists; this run cannot be resumed" in done.stderr
    assert said_calls(helix(*RUN).stderr) == 5
    done = helix(*RUN, "--store", ".helix")
    assert (done.returncode, done.stderr) == (2, "error: results cannot be kept in .helix: File exists\n")


def test_input_from_a_pipe_is_known_by_its_rows(folder: Folder) -> None:
    line = "cat rows.jsonl | {0} -i - && {0} -i <(cat rows.jsonl) && {0} -i <(head -3 rows.jsonl)"
    command = " ".join([sys.executable, "-m", "helix", "run", "w.helix", "-e", "scripted", "-o", "out.jsonl"])
    done = subprocess.run(
        ["bash", "-c", line.format(command)], cwd=folder.path, capture_output=True, text=True, env=environment(None)
    )
    assert done.returncode == 0, done.stderr
    first, again, fewer = (text for text in done.stderr.splitlines() if "rows" in text and "calls" in text)
    assert "5 calls" in first
    assert "0 calls, 5 fetched" in again
    assert "0 calls, 3 fetched" in fewer
    assert len(list((folder.path / ".helix" / "runs").iterdir())) == 2
