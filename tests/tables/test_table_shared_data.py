"""Real tables from the shared data folder beside the checkout, read and written again."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from helix.executor.tables import open_rows, open_sink, scan
from helix.schema import Column
from helix.types import FLOAT, INT, JSON, TEXT, ListOf

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"the shared data folder {DATA} is absent"),
]


def read(path: Path, *columns: Column) -> list[dict]:
    with open_rows(path, columns) as rows:
        report = rows.scan()
        result = [row.values for row in rows]
    assert report.errors == {}
    assert report.rows == len(result)
    return result


def test_support_queries_in_csv_with_crlf(tmp_path) -> None:
    path = DATA / "text" / "banking77_test.csv"
    rows = read(path, Column("text", TEXT), Column("category", TEXT))
    assert len(rows) == 3080
    with path.open(newline="", encoding="utf-8") as file:
        assert rows == list(csv.DictReader(file))
    for name in ("out.csv", "out.tsv", "out.jsonl", "out.parquet", "out.arrow"):
        with open_sink(tmp_path / name, (("text", TEXT), ("category", TEXT))) as sink:
            for index, row in enumerate(rows):
                sink.write({"_row": index, **row})
        assert read(tmp_path / name, Column("text", TEXT), Column("category", TEXT)) == rows


def test_contexts_with_tables_in_a_json_array(tmp_path) -> None:
    path = DATA / "text" / "tatqa_dev_100ctx.json"
    columns = (Column("table", JSON), Column("paragraphs", ListOf(JSON)), Column("questions", ListOf(JSON)))
    rows = read(path, *columns)
    assert rows == json.loads(path.read_text(encoding="utf-8"))
    for name in ("out.csv", "out.jsonl", "out.parquet"):
        with open_sink(tmp_path / name, tuple((column.name, column.type) for column in columns)) as sink:
            for index, row in enumerate(rows):
                sink.write({"_row": index, **row})
        assert read(tmp_path / name, *columns) == rows


@pytest.mark.parametrize(("name", "rows"), [("mmlu_test_25_per_subject.jsonl", 1425), ("mmlu_dev_5shot.jsonl", 285)])
def test_exam_questions_in_json_lines(name, rows) -> None:
    names = ["subject", "question", *(f"choice{i}" for i in range(4)), "answer"]
    values = read(DATA / "text" / name, *(Column(name, TEXT) for name in names))
    assert len(values) == rows
    # Many answers are digits in quotes; they are texts and stay so.
    assert {row["answer"] for row in values} == {"0", "1", "2", "3"}
    report = scan(DATA / "text" / name, (Column("answer", INT),))
    assert report.errors == {"input.type": rows}


@pytest.mark.parametrize("language", ["ar", "en", "hi", "th", "zh"])
def test_one_object_of_articles(language) -> None:
    path = DATA / "text" / "xquad" / f"xquad_{language}_12articles.json"
    (row,) = read(path, Column("version", TEXT), Column("data", ListOf(JSON)))
    assert row == json.loads(path.read_text(encoding="utf-8"))
    assert len(row["data"]) == 12


def test_25_languages() -> None:
    rows = read(DATA / "text" / "udhr2_langs.jsonl", Column("lang", TEXT), Column("text", TEXT))
    assert len({row["lang"] for row in rows}) == 25


@pytest.mark.parametrize(
    ("name", "rows"),
    [("gsm8k_test.jsonl", 1319), ("scitldr_abstracts_test.jsonl", 618), ("qmsum_test_20meetings.jsonl", 20)],
)
def test_every_line_of_other_json_lines(name, rows) -> None:
    path = DATA / "text" / name
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    columns = tuple(Column(key, JSON, default=None) for key in lines[0])
    assert read(path, *columns) == [{key: line.get(key) for key in lines[0]} for line in lines]
    assert len(lines) == rows


def test_prices_as_numbers() -> None:
    rows = read(DATA / "text" / "finance" / "AAPL_price.csv", Column("Date", TEXT), Column("Close", FLOAT))
    assert rows
    assert all(len(row["Date"]) == 10 and row["Close"] > 0 for row in rows)


def test_packed_traces() -> None:
    folder = DATA / "traces"
    columns = (Column("timestamp", FLOAT), Column("hash_ids", ListOf(INT)))
    assert len(read(folder / "mooncake_conversation_trace.jsonl.gz", *columns)) == 12_031
    report = scan(folder / "azure_llm_2023_code.csv.gz", (Column("TIMESTAMP", TEXT), Column("ContextTokens", INT)))
    assert report.errors == {}
    assert report.rows > 1000
