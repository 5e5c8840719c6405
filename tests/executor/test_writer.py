"""Rows of the result: columns, errors with what was skipped, values that a format cannot hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
from running import run

HEAD = "workflow t(a: json, b: text)\n"


def test_columns_come_in_their_order_with_row_and_error_around_them() -> None:
    ran = run(HEAD + "output b, a as renamed, len(b) as size", [{"a": 1, "b": "x"}])
    assert list(ran.rows[0]) == ["_row", "b", "renamed", "size", "_error"]


def test_an_error_names_the_step_that_failed_first_and_all_that_were_skipped() -> None:
    text = HEAD + (
        'x = llm { user "{{ b }}" }\ny = llm { user "{{ x }}" }\nz = llm { user "fine" }\n'
        'w = for n in [1, 2] { v = llm { user "{{ y }}{{ n }}" } yield v }\n'
        'u = llm { user "{{ z }}{{ w }}" } when b != ""\noutput a, x, y, z, w, u'
    )
    ran = run(text, [{"a": 7, "b": "bad"}], rules=[{"contains": "bad", "error": 400, "message": "no"}, {"reply": "r"}])
    assert ran.rows[0] == {
        "_row": 0,
        "a": 7,
        "x": None,
        "y": None,
        "z": "r",
        "w": None,
        "u": None,
        "_error": {
            "step": "x",
            "kind": "engine",
            "message": "no",
            "attempts": 1,
            "skipped": ["y", "w", "u"],
            "raw": None,
        },
    }


def test_of_two_failures_of_a_row_the_first_in_the_workflow_is_its_error() -> None:
    text = HEAD + 'x = llm { user "x {{ b }}" }\ny = llm { user "y {{ b }}" }\noutput y, x'
    for slow in ("x", "y"):
        rules = [{"contains": slow, "error": 400, "message": slow, "delay": 0.02}, {"error": 400, "message": "quick"}]
        ran = run(text, [{"a": 1, "b": "v"}], rules=rules)
        assert ran.errors == [("engine", "x")]
        assert ran.report.failed_rows == 1


def test_a_step_that_no_column_needs_fails_without_the_row() -> None:
    text = HEAD + 'x = llm { user "{{ b }}" }\noutput a'
    ran = run(text, [{"a": 1, "b": "v"}], rules=[{"error": 400}], plain=True)
    assert ran.errors == [None]
    assert ran.report.steps["x"].failed == 1


def test_the_first_failed_rows_are_kept_for_the_report() -> None:
    rows = [{"a": 1, "b": str(number)} for number in range(40)]
    ran = run(HEAD + 'x = llm { user "{{ b }}" }\noutput x', rows, rules=[{"error": 400, "message": "no"}])
    assert ran.report.failed_rows == 40
    assert ran.report.errors == [(number, "x", "engine", "no") for number in range(20)]
    assert ran.report.outcome == "failed_rows"


@pytest.mark.parametrize(("value", "fits"), [(2**63 - 1, True), (2**63, False)])
def test_a_value_that_the_format_cannot_hold_is_the_rows_error(value: int, fits: bool, tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    text = "workflow t(a: int, b: text)\ndouble = a\noutput a, double, b"
    run(text, [{"a": value, "b": "x"}, {"a": 1, "b": "y"}], output=path)
    first, second = parquet.read_table(path).to_pylist()
    assert second["a"] == 1
    assert second["_error"] is None
    assert first["b"] == "x"
    if fits:
        assert first["a"] == value
    else:
        assert (first["a"], first["double"]) == (None, None)
        assert (first["_error"]["kind"], first["_error"]["step"]) == ("schema", "a")
        assert "does not fit into 64 bits" in first["_error"]["message"]


def test_a_value_nested_too_deeply_is_the_rows_error(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    text = "workflow t(b: text)\nx = [b]\nrepeat up to 1000 { x = [[[x]]] }\noutput b, x"
    ran = run(text, [{"b": "v"}], output=path)
    (row,) = [json.loads(line) for line in path.read_text().splitlines()]
    assert row["_row"] == 0
    assert row["x"] is None
    assert "nested too deeply" in row["_error"]["message"]
    assert ran.report.failed_rows == 1


def test_a_failure_of_the_row_goes_before_a_value_that_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    text = 'workflow t(a: int)\nx = llm { user "{{ a }}" }\noutput a, x'
    ran = run(text, [{"a": 2**70}], output=path, rules=[{"error": 400}])
    (row,) = parquet.read_table(path).to_pylist()
    assert (row["_error"]["kind"], row["a"]) == ("engine", None)
    assert ran.report.failed_rows == 1


def test_texts_of_all_kinds_reach_the_result(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    values: list[Any] = ["", "\0", "\u2028", "ไทย 🦉", '"', "\\", "a\r\nb", None, False, 0, 1.5, {"k": [None]}]
    run(HEAD + "output a", [{"a": value, "b": "x"} for value in values], output=path)
    assert [json.loads(line)["a"] for line in path.read_bytes().split(b"\n")[:-1]] == values
