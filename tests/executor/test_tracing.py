"""The trace of a run: decisions of agents, replies to llm steps, calls of tools."""

from __future__ import annotations

import pytest
from running import inside, run

from helix.errors import HelixError, OptionError
from helix.mining import History, Miner
from helix.traces import LlmEvent, ToolEvent, read_events, sessions_of

STEPS = """
workflow steps(ticket: text)

tool upper(text: text) -> text from python "shop:upper" effects pure

kind = llm { user "Sort: {{ ticket }}" }

loud = upper(ticket)

output kind, loud
"""
ALONE = """
workflow alone(ticket: text)
kind = llm { user "Sort: {{ ticket }}" }
output kind
"""
AGENT = """
workflow support(ticket: text)

tool orders(customer: text) -> json from python "shop:orders" effects read, reads "shop.orders"
tool refund(order: int, reason: text = "none") -> json from python "shop:refund" effects write

answer = agent {
  tools [orders, refund]
  max_turns 4
  user "{{ ticket }}"
}

output answer
"""
SHOP = """
def upper(text: str) -> str:
    if text == "bad":
        raise ValueError("no such text")
    return text.upper()

def orders(customer: str) -> list[dict]:
    return [{"id": 7, "of": customer}]

def refund(order: int, reason: str = "none") -> dict:
    return {"order": order, "why": reason}
"""
RULES = [
    {"turn": 1, "match": r"I am (\S+)\.", "calls": [{"tool": "orders", "args": {"customer": "\\1"}}]},
    {"turn": 2, "calls": [{"tool": "refund", "args": {"order": 7}}, {"tool": "orders", "args": {"customer": "X"}}]},
    {"turn": 3, "answer": "done"},
]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "shop.py").write_text(SHOP, encoding="utf-8")
    return tmp_path


def traced(folder, workflow, rows, **options):
    path = folder / "run.trace.jsonl"
    ran = run(workflow, rows, folder=folder, trace=path, **options)
    assert not [each for each in folder.iterdir() if each.name.endswith(".tmp")]
    return ran, {session.id: session for session in sessions_of(read_events(path))}


def test_steps_of_a_row_are_one_session(folder):
    rows = [{"ticket": "a"}, {"ticket": "bad"}, {"ticket": "a"}]
    _, found = traced(folder, STEPS, rows, rules=[{"reply": "a bug"}])
    assert sorted(found) == ["0", "1", "2"]
    for name, session in found.items():
        said = next(event for event in session.events if isinstance(event, LlmEvent))
        call = next(event for event in session.events if isinstance(event, ToolEvent))
        text = rows[int(name)]["ticket"]
        assert (said.user, said.text, said.calls, said.status) == ((f"Sort: {text}",), "a bug", (), "ok")
        assert (call.tool, call.args, call.effects.cls) == ("upper", {"text": text}, "pure")
        if text == "bad":
            assert call.status == "error"
            assert "no such text" in call.result
        else:
            assert (call.result, call.status) == ("A", "ok")
        # Equal calls are made once; the second has no times of its own.
        assert (said.start is None) == (call.start is None) == (name == "2")
        if name != "2":
            assert 0 <= said.start <= said.end
            assert 0 <= call.start <= call.end


def test_an_agent_is_a_session_of_its_own(folder):
    ran, found = traced(folder, AGENT, [{"ticket": "I am ann."}, {"ticket": "I am bob."}], rules=RULES)
    assert ran.column("answer") == ["done", "done"]
    assert sorted(found) == ["0/answer", "1/answer"]
    session = found["0/answer"]
    assert session.group == "0"
    assert [event.id for event in session.events] == ["0", "0.0", "1", "1.0", "1.1", "2"]
    first, orders, second, refund, again, last = session.events
    assert (first.user, first.calls, second.user, second.calls) == (("I am ann.",), ("0.0",), (), ("1.0", "1.1"))
    assert (last.calls, last.status) == ((), "ok")
    assert (orders.args, orders.result) == ({"customer": "ann"}, [{"id": 7, "of": "ann"}])
    assert orders.effects.cls == "read"
    assert orders.effects.reads == ("shop.orders",)
    # Defaults are filled in: equal calls look equal.
    assert (refund.args, refund.effects.cls) == ({"order": 7, "reason": "none"}, "write")
    assert again.step == 1
    assert session.decisions == 3


