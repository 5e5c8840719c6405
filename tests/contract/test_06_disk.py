"""Contract 6 and 8 where the disk is full or may not be written: an error or correct work, never a wrong answer."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from call_log import CallLog
from running import Folder, said_calls

TEXT = 'workflow t(a: text)\nx = llm { user "say {{ a }}" }\noutput a, x\n'
ROWS = [{"a": f"row {number}"} for number in range(40)]
WHOLE = [{"_row": number, "a": f"row {number}", "x": f"row {number} " * 400, "_error": None} for number in range(40)]


@pytest.fixture
def ready(folder: Folder) -> Folder:
    folder.workflow(TEXT)
    folder.rows(*ROWS)
    folder.rules({"match": r"(row \d+)", "reply": r"\1 " * 400})
    return folder


def limited(log: CallLog, size: int, *more: str) -> tuple[int, str]:
    """Runs the command where no file may grow beyond a size."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    process = log.start("-o", "out.jsonl", "-c", "4", *more, preexec_fn=limit)
    _, err = process.communicate(timeout=60)
    return process.returncode, err.decode()


def hidden(folder: Folder) -> list[str]:
    return [name for name in folder.names if name.endswith("-part")]


@pytest.mark.parametrize("kilobytes", [1, 30, 95, 110, 150, 190])
def test_06_a_disk_that_fills_up_costs_what_comes_after_and_no_answer(ready: Folder, kilobytes: int) -> None:
    """The output takes 142 KB, the journal 134 KB, an empty store 90 KB."""
    log = CallLog(ready)
    code, err = limited(log, kilobytes * 1024)
    assert code in (0, 2, 3), err
    assert "Traceback" not in err
    assert hidden(ready) == []
    if code == 2:
        assert err.startswith("error: ")
        assert "out.jsonl" not in ready.names
    elif code == 3:
        # What was done before is kept; the rest says why it was not begun.
        rows = ready.read()
        assert "stopped early: " in err
        assert [row["a"] for row in rows] == [row["a"] for row in ROWS]
        assert all(row == WHOLE[row["_row"]] for row in rows if row["_error"] is None)
    else:
        assert ready.read() == WHOLE
    made = log.size
    done = log.run("-o", "out.jsonl", "-c", "4")
    assert done.returncode == 0, done.stderr
    assert ready.read() == WHOLE
    # At most the calls in flight are made again, unless nothing could be kept at all.
    if kilobytes > 30:
        assert log.repeated() <= 4
    assert log.size <= made + 40
    assert log.run("-o", "out.jsonl").returncode == 0
    assert ready.read() == WHOLE


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 160 KB in memory, where the system lets us have one."""
    path = tmp_path / "disk"
    path.mkdir()
    options = ["mount", "-t", "tmpfs", "-o", "size=160k", "none", str(path)]
    mounted = shutil.which("mount") is not None and subprocess.run(options, capture_output=True, check=False)
    if not mounted or mounted.returncode:
        pytest.skip("a disk in memory can be had by root alone")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def test_06_a_full_disk_for_the_store_is_one_message_or_a_note(ready: Folder, small_disk: Path) -> None:
    log = CallLog(ready)
    done = log.run("-o", "out.jsonl", "-c", "4", "--store", str(small_disk / "kept"))
    assert done.returncode in (0, 2, 3), done.stderr
    assert "Traceback" not in done.stderr
    assert "kept" in done.stderr
    if done.returncode == 3:
        assert "No space left on device" in done.stderr or "full" in done.stderr
        assert all(row == WHOLE[row["_row"]] for row in ready.read() if row["_error"] is None)
    # What could be kept is sound, and with more room the run goes on.
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    done = log.run("-o", "out.jsonl", "-c", "4", "--store", str(small_disk / "kept"))
    assert done.returncode == 0, done.stderr
    assert ready.read() == WHOLE
    assert log.repeated() <= 4
    assert said_calls(log.run("-o", "out.jsonl", "--store", str(small_disk / "kept")).stderr) == 0


def test_06_a_disk_that_may_not_be_written_is_a_note_unless_it_was_asked_for(ready: Folder, quick: Any) -> None:
    """As in a folder of others, on a read-only disk: here a file stands where the folder would be."""
    ready.write(".helix", "in the way\n")
    done = quick("-o", "out.jsonl")
    assert done.returncode == 0
    assert ready.read() == WHOLE
    assert "this run cannot be resumed" in done.stderr
    assert said_calls(quick("-o", "out.jsonl").stderr) == 40
    done = quick("-o", "other.jsonl", "--store", ".helix")
    assert (done.returncode, "other.jsonl" in ready.names) == (2, False)
    assert done.stderr.startswith("error: results cannot be kept in .helix: ")
    assert quick("-o", "out.jsonl", "--no-store").returncode == 0
    assert (ready.path / ".helix").read_text() == "in the way\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_06_a_folder_without_the_right_to_write(ready: Folder, quick: Any) -> None:
    quick("-o", "out.jsonl")
    for path in (ready.path / ".helix").rglob("*"):
        path.chmod(0o500 if path.is_dir() else 0o400)
    (ready.path / ".helix").chmod(0o500)
    done = quick("-o", "out.jsonl")
    assert done.returncode in (0, 2)
    assert "Traceback" not in done.stderr
    assert ready.read() == WHOLE
