"""Reports of whole runs, on an engine whose cache and tokens are known exactly."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from caching import CachingEngine
from golden import cases, record, update
from running import ROOT

import helix
from helix.errors import EngineError
from helix.report.measures import RunMeasures

HERE = ROOT / "tests" / "report"
TEXT = """workflow t(a: text, doc: text)
x = llm { system "be brief and kind" user "{{ doc }} {{ a }}" }
y = llm { system "be brief and kind" user "{{ doc }} {{ a }} then {{ x }}" }
output x, y
"""
ROWS = [{"a": f"q{number}", "doc": f"d{number % 2} of the town"} for number in range(6)]


def reported(text: str = TEXT, rows: Any = ROWS, engine: Any = None, **options: Any) -> RunMeasures:
    options = {"concurrency": 1, **options}
    result = helix.loads(text).run(rows, engine=engine or CachingEngine(), report=True, **options)
    assert result.run_report is not None
    return result.run_report


def p_min() -> int:
    """The tokens on distinct beginnings of TEXT over ROWS, by hand."""
    engine = CachingEngine()
    prompts: set[tuple[int, ...]] = set()
    for row in ROWS:
        for more in ("", " then so it is"):
            messages = [("system", "be brief and kind"), ("user", f"{row['doc']} {row['a']}{more}")]
            tokens = engine.prompt([helix_message(*each) for each in messages])
            prompts.update(tuple(tokens[:end]) for end in range(1, len(tokens) + 1))
    return len(prompts)


def helix_message(role: str, content: str) -> Any:
    from helix.executor.engines.base import Message

    return Message(role=role, content=content)


@pytest.mark.parametrize("whole", [True, False])
def test_distinct_prefixes_are_counted_by_the_engine_s_tokens(whole: bool) -> None:
    made = reported(engine=CachingEngine(whole=whole))
    assert made.prefixes is not None
    assert made.prefixes.exact
    assert made.prefixes.p_min == p_min()
    assert (made.prefixes.calls, made.prefixes.all_calls) == (12, 12)
    # One call at a time on a cache that forgets nothing computes each distinct token once.
    assert made.prefixes.prefilled == made.prefilled == p_min()
    assert made.prefixes.amplification == 1.0
    assert made.bounds is not None
    assert not made.bounds.estimated
    assert made.bounds.p_min == p_min()


def test_totals_are_those_of_the_engine() -> None:
    made = reported()
    assert (made.llm_calls, made.tool_calls, made.merged, made.fetched, made.warmups) == (12, 0, 0, 0, 0)
    prompt = sum(2 + 4 + 2 + 4 + 1 + 2 + more for _ in ROWS for more in (0, 4))
    assert made.tokens.prompt == made.without.prompt_tokens == prompt
    assert made.tokens.cached == prompt - p_min()
    assert made.tokens.generated == 12 * 3
    assert [step.step for step in made.steps] == ["x", "y"]
    assert sum(step.tokens.prefilled or 0 for step in made.steps) == p_min()
    assert sum(phase.calls for phase in made.phases) == 12
    assert made.without.basis == "counted"
    assert made.makespan > 0
    assert 0 < made.plan_seconds < 10


def test_an_engine_without_a_tokenizer_is_compared_by_bytes_and_says_so() -> None:
    made = reported(engine="scripted")
    assert made.prefixes is not None
    assert (made.prefixes.exact, made.prefixes.prefilled, made.prefixes.amplification) == (False, None, None)
    assert made.bounds is not None
    assert made.bounds.estimated
    assert (made.tokens.cached, made.tokens.prefilled, made.prefilled, made.tokens.hit_rate) == (None,) * 4
    assert "prefilled tokens: not told by 12 of 12 replies" in made.text()


def test_a_tokenizer_that_fails_leaves_the_estimate_and_a_note() -> None:
    class Mute(CachingEngine):
        async def tokenize(self, text: str) -> list[int]:
            raise EngineError("no tokens today")

    made = reported(engine=Mute(whole=False))
    assert made.prefixes is not None
    assert not made.prefixes.exact
    assert any("no tokens today" in note for note in made.notes)
    assert made.tokens.prefilled == p_min()


def test_an_interrupt_while_prefixes_are_counted_loses_nothing_else() -> None:
    class Stuck(CachingEngine):
        async def tokenize(self, text: str) -> list[int]:
            begun.set()
            await asyncio.Event().wait()
            return []

    begun = asyncio.Event()
    engine = Stuck(whole=False)

    async def main() -> helix.RunResult:
        task = asyncio.ensure_future(helix.loads(TEXT).arun(ROWS, engine=engine, report=True, concurrency=1))
        await begun.wait()
        task.cancel()
        return await task

    result = asyncio.run(asyncio.wait_for(main(), 20))
    assert [row["y"] for row in result.rows] == ["so it is"] * 6
    made = result.run_report
    assert made is not None
    assert (made.prefixes, made.bounds, made.llm_calls) == (None, None, 12)
    assert any("interrupted" in note for note in made.notes)


def test_only_so_many_prompts_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helix.reporting.MOST_PROMPTS", 4)
    engine = CachingEngine()
    made = reported(engine=engine)
    assert made.prefixes is not None
    assert (made.prefixes.calls, made.prefixes.all_calls, engine.asked) == (4, 12, 4)
    assert made.prefixes.amplification == 1.0
    assert "of the first 4 calls" in made.text()


def test_a_slow_tokenizer_is_asked_for_the_first_prompts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helix.reporting.AT_ONCE", 3)
    times = iter([0.0, 1.0, 2.0, 99.0, 99.0])
    monkeypatch.setattr("helix.reporting.monotonic", lambda: next(times))
    made = reported()
    assert made.prefixes is not None
    assert (made.prefixes.calls, made.prefixes.all_calls) == (6, 12)
    assert made.prefixes.exact


def test_prompts_that_go_on_from_a_reply_do_not_prefill_it() -> None:
    text = """workflow t(a: text)