def test_what_was_recorded_can_be_mined(folder):
    rows = [{"ticket": f"I am c{number}."} for number in range(12)]
    _, found = traced(folder, AGENT, rows, rules=RULES)
    miner = Miner()
    miner.mine([found[f"{number}/answer"] for number in range(12)])
    history = History()
    history.user("I am zoe.")
    best = miner.predict(history)[0]
    assert (best.tool, best.args) == ("orders", {"customer": "zoe"})


def test_a_model_that_fails_decided_nothing(folder):
    _, found = traced(folder, STEPS, [{"ticket": "a"}], rules=[{"error": 400}])
    assert found["0"].decisions == 0
    assert next(event for event in found["0"].events if isinstance(event, LlmEvent)).status == "error"


def test_the_result_is_the_same_with_a_trace(folder):
    rows = [{"ticket": f"I am c{number}."} for number in range(5)]
    ran, _ = traced(folder, AGENT, rows, rules=RULES)
    assert run(AGENT, rows, folder=folder, rules=RULES).rows == ran.rows


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none/t.jsonl", "there is no folder"),
        (".", "it is a folder"),
        ("shop.py", "exists and is no trace"),
        ("rows.jsonl", "is the input or the output"),
        ("out.jsonl", "is the input or the output"),
    ],
)
def test_places_where_no_trace_can_be(folder, name, message):
    (folder / "rows.jsonl").write_text('{"ticket": "a"}\n', encoding="utf-8")
    with pytest.raises(OptionError, match=message):
        run(STEPS, folder / "rows.jsonl", folder=folder, trace=folder / name, output=folder / "out.jsonl")
    assert (folder / "shop.py").read_text(encoding="utf-8") == SHOP


def test_the_command_writes_a_trace_and_shows_it(folder, monkeypatch, capfd):
    (folder / "steps.helix").write_text(STEPS.lstrip(), encoding="utf-8")
    (folder / "rows.jsonl").write_text('{"ticket": "a"}\n{"ticket": "b"}\n', encoding="utf-8")

    def helix(*args):
        return inside(*args, cwd=folder, monkeypatch=monkeypatch, capfd=capfd)

    asked = ("run", "steps.helix", "-i", "rows.jsonl", "-e", "scripted", "--no-store", "--trace", "t.jsonl")
    for _ in range(2):
        # The second run replaces the trace of the first.
        assert helix(*asked).returncode == 0
    shown = helix("traces", "show", "t.jsonl")
    assert shown.stdout.startswith("2 sessions in 2 groups, 2 decisions, 2 calls\n")
    assert helix("run", "steps.helix", "-i", "rows.jsonl", "--trace", "steps.helix").returncode == 2


def test_a_run_that_did_nothing_leaves_the_trace_that_was_there(folder):
    path = folder / "run.trace.jsonl"
    traced(folder, STEPS, [{"ticket": "a"}])
    before = path.read_bytes()
    with pytest.raises(HelixError):
        run(ALONE, [{"ticket": "a"}], folder=folder, trace=path, rules=[{"error": 401}])
    assert path.read_bytes() == before
    # A run over no rows is complete: its trace is empty.
    run(STEPS, [], folder=folder, trace=path)
    assert path.read_bytes() == b""
    assert not [each for each in folder.iterdir() if each.name.endswith(".tmp")]


def test_a_trace_that_cannot_be_written_costs_no_result(folder, monkeypatch):
    def full(event):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("helix.traces.recorder.event_line", full)
    ran = run(STEPS, [{"ticket": "a"}], folder=folder, trace=folder / "t.jsonl", rules=[{"reply": "a bug"}])
    assert ran.rows[0]["kind"] == "a bug"
    assert any("cannot be written: No space left on device" in note for note in ran.report.notes)
    assert not (folder / "t.jsonl").exists()
