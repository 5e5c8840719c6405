"""What models, servers and files say, on a terminal (contract 18): it is seen, and steers nothing."""

from __future__ import annotations

import json
import os
import pty
import subprocess

import pytest
from running import Folder, arguments, command, environment

# A window's title, a cleared screen, colours in eight bits, text that runs backwards, a deletion, an end of line.
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31mX\u202eabc\x7f over\rwritten"
STEERING = ("\x1b]", "\x1b[2J", "\x07", "\x9b", "\u202e", "\x7f", "over\r")


def on_terminal(folder: Folder, *args: str) -> str:
    """What the command shows on a terminal."""
    ours, its = pty.openpty()
    process = subprocess.Popen(
        arguments(*args), cwd=folder.path, env=environment({"TERM": "xterm", "COLUMNS": "200"}),
        stdin=subprocess.DEVNULL, stdout=its, stderr=its,
    )  # fmt: skip
    os.close(its)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # how Linux says that the other side is closed
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    assert process.wait(timeout=60) == 0, shown
    return shown.decode("utf-8")


@pytest.fixture
def ready(folder: Folder) -> Folder:
    folder.workflow('workflow t(a: text)\nx = llm { user "{{ a }}" }\noutput x')
    folder.rows({"a": "v"})
    folder.rules({"reply": EVIL})
    return folder


@pytest.mark.parametrize(
    "options",
    [
        ("--quiet",),
        ("--quiet", "--output-format", "csv"),
        ("--progress", "json"),
        ("-o", "out.jsonl", "--log-level", "debug", "--progress", "plain"),
    ],
    ids=["jsonl", "csv", "progress", "log"],
)
def test_18_a_run_on_a_terminal(ready: Folder, options: tuple[str, ...]) -> None:
    shown = on_terminal(ready, *map(str, ready.arguments(*options, "--no-store")))
    assert not [each for each in STEERING if each in shown]
    if "-o" not in options:
        assert "\\u001b]0;owned" in shown
        assert "\\u009b31mX\\u202eabc\\u007f over\\" in shown


def test_18_json_on_a_terminal_is_the_same_json(ready: Folder) -> None:
    shown = on_terminal(ready, *map(str, ready.arguments("--quiet", "--no-store")))
    assert json.loads(shown)["x"] == EVIL


def test_18_a_pipe_gets_every_byte(ready: Folder) -> None:
    done = ready.run("--output-format", "csv", "--no-store")
    assert EVIL.encode() in done.stdout.encode()


@pytest.mark.parametrize("form", ["text", "json"])
def test_18_traces_of_somebody_else(folder: Folder, form: str) -> None:
    call = {"id": "x", "type": "function", "function": {"name": EVIL, "arguments": "{}"}}
    said = [{"role": "user", "content": EVIL}, {"role": "assistant", "content": EVIL, "tool_calls": [call]}]
    folder.write("chat.json", json.dumps([{"task_id": EVIL, "trial": 0, "traj": said}]))
    on_terminal(folder, "traces", "import", "chat.json", "--from", "openai", "-o", "t.jsonl")
    shown = on_terminal(folder, "traces", "show", "t.jsonl", "--format", form)
    assert not [each for each in STEERING if each in shown]
    assert "owned" in shown


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_18_workflows_of_somebody_else(folder: Folder, more: tuple[str, ...]) -> None:
    folder.workflow(f'workflow t(a: text)\nx = llm {{ user "{{{{ a }}}}" }} when {EVIL[:9]}\noutput x')
    done = command("check", "w.helix", *more, cwd=folder.path)
    assert done.returncode == 2
    assert "\x1b" not in done.stdout + done.stderr
