"""Sums over records with exact figures."""

from __future__ import annotations

from typing import Any

import pytest

from helix.optimizer.engine_time import H100
from helix.records import CallRecord
from helix.report.build import Predicted, RunFacts, measure
from helix.report.shares import fit, prefill_share, shares_of
from helix.report.tallies import covered, covered_alone, percentile, phases_of, ranks_of, tokens_of
from helix.results import RunReport


def call(begins: float = 0.0, ends: float = 1.0, **fields: Any) -> CallRecord:
    given: dict[str, Any] = {
        "step": "x",
        "row": 0,
        "kind": "llm",
        "lane": "",
        "outcome": "made",
        "submitted": begins,
        "released": begins,
        "started": begins,
        "ended": ends,
        "prompt_tokens": 100,
        "cached_tokens": 60,
        "completion_tokens": 10,
        "attempts": 1,
    }
    return CallRecord(**{**given, **fields})


def test_tokens_add_up_and_the_hit_rate_is_cached_over_prompt() -> None:
    tokens = tokens_of([call(), call(prompt_tokens=300, cached_tokens=0)])
    assert (tokens.prompt, tokens.cached, tokens.prefilled, tokens.generated) == (400, 60, 340, 20)
    assert tokens.hit_rate == pytest.approx(0.15)


def test_one_reply_that_tells_nothing_leaves_the_sums_untold() -> None:
    tokens = tokens_of([call(), call(cached_tokens=None)])
    assert (tokens.prompt, tokens.cached, tokens.prefilled, tokens.untold) == (200, None, None, 1)
    assert tokens.hit_rate is None
    # A call that failed without a reply has nothing to tell.
    failed = call(outcome="failed", prompt_tokens=None, cached_tokens=None, completion_tokens=None)
    assert tokens_of([call(), failed]).hit_rate == pytest.approx(0.6)
    assert tokens_of([]).hit_rate is None


def test_phases_are_thirds_of_the_time() -> None:
    calls = [call(0, 1, cached_tokens=0), call(3.1, 4), call(5.9, 7), call(6.0, 8), call(8.9, 9)]
    phases = phases_of(calls)
    assert [(phase.name, phase.by, phase.begins, phase.ends, phase.calls) for phase in phases] == [
        ("warm-up", "time", 0.0, 3.0, 1),
        ("middle", "time", 3.0, 6.0, 3),
        ("drain", "time", 6.0, 9.0, 1),
    ]
    assert [phase.tokens.hit_rate for phase in phases] == pytest.approx([0.0, 0.6, 0.6])
    assert phases_of(calls[:2]) == ()


def test_phases_follow_the_cache_where_its_use_is_known() -> None:
    calls = [call(10, 11), call(12, 15), call(14, 18), call(19, 20)]
    phases = phases_of(calls, (12.0, 14.0))
    assert [(phase.by, phase.begins, phase.ends, phase.calls) for phase in phases] == [
        ("kv", 0.0, 2.0, 1),
        ("kv", 2.0, 4.0, 2),
        ("kv", 4.0, 10.0, 1),
    ]
    # A cache that was full for an instant has no middle.
    assert {phase.by for phase in phases_of(calls, (12.0, 12.0))} == {"time"}


def test_ranks_are_told_apart() -> None:
    calls = [call(0, 2, rank=1), call(1, 3, rank=1, cached_tokens=0), call(5, 6, rank=0), call(0, 9)]
    first, second = ranks_of(calls)
    assert (first.rank, first.calls, first.busy, first.tokens.hit_rate) == (0, 1, 1.0, pytest.approx(0.6))
    assert (second.rank, second.calls, second.busy, second.tokens.hit_rate) == (1, 2, 3.0, pytest.approx(0.3))


@pytest.mark.parametrize(
    ("own", "others", "all_of_it", "alone"),
    [
        ([], [(0, 1)], 0, 0),
        ([(0, 4)], [], 4, 4),
        ([(0, 4), (2, 6)], [(1, 2), (5, 9)], 6, 4),
        ([(0, 1), (3, 4), (6, 7)], [(0, 10)], 3, 0),
        ([(0, 10)], [(1, 2), (1, 3), (4, 5)], 10, 7),
        ([(1, 2), (8, 9)], [(0, 3), (4, 5), (8.5, 12)], 2, 0.5),
    ],
)
def test_time_spans(own: list[Any], others: list[Any], all_of_it: float, alone: float) -> None:
    assert covered(own) == pytest.approx(all_of_it)
    assert covered_alone(own, others) == pytest.approx(alone)


def test_shares_of_queues_and_tools() -> None:
    llm = [call(1, 3, submitted=0.0, queue_seconds=0.5), call(4, 6, submitted=2.0, queue_seconds=0.5)]
    tools = [call(3, 5, kind="tool", lane="tools")]
    shares = shares_of(llm, tools, 10.0, H100)
    assert shares.held == pytest.approx(3 / 7)
    assert shares.queued == pytest.approx(1 / 7)
    assert shares.tools == pytest.approx(0.2)
    assert shares.exposed_tools == pytest.approx(0.1)
    assert shares_of([], [], 10.0, H100).held is None


