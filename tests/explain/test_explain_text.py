"""The text: golden files, sections that come and go, and no line wider than it may be."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from explain_support import EXAMPLES, ROWS, RULES, TWICE, example, explained

from helix import api
from helix.explain.layout import shortened, table, wrapped
from helix.explain.text import measured_notes
from helix.show import cells, plan_text

GOLDEN = Path(__file__).parent / "golden"
PLAIN = 'workflow w(a: text)\n\nx = llm { user "{{ a }}" }\n\noutput x\n'
NO_CALLS = "workflow w(n: int)\n\noutput n + 1 as m\n"


def twice(**options: Any) -> str:
    return explained(TWICE, ROWS, prices=(0.5, 2.0, 0.05)).text(width=90, **options)


GOLDENS = {
    "twice": twice,
    "triage": lambda **options: example("triage", "tickets.jsonl", limit=5).text(width=100, **options),
    "trading": lambda **options: example("trading").text(stage="tree", width=100),
    "twice_verbose": lambda **options: explained(TWICE).text(stage="optimized", width=90, verbose=True),
}


@pytest.mark.parametrize("name", sorted(GOLDENS))
def test_golden(name: str, update_golden: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES.parent)
    path = GOLDEN / f"{name}.txt"
    found = re.sub(r"\S*/(?=tickets\.jsonl)", "", GOLDENS[name]())
    if update_golden:
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8")


def test_a_small_workflow_is_told_in_few_lines() -> None:
    text = explained(PLAIN).text()
    assert text.startswith("Plan\nSink x\n")
    assert "Rules: none applies\n" in text
    assert "Optimized plan" not in text
    assert "Prompts" not in text
    assert text.endswith("(model)\n")
    assert len(text.splitlines()) < 25
    assert "\n\n\n" not in text


def test_without_calls_there_is_no_cost() -> None:
    text = explained(NO_CALLS).text()
    assert text.endswith("Cost: no calls\n")
    assert explained(NO_CALLS).text(stage="tree") == "Prompts (what they share)\nno llm steps\n"


def test_the_optimized_plan_is_shown_where_it_asks_something_else() -> None:
    text = explained(TWICE).text()
    assert "Logical plan\n" in text
    assert "Optimized plan\n" in text
    assert "merge_equal_steps  merges gist into short" in text
    assert "drop_dead_steps    drops spare" in text
    assert "llm calls 4 → 3" in text
    same = example("triage").text()
    assert "Optimized plan\n" not in same
    assert "The optimized plan makes the same calls" in same


def test_no_rules_at_all() -> None:
    text = explained(TWICE, rules=[]).text()
    assert "Rules: none was to be tried" in text
    assert "merge_equal_steps" not in text


def test_stages() -> None:
    made = explained(TWICE)
    assert made.text(stage="logical").startswith("Logical plan\n" + plan_text(made.report.plain))
    assert "Cost" not in made.text(stage="logical")
    assert plan_text(made.plan) in made.text(stage="optimized")
    assert made.text(stage="optimized").startswith("Rules (estimates for one row)")
    assert made.text(stage="tree").startswith("Prompts (what they share)\n")
    assert made.text(stage="cost").startswith("Cost, estimated for one row\n")
    assert "warning: step `spare` is never used (test.helix:11:1)" in made.text(stage="logical")


def test_verbose_tells_why_and_what_else_was_tried() -> None:
    text = explained(TWICE).text(verbose=True)
    assert "law: x = f(a), y = f(a) is x = f(a), y = x." in text
    assert re.search(r"sound: only steps whose\s+results", text)
    assert "changed nothing: fold_constants" in text
    assert "operators: " in text


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("name", ["triage", "trading", "group_reduce", "parallel_chains"])
def test_no_line_is_too_wide(name: str, width: int) -> None:
    made = api.explain(api.load(EXAMPLES / name / f"{name}.helix"), prices=(1, 2))
    text = made.text(width=width, verbose=True)
    assert [line for line in text.splitlines() if cells(line) > width] == []
    painted = made.text(width=width, verbose=True, color=True)
    assert re.sub("\x1b\\[[0-9;]*m", "", painted) == text
    assert painted != text


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_measured_line_is_too_wide(width: int) -> None:
    made = explained(TWICE, ROWS, analyze=True, engine="scripted")
    assert [line for line in made.text(width=width).splitlines() if cells(line) > width] == []


def test_a_narrower_width_than_forty_is_forty() -> None:
    made = explained(TWICE)
    assert made.text(width=1) == made.text(width=40)


def test_the_figures_of_a_real_table() -> None:
    made = explained(TWICE, ROWS)
    text = made.text(stage="cost")
    assert "Cost, estimated for 3 rows\n" in text
    assert "1 of 4 rows cannot be used and are not called (input.null 1)" in text.replace("\n  ", " ")
    plain, better = made.report.costs.plain, made.report.costs.optimized
    assert (plain.rows, better.rows) == (3.0, 3.0)
    # Two different texts: one call each for `short` and for `title`.
    assert better.calls == 4
    assert made.report.table is not None
    assert made.report.table.stats.columns["text"].distinct == 2


def test_money_is_there_only_with_prices() -> None:
    assert "money" not in explained(TWICE).text()
    text = explained(TWICE, ROWS, prices=(1_000_000, 0)).text(stage="cost")
    (line,) = [each for each in text.splitlines() if "money, USD" in each]
    cost = explained(TWICE, ROWS, prices=(1_000_000, 0)).report.costs
    assert f"{cost.optimized.prompt_tokens:,.2f}" in line


def test_estimates_of_an_engines_time_name_the_engine() -> None:
    local = explained(PLAIN).text(stage="cost").replace("\n  ", " ")
    assert "seconds are those of SmolLM2-135M on two cores (model)" in local
    model = 'model main { engine: "http://127.0.0.1:1/v1" }'
    server = explained(PLAIN.replace("\n\nx", f"\n\n{model}\n\nx")).text(stage="cost")
    assert "seconds are those of Llama-3.1-8B on H100 (model)" in server.replace("\n  ", " ")


def test_the_same_rules_are_tried_whatever_their_order() -> None:
    assert explained(TWICE, rules=RULES[::-1]).text() == explained(TWICE).text()


# --- layout -------------------------------------------------------------------------------------------------------


def test_wrapping_cuts_words_that_are_too_long_and_hangs_the_rest() -> None:
    assert wrapped("one two three", 9, first="- ") == ["- one two", "three"]
    assert wrapped("one two three", 12, first="- ") == ["- one two", "  three"]
    assert wrapped("abcdefghijkl", 8, first="  ", then="") == ["  abcdef", "ghijkl"]
    assert wrapped("日本語日本語", 8) == ["日本語日", "本語"]
    assert wrapped("", 10, first="x") == ["x"]


def test_shortening_counts_cells() -> None:
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("abcdefg", 6) == "abc..."
    assert shortened("日本語", 5) == "日..."
    assert shortened("abcdef", 2) == ".."


def test_a_table_that_is_too_wide_becomes_blocks() -> None:
    rows = [["", "plain", "optimized"], ["calls", "12", "9"], ["tokens", "100", ""]]
    assert table(rows, 40) == ["          plain  optimized", "  calls      12          9", "  tokens    100"]
    assert table(rows, 20) == [
        "  calls",
        "    plain      12",
        "    optimized  9",
        "  tokens",
        "    plain      100",
    ]


def test_bounds_of_another_engine_are_left_out() -> None:
    made = explained(TWICE, ROWS, analyze=True, engine="scripted")
    measured = made.report.measured
    assert measured is not None
    assert measured.bounds is not None
    # The scripted engine answers at once, faster than the model of a real one allows.
    assert measured.bounds.lower_bound > measured.seconds
    assert not any("no schedule" in note for note in measured_notes(measured))
    slow = measured_notes(replace(measured, seconds=2 * measured.bounds.lower_bound))
    assert any(note.endswith("this run took 2.0 times that") for note in slow)
