"""Contract 2: a failed row stays in place with its error, its dependants are not called, all others go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from running import Folder, run, said_calls

TEXT = """workflow t(a: text)
x = llm -> bool { user "x {{ a }}" }
y = llm { user "y {{ x }} {{ a }}" }
output a, x, y"""
ROWS = [{"a": "good"}, {"a": "bad"}, {"a": "fine"}]


def test_02_failed_row_stays_in_place_and_its_dependants_are_not_called() -> None:
    rules = [{"contains": "x bad", "error": 400, "message": "refused: SECRET WORDS"}, {"step": "x", "reply": "true"}]
    ran = run(TEXT, ROWS, rules=[*rules, {"reply": "done"}])
    assert [row["_row"] for row in ran.rows] == [0, 1, 2]
    assert ran.rows[1] == {
        "_row": 1,
        "a": "bad",
        "x": None,
        "y": None,
        "_error": {
            "step": "x",
            "kind": "engine",
            "message": "refused: SECRET WORDS",
            "attempts": 1,
            "skipped": ["y"],
            "raw": None,
        },
    }
    assert [row["y"] for row in ran.rows] == ["done", None, "done"]
    assert ran.engine.calls == 5
    assert "SECRET" not in str([request.messages for request in ran.engine.requests])


@pytest.mark.parametrize(
    ("rule", "kind", "calls"),
    [
        ({"error": 400}, "engine", 1),
        ({"error": 500}, "engine", 3),
        ({"error": "connection"}, "engine", 3),
        ({"hang": True}, "timeout", 3),
        ({"error": "prompt.too_long"}, "prompt.too_long", 1),
        ({"reply": "perhaps"}, "schema", 2),
        ({"reply": "tr", "finish": "length"}, "truncated", 1),
        ({"reply": ""}, "empty", 2),
    ],
)
def test_02_every_kind_of_failed_call(rule: dict[str, Any], kind: str, calls: int, monkeypatch: Any) -> None:
    from helix.executor import attempts

    monkeypatch.setattr(attempts, "FIRST_BACKOFF", 0.004)
    rules = [{"prompt_contains": "x bad", **rule}, {"step": "x", "reply": "true"}, {"reply": "done"}]
    ran = run(TEXT, ROWS, rules=rules, call_timeout=0.1)
    assert ran.errors == [None, (kind, "x"), None]
    assert ran.rows[1]["_error"]["skipped"] == ["y"]
    assert ran.engine.calls == calls + 4


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ({"b": 1}, "input.missing"),
        ({"a": None, "b": 1}, "input.null"),
        ({"a": "  ", "b": 1}, "input.empty"),
        ({"a": "v", "b": "x"}, "input.type"),
        ("no record", "input.record"),
    ],
)
def test_02_every_kind_of_input_that_cannot_be_used(row: Any, kind: str) -> None:
    text = 'workflow t(a: text, b: int)\nx = llm { user "{{ a }}" }\noutput a, b, x'
    ran = run(text, [{"a": "v", "b": 1}, row, {"a": "w", "b": 2}], on_bad_row="keep")
    assert ran.errors == [None, (kind, None), None]
    assert ran.rows[1]["_error"]["attempts"] == 0
    assert ran.rows[1]["_error"]["skipped"] == ["x"]
    assert ran.engine.calls == 2


def test_02_tools_expressions_and_limits_have_kinds_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "lib.py").write_text("def f(x):\n    raise ValueError(x)\n")
    text = """workflow t(a: text)
