"""The recorder of a run."""

from __future__ import annotations

import pytest

from helix.errors import InputError
from helix.traces import Effects, LlmEvent, ToolEvent, TraceRecorder, read_events
from helix.traces.recorder import MOST_RESULT


def test_decisions_and_their_calls_share_a_step(tmp_path):
    path = tmp_path / "t.jsonl"
    recorder = TraceRecorder(path, schemas={"find": {"properties": {"limit": {"default": 5}}}})
    row = recorder.session("0", group="g")
    turn = row.decided(user=["where is 7?"], calls=2, start=0.0, end=0.5)
    assert turn == (0, ("0.0", "0.1"))
    row.called("find", {"id": 7}, result=[1], id=turn.calls[1], step=turn.step, start=0.5, end=0.6)
    row.called("find", {"id": 8}, result="no", status="error", id=turn.calls[0], step=turn.step)
    row.decided(text="found it")
    row.called("note", {}, effects=Effects(cls="write", writes=("db",)))
    assert not path.exists()
    recorder.close()
    recorder.close()
    held = read_events(path)
    shared = {"session": "0", "group": "g"}
    find = {"tool": "find", "step": 0, **shared}
    assert held == [
        LlmEvent(**shared, id="0", step=0, user=("where is 7?",), calls=("0.0", "0.1"), start=0.0, end=0.5),
        ToolEvent(**find, id="0.1", args={"id": 7, "limit": 5}, result=[1], start=0.5, end=0.6),
        ToolEvent(**find, id="0.0", args={"id": 8, "limit": 5}, result="no", status="error"),
        LlmEvent(**shared, id="1", step=1, text="found it"),
        ToolEvent(**shared, id="plan.0", step=1, tool="note", args={}, effects=Effects(cls="write", writes=("db",))),
    ]
    assert [each.name for each in tmp_path.iterdir()] == ["t.jsonl"]


def test_in_memory_and_with_steps_of_its_own():
    recorder = TraceRecorder()
    agent = recorder.session("0/agent")
    agent.decided(step=4, calls=["4.0"])
    agent.decided()
    assert recorder.session("0/agent") is agent
    recorder.forget("0/agent")
    assert recorder.session("0/agent") is not agent
    assert [(event.id, event.step) for event in recorder.events] == [("4", 4), ("5", 5)]
    assert recorder.now() >= 0


def test_secret_arguments_are_not_written(tmp_path):
    path = tmp_path / "t.jsonl"
    recorder = TraceRecorder(path, secret_args={"login": ["password"]}, secret_key=b"k")
    recorder.session("0").called("login", {"user": "ann", "password": "hunter2"})
    recorder.close()
    assert "hunter2" not in path.read_text(encoding="utf-8")
    assert "ann" in path.read_text(encoding="utf-8")


def test_results_of_any_kind_are_bounded(tmp_path):
    path = tmp_path / "t.jsonl"
    recorder = TraceRecorder(path)
    row = recorder.session("0")
    for value in ("x" * (MOST_RESULT + 5), ["y" * 600_000] * 3, {1, 2}, float("nan"), "\ud800"):
        row.called("f", {"a": value}, result=value)
    recorder.close()
    found = [event.result for event in read_events(path)]
    assert [len(each) for each in found[:2]] == [MOST_RESULT, MOST_RESULT]
    assert found[2:] == ["{1, 2}", "nan", "\ud800"]


def test_a_run_that_did_nothing_leaves_no_file(tmp_path):
    recorder = TraceRecorder(tmp_path / "t.jsonl")
    recorder.discard()
    recorder.close()
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written(tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        TraceRecorder(tmp_path / "none" / "t.jsonl")
