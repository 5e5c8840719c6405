"""Progress on a terminal, from the command line: what a person sees while a run goes on and once it has ended.

A server that answers when the test says so holds each run where it is to be looked at.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_server import Answer, Call, FakeServer, completion
from gates import GateServer
from running import Folder
from terminals import Terminal, beginning

TEXT = 'workflow t(a: text)\nx = llm { user "{{ a }}" }\noutput a, x\n'
ROWS = 20


@pytest.fixture
def ready(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path)
    folder.workflow(TEXT)
    folder.rows(*({"a": f"row {number:02}"} for number in range(ROWS)))
    return folder


@pytest.fixture
def gate() -> Iterator[GateServer]:
    with GateServer() as server:
        yield server


def options(server: FakeServer | GateServer, *more: str | Path) -> list[str | Path]:
    return ["run", "w.helix", "-i", "rows.jsonl", "-e", server.url, "-c", "4", "-o", "out.jsonl", *more]


def shows(words: str, *others: str) -> Callable[[list[str]], bool]:
    return lambda lines: all(any(each in line for line in lines) for each in (words, *others))


def test_a_run_is_watched_and_nothing_of_the_view_is_left(ready: Folder, gate: GateServer) -> None:
    with Terminal(*options(gate, "--prices", "1,1"), cwd=ready.path) as terminal:
        gate.let(5)
        lines = terminal.until(shows("25%  5 of 20"))
        assert "USD" in beginning(lines, "time")
        assert "in flight" in beginning(lines, "calls")
        gate.let(100)
        assert terminal.finish() == 0
        assert [line.partition(" in ")[0] for line in terminal.lines] == [
            "20 rows, 20 calls, 140 prompt tokens, 40 generated, 0.00018 USD"
        ]
        assert terminal.cursor_is_shown
        assert b"\x1b[9" in terminal.raw or b"\x1b[3" in terminal.raw
    assert len(ready.read()) == ROWS


def test_a_pause_that_a_server_asks_for_is_shown(ready: Folder) -> None:
    calm = threading.Event()

    def respond(call: Call) -> Answer | None:
        if call.route != "/v1/chat/completions":
            return None
        return completion("x") if calm.is_set() else Answer(status=429, headers={"retry-after": "1"})

    with FakeServer(respond) as server, Terminal(*options(server), cwd=ready.path) as terminal:
        lines = terminal.until(shows("waiting: the engine is overloaded and asked to wait"))
        assert "0 of 20" in beginning(lines, "rows")
        calm.set()
        assert terminal.finish() == 0


def test_an_engine_that_is_away_is_told_of_above_and_in_the_view(ready: Folder) -> None:
    answered = iter(range(4))

    def respond(call: Call) -> Answer | None:
        if call.route != "/v1/chat/completions":
            return None
        return Answer(end="silence") if next(answered, None) is None else completion("x")

    told = "waiting, up to --wait-limit 60 s, for an engine that does not answer"
    server = FakeServer(respond)
    with server, Terminal(*options(server, "--wait-limit", "60s"), cwd=ready.path, columns=150) as terminal:
        terminal.until(shows("4 of 20"))
        server.stop()
        terminal.until(lambda lines: sum(line.startswith(told) for line in lines) == 2)
        with FakeServer(lambda call: completion("x") if call.method == "POST" else None, port=server.port):
            assert terminal.finish() == 0
            assert terminal.lines[0].startswith(told)
            assert "the engine answers again; going on" in terminal.lines


def test_a_resumed_run_begins_with_its_rows_done(ready: Folder, gate: GateServer) -> None:
    with Terminal(*options(gate), cwd=ready.path) as terminal:
        gate.let(12)
        terminal.until(shows("12 of 20"))
        terminal.process.kill()
        terminal.finish()
        assert terminal.cursor_is_shown
    assert not (ready.path / "out.jsonl").exists()
    with Terminal(*options(gate), cwd=ready.path) as terminal:
        lines = terminal.until(shows("12 of 20"))
        # Not one call of this run has been answered.
        assert "12 of 20, 12 known before" in beginning(lines, "rows")
        assert "left" not in beginning(lines, "time")
        assert "12 fetched" in beginning(lines, "calls")
        assert lines[0].startswith("goes on with the run begun")
        gate.let(100)
        assert terminal.finish() == 0
    assert len(ready.read()) == ROWS


LOUD = """
import logging, sys, warnings

