"""Contract 9: Ctrl+C once and twice, then the same command: the calls that were made are not made again."""

from __future__ import annotations

import signal
import subprocess
import time

import pytest
from call_log import CallLog
from running import Folder

TEXT = """workflow t(a: text)
x = llm { user "{{ a }}" }
y = llm(temperature: 0.7) { user "more {{ x }}" }
output a, x, y
"""
ROWS = [{"a": f"row {number:02}"} for number in range(20)]
AT_ONCE = 4


@pytest.fixture
def log(folder: Folder) -> CallLog:
    folder.workflow(TEXT)
    folder.rows(*ROWS)
    folder.rules({"step": "x", "match": "row 13", "error": 400, "message": "no"}, {"delay": 0.15})
    return CallLog(folder)


def interrupted(log: CallLog, *, presses: int, after: int) -> subprocess.CompletedProcess[str]:
    """Starts the command, and presses Ctrl+C once or more after so many calls."""
    process = log.start("-o", "out.jsonl", "-c", str(AT_ONCE))
    try:
        ends = time.monotonic() + 30
        while log.size < after:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < ends
            time.sleep(0.005)
        for number in range(presses):
            time.sleep(0.03 if number else 0)
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, out.decode(), err.decode())


@pytest.mark.parametrize("presses", [1, 2])
@pytest.mark.parametrize("after", [3, 17])
def test_09_an_interrupted_run_goes_on_where_it_was(folder: Folder, log: CallLog, presses: int, after: int) -> None:
    done = interrupted(log, presses=presses, after=after)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr
    assert "the same command goes on from here" in done.stderr
    assert "out.jsonl" not in folder.names
    done = log.run("-o", "out.jsonl", "-c", str(AT_ONCE))
    assert done.returncode == 3, done.stderr
    resumed = folder.read()
    # Those in flight end at the first press; at the second they are cut off, and are made again.
    assert log.repeated() == 0 if presses == 1 else log.repeated() <= AT_ONCE
    assert log.size - log.repeated() == 20 + 19
    assert not any(name.endswith("-part") for name in folder.names)
    assert log.run("-o", "other.jsonl", "--no-store").returncode == 3
    assert folder.read("other.jsonl") == resumed


def test_09_interrupted_again_and_again_a_run_still_ends(folder: Folder, log: CallLog) -> None:
    for number in range(3):
        assert interrupted(log, presses=1, after=log.size + 5 + number).returncode == 130
    assert log.run("-o", "out.jsonl").returncode == 3
    assert log.repeated() == 0
    assert log.size == 39
    assert [row["_row"] for row in folder.read()] == list(range(20))


def test_09_a_run_that_keeps_nothing_does_not_promise_to_go_on(folder: Folder, log: CallLog) -> None:
    process = log.start("-o", "out.jsonl", "-c", "2", "--no-store")
    try:
        ends = time.monotonic() + 30
        while log.size < 5:
            assert time.monotonic() < ends
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    assert "goes on" not in err.decode()
