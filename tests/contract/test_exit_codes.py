"""Exit codes: 0 well, 1 internal, 2 wrong before anything was done, 3 failed rows or a limit, 130 interrupted."""

from __future__ import annotations

from typing import Any

import pytest
from running import ROOT, Folder, inside

TEXT = 'workflow t(a: text)\nx = llm { user "{{ a }}" }\noutput a, x'


@pytest.fixture
def ready(folder: Folder) -> Folder:
    folder.workflow(TEXT)
    folder.rows({"a": "v"}, {"a": "w"})
    return folder


def test_0_all_rows_well(ready: Folder) -> None:
    done = ready.run("-o", "out.jsonl")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("2 rows, 2 calls")
    assert ready.run("-o", "out.jsonl", "--quiet").stderr == ""


@pytest.mark.parametrize(
    "fault",
    [
        "import helix.executor.writer as m; m.Writer.write = lambda *_: 1 / 0",
        "import helix.executor.segments as m; m.Stage.admit = lambda *_: 1 / 0",
        "import helix.executor.calls as m; m.Dispatcher._finish = lambda *_: 1 / 0",
        "import helix.executor.calls as m; m.Dispatcher.close = lambda *_: 1 / 0",
    ],
)
def test_1_a_fault_of_our_own_is_one_message_and_does_not_hang(ready: Folder, fault: str) -> None:
    ready.write("sitecustomize.py", fault)
    ready.write("out.jsonl", "before\n")
    ready.rules({"hang": True} if "close" in fault else {"reply": "r"})
    done = ready.run("-o", "out.jsonl", "--run-timeout", "1", env={"PYTHONPATH": f"{ready.path}:{ROOT}"})
    assert done.returncode == 1
    assert done.stderr.startswith("internal error: ZeroDivisionError: division by zero\n")
    assert "Traceback" not in done.stderr
    assert (ready.path / "out.jsonl").read_text() == "before\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "none.helix"], "does not exist"),
        (["run", "w.helix", "-i", "none.jsonl", "-e", "scripted"], "none.jsonl"),
        (["run", "w.helix", "-e", "scripted"], "has inputs (a), but no rows were given"),
        (["run", "w.helix", "-i", "rows.jsonl", "-e", "nonsense"], "unknown engine `nonsense`"),
        (["run", "w.helix", "-i", "rows.jsonl", "-e", "scripted:none.toml"], "none.toml"),
        (
            ["run", "w.helix", "-i", "rows.jsonl", "-e", "scripted", "-c", "0"],
            "error: --concurrency must be at least 1, found 0",
        ),
        (["run", "w.helix", "-i", "rows.jsonl", "-e", "scripted", "-o", "no/such/out.jsonl"], "there is no folder"),
        (["run", "w.helix", "-i", "rows.jsonl", "-e", "scripted", "-o", "out.xyz"], "names no output format"),
        (["run", "w.helix", "-i", "rows.jsonl", "-e", "scripted", "--set", "tone=warm"], "no constant `tone`"),
        (["run", "w.helix", "--no-such-option"], "--no-such-option"),
    ],
)
def test_2_what_is_wrong_before_anything_is_done(
    ready: Folder, arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    done = inside(*arguments, cwd=ready.path, monkeypatch=monkeypatch, capfd=capfd)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert ready.names == ["rows.jsonl", "w.helix"]


def test_3_some_rows_failed(ready: Folder, quick: Any) -> None:
    ready.rules({"contains": "w", "error": 400, "message": "no"}, {"reply": "r"})
    done = quick("-o", "out.jsonl")
    assert done.returncode == 3
    assert done.stderr.splitlines()[0] == "row 1, step x: engine: no"
    assert "2 rows, 1 failed, 2 calls" in done.stderr


def test_3_many_failed_rows_are_told_in_short(ready: Folder, quick: Any) -> None:
    ready.rows(*({"a": str(number)} for number in range(40)))
    ready.rules({"error": 400, "message": "no \u001b[2J\u0007"})
    done = quick("-o", "out.jsonl")
    assert done.stderr.count("step x: engine: no ?[2J?") == 5
    assert "... 40 rows failed in all; `_error` in the result says why" in done.stderr
    assert "\x1b" not in done.stderr
