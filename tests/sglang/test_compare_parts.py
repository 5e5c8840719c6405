"""The parts of the comparison that need no server: that its three programs are one, its rows, its figures."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from running import ROOT, run

sys.path.insert(0, str(ROOT / "tests" / "benchmarks"))
from compare.calls import Call, asked, flat
from compare.data import Topic
from compare.measure import Run, _check_prompts
from compare.methods import Outcome
from compare.page import write
from compare.regimes import batch
from compare.results import MEASURED, Results, mismatches, standings, table
from compare.workload import Row, Workload

NAMES = ["W1", "W2", "W3", "W4", "W5"]
TOPICS = [
    Topic(
        parts=tuple(f"{letter}{part} has a | and {{braces}}\nin it." for part in range(6)), questions=("Why?", "Who?")
    )
    for letter in "abcdefgh"
]


def workload(name: str) -> Workload:
    made = getattr(importlib.import_module(f"compare.{name.lower()}"), name)
    assert isinstance(made, Workload)
    return made


def rows(work: Workload) -> list[Row]:
    return [
        {"id": number, **work.row(Topic(parts=topic.parts[: 3 if work.name == "W5" else 6], questions=()), question)}
        for number, (topic, question) in enumerate((topic, q) for topic in TOPICS[:2] for q in topic.questions)
    ]


class Echo:
    """Answers each prompt with a text of its own, and keeps what was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.texts: dict[tuple[int, str], str] = {}

    async def __call__(self, row: int, step: str, prompt: Any, max_tokens: int) -> str:
        self.asked.append(asked(prompt, max_tokens))
        self.texts[row, step] = text = reply(prompt)
        return text


def reply(prompt: Any) -> str:
    return "reply " + asked(prompt, 0)[:8]


def by_program(work: Workload, table: list[Row]) -> tuple[Echo, list[dict[str, Any]]]:
    echo = Echo()

    async def main() -> list[dict[str, Any]]:
        return list(await asyncio.gather(*(work.program(row, echo) for row in table)))

    return echo, asyncio.run(main())


@pytest.mark.parametrize("name", NAMES)
def test_helix_sends_what_the_program_sends(name: str) -> None:
    work = workload(name)
    table = rows(work)
    echo, values = by_program(work, table)
    for row, value in zip(table, values, strict=True):
        mine = {step: text for (number, step), text in echo.texts.items() if number == row["id"]}
        assert flat(value) == mine
    given = [{key: value for key, value in row.items() if key != "id"} for row in table]
    ran = run(work.helix, given, reply=lambda request: reply([(m.role, m.content) for m in request.messages]))
    sent = Counter(
        asked([(m.role, m.content) for m in request.messages], request.max_tokens, request.temperature)
        for request in ran.engine.requests
    )
    assert sent == Counter(echo.asked)
    found = [{k: v for k, v in row.items() if not k.startswith("_")} for row in ran.rows]
    assert [flat(row) for row in found] == [flat(value) for value in values]


@pytest.mark.sglang
@pytest.mark.parametrize("name", NAMES)
def test_langgraph_sends_what_the_program_sends(name: str) -> None:
    """With the tests on SGLang, before which the benchmark's requirements are installed."""
    work = workload(name)
    table = rows(work)
    echo, _ = by_program(work, table)
    graphed = Echo()

    async def main() -> None:
        await work.graph(graphed).abatch([dict(row) for row in table])

    asyncio.run(main())
    assert Counter(graphed.asked) == Counter(echo.asked)
    assert graphed.texts == echo.texts


@pytest.fixture
def counted() -> Workload:
    """A workload of numbered rows."""
    return Workload(
        name="W0",
        title="",
        helix="",
        program=workload("W1").program,
        graph=workload("W1").graph,
        topics=lambda folder: TOPICS,
        row=lambda topic, question: {"report": topic.parts[0], "question": question},
        sizes={},
    )