x = llm { user "{{ a }}" }
y = llm { user "{{ a }}" assistant "{{ x }}" user "and then?" }
output y
"""
    engine = CachingEngine("one two three")
    made = reported(text, [{"a": "q"}], engine)
    assert made.prefixes is not None
    first, second = 2 + 1 + 2, 2 + 1 + 2 + 3 + 2 + 2 + 2
    # The reply's three words are in the cache from their decoding; the engine here computes them again.
    assert made.prefixes.p_min == second - 3
    assert made.prefixes.prefilled == first + (second - first)


def test_ranks_are_told_apart() -> None:
    made = reported(engine=CachingEngine(ranks=2))
    assert [(rank.rank, rank.calls) for rank in made.ranks] == [(0, 6), (1, 6)]
    assert sum(rank.tokens.prefilled or 0 for rank in made.ranks) == made.prefilled
    assert made.prefixes is not None
    assert (made.prefixes.amplification or 0) > 1.0
    assert "ranks by calls and hit rate: 0: 6 calls" in made.text()


def test_several_models_have_no_common_prefixes() -> None:
    head, _, steps = TEXT.partition("\n")
    steps = steps.replace("y = llm {", "y = llm n {").replace("x = llm {", "x = llm m {")
    text = f'{head}\nmodel m {{ name: "m" }}\nmodel n {{ name: "n" }}\n{steps}'
    made = reported(text)
    assert made.prefixes is None
    assert made.bounds is None
    assert any("several models" in note for note in made.notes)


def test_what_rules_took_out_is_told_as_an_estimate() -> None:
    text = """workflow t(a: text)
x = llm { user "{{ a }}" }
z = llm { user "{{ a }}" }
output x, z
"""
    made = reported(text, [{"a": "p"}, {"a": "q"}])
    assert (made.llm_calls, made.without.calls, made.without.by_rules) == (2, 2, 2.0)
    assert "times 2.00 for what the rules took out (estimated)" in made.text()


def test_predicted_lengths_are_those_of_the_estimate() -> None:
    made = reported(TEXT.replace("x = llm {", "x = llm(max_tokens: 40) {"))
    lengths = {step.step: step.length for step in made.steps}
    assert lengths["x"] is not None
    assert (lengths["x"].predicted, lengths["x"].source, lengths["x"].actual) == (20.0, "declared", 3.0)
    assert lengths["x"].error == pytest.approx(-0.85)
    assert lengths["y"] is not None
    assert (lengths["y"].predicted, lengths["y"].source) == (256.0, "assumed")


def test_a_run_that_the_engine_refuses_has_no_report() -> None:
    engine = helix.ScriptedEngine(reply=lambda request: EngineError("no such model", status=404, fatal=True))
    with pytest.raises(EngineError, match="no such model"):
        helix.loads(TEXT).run(ROWS, engine=engine, report=True)


def test_failed_rows_are_in_the_report() -> None:
    engine = helix.ScriptedEngine(rules=[{"step": "x", "row": 2, "error": 400}])
    made = reported(engine=engine)
    assert (made.outcome, made.failed_rows, made.failed_calls, made.llm_calls) == ("failed_rows", 1, 1, 11)


# --- the whole JSON ------------------------------------------------------------------------------------------------

VOLATILE = {"makespan", "planning", "seconds", "held", "begins", "ends", "busy", "makespan_over_bound", "prefill"}


def masked(value: Any) -> Any:
    """The report without what the clock says."""
    if isinstance(value, list):
        return [masked(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {key: "..." if key in VOLATILE and isinstance(each, float) else masked(each) for key, each in value.items()}


def produce(text: str) -> str:
    made = reported(text, ROWS).to_json()
    # Which third of so short a run a call falls into is the clock's.
    made["phases"] = [{key: each[key] for key in ("name", "by")} for each in made["phases"]]
    made["bounds"] |= {"critical_path": round(made["bounds"]["critical_path"], 6)}
    made["bounds"] |= {"engine": round(made["bounds"]["engine"], 6), "kv_area": round(made["bounds"]["kv_area"], 9)}
    made["bounds"]["lower_bound"] = round(made["bounds"]["lower_bound"], 6)
    return json.dumps(masked(made), indent=1, allow_nan=False) + "\n"


@pytest.mark.parametrize(("path", "title"), cases(HERE), ids=str)
def test_reports_are_as_they_were(path: Any, title: str, update_golden: bool) -> None:
    if update_golden:
        update(path, produce)
    found = record(path, title)
    assert produce(found.before) == found.after


def documented() -> dict[str, set[str]]:
    """The keys in the table of the reference, each with the names in its second cell."""
    text = (ROOT / "docs" / "reference" / "report.md").read_text(encoding="utf-8").partition("## JSON")[2]
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        if line.startswith("| `"):
            keys, value = line.strip("| ").split(" | ", 1)
            for key in keys.split(", "):
                found[key.strip("`")] = set(value.split("`")[1::2])
    return found


def test_keys_are_those_of_the_reference() -> None:
    made = reported(engine=CachingEngine(ranks=2)).to_json()
    told = documented()
    assert set(told) == set(made)
    for key in ("rows", "seconds", "calls", "tokens", "prefixes", "bounds", "shares", "without_helix"):
        assert set(made[key]) <= told[key], key
    for key in ("phases", "steps", "ranks"):
        assert set(made[key][0]) <= told[key], key
    assert set(made["steps"][0]["length"]) <= told["steps"]
