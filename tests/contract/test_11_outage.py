"""Contract 11: a server that goes away in the middle of a run. In process: tests/executor/test_outage.py."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from fake_server import Answer, Call, FakeServer, completion, models
from running import Folder, said_calls

TEXT = """workflow t(a: text)
x = llm { user "first {{ a }}" }
y = llm { user "second {{ x }}" }
output a, x, y
"""
ROWS = 30


def echo(call: Call) -> Answer | None:
    """Answers with the prompt, after a while."""
    if call.route == "/v1/chat/completions":
        return completion(f"<{call.json['messages'][-1]['content']}>")
    return None


def slow(call: Call) -> Answer | None:
    answer = echo(call)
    if answer is not None:
        answer.delay = 0.1
    return answer


@pytest.fixture
def ready(folder: Folder) -> Folder:
    folder.workflow(TEXT)
    folder.rows(*({"a": f"row {number}"} for number in range(ROWS)))
    return folder


@contextmanager
def running(folder: Folder, server: FakeServer, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    process = folder.start("-e", server.url, "-c", "4", "-o", "out.jsonl", *more)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for(what: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + 20
    while not what():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < ends
        time.sleep(0.01)


def said(process: subprocess.Popen[bytes], text: str) -> None:
    """Reads what the command says until this."""
    assert process.stderr is not None
    line = process.stderr.readline().decode()
    assert text in line, line


def whole(folder: Folder) -> None:
    assert folder.read() == [
        {"_row": number, "a": f"row {number}", "x": f"<first row {number}>", "y": f"<second <first row {number}>>"}
        | {"_error": None}
        for number in range(ROWS)
    ]


def test_11_a_server_killed_and_started_again_costs_the_calls_in_flight_and_no_row(ready: Folder) -> None:
    with FakeServer(slow) as server, running(ready, server, "--attempts", "1") as process:
        wait_for(lambda: len(server.chats()) >= 17, process)
        server.stop()
        before = len(server.chats())
        said(process, "waiting, up to --wait-limit 600 s, for an engine that does not answer: ")
        with FakeServer(slow, port=server.port) as again:
            said(process, "the engine answers again; going on")
            _, err = process.communicate(timeout=20)
            assert process.returncode == 0
            whole(ready)
            assert 2 * ROWS < before + len(again.chats()) <= 2 * ROWS + 4
    assert f"note: {server.url} did not answer for " in err.decode()
    # Those that found nobody there are calls too.
    assert 2 * ROWS < said_calls(err.decode()) <= 2 * ROWS + 8


def test_11_a_server_that_stays_away_ends_the_run_and_what_is_done_is_kept(ready: Folder) -> None:
    with FakeServer(slow) as server, running(ready, server, "--wait-limit", "1s") as process:
        wait_for(lambda: len(server.chats()) >= 30, process)
        server.stop()
        _, err = process.communicate(timeout=20)
    assert process.returncode == 3
    text = err.decode()
    assert f"stopped early: {server.url} has not answered for 1 s: " in text
    assert "Traceback" not in text
    kinds = [row["_error"] and row["_error"]["kind"] for row in ready.read()]
    assert len(kinds) == ROWS
    assert kinds.count(None) >= 5
    assert set(kinds) == {None, "not_started"}


def test_11_a_server_that_comes_back_with_another_model_ends_the_run(ready: Folder) -> None:
    def other(call: Call) -> Answer | None:
        return models("another") if call.route == "/v1/models" else completion("a stranger's reply")

    with FakeServer(slow) as server, running(ready, server) as process:
        wait_for(lambda: len(server.chats()) >= 12, process)
        server.stop()
        said(process, "waiting, ")
        with FakeServer(other, port=server.port) as again:
            _, err = process.communicate(timeout=20)
            assert again.chats() == []
    assert process.returncode == 3
    assert "came back without the model `m`; models served: another" in err.decode()
    assert "a stranger's reply" not in (ready.path / "out.jsonl").read_text()


def test_11_a_server_that_never_answered_is_one_message_and_exit_2(ready: Folder) -> None:
    with FakeServer(slow) as server:
        pass
    done = ready.run("-o", "out.jsonl", engine=server.url)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: nothing listens at {server.url} (connection refused)")
    assert done.stderr.count("\n") == 1
    assert ready.names == ["rows.jsonl", "w.helix"]


def test_11_an_interrupt_does_not_wait_for_a_server_that_is_away(ready: Folder) -> None:
    with FakeServer(slow) as server, running(ready, server) as process:
        wait_for(lambda: len(server.chats()) >= 12, process)
        server.stop()
        said(process, "waiting, ")
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        _, err = process.communicate(timeout=20)
        assert time.monotonic() - began < 4
    assert process.returncode == 130
    assert "Traceback" not in err.decode()


@pytest.mark.parametrize("value", ["soon", "-1s", "nan"])
def test_11_a_time_to_wait_that_is_none_is_refused(ready: Folder, quick: Any, value: str) -> None:
    done = quick("--wait-limit", value)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
