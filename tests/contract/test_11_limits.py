"""Contract 11 from the command line: overload, refusals, time, budgets. In process: tests/executor/test_attempts.py."""

from __future__ import annotations

import time
from typing import Any

import pytest
from running import Folder, said_calls

TEXT = 'workflow t(a: text)\nx = llm { user "{{ a }}" }\noutput a, x'


@pytest.fixture
def ready(folder: Folder) -> Folder:
    folder.workflow(TEXT)
    folder.rows(*({"a": f"row {number}"} for number in range(20)))
    return folder


def kinds(folder: Folder) -> list[Any]:
    return [row["_error"] and row["_error"]["kind"] for row in folder.read()]


def test_11_overload_is_waited_for_and_uses_no_attempt(ready: Folder) -> None:
    ready.rules(
        {"call": 1, "error": 429, "retry_after": 0.3}, {"call": 3, "error": 503, "retry_after": 0.3}, {"reply": "r"}
    )
    done = ready.run("-o", "out.jsonl", "--attempts", "1", "-c", "2")
    assert done.returncode == 0, done.stderr
    assert said_calls(done.stderr) == 22
    assert float(done.stderr.rsplit(" in ", 1)[1].split()[0]) >= 0.5


@pytest.mark.parametrize("status", [401, 404])
def test_11_a_refusal_is_one_message_exit_2_and_no_output(ready: Folder, status: int) -> None:
    ready.rules({"error": status, "message": "the key is not known"})
    done = ready.run("-o", "out.jsonl", *(["--quiet"] if status == 404 else []))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: the key is not known\n"
    assert ready.names == ["replies.toml", "rows.jsonl", "w.helix"]


def test_11_a_refusal_leaves_an_older_output_alone(ready: Folder, quick: Any) -> None:
    ready.write("out.jsonl", "before\n")
    ready.rules({"error": 403})
    assert quick("-o", "out.jsonl").returncode == 2
    assert (ready.path / "out.jsonl").read_text() == "before\n"


def test_11_a_refusal_over_many_rows_does_not_read_them_all(ready: Folder) -> None:
    ready.rows(*({"a": f"row {number}"} for number in range(50_000)))
    ready.rules({"error": 401})
    done = ready.run()
    assert (done.returncode, done.stdout.count("\n") < 500) == (2, True)


def test_11_what_was_done_before_a_refusal_is_kept_with_exit_3(ready: Folder, quick: Any) -> None:
    ready.rules({"call": [1, 2], "reply": "r"}, {"error": 403, "message": "no more"})
    done = quick("-o", "out.jsonl", "-c", "1")
    assert done.returncode == 3
    assert kinds(ready) == [None, None, "engine", *["not_started"] * 17]
    assert "stopped early: no more" in done.stderr


def test_11_times_of_a_call_and_of_the_run(ready: Folder) -> None:
    ready.rules({"contains": "row 7", "hang": True}, {"reply": "r"})
    done = ready.run("-o", "out.jsonl", "--call-timeout", "100ms")
    assert done.returncode == 3
    assert kinds(ready) == [None] * 7 + ["timeout"] + [None] * 12
    assert "row 7, step x: timeout: no reply within 0.1 s" in done.stderr
    began = time.monotonic()
    done = ready.run("-o", "out.jsonl", "--run-timeout", "0.5", "-c", "1", "--fresh")
    assert time.monotonic() - began < 60
    assert done.returncode == 3
    assert kinds(ready) == [None] * 7 + ["timeout"] + ["not_started"] * 12
    assert "stopped early: the run's time limit of 0.5 s was reached" in done.stderr


@pytest.mark.parametrize("option", ["--call-timeout", "--run-timeout"])
@pytest.mark.parametrize("value", ["0", "soon", "-1s", "inf", "nan"])
def test_11_times_that_are_none_are_refused(ready: Folder, option: str, value: str) -> None:
    if (option, value) not in (("--call-timeout", "0"), ("--run-timeout", "soon"), ("--run-timeout", "inf")):
        # One process for each is slow: the others go through the same function.
        from helix.commands.run import _seconds
        from helix.errors import HelixError
        from helix.executor.settings import RunSettings

        with pytest.raises(HelixError):
            RunSettings(**{option[2:].replace("-", "_"): _seconds(option, value)})
        return
    done = ready.run("-o", "out.jsonl", option, value)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")


def test_11_budgets_of_calls_and_tokens(ready: Folder, quick: Any) -> None:
    ready.rules({"reply": "four letters x"})
    done = quick("-o", "out.jsonl", "--max-calls", "5")
    assert done.returncode == 3
    assert said_calls(done.stderr) == 5
    assert kinds(ready).count(None) == 5
    assert set(kinds(ready)[5:]) == {"limit"}
    assert "stopped early: the budget of 5 calls is used up" in done.stderr
    done = quick("-o", "out.jsonl", "--max-tokens", "20", "-c", "1", "--fresh")
    assert done.returncode == 3
    assert "stopped early: the budget of 20 tokens is used up" in done.stderr
    assert said_calls(done.stderr) == kinds(ready).count(None) == 4