def shout(a: str) -> str:
    print(f"out of {a} \\x1b[31m", flush=True)
    print(f"err of {a}", file=sys.stderr)
    sys.stderr.write(f"10% of {a}\\r20% of {a}\\r100% of {a}\\n")
    warnings.warn(f"warning of {a}")
    logging.getLogger("other").error("log of %s", a)
    return a
"""


def test_what_others_say_comes_whole_above_the_view(tmp_path: Path, gate: GateServer) -> None:
    folder = Folder(tmp_path)
    folder.write("loud.py", LOUD)
    folder.workflow(
        'workflow t(a: text)\ntool shout(a: text) -> text from python "loud:shout"\n'
        'b = shout(a)\nx = llm { user "{{ b }}" }\noutput a, x\n'
    )
    folder.rows(*({"a": f"row {number:02}"} for number in range(ROWS)))
    levels = ["--log-level", "debug"]
    with Terminal(*options(gate, *levels), cwd=folder.path, columns=500, rows=400) as terminal:
        gate.let(7)
        terminal.until(shows("7 of 20"))
        gate.let(100)
        assert terminal.finish() == 0
        lines = terminal.lines
    for number in range(ROWS):
        row = f"row {number:02}"
        assert [line for line in lines if row in line and not line.startswith(("{", "warnings", "  warn", "/"))] == [
            f"out of {row} ?[31m", f"err of {row}", f"100% of {row}", f"log of {row}",
        ]  # fmt: skip
        assert sum(f"UserWarning: warning of {row}" in line for line in lines) == 1
    events = [json.loads(line)["event"] for line in lines if line.startswith("{")]
    assert (events[0], events[-1]) == ("run.began", "run.ended")
    assert events.count("call") == 2 * ROWS
    assert not [line for line in lines if line.startswith(("rows ", "time ", "calls "))]
    assert lines[-1].startswith("20 rows, 40 calls")


def test_steps_have_lines_of_their_own_where_they_are_wanted(ready: Folder, gate: GateServer) -> None:
    ready.workflow(TEXT.replace("output a, x", 'why = llm { user "Why {{ x }}" }\noutput a, x, why'))
    with Terminal(*options(gate, "--progress", "steps"), cwd=ready.path) as terminal:
        gate.let(9)
        terminal.until(lambda lines: sum(line.startswith(("  x ", "  why ")) for line in lines) == 2)
        gate.let(100)
        assert terminal.finish() == 0
        assert len(terminal.lines) <= 2


def test_without_colours_there_are_none(ready: Folder, gate: GateServer) -> None:
    gate.let(100)
    with Terminal(*options(gate), cwd=ready.path, env={"NO_COLOR": "1"}) as terminal:
        assert terminal.finish() == 0
        assert b"rows" in terminal.raw
        assert not any(f"\x1b[{colour}".encode() in terminal.raw for colour in range(30, 50))


def test_a_dumb_terminal_gets_plain_lines(ready: Folder, gate: GateServer) -> None:
    gate.let(100)
    with Terminal(*options(gate), cwd=ready.path, env={"TERM": "dumb"}) as terminal:
        assert terminal.finish() == 0
        assert b"\x1b" not in terminal.raw
        (words,) = terminal.lines
        assert words.startswith("20 rows, 20 calls, ")


def test_results_that_go_to_the_terminal_too_have_it_for_themselves(ready: Folder, gate: GateServer) -> None:
    gate.let(100)
    with Terminal(*options(gate, "-o", "-"), cwd=ready.path, columns=200) as terminal:
        assert terminal.finish() == 0
        assert b"\x1b" not in terminal.raw
        assert [json.loads(line)["a"] for line in terminal.lines[:ROWS]] == [
            f"row {number:02}" for number in range(ROWS)
        ]


def test_a_terminal_that_grows_narrow_keeps_what_was_said(ready: Folder, gate: GateServer) -> None:
    with Terminal(*options(gate, "--max-calls", "18"), cwd=ready.path, columns=120, rows=10) as terminal:
        gate.let(4)
        terminal.until(shows("20%  4 of 20"))
        terminal.resize(30, 5)
        gate.let(4)
        lines = terminal.until(shows("8 of 20"))
        assert all(len(line) < 30 for line in lines[-3:])
        terminal.resize(100, 30)
        gate.let(4)
        lines = terminal.until(shows("60%  12 of 20"))
        assert sum(line.startswith("rows") for line in lines) == 1
        gate.let(100)
        assert terminal.finish() == 3
        assert any(line.startswith("stopped early: the budget of 18 calls is used up") for line in terminal.lines)


def test_ctrl_c_is_answered_above_the_view(ready: Folder, gate: GateServer) -> None:
    with Terminal(*options(gate), cwd=ready.path) as terminal:
        terminal.until(lambda lines: "4 in flight" in beginning(lines, "calls"))
        terminal.signal(signal.SIGINT)
        lines = terminal.until(shows("Ctrl+C again stops at once", "stopping: interrupted; 4 calls in flight"))
        assert lines[0].startswith("stopping: waiting for 4 calls in flight")
        gate.let(100)
        assert terminal.finish() == 130
        assert terminal.cursor_is_shown


def test_a_terminal_that_goes_away_does_not_end_the_run(ready: Folder, gate: GateServer) -> None:
    with Terminal(*options(gate), cwd=ready.path) as terminal:
        gate.let(3)
        terminal.until(shows("3 of 20"))
        terminal.hang_up()
        gate.let(100)
        assert terminal.ended() == 0
    assert len(ready.read()) == ROWS


def test_a_view_that_cannot_be_is_one_message(ready: Folder) -> None:
    done = ready.run("--progress", "live", "-o", "out.jsonl")
    wanted = "error: --progress live needs a terminal for itself, and standard error is none; give --progress plain\n"
    assert (done.returncode, done.stderr) == (2, wanted)
    assert ready.names == ["rows.jsonl", "w.helix"]


def test_json_of_a_run_is_all_that_standard_error_has(ready: Folder) -> None:
    ready.rows(*({"a": f"row {number:02}"} for number in range(ROWS)), {"a": None})
    done = ready.run("--progress", "json", "-o", "out.jsonl")
    assert done.returncode == 3
    found = [json.loads(line) for line in done.stderr.splitlines()]
    assert found[-1]["event"] == "message"
    begin, *_, end = [each for each in found if each["event"] != "message"]
    assert (begin["event"], begin["rows"], begin["done_rows"]) == ("begin", 21, 0)
    assert (end["event"], end["done_rows"], end["failed_rows"], end["calls"]) == ("end", 21, 1, 20)
    assert (end["outcome"], end["stopped"], end["prompt_tokens"]) == ("failed_rows", None, 40)
    messages: list[Any] = [each["text"] for each in found if each["event"] == "message"]
    assert messages[0] == "1 of 21 rows cannot be used and will not be called:"
    quiet = ready.run("--progress", "json", "-o", "out.jsonl", "--quiet")
    assert {json.loads(line)["event"] for line in quiet.stderr.splitlines()} == {"begin", "end"}


@pytest.mark.slow
def test_drawing_costs_little(ready: Folder) -> None:
    """Some times a second, however many calls are made meanwhile."""
    ready.rules({"delay": 0.1, "reply": "r"})
    began = time.monotonic()
    with Terminal(*ready.arguments("-o", "out.jsonl", "-c", "1"), cwd=ready.path) as terminal:
        assert terminal.finish() == 0
        took = time.monotonic() - began
        assert terminal.raw.count(b"rows   ") <= 2 + took / 0.4
