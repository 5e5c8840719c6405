"""Contract 2: a failed row that a sort puts last and a limit cuts is not in the result, but it is told."""

from __future__ import annotations

import helix as hx

WORKFLOW = """
workflow w(text: text)
score = llm -> int { user "{{ text }}" }
sort by score
limit 2
output text, score
"""


def test_02_failed_rows_cut_by_a_limit_are_counted() -> None:
    engine = hx.ScriptedEngine(rules=[{"contains": "bad", "error": 400}, {"match": r"(\d)", "reply": r"\1"}])
    rows = [{"text": text} for text in ("bad 9", "row 3", "row 1", "row 2", "bad 8")]
    result = hx.loads(WORKFLOW).run(rows, engine=engine)
    assert [(row["text"], row["_error"]) for row in result.rows] == [("row 1", None), ("row 2", None)]
    assert result.report.failed_rows == 2
    assert result.report.outcome == "failed_rows"
    assert result.report.notes == ["2 failed rows were sorted last and cut by the limit"]


def test_02_failed_rows_within_the_limit_stay_in_the_result() -> None:
    engine = hx.ScriptedEngine(rules=[{"contains": "bad", "error": 400}, {"match": r"(\d)", "reply": r"\1"}])
    result = hx.loads(WORKFLOW).run([{"text": "bad 9"}, {"text": "row 1"}], engine=engine)
    assert [row["text"] for row in result.rows] == ["row 1", "bad 9"]
    assert result.report.failed_rows == 1
    assert result.report.notes == []
