"""Contract 10: edited rows, finished runs, `--fresh`, changed workflows, and two runs of one command at once."""

from __future__ import annotations

import time
from typing import Any

import pytest
from call_log import ACTING, CallLog
from fake_server import Answer, Call, FakeServer, completion
from running import Folder, lines, said_calls

from helix.executor.engines.base import Reply, Request
from helix.executor.engines.scripted import ScriptedEngine

TEXT = """workflow t(a: text)
let tone = "kind"
x = llm { user "{{ tone }} {{ a }}" }
y = llm(temperature: 0.8) { user "more {{ x }}" }
output a, x, y
"""
ROWS = [{"a": f"row {number}"} for number in range(8)]
OUT = ("-o", "out.jsonl")


class Tried:
    """The folder, and how many calls each run of the command made; in this process, since there are many."""

    def __init__(self, folder: Folder, quick: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.acts: list[str] = []
        self._quick = quick
        self._made = 0
        answer = ScriptedEngine.generate

        async def counted(engine: ScriptedEngine, request: Request) -> Reply:
            self._made += 1
            return await answer(engine, request)

        monkeypatch.setattr(ScriptedEngine, "generate", counted)
        monkeypatch.setattr("builtins.call_log_event", lambda _, what: self.acts.extend(what), raising=False)

    def run(self, *more: str, code: int = 0) -> tuple[int, str]:
        """Runs the command; gives the new calls, as the engine counted them, and what was said."""
        before = self._made
        done = self._quick(*OUT, *more)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return self._made - before, done.stderr

    @property
    def file(self) -> bytes:
        return (self.folder.path / "out.jsonl").read_bytes()


@pytest.fixture
def new(folder: Folder, quick: Any, monkeypatch: pytest.MonkeyPatch) -> Tried:
    """A folder in which nothing was run yet."""
    folder.workflow(TEXT)
    folder.rows(*ROWS)
    return Tried(folder, quick, monkeypatch)


@pytest.fixture
def tried(new: Tried) -> Tried:
    """A folder in which the command was run once."""
    assert new.run()[0] == 16
    return new


def test_10_a_finished_run_makes_no_call_and_writes_the_same_file(tried: Tried) -> None:
    first = tried.file
    (tried.folder.path / "out.jsonl").unlink()
    made, said = tried.run()
    assert (made, tried.file) == (0, first)
    assert "--fresh makes every call again" in said
    assert tried.run("-c", "1", "--quiet")[0] == 0
    assert tried.file == first


def test_10_an_edited_row_repeats_its_own_calls_with_a_notice(tried: Tried) -> None:
    first = tried.folder.read()
    tried.folder.rows(*ROWS[:3], {"a": "row 3 edited"}, *ROWS[4:])
    made, said = tried.run()
    assert made == 2
    assert "rows.jsonl" in said
    assert "1 changed" in said
    assert "row 3" in said
    second = tried.folder.read()
    assert [row for row in second if row["_row"] != 3] == [row for row in first if row["_row"] != 3]
    assert second[3]["a"] == "row 3 edited"
    # Said once: the next time nothing has changed.
    made, said = tried.run()
    assert (made, "changed" in said) == (0, False)
    tried.folder.rows(*ROWS)
    assert tried.run()[0] == 0
    assert tried.folder.read() == first


@pytest.mark.parametrize("at", [0, 4, 8])
def test_10_an_added_row_makes_its_own_calls_and_moves_no_other(tried: Tried, at: int) -> None:
    first = {row["a"]: row for row in tried.folder.read()}
    tried.folder.rows(*ROWS[:at], {"a": "new"}, *ROWS[at:])
    made, said = tried.run()
    assert (made, "1 added" in said) == (2, True)
    rows = tried.folder.read()
    assert all(row == first[row["a"]] | {"_row": row["_row"]} for row in rows if row["a"] != "new")


def test_10_a_removed_row_and_another_order_make_no_call(tried: Tried) -> None:
    first = {row["a"]: row for row in tried.folder.read()}
    tried.folder.rows(*ROWS[:2], *ROWS[3:])
    made, said = tried.run()
    assert (made, "1 removed" in said) == (0, True)
    tried.folder.rows(*reversed(ROWS))
    assert tried.run()[0] == 0
    assert [row | {"_row": 0} for row in tried.folder.read()] == [
        first[row["a"]] | {"_row": 0} for row in reversed(ROWS)
    ]


def test_10_fresh_makes_every_call_again_and_is_what_is_known_from_then_on(new: Tried) -> None:
    new.folder.rules({"row": 3, "step": "x", "reply": "a reply"})
    assert new.run()[0] == 16
    first = new.file
    made, said = new.run("--fresh")
    assert (made, "known" in said) == (16, False)
    assert new.run()[0] == 0
    assert new.file == first


def test_10_fresh_takes_nothing_from_the_store_either(tried: Tried) -> None:
    tried.folder.workflow(TEXT.replace("output a, x, y", "output a, y, x"))
    assert tried.run("--fresh")[0] == 16
    assert tried.run()[0] == 0


def test_10_a_changed_constant_or_workflow_makes_the_calls_that_it_changes(tried: Tried) -> None:
    first = tried.file
    made, _ = tried.run("--set", "tone=warm")
    assert made == 16
    made, _ = tried.run()
    assert (made, tried.file) == (0, first)
    tried.folder.workflow(TEXT.replace("more {{ x }}", "less {{ x }}"))
    assert tried.run()[0] == 8
    tried.folder.workflow(TEXT.replace("output a, x, y", 'z = llm { user "last {{ y }}" }\noutput a, x, y, z'))
    assert tried.run()[0] == 8
    assert [{**row, "z": ""} for row in tried.folder.read()] == [{**row, "z": ""} for row in lines(first.decode())]


def test_10_more_rows_by_a_higher_limit_make_their_own_calls(new: Tried) -> None:
    assert new.run("--limit", "3")[0] == 6
    three = new.folder.read()
    assert new.run("--limit", "5")[0] == 4
    assert new.run()[0] == 6
    assert new.folder.read()[:3] == three
    assert new.run("--limit", "3")[0] == 0
    assert new.folder.read() == three


def test_10_what_a_limit_left_undone_is_done_by_the_next_run(new: Tried) -> None:
    assert new.run("--max-calls", "5", code=3)[0] == 5
    assert new.run("--max-calls", "5", code=3)[0] == 5
    assert new.run()[0] == 6
    assert {row["_error"] is None for row in new.folder.read()} == {True}


def test_10_what_ran_out_of_time_is_done_by_the_next_run(new: Tried) -> None:
    new.folder.workflow(TEXT.replace("llm {", "llm(attempts: 1) {"))
    new.folder.rules({"contains": "row 5", "call": 1, "hang": True})
    assert new.run("--run-timeout", "0.5", "-c", "1", code=3)[0] == 11
    assert [row["_error"] and row["_error"]["kind"] for row in new.folder.read()] == [None] * 5 + ["timeout"] + [
        "not_started"
    ] * 2
    # In a process of its own the rule hangs again at the first call of row 5; all before it is known.
    assert new.run("--run-timeout", "0.5", "-c", "1", code=3)[0] == 1


def test_10_failed_calls_stay_failed_until_they_are_retried(new: Tried) -> None:
    new.folder.rules({"contains": "kind row 3", "error": 400, "message": "not today"})
    assert new.run(code=3)[0] == 15
    first = new.file
    made, said = new.run(code=3)
    assert (made, new.file) == (0, first)
    assert "--retry-failed" in said
    assert new.run("--retry-failed", code=3)[0] == 1
    assert new.file == first
    # Another run that has a call in common does not take over the failure.
    new.folder.workflow(TEXT.replace("output a, x, y", "output a, x"))
    assert new.run(code=3)[0] == 1


def test_10_a_failure_that_the_engine_got_over_is_mended_by_a_retry(new: Tried) -> None:
    broken = {"on": True}

    def respond(call: Call) -> Answer | None:
        if call.route != "/v1/chat/completions":
            return None
        said = call.json["messages"][0]["content"]
        if broken["on"] and "row 3" in said:
            return Answer(status=400, body={"error": {"message": "not today"}})
        return completion(f"<{said}>")

    with FakeServer(respond) as server:
        new.run("-e", server.url, code=3)
        broken["on"] = False
        new.run("-e", server.url, code=3)
        assert len(server.chats()) == 15
        new.run("-e", server.url, "--retry-failed")
        # The one that failed, and the one that hung on it.
        assert len(server.chats()) == 17
        whole = new.file
        new.run("-e", server.url)
        assert len(server.chats()) == 17
    assert new.file == whole
    assert new.folder.read()[3]["y"] == "<more <kind row 3>>"


def test_10_tools_that_act_are_not_called_again(new: Tried) -> None:
    text = TEXT.replace(
        "output", 'tool act(a: text) -> text from python "acts:act" effects write\nz = act(a)\noutput z,'
    )
    new.folder.workflow(text)
    new.folder.write("acts.py", ACTING)
    new.run()
    assert len(new.acts) == 8
    assert new.run()[0] == 0
    # Nor where their program was changed since, nor for rows that have moved.
    new.folder.write("acts.py", ACTING + "\n# nothing\n")
    new.folder.rows(*reversed(ROWS))
    assert new.run()[0] == 0
    new.folder.rows(*ROWS, {"a": "new"})
    new.run()
    assert len(new.acts) == 9
    # What acts is of this run alone: a run that is to be fresh acts again, and so does another workflow.
    new.run("--fresh")
    assert len(new.acts) == 18
    new.folder.workflow(text.replace("output z, a, x", "output z, x"))
    assert new.run()[0] == 0
    assert len(new.acts) == 27


def test_10_two_runs_of_one_command_at_once_do_not_mix(new: Tried) -> None:
    stuck = {"on": True}

    def respond(call: Call) -> Answer | None:
        if call.route != "/v1/chat/completions":
            return None
        return completion("reply") if not stuck["on"] else Answer(end="silence")

    with FakeServer(respond) as server:
        first = new.folder.start(*OUT, "-e", server.url)
        try:
            ends = time.monotonic() + 30
            while len(server.chats()) < 8:
                assert first.poll() is None, first.communicate()
                assert time.monotonic() < ends
                time.sleep(0.01)
            _, said = new.run("-o", "other.jsonl", "-e", server.url, code=2)
            assert len(server.chats()) == 8
        finally:
            first.kill()
            first.communicate()
        assert said.startswith(
            f"error: this run of `t` over this input is going on in another process (process {first.pid})"
        )
        assert not (new.folder.path / "other.jsonl").exists()
        # Who is dead holds nobody up.
        stuck["on"] = False
        new.run("-e", server.url)
        assert len(server.chats()) == 8 + 16


def test_10_input_from_a_pipe_is_found_again_by_its_rows(folder: Folder) -> None:
    folder.workflow(TEXT)
    given = "".join(f'{{"a": "row {number}"}}\n' for number in range(8))
    log = CallLog(folder)
    for expected in (16, 0):
        before = log.size
        done = folder.run("-i", "-", *OUT, source=None, input=given, env=log.env)
        assert done.returncode == 0, done.stderr
        assert log.size - before == expected


def test_10_a_workflow_without_input_is_found_again(new: Tried) -> None:
    new.folder.workflow('workflow t()\nx = llm(temperature: 1) { user "a joke" }\noutput x')
    for expected in (1, 0):
        done = new._quick(*OUT, source=None)
        assert (done.returncode, said_calls(done.stderr)) == (0, expected)


def test_10_nothing_is_kept_where_nothing_is_to_be_kept(new: Tried) -> None:
    assert new.run("--no-store")[0] == 16
    assert new.folder.names == ["out.jsonl", "rows.jsonl", "w.helix"]
    assert new.run("--no-store")[0] == 16
    assert new.run("--store", "kept")[0] == 16
    assert new.folder.names == ["kept", "out.jsonl", "rows.jsonl", "w.helix"]
    assert new.run("--store", "kept")[0] == 0
    assert new.run()[0] == 16
