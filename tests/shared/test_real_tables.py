"""Workflows over real tables from the command line on the embedded model: TAT-QA's JSON array, Banking77's CRLF CSV."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from running import command

from helix import api
from helix.types import Choice

HERE = Path(__file__).parent
TATQA, BANKING = HERE / "tatqa.helix", HERE / "banking77.helix"


@pytest.mark.parametrize("path", [TATQA, BANKING], ids=lambda path: path.stem)
def test_they_are_clean(path):
    workflow = api.load(path)
    assert api.check(workflow).warnings == ()
    assert api.to_text(workflow) == path.read_text(encoding="utf-8")


@pytest.mark.shared
def test_the_questions_of_a_page_are_asked_one_by_one(shared_data, tmp_path):
    source = shared_data / "text" / "tatqa_dev_100ctx.json"
    output = tmp_path / "tatqa.jsonl"
    done = command(
        "run", TATQA, "--input", source, "--limit", 10, "--output", output, "--engine", "scripted", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "10 rows, 60 calls" in done.stderr
    pages = json.loads(source.read_text(encoding="utf-8"))[:10]
    rows = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert [[each["question"] for each in row["answers"]] for row in rows] == [
        [question["question"] for question in page["questions"]] for page in pages
    ]
    assert [[each["expected"] for each in row["answers"]] for row in rows] == [
        [question["answer"] for question in page["questions"]] for page in pages
    ]


@pytest.mark.shared
@pytest.mark.embedded
def test_pages_of_six_questions_go_through_the_embedded_model_into_parquet(shared_data, tmp_path):
    import pyarrow.parquet as pq

    source = shared_data / "text" / "tatqa_dev_100ctx.json"
    output = tmp_path / "tatqa.parquet"
    done = command("run", TATQA, "--input", source, "--limit", 4, "--output", output, cwd=tmp_path, timeout=600)
    assert done.returncode == 0, done.stderr
    table = pq.read_table(output)
    assert table.column_names == ["_row", "uid", "answers", "_error"]
    assert table["_error"].null_count == 4
    pages = json.loads(source.read_text(encoding="utf-8"))[:4]
    assert table["uid"].to_pylist() == [page["table"]["uid"] for page in pages]
    for page, answers in zip(pages, table["answers"].to_pylist(), strict=True):
        assert [each["question"] for each in answers] == [question["question"] for question in page["questions"]]
        assert all(each["answer"].strip() for each in answers)
    # The page stands before the question, so most of each prompt but the first of a page is known already.
    (prompt, cached) = re.search(r"([\d,]+) prompt tokens \(([\d,]+) cached", done.stderr).groups()
    assert int(cached.replace(",", "")) > 0.5 * int(prompt.replace(",", ""))


@pytest.mark.shared
@pytest.mark.embedded
def test_a_csv_with_crlf_is_sorted_into_ten_labels_on_the_embedded_model(shared_data, tmp_path):
    source = shared_data / "text" / "banking77_test.csv"
    assert b"\r\n" in source.read_bytes()
    output = tmp_path / "banking77.csv"
    done = command("run", BANKING, "--input", source, "--limit", 60, "--output", output, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    with source.open(newline="", encoding="utf-8") as file:
        given = list(csv.DictReader(file))[:60]
    with output.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["text"], row["category"]) for row in rows] == [(row["text"], row["category"]) for row in given]
    kind = next(node.returns for node in api.check(api.load(BANKING)).plan.sink.columns[2][1:])
    assert isinstance(kind, Choice)
    assert len(kind.labels) == 10
    assert {row["label"] for row in rows} <= set(kind.labels)
    assert [row["right"] for row in rows] == [str(row["label"] == row["category"]).lower() for row in rows]
    # A tiny model, but far better than one label in ten.
    assert sum(row["right"] == "true" for row in rows) >= 20
    assert all(row["_error"] == "" for row in rows)