def test_a_fit_finds_what_prompts_and_replies_cost() -> None:
    points = [(float(x), float(y), 0.002 * x + 0.03 * y) for x in (0, 50, 400, 900) for y in (1, 8, 20)]
    assert fit(points) == pytest.approx((0.002, 0.03))
    # Prompts that cost nothing do not cost less than nothing.
    assert fit([(x, y, 0.03 * y - 0.0001 * x) for x, y, _ in points])[0] == 0.0
    # Replies as long as their prompts: their parts cannot be told apart.
    assert fit([(x, x, 3 * x) for x, _, _ in points]) is None
    # Times that hang on neither.
    assert fit([(x, y, 5.0 + number % 3) for number, (x, y, _) in enumerate(points)]) is None


def test_the_engine_s_share_of_prefill_is_fitted_where_calls_tell_it() -> None:
    calls = [
        call(0, 0.001 * fresh + 0.01 * written, prompt_tokens=fresh, cached_tokens=0, completion_tokens=written)
        for fresh in (10, 100, 500, 1000)
        for written in range(1, 9)
    ]
    share, basis = prefill_share(calls, H100)
    fresh, written = 8 * 1610, 4 * 36
    assert share == pytest.approx(0.001 * fresh / (0.001 * fresh + 0.01 * written))
    assert basis == "fitted to the times of 32 calls"
    share, basis = prefill_share(calls[:5], H100)
    assert basis == H100.name
    assert share is not None
    assert 0 < share < 1
    assert prefill_share([call(cached_tokens=None)], H100)[0] is None


@pytest.mark.parametrize(("values", "ninth"), [([5], 5), (list(range(1, 11)), 9), (list(range(1, 12)), 10)])
def test_percentile(values: list[float], ninth: float) -> None:
    assert percentile(values, 0.9) == ninth


def facts(**fields: Any) -> RunFacts:
    return RunFacts(**{"workflow": "t", "engine": "e", "kinds": {"x": "llm"}, **fields})


def test_without_helix_counts_merged_calls_with_their_tokens() -> None:
    records = [
        call(prompt_tokens=100, completion_tokens=10),
        call(outcome="merged", prompt_tokens=100, cached_tokens=60, completion_tokens=10),
        call(outcome="failed", prompt_tokens=None, cached_tokens=None, completion_tokens=None),
        call(kind="tool", step="y", outcome="merged", prompt_tokens=None, completion_tokens=None),
    ]
    without = measure(RunReport(), records, facts()).without
    assert (without.calls, without.tool_calls) == (3, 1)
    assert (without.prompt_tokens, without.generated_tokens, without.basis) == (200, 20, "counted")


def test_without_helix_takes_fetched_calls_to_be_like_the_others_of_their_step() -> None:
    records = [
        call(prompt_tokens=100, completion_tokens=10),
        call(prompt_tokens=200, completion_tokens=20),
        call(outcome="fetched", prompt_tokens=None, cached_tokens=None, completion_tokens=None),
    ]
    without = measure(RunReport(), records, facts()).without
    assert (without.calls, without.prompt_tokens, without.generated_tokens) == (3, 450, 45)
    assert without.basis == "estimated"
    # Where no call of the step was made at all, they are what the plan's estimate says.
    without = measure(RunReport(), records[2:], facts(typical={"x": (70.0, 7.0)})).without
    assert (without.calls, without.prompt_tokens, without.generated_tokens) == (1, 70, 7)


def test_lengths_are_held_against_what_was_predicted() -> None:
    records = [call(completion_tokens=tokens) for tokens in (10, 20, 30)]
    # Of a call that was asked again only the sum of both replies is known.
    records.append(call(completion_tokens=90, attempts=2))
    predicted = {"x": Predicted(length=16.0, source="declared")}
    (step,) = measure(RunReport(), records, facts(predicted=predicted)).steps
    assert step.length is not None
    assert (step.length.actual, step.length.p90, step.length.error) == (20.0, 30.0, 0.25)


def test_steps_without_a_call_are_told_too() -> None:
    made = measure(RunReport(), [], facts(kinds={"x": "llm", "y": "tool"}))
    assert [(step.step, step.kind, step.calls) for step in made.steps] == [("x", "llm", 0), ("y", "tool", 0)]
    assert made.phases == made.ranks == ()
    assert made.text().startswith("without Helix: 0 calls")


def test_warm_ups_are_in_the_prefilled_tokens() -> None:
    report = RunReport(warmups=2, warmup_tokens=300)
    made = measure(report, [call()], facts())
    assert (made.tokens.prefilled, made.prefilled) == (40, 340)
    assert made.to_json()["tokens"]["prefilled"] == 340
    assert made.to_json()["tokens"]["prefilled_by_warmups"] == 300
    assert measure(report, [call(cached_tokens=None)], facts()).prefilled is None