tool f(x: text) -> text from python "lib:f"   effects read
t = f(a)
e = split(a, " ")[5]
l = llm { user "{{ a }}" }
output t, e, l"""
    for column, kind in (("t", "tool"), ("e", "expression"), ("l", "limit")):
        ran = run(text.replace("t, e, l", column), [{"a": "v"}], folder=tmp_path, max_calls=1 if column == "t" else 0)
        assert ran.errors == [(kind, column)]
    ran = run(
        'workflow t(a: text)\nl = llm { user "{{ a }}" }\noutput l', ROWS, rules=[{"hang": True}], run_timeout=0.2
    )
    assert {kind for kind, _ in filter(None, ran.errors)} == {"timeout"}
    ran = run(
        'workflow t(a: text)\nl = llm { user "{{ a }}" }\noutput l',
        ROWS,
        rules=[{"hang": True}],
        run_timeout=0.2,
        concurrency=1,
    )
    assert [kind for kind, _ in filter(None, ran.errors)] == ["timeout", "not_started", "not_started"]


MANY = [{"a": f"row {number}"} for number in range(100)]
ONE = 'workflow t(a: text)\nx = llm { user "{{ a }}" }\noutput x'


@pytest.mark.parametrize(
    ("options", "stops", "failed"),
    [
        ({"max_failed": 0}, True, 1),
        ({"max_failed": 3}, True, 4),
        ({"max_failed": 10}, False, 10),
        ({"max_failed": 4, "max_failed_percent": True}, True, 5),
        ({"max_failed": 10, "max_failed_percent": True}, False, 10),
        ({"max_failed": 100, "max_failed_percent": True}, False, 10),
    ],
)
def test_02_too_many_failed_rows_stop_the_run(options: dict[str, Any], stops: bool, failed: int) -> None:
    ran = run(ONE, MANY, rules=[{"match": r"row \d$", "error": 400}, {"reply": "r"}], concurrency=1, **options)
    real = [error for error in ran.errors if error == ("engine", "x")]
    assert len(ran.rows) == 100
    assert (len(real), ran.report.stopped is not None) == (failed, stops)
    if stops:
        assert "more than the" in (ran.report.stopped or "")
        assert ran.engine.calls < 30
        assert ran.rows[99]["_error"]["kind"] == "not_started"
    else:
        assert ran.engine.calls == 100


@pytest.mark.parametrize(
    "body", ["sort by x desc", "sort by a", "sort by a\nsort by a desc", "group by x { c = len(rows) }"]
)
def test_02_failed_rows_are_counted_where_they_fail_not_where_they_are_written(body: str) -> None:
    text = ONE.replace("\noutput x", f"\n{body}\noutput x")
    ran = run(text, MANY, rules=[{"error": 400}], concurrency=2, max_failed=5)
    assert ran.report.stopped == "6 rows failed, more than the 5 allowed"
    assert ran.engine.calls < 30


def test_02_each_failed_row_is_counted_once() -> None:
    rules = [{"match": r"row \d$", "error": 400}, {"reply": "r"}]
    for body in ("sort by a", "sort by x", "sort by x\nsort by a", "sort by a\nlimit 100", "keep when len(a) > 0"):
        text = ONE.replace("\noutput x", f"\n{body}\noutput x")
        assert run(text, MANY, rules=rules, max_failed=10).report.stopped is None
        assert run(text, MANY, rules=rules, max_failed=9).report.stopped is not None


def test_02_a_share_of_failed_rows_counts_input_rows_however_often_each_is_spread() -> None:
    text = 'workflow t(a: list[text])\nspread a as b\nx = llm { user "{{ b }}" }\noutput b, x'
    rows = [{"a": [f"{number} {item}" for item in range(10)]} for number in range(10)]
    rules = [{"match": "^0 ", "error": 400}, {"reply": "r"}]
    assert run(text, rows, rules=rules, max_failed=10, max_failed_percent=True).report.stopped is None
    stopped = run(text, rows, rules=rules, max_failed=9, max_failed_percent=True, concurrency=1).report.stopped
    assert stopped == "1 row failed, more than the 0.9 (9%) allowed"


def test_02_attempts_from_the_command_line(folder: Folder, quick: Any) -> None:
    folder.workflow(ONE)
    folder.rows({"a": "good"}, {"a": "bad"}, {"a": "fine"})
    folder.rules({"contains": "bad", "error": "malformed", "message": "half a reply"}, {"reply": "r"})
    done = quick("-o", "out.jsonl", "--attempts", "2")
    assert done.returncode == 3
    assert said_calls(done.stderr) == 4
    assert "row 1, step x: engine: half a reply" in done.stderr
    assert [row["x"] for row in folder.read()] == ["r", None, "r"]
    assert folder.read()[1]["_error"]["attempts"] == 2


def test_02_max_failed_from_the_command_line(folder: Folder) -> None:
    folder.workflow(ONE)
    folder.rows(*MANY)
    folder.rules({"error": 400, "message": "no"})
    done = folder.run("-o", "out.jsonl", "--max-failed", "5%", "-c", "2")
    assert done.returncode == 3
    assert "stopped early: 6 rows failed, more than the 5 (5%) allowed" in done.stderr
    assert said_calls(done.stderr) < 20
    assert len(folder.read()) == 100


@pytest.mark.parametrize("wrong", ["-1", "abc", "nan", "101%", "inf", "%"])
def test_02_a_max_failed_that_is_none_is_refused(folder: Folder, quick: Any, wrong: str) -> None:
    folder.workflow(ONE)
    folder.rows(*MANY)
    done = quick("-o", "out.jsonl", "--max-failed", wrong)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert folder.names == ["rows.jsonl", "w.helix"]
