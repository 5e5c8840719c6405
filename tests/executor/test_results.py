"""What a run gives back: rows as dicts and tables, and how it ended."""

from __future__ import annotations

from pathlib import Path

import pytest

import helix
from helix.executor.engines.scripted import ScriptedEngine
from helix.results import RunReport, StepReport

TEXT = 'workflow t(a: text)\nx = llm { user "{{ a }}" }\noutput a, x'


def test_rows_are_read_as_dicts_as_a_table_and_as_a_frame() -> None:
    result = helix.loads(TEXT).run([{"a": "1"}, {"a": "2"}], engine=ScriptedEngine(reply=lambda _: "r"))
    assert result.rows == list(result) == [{"_row": n, "a": str(n + 1), "x": "r", "_error": None} for n in range(2)]
    assert len(result) == 2
    assert result.table.to_pylist() == result.rows
    assert list(result.to_pandas()["x"]) == ["r", "r"]
    assert repr(result) == "<RunResult: 2 rows, 0 failed, 2 calls>"


def test_rows_that_were_written_are_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    result = helix.loads(TEXT).run([{"a": "1"}], output=path, engine="scripted")
    assert len(result) == 1
    assert repr(result) == f"<RunResult: 1 rows in {path}, 0 failed, 1 calls>"
    with pytest.raises(ValueError, match=r"the rows were written to .*out\.jsonl"):
        _ = result.rows


@pytest.mark.parametrize(
    ("report", "outcome"),
    [
        (RunReport(), "complete"),
        (RunReport(failed_rows=1), "failed_rows"),
        (RunReport(failed_rows=1, stopped="enough"), "stopped"),
        (RunReport(stopped="interrupted", interrupted=True), "interrupted"),
    ],
)
def test_a_report_says_how_the_run_ended(report: RunReport, outcome: str) -> None:
    assert report.outcome == outcome


def test_a_report_sums_its_steps() -> None:
    report = RunReport(steps={"x": StepReport(calls=2, merged=1, prompt_tokens=7), "y": StepReport(calls=3)})
    assert (report.calls, report.merged, report.total("prompt_tokens")) == (5, 1, 7)


@pytest.mark.parametrize(
    ("report", "nothing"),
    [
        (RunReport(fatal=True), True),
        (RunReport(fatal=True, output_rows=2, failed_rows=2), True),
        (RunReport(fatal=True, output_rows=2, failed_rows=1), False),
        (RunReport(fatal=True, steps={"x": StepReport(done=1)}), False),
        (RunReport(output_rows=2, failed_rows=2), False),
    ],
)
def test_nothing_was_done_where_the_engine_refused_every_call(report: RunReport, nothing: bool) -> None:
    assert report.nothing_done is nothing