def test_rows_are_grouped_or_shuffled_or_repeated(counted: Workload, tmp_path: Path) -> None:
    def of(regime: str, share: float = 0.5) -> Any:
        return batch(counted, regime, tmp_path, (6, 2), share)

    def texts(rows: Any) -> list[tuple[str, str]]:
        return [(row["report"], row["question"]) for row in rows]

    ample, pressure, redundant = of("ample"), of("pressure"), of("redundant")
    assert texts(ample.rows) == [(topic.parts[0], q) for topic in TOPICS[:6] for q in topic.questions]
    assert texts(pressure.rows) != texts(ample.rows)
    assert sorted(texts(pressure.rows)) == sorted(texts(ample.rows))
    assert pressure == of("pressure")
    # 12 rows and 4 repeats of them; 4 rows were there yesterday: half of the 16 are repeats.
    assert len(redundant.rows) == 16
    assert set(texts(redundant.rows)) == set(texts(ample.rows))
    assert len(set(texts(redundant.yesterday)) & set(texts(ample.rows))) == 4
    assert len(redundant.yesterday) > 4
    assert len(of("redundant", 0.1).rows) == 13
    assert [row["id"] for row in redundant.rows] == list(range(16))
    with pytest.raises(ValueError, match="W0: 8 topics with 2 questions, 9 are needed"):
        batch(counted, "ample", tmp_path, (9, 2), 0.5)


def made_run(method: str = "fan-out", regime: str = "ample", **values: Any) -> Run:
    given = {"workload": "W1", "policy": "lpm", "at_once": None, "phase": MEASURED, "repeat": 0} | values
    return Run(method=method, regime=regime, **given)


@pytest.mark.parametrize(
    ("method", "regime", "change", "stray"),
    [
        ("fan-out", "ample", None, 0),
        ("fan-out", "ample", "drop", 1),
        ("fan-out", "ample", "add", 1),
        ("fan-out", "ample", "alter", 2),
        ("helix", "ample", None, 0),
        ("helix", "ample", "drop", 1),
        ("helix", "ample", "alter", 2),
        # Known from yesterday.
        ("helix", "redundant", "drop", 0),
        ("helix", "redundant", "alter", 1),
    ],
)
def test_prompts_that_do_not_follow_from_the_results_are_found(
    method: str, regime: str, change: str | None, stray: int
) -> None:
    work = workload("W1")
    table = rows(work)[:1]
    calls: list[Call] = []

    async def ask(row: int, step: str, prompt: Any, max_tokens: int) -> str:
        counts = {"prompt_tokens": 1, "completion_tokens": 1, "cached_tokens": 0}
        calls.append(Call(prompt=tuple(prompt), max_tokens=max_tokens, text=reply(prompt), **counts))
        texts[row, step] = reply(prompt)
        return texts[row, step]

    texts: dict[tuple[int, str], str] = {}
    asyncio.run(work.program(table[0], ask))
    first = calls[0]
    if change == "drop":
        del calls[0]
    elif change == "add":
        calls.append(first)
    elif change == "alter":
        calls[0] = Call(
            prompt=first.prompt, max_tokens=99, text="", prompt_tokens=1, completion_tokens=1, cached_tokens=0
        )
    made = made_run(method, regime)
    _check_prompts(made, work, table, Outcome(texts=texts, calls=calls))
    assert made.stray_prompts == stray
    assert made.steps == 8


def test_the_table_has_medians_ranges_and_ratios(tmp_path: Path) -> None:
    results = Results(tmp_path / "runs.json")
    common = {"calls": 8, "prompt_tokens": 1000, "cached_tokens": 700, "prefilled": 300, "least": 200}
    for number, (quick, slow, helix) in enumerate([(10.0, 30.0, 5.0), (12.0, 31.0, 4.0), (11.0, 29.0, 6.0)]):
        results.add(made_run("fan-out", repeat=number, seconds=quick, at_once=8, texts={"0 a": "x"}, **common), {})
        results.add(made_run("everything", repeat=number, seconds=slow, texts={"0 a": "y"}, **common), {})
        results.add(made_run("helix", repeat=number, seconds=helix, texts={"0 a": "x"}, **common), {})
    results.add(made_run("fan-out", phase="tuning", seconds=1.0, at_once=8, **common), {})
    results.add(made_run("helix", workload="W2", seconds=8.0, **common), {})
    results.add(made_run("fan-out", workload="W2", seconds=8.8, **common), {})
    results.add(made_run("everything", workload="W2", seconds=1.0, failures=["row 0"], **common), {})
    text = table(Results(tmp_path / "runs.json").runs)
    assert "fan-out 8            8    1,000       300   70%   1.50          11.0 (10.0-12.0)" in text
    assert "100.0%" in text
    assert "best of the others on lpm / Helix: W1 2.20, W2 1.10; geometric mean 1.56" in text


