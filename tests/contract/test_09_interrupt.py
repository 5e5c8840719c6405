"""Contract 9: Ctrl+C once and twice, and output files that appear whole."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from running import Folder

TEXT = 'workflow t(a: text)\nx = llm { user "{{ a }}" }\noutput a, x'
ROWS = [{"a": f"row {number:02}"} for number in range(30)]
# The first four rows are quick; then the calls in flight take a while.
SLOW = [{"match": r"row 0[0-3]", "reply": "quick"}, {"delay": 1.0, "reply": "slow"}]
STUCK = [{"match": r"row (00|02|03)", "reply": "quick"}, {"hang": True}]


@contextmanager
def running(folder: Folder, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    process = folder.start(*more)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for_hidden(folder: Folder, process: subprocess.Popen[bytes]) -> None:
    """Waits until the run writes, then a moment for its first calls."""
    ends = time.monotonic() + 20
    while not any(name.endswith(".helix-part") for name in folder.names):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < ends
        time.sleep(0.02)
    time.sleep(0.4)


def ended(process: subprocess.Popen[bytes], seconds: float) -> tuple[int, str]:
    began = time.monotonic()
    _, err = process.communicate(timeout=20)
    assert time.monotonic() - began < seconds
    return process.returncode, err.decode()


@pytest.fixture
def ready(folder: Folder) -> Folder:
    folder.workflow(TEXT)
    folder.rows(*ROWS)
    folder.write("out.jsonl", "what was there before\n")
    return folder


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_09_once_lets_calls_in_flight_finish_and_keeps_finished_rows_beside_the_output(
    ready: Folder, how: signal.Signals
) -> None:
    ready.rules(*SLOW)
    with running(ready, "-o", "out.jsonl", "-c", "4") as process:
        wait_for_hidden(ready, process)
        process.send_signal(how)
        code, err = ended(process, 10)
    assert code == 130
    rows = ready.read("out.partial.jsonl")
    assert [(row["_row"], row["x"], row["_error"]) for row in rows] == [
        (number, "quick" if number < 4 else "slow", None) for number in range(8)
    ]
    assert "stopping: waiting for 4 calls in flight; Ctrl+C again stops at once" in err
    assert "the 8 finished rows are in out.partial.jsonl" in err
    assert (ready.path / "out.jsonl").read_text() == "what was there before\n"
    assert not any(name.endswith("-part") for name in ready.names)


def test_09_twice_stops_at_once_and_keeps_the_rows_that_are_finished(ready: Folder) -> None:
    ready.rules(*STUCK)
    with running(ready, "-o", "out.jsonl", "-c", "4") as process:
        wait_for_hidden(ready, process)
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        code, err = ended(process, 5)
    assert code == 130
    # Row 1 hangs: those after it are finished all the same.
    assert [row["_row"] for row in ready.read("out.partial.jsonl")] == [0, 2, 3]
    assert "interrupted; the 3 finished rows are in out.partial.jsonl" in err
    assert (ready.path / "out.jsonl").read_text() == "what was there before\n"
    assert not any(name.endswith("-part") for name in ready.names)


def test_09_an_interrupt_with_nothing_finished_leaves_nothing(folder: Folder) -> None:
    folder.workflow(TEXT)
    folder.rows(*ROWS)
    folder.rules({"hang": True})
    with running(folder, "-o", "out.jsonl", "-c", "4") as process:
        wait_for_hidden(folder, process)
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        code, _ = ended(process, 5)
    assert code == 130
    assert folder.names == ["replies.toml", "rows.jsonl", "w.helix"]


def test_09_an_interrupt_does_not_wait_for_a_pause_or_a_back_off(ready: Folder) -> None:
    ready.rules({"contains": "row 00", "error": 429, "retry_after": 300.0}, {"error": 500, "retry_after": 300.0})
    with running(ready, "-o", "out.jsonl", "-c", "4") as process:
        wait_for_hidden(ready, process)
        process.send_signal(signal.SIGINT)
        code, _ = ended(process, 5)
    assert code == 130
    assert "out.partial.jsonl" not in ready.names


def test_09_an_interrupt_while_the_engine_starts_ends_it(folder: Folder, tmp_path: Path) -> None:
    """A server that takes the connection and says nothing."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        folder.workflow(TEXT)
        folder.rows(*ROWS)
        address = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        process = folder.start("-o", "out.jsonl", "-e", address)
        try:
            server.settimeout(20)
            connection, _ = server.accept()
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            code, err = ended(process, 5)
            connection.close()
        finally:
            process.kill()
            process.communicate()
    assert code == 130
    assert "Traceback" not in err
    assert folder.names == ["rows.jsonl", "w.helix"]


def test_09_rows_on_standard_output_are_those_that_are_finished(ready: Folder) -> None:
    from running import lines

    ready.rules(*SLOW)
    process = ready.start("-c", "4")
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        # Not by communicate, which would miss what the first read has buffered.
        out = process.stdout.read()
        assert process.wait(10) == 130
    finally:
        process.kill()
        process.communicate()
    assert [row["_row"] for row in lines((first + out).decode())] == list(range(8))


def test_09_an_interrupted_group_or_sort_writes_no_half_of_it(ready: Folder) -> None:
    ready.workflow(TEXT.replace("output a, x", "group by x { c = len(rows) }\noutput x, c"))
    ready.rules(*SLOW)
    with running(ready, "-o", "out.jsonl", "-c", "4") as process:
        wait_for_hidden(ready, process)
        process.send_signal(signal.SIGINT)
        code, _ = ended(process, 10)
    assert code == 130
    assert "out.partial.jsonl" not in ready.names


def test_09_a_killed_run_leaves_the_output_alone_and_the_next_one_works(ready: Folder) -> None:
    ready.rules(*SLOW)
    with running(ready, "-o", "out.jsonl", "-c", "4") as process:
        wait_for_hidden(ready, process)
        process.kill()
        process.communicate()
    assert (ready.path / "out.jsonl").read_text() == "what was there before\n"
    ready.rules({"reply": "r"})
    assert ready.run("-o", "out.jsonl").returncode == 0
    assert len(ready.read()) == 30
    assert not any(name.endswith("-part") for name in ready.names)


def test_09_a_run_that_fails_in_the_middle_leaves_the_output_alone(ready: Folder, monkeypatch: Any) -> None:
    """Through an input that breaks after it was checked."""
    import helix
    from helix.errors import InputError
    from helix.executor.tables import source

    def records(self: Any) -> Any:
        for number, record in enumerate(self._reader.records()):
            if number == 5 and self._rows is not None:
                raise InputError("the disk is gone", path=self.name)
            yield record

    monkeypatch.setattr(source.RowSource, "_records", records)
    with pytest.raises(InputError, match="the disk is gone"):
        helix.load(ready.path / "w.helix").run(
            ready.path / "rows.jsonl", output=ready.path / "out.jsonl", engine="scripted"
        )
    assert (ready.path / "out.jsonl").read_text() == "what was there before\n"
    assert not any(name.endswith("-part") for name in ready.names)
