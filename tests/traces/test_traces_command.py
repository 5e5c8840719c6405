"""The commands `helix traces show`, `import` and `mine`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from running import inside

sys.path.insert(0, str(Path(__file__).parents[1] / "mining"))
from mining_sessions import shops

from helix.mining import Miner
from helix.traces import Effects, ToolEvent, write_events


@pytest.fixture
def helix(tmp_path, monkeypatch, capfd):
    """Runs the command in a folder with a trace of 20 sessions."""
    write_events(tmp_path / "shop.jsonl", [event for session in shops(20) for event in session.events])
    return lambda *args: inside(*args, cwd=tmp_path, monkeypatch=monkeypatch, capfd=capfd)


def test_show(helix):
    done = helix("traces", "show", "shop.jsonl")
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "20 sessions in 20 groups, 120 decisions, 80 calls",
        "",
        "tool          effects  calls  errors  seconds",
        "get_order     unknown     60       0        ?",
        "get_customer  unknown     20       0        ?",
    ]
    held = json.loads(helix("traces", "show", "shop.jsonl", "--format", "json").stdout)
    assert (held["sessions"], held["tools"][0]["tool"]) == (20, "get_order")


def test_show_one_session(helix):
    done = helix("traces", "show", "shop.jsonl", "--session", "s3")
    assert done.stdout.startswith(
        "session s3, group s3\n   0 user: Hello, where is my parcel?\n   0 model: Who are you?\n"
    )
    assert '   1 call: get_customer(customer_id="ann_lee_1003")' in done.stdout
    wrong = helix("traces", "show", "shop.jsonl", "--session", "s33")
    assert wrong.returncode == 2
    assert "there is no session `s33`; did you mean `s3`?" in wrong.stderr


def test_times_are_added_up(helix, tmp_path):
    shared = {"session": "s", "step": 0, "tool": "f", "args": {}, "effects": Effects(cls="read")}
    events = [ToolEvent(**shared, id=str(n), start=n, end=n + 0.5, status=s) for n, s in enumerate(("ok", "error"))]
    write_events(tmp_path / "t.jsonl", [*events, ToolEvent(**shared, id="2")])
    held = json.loads(helix("traces", "show", "t.jsonl", "--format", "json").stdout)
    assert held["tool_seconds"] == 1.0
    assert held["tools"] == [{"tool": "f", "calls": 3, "errors": 1, "effects": "read", "mean_seconds": 0.5}]
    assert "0.0 s of models, 1.0 s of tools" in helix("traces", "show", "t.jsonl").stdout


def test_mine_shows_and_keeps_patterns(helix, tmp_path):
    done = helix("traces", "mine", "shop.jsonl", "-o", "p.json", "--tenant", "acme")
    assert done.returncode == 0
    assert done.stderr == "p.json: patterns of 20 sessions\n"
    head, first = done.stdout.splitlines()[:2]
    assert head.split() == ["right", "p_low", "pattern"]
    assert "get_" in first
    assert Miner.load(tmp_path / "p.json", tenant="acme").sessions == 20


def test_mine_reports(helix):
    done = helix("traces", "mine", "shop.jsonl", "--report", "--read-only", "get_*", "--thresholds", "0.2,0.9")
    assert done.returncode == 0
    assert "20 sessions, 120 decisions, 80 calls, 80 of them read-only; five folds of groups" in done.stdout
    assert "tool and arguments, read-only" in done.stdout
    held = json.loads(helix("traces", "mine", "shop.jsonl", "--report", "--format", "json").stdout)
    # No call declares that it only reads.
    assert held["reads"] == 0
    assert held["lines"][0]["of"] == 80


def test_import(helix, tmp_path):
    (tmp_path / "a.json").write_text('[{"task_id": 1, "traj": [{"role": "user", "content": "hi"}]}]', encoding="utf-8")
    done = helix("traces", "import", "a.json", "--from", "openai", "-o", "a.jsonl")
    assert (done.returncode, done.stderr) == (0, "a.jsonl: 1 session, 0 decisions, 0 calls\n")
    assert "nothing was decided" in helix("traces", "show", "a.jsonl", "--session", "1/0").stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("show", "none.jsonl"), "cannot be read"),
        (("import", "none.json", "--from", "openai", "-o", "x"), "does not exist"),
        (("import", "shop.jsonl", "--from", "openai", "-o", "x"), "shop.jsonl"),
        (("import", "shop.jsonl", "--from", "bfcl", "-o", "x"), "--answers"),
        (("mine", "shop.jsonl", "--report", "--thresholds", "2"), "--thresholds takes probabilities"),
        (("mine", "shop.jsonl", "-o", "none/p.json"), "cannot be written"),
        (("mine", "empty.jsonl"), "nothing to mine"),
        (("import", "shop.jsonl", "--from", "csv", "-o", "x"), "csv"),
    ],
    ids=range(8),
)
def test_what_cannot_be_done_is_said(helix, tmp_path, args, message):
    (tmp_path / "empty.jsonl").write_text("", encoding="utf-8")
    done = helix("traces", *args)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "x").exists()


def test_patterns_note_the_schemas_of_a_workflow(helix, tmp_path):
    workflow = """
workflow shop(ticket: text)
tool get_order(order_id: text{note}) -> json from python "shop:get_order" effects read
answer = agent {{ tools [get_order] user "{{{{ ticket }}}}" }}
output answer
"""
    (tmp_path / "shop.py").write_text(
        "def get_order(order_id: str, note: str = ''):\n    return {}\n", encoding="utf-8"
    )
    (tmp_path / "shop.helix").write_text(workflow.format(note=""), encoding="utf-8")
    (tmp_path / "other.helix").write_text(workflow.format(note=', note: text = ""'), encoding="utf-8")
    files = {}
    for name in ("shop", "other"):
        done = helix("traces", "mine", "shop.jsonl", "-o", f"{name}.json", "--workflow", f"{name}.helix")
        assert done.returncode == 0, done.stderr
        files[name] = Miner.load(tmp_path / f"{name}.json").tools["get_order"].schema
    assert files["shop"] is not None
    assert files["shop"] != files["other"]
    assert Miner.load(tmp_path / "shop.json", schemas={"get_order": files["other"]}).stale == {"get_order"}
    assert helix("traces", "mine", "shop.jsonl", "-o", "x.json", "--workflow", "none.helix").returncode == 2
