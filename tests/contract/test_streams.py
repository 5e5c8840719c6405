"""Standard input and output: pipes, readers that go away, full disks; results and words never mix."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from running import Folder, arguments, environment, jsonl, lines, start

TEXT = 'workflow t(a: text)\nx = llm { user "{{ a }}" }\noutput a, x'
ROWS = [{"a": f"row {number}"} for number in range(40)]


@pytest.fixture
def ready(folder: Folder) -> Folder:
    folder.workflow(TEXT)
    folder.rows(*ROWS)
    return folder


def test_results_go_to_standard_output_and_words_to_standard_error(ready: Folder) -> None:
    done = ready.run()
    assert done.returncode == 0
    assert [row["a"] for row in lines(done.stdout)] == [row["a"] for row in ROWS]
    assert "40 rows" in done.stderr
    assert "40 rows" not in done.stdout


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (jsonl(ROWS), []),
        ("a\n" + "".join(f"{row['a']}\n" for row in ROWS), ["--input-format", "csv"]),
    ],
)
def test_rows_come_from_a_pipe(ready: Folder, data: str, options: list[str]) -> None:
    done = ready.run("-o", "-", *options, source="-", input=data)
    assert done.returncode == 0, done.stderr
    assert [row["a"] for row in lines(done.stdout)] == [row["a"] for row in ROWS]


def test_an_output_format_for_a_pipe(ready: Folder) -> None:
    done = ready.run("--output-format", "csv", "--limit", "1")
    assert done.stdout.splitlines()[0] == "_row,a,x,_error"
    assert done.stdout.splitlines()[1].startswith("0,row 0,scripted")


def test_nothing_on_standard_input_gives_nothing(ready: Folder) -> None:
    done = ready.run(source="-", input="")
    assert (done.returncode, done.stdout) == (0, "")


def test_rows_are_shown_as_they_are_done(ready: Folder) -> None:
    ready.rules({"contains": "row 5", "delay": 60.0}, {"reply": "r"})
    process = ready.start("-c", "4")
    try:
        assert process.stdout is not None
        began = time.monotonic()
        first = [process.stdout.readline() for _ in range(5)]
        assert time.monotonic() - began < 50
        assert [row["a"] for row in lines(b"".join(first).decode())] == [f"row {number}" for number in range(5)]
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("delay", [0.0, 0.05])
def test_a_reader_that_goes_away_ends_the_run_without_a_word(ready: Folder, delay: float) -> None:
    ready.rows(*({"a": f"row {number}"} for number in range(3000)))
    ready.rules({"delay": delay, "reply": "r"})
    process = ready.start("-c", "4")
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'{"_row": 0')
        process.stdout.close()
        words = process.stderr.read()
        assert process.wait(10) == 3
        assert words == b""
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_head_in_a_shell_is_quiet(ready: Folder) -> None:
    ready.rules({"delay": 0.02, "reply": "r"})
    line = " ".join(f"'{part}'" for part in arguments(*ready.arguments("-c", "1")))
    done = subprocess.run(
        ["bash", "-c", f"{line} | head -1"], cwd=ready.path, capture_output=True, env=environment(None), timeout=20
    )
    assert done.returncode == 0
    assert done.stdout.count(b"\n") == 1
    assert done.stderr == b""


def test_a_reader_of_the_words_that_goes_away_does_not_end_the_run(ready: Folder) -> None:
    ready.rules({"delay": 0.02, "reply": "r"}, {"error": 400})
    process = ready.start("-o", "out.jsonl", "-c", "4")
    assert process.stderr is not None
    process.stderr.close()
    assert process.wait(20) == 0
    assert process.stdout is not None
    process.stdout.close()
    assert len(ready.read()) == 40


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_is_one_message_and_exit_2(ready: Folder) -> None:
    done = ready.run("-o", "/dev/full", "--output-format", "jsonl")
    assert done.returncode == 2
    assert done.stderr == "error: cannot write /dev/full: No space left on device\n"
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            arguments(*ready.arguments("--no-store")),
            cwd=ready.path,
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(None),
            timeout=20,
        )
    assert done.returncode == 2
    assert done.stderr == b"error: cannot write standard output: No space left on device\n"


def test_a_disk_that_fills_up_leaves_the_old_output(ready: Folder) -> None:
    """A limit on the size of files stands in for a small disk."""
    ready.write("out.jsonl", "before\n")
    ready.rules({"reply": "r" * 5000})
    script = (
        "import resource, signal, sys\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
        "sys.argv[1:] = sys.argv[1:]\nfrom helix.cli import main\nmain()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *ready.arguments("-o", "out.jsonl", "--no-store")],
        cwd=ready.path,
        capture_output=True,
        env=environment(None),
        timeout=20,
    )
    assert done.returncode == 2
    (message,) = done.stderr.decode().splitlines()
    assert message.startswith("error: cannot write ")
    assert message.endswith("out.jsonl: File too large")
    assert (ready.path / "out.jsonl").read_text() == "before\n"
    assert not any(name.endswith("-part") for name in ready.names)


def test_escape_sequences_of_a_table_are_not_sent_to_the_terminal(ready: Folder) -> None:
    import pty

    ready.write("rows.csv", 'x\x1b[31m,b\nv,"\x1b]0;title\x07"\n')
    terminal, words = pty.openpty()
    try:
        process = start(*ready.arguments("-o", "out.jsonl", source="rows.csv"), cwd=ready.path, stderr=words)
        assert process.wait(20) == 2
        said = os.read(terminal, 100_000)
    finally:
        os.close(words)
        os.close(terminal)
    assert b"column `a`" in said
    assert b"x?[31m" in said
    assert b"\x1b" not in said
    assert process.stdout is not None
    process.stdout.close()


def test_a_bar_on_a_terminal_leaves_no_word_in_the_results(ready: Folder) -> None:
    import pty

    ready.rules({"delay": 0.05, "reply": "r"})
    terminal, words = pty.openpty()
    try:
        process = start(*ready.arguments("-c", "8"), cwd=ready.path, stderr=words)
        assert process.stdout is not None
        with process.stdout as results:
            rows = lines(results.read().decode())
        assert process.wait(20) == 0
        said = os.read(terminal, 100_000)
    finally:
        os.close(words)
        os.close(terminal)
    assert len(rows) == 40
    assert b"rows" in said
    assert b"40 calls" in said


def test_two_hash_seeds_give_equal_bytes(ready: Folder) -> None:
    ready.workflow(
        "workflow t(a: text)\n"
        'x = llm { user "{{ a }}" }\n'
        'parts = for w in split(a, " ") { v = llm { user "{{ w }}" } yield { w: w, v: v } }\n'
        "group by a { n = len(rows), all = rows }\noutput a, n, all"
    )
    ready.rules({"contains": "7", "error": 400}, {"match": "(.*)", "reply": "<\\1>"})
    outputs = []
    for seed in ("0", "42"):
        done = ready.run("-o", "out.jsonl", "-c", "7", env={"PYTHONHASHSEED": seed})
        assert done.returncode == 3
        outputs.append((ready.path / "out.jsonl").read_bytes())
    assert outputs[0] == outputs[1]