def test_figures_are_kept_without_texts_as_further_repeats(tmp_path: Path) -> None:
    kept = Results(tmp_path / "kept.json")
    first = [
        made_run("fan-out", at_once=8, seconds=9.0, texts={"0 a": "x"}),
        made_run("helix", seconds=5.0, texts={"0 a": "x"}),
        made_run("helix", seconds=4.0, texts={"0 a": "x"}, flags="--enable-mixed-chunk"),
        made_run("fan-out", at_once=8, seconds=1.0, phase="tuning"),
    ]
    kept.keep(first)
    kept.keep(first)  # the same ones once more are no repeats
    kept.keep([made_run("fan-out", at_once=8, seconds=8.0, texts={"0 a": "y"})])
    runs = Results(tmp_path / "kept.json").runs
    assert [(run.method, run.flags, run.repeat, run.seconds) for run in runs] == [
        ("fan-out", "", 0, 9.0),
        ("helix", "", 0, 5.0),
        ("helix", "--enable-mixed-chunk", 0, 4.0),
        ("fan-out", "", 1, 8.0),
    ]
    assert all(run.texts == {} for run in runs)
    assert [mismatches(run, runs[0]) for run in runs] == [0.0, 0.0, 0.0, 1.0]


def test_a_page_has_the_best_of_the_others_beside_the_best_of_helix(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "Before.\n<!-- ample lpm -->\nold\n<!-- end -->\n<!-- ample fcfs -->\n<!-- end -->\nAfter.\n", "utf-8"
    )
    common = {"calls": 1200, "prefilled": 300, "least": 200}
    runs = [
        *(made_run("fan-out", at_once=8, repeat=at, seconds=8.0 + at, **common) for at in range(3)),
        made_run("everything", seconds=8.5, failures=["row 0"], **common),
        made_run("langgraph", seconds=9.5, **common),
        made_run("helix", seconds=6.0, **common),
        made_run("helix", seconds=4.0, flags="--enable-mixed-chunk", calls=1000, prefilled=220, least=200),
    ]
    write(page, runs)
    text = page.read_text("utf-8")
    assert "| W1 | 1,200 | `fan-out 8` | 9.0 (8.0-10.0) | 3 | 1.50 | 4.0 | 1 | 1.10 | 2.25 |" in text
    assert "| geometric mean | | | | | | | | | 2.25 |" in text
    assert "old" not in text
    assert "Not measured yet." in text
    page.write_text("Nothing here.\n", "utf-8")
    with pytest.raises(ValueError, match="has no line like"):
        write(page, runs)


def test_runs_on_two_machines_are_not_compared(tmp_path: Path) -> None:
    kept = Results(tmp_path / "kept.json")
    kept.keep([made_run("fan-out", at_once=8, seconds=8.0), made_run("helix", seconds=4.0)], "first")
    for _ in range(2):  # the same one once more is no repeat
        kept.keep([made_run("everything", seconds=6.0)], "second")
    assert len(kept.runs) == 3
    assert [each.ratios for each in standings(kept.runs, "ample", "lpm")] == [[2.0]]
    slower = [made_run("everything", seconds=9.0), made_run("fan-out", at_once=8, seconds=12.0)]
    kept.keep([*slower, made_run("helix", seconds=6.0)], "third")
    (place,) = standings(Results(tmp_path / "kept.json").runs, "ample", "lpm")
    assert place.ratios == [2.0, 1.5]
    page = tmp_path / "page.md"
    page.write_text("<!-- ample lpm -->\n<!-- end -->\n", "utf-8")
    write(page, kept.runs)
    text = page.read_text("utf-8")
    assert "| `fan-out 8`, `everything` | 8.0 / 9.0 | 2 |" in text
    assert "| 4.0 / 6.0 | 2 |" in text
    assert "| 1.75 (1.50-2.00) |" in text


def test_the_tables_of_the_page_are_those_of_the_kept_runs(tmp_path: Path) -> None:
    page = ROOT / "docs" / "reference" / "benchmarks.md"
    kept = Results(page.with_name("engine-runs.json")).runs
    assert kept
    copy = tmp_path / "page.md"
    copy.write_bytes(page.read_bytes())
    write(copy, kept)
    assert copy.read_text("utf-8") == page.read_text("utf-8")
