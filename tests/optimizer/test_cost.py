"""Costs by hand: small plans whose calls and tokens can be counted on paper, over rows, statistics, and one row."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
from compared import Tools
from plans_support import asked_of, plan_of

from helix.optimizer.cost import Comparison, Cost, CostSettings, Prices, estimate
from helix.optimizer.engine_time import EngineTime
from helix.optimizer.lengths import Lengths
from helix.optimizer.stats import table_stats
from helix.optimizer.tokens import Tokenizer, from_ids
from helix.optimizer.tokens import estimate as estimated
from helix.optimizer.tree import build_tree

# A token for each character and none for turns: tokens can be counted in the text.
CHARS = from_ids("characters", lambda text: [ord(char) for char in text], turn=0)
# Constants of round numbers: a millisecond a token of prefill, ten a decode step.
ROUND = EngineTime(name="round", a=0.0, b=1.0, c=0.0, d=10.0, e=0.0, f=0.0, batch=1, capacity=1000, chunk=1000)


def cost_of(
    text: str,
    rows: Sequence[Mapping[str, Any]] | None = None,
    *,
    tokenizer: Tokenizer = CHARS,
    lengths: Mapping[str, int] | None = None,
    stats: bool = False,
    **settings: Any,
) -> Cost:
    """The cost of a workflow; `lengths` are those of replies by step, `stats` takes the rows' statistics only."""
    plan = plan_of(text)
    sample = Lengths(sample={step: [size] for step, size in (lengths or {}).items()})
    return estimate(
        plan,
        build_tree(plan, tokenizer),
        tokenizer,
        rows=None if stats else rows,
        stats=table_stats(rows or [], tokenizer) if stats else None,
        settings=CostSettings(lengths=sample, **settings),
    )


GOLDEN = """
    workflow w(q: text)
    op1 = llm { system "SSSSSSSSSS" user "{{ q }}" }
    op2 = llm { system "TTTTTTTTTTTTTTT" user "{{ q }}" }
    op3 = llm { system "TTTTTTTTTTTTTTT" user "{{ q }} so: {{ op1 }}" }
    output op1, op2, op3
"""


@pytest.mark.parametrize("way", ["tokens", "values", "statistics"])
def test_the_golden_workload(way: str) -> None:
    """P_min = |S1| + |S2| + N (2 |Q| + suffixes + |answer|): each row's question once under each system prompt."""
    # Questions of 26 characters that differ in their first one, so that they share nothing.
    rows = [{"q": f"{chr(97 + n)}{'.' * 25}"} for n in range(20)]
    lengths = {"op1": 30, "op2": 5, "op3": 5}
    exact = 50_000 if way == "tokens" else 0
    cost = cost_of(GOLDEN, rows, lengths=lengths, stats=way == "statistics", exact_calls=exact)
    assert cost.p_min_kind == way
    assert cost.p_min == pytest.approx(10 + 15 + 20 * (2 * 26 + len(" so: ") + 30))
    assert cost.calls == pytest.approx(60)
    prompts = 20 * ((10 + 26) + (15 + 26) + (15 + 26 + 5 + 30))
    assert cost.prompt_tokens == pytest.approx(prompts)
    assert cost.cached_tokens == pytest.approx(prompts - cost.p_min)
    assert cost.output_tokens == pytest.approx(20 * 40)


def test_common_beginnings_inside_values_count_only_by_tokens() -> None:
    rows = [{"q": "the same beginning, then 1"}, {"q": "the same beginning, then 2"}]
    text = 'workflow w(q: text)\na = llm { user "{{ q }}" }\noutput a'
    assert cost_of(text, rows).p_min == 26 + 1
    assert cost_of(text, rows, exact_calls=0).p_min == 26 + 26


def test_a_reply_continued_in_place_is_not_prefilled() -> None:
    text = """
        workflow w(q: text)
        draft = llm { user "{{ q }}" }
        better = llm { user "{{ q }}" assistant "{{ draft }}" user "Shorter." }
        output better
    """
    rows = [{"q": "abcd"}, {"q": "efghi"}]
    for exact in (0, 100):
        cost = cost_of(text, rows, lengths={"draft": 40, "better": 10}, exact_calls=exact)
        assert cost.p_min == 4 + 5 + 2 * len("Shorter.")
        assert cost.prompt_tokens == 9 + 9 + 2 * (40 + len("Shorter."))


def test_equal_prompts_are_made_once() -> None:
    text = """
        workflow w(q: text, note: text)
        model warm { temperature: 0.9 }
        model cold { temperature: 0 }
        a = llm cold { user "{{ q }}" }
        b = llm cold { user "{{ a }}" }
        c = llm warm(sample: 2) { user "{{ q }}" }
        output b, c, note
    """
    rows = [{"q": "x", "note": "1"}, {"q": "x", "note": "2"}, {"q": "y", "note": "3"}]
    cost = cost_of(text, rows, lengths={"a": 10, "b": 10, "c": 10})
    steps = {step.step: step for step in cost.steps}
    assert (steps["a"].calls, steps["a"].merged) == (2, 1)
    assert (steps["b"].calls, steps["b"].merged) == (2, 1)
    assert (steps["c"].calls, steps["c"].merged) == (6, 0)
    assert (cost.calls, cost.merged) == (10, 2)
    by_stats = cost_of(text, rows, lengths={"a": 10, "b": 10, "c": 10}, stats=True)
    assert by_stats.calls == pytest.approx(10)


def test_branches_filters_and_lists_by_hand() -> None:
    text = """
        workflow w(q: text, parts: list[text])
        keep when q != "drop"
        kind = llm -> choice["a", "b", "c", "d"] { user "{{ q }}" }
        if kind == "a" { x = llm { user "1{{ q }}" } } else { x = llm { user "2{{ q }}" } }
        if q == "yes" { y = llm { user "3{{ q }}" } }
        each = for part in parts { v = llm { user "4{{ part }}" } yield v }
        r = q
        repeat up to 3 until r == "ok" { r = llm { user "5{{ r }}" } }
        output x, y, each, r
    """
    rows = [
        {"q": "yes", "parts": ["p", "q"]},
        {"q": "no", "parts": []},
        {"q": "drop", "parts": ["r", "s", "t"]},
        {"q": "maybe", "parts": ["p"]},
    ]
    cost = cost_of(text, rows, lengths={"kind": 3, "x": 10, "y": 10, "each.v": 7, "r": 9})
    steps = {step.step: step for step in cost.steps}
    assert steps["kind"].calls == 3
    assert steps["x"].calls == pytest.approx(3)
    assert steps["y"].calls == 1
    # Three items, two of them equal.
    assert (steps["each.v"].calls, steps["each.v"].merged) == (2, 1)
    # The first round always, the others with falling chance: 1 + 2/3 + 1/3 for each row.
    assert steps["r"].calls == pytest.approx(6)
    assert steps["kind"].prompt_tokens == len("yes") + len("no") + len("maybe")
    assert steps["y"].prompt_tokens == len("3yes")
    # In the first round the text is the row's, later the step's own reply.
    assert steps["r"].output == 9
    assert "assumed: loops that may stop early end evenly over their rounds" in cost.notes
    assert "assumed: filters keep half of the rows" not in cost.notes


@pytest.mark.parametrize("exact", [0, 100])
def test_branches_that_nobody_knows_count_by_their_chance(exact: int) -> None:
    text = """
        workflow w(q: text)
        kind = llm -> choice["a", "b", "c", "d"] { user "{{ q }}" }
        if kind == "a" { x = llm { user "first {{ q }}" } } else { x = llm { user "other {{ q }}" } }
        output x
    """
    cost = cost_of(text, [{"q": "qqqq"}], lengths={"kind": 1, "x": 1}, exact_calls=exact)
    assert cost.p_min_kind == ("tokens" if exact else "values")
    assert cost.p_min == pytest.approx(4 + 0.25 * 10 + 0.75 * 10)
    assert cost.calls == pytest.approx(2)


def test_one_row_without_a_table() -> None:
    cost = cost_of(GOLDEN, lengths={"op1": 30, "op2": 5, "op3": 5})
    assert (cost.rows, cost.calls) == (1, 3)
    assert cost.p_min_kind == "statistics"
    assert "estimated for one row without a table" in cost.notes
    # The question is taken for 64 tokens.
    assert cost.prompt_tokens == (10 + 64) + (15 + 64) + (15 + 64 + 5 + 30)


def test_statistics_know_dependencies() -> None:
    text = 'workflow w(id: text, doc: text, q: text)\na = llm { user "{{ doc }}{{ id }}{{ q }}" }\noutput a'
    rows = [{"id": f"{n // 6:03}", "doc": f"doc {n // 6:03}", "q": f"question {n:03}"} for n in range(60)]
    counted = cost_of(text, rows, exact_calls=0)
    guessed = cost_of(text, rows, stats=True)
    assert counted.p_min == 10 * (7 + 3) + 60 * 12
    # Documents, then documents with their id, which the document decides, then all.
    assert guessed.p_min == pytest.approx(counted.p_min)


def test_estimated_calls_are_those_of_a_run() -> None:
    text = """
        workflow w(doc: text, parts: list[text], kind: choice["x", "y"])
        keep when doc != "skip"
        a = llm { user "{{ doc }}" }
        if kind == "x" { b = llm { user "{{ a }} {{ doc }}" } } else { b = llm { user "{{ doc }}!" } }
        each = for part in parts { v = llm { user "{{ part }} {{ kind }}" } yield v }
        spread parts as part
        c = llm { user "{{ part }} {{ a }}" }
        group by kind { s = llm { user "{{ kind }} {{ rows | len }}" } }
        output s
    """
    rows: list[dict[str, Any]] = [
        {"doc": "one", "parts": ["p", "q"], "kind": "x"},
        {"doc": "one", "parts": ["p"], "kind": "y"},
        {"doc": "skip", "parts": ["p"], "kind": "y"},
        {"doc": "two", "parts": ["p", "p", "r"], "kind": "x"},
        {"doc": "three", "parts": [], "kind": "x"},
    ]
    asked, made = asked_of(plan_of(text), rows)
    assert not any(row["_error"] for row in made)
    cost = cost_of(text, rows)
    told = {step.step: step.calls for step in cost.steps}
    assert told == {step: sum(each.step == step for each in asked) for step in told}
    assert cost.calls == len(asked)


def test_seconds_and_money_by_hand() -> None:
    text = """
        workflow w(q: text)
        a = llm { user "{{ q }}" }
        b = llm { user "{{ a }}" }
        output b
    """
    rows = [{"q": "x" * 100}, {"q": "y" * 100}]
    prices = Prices(prompt=2.0, output=10.0, cached=0.5)
    cost = cost_of(text, rows, lengths={"a": 20, "b": 30}, engine=ROUND, prices=prices)
    assert cost.prompt_tokens == 200 + 40
    assert cost.p_min == 240
    assert cost.money == pytest.approx((240 * 2.0 + 100 * 10.0) / 1e6)
    bounds = cost.bounds
    assert bounds.estimated
    # 100 tokens in, 20 out, 20 in, 30 out, the first of each with its prompt: 0.1 + 0.19 + 0.02 + 0.29 seconds for one
    # row; twice that for the engine.
    assert bounds.critical_path == pytest.approx(0.60)
    assert bounds.engine == pytest.approx(1.20)
    # Private contexts over the decode steps of all calls, ten milliseconds each, in a cache of 1000 tokens.
    area = 2 * (100 * 19 + 190) + 2 * (20 * 29 + 435)
    assert bounds.kv_area == pytest.approx(area * 10 / 1000 / 1000)
    assert (bounds.binder, bounds.lower_bound) == ("engine", bounds.engine)
    assert cost.seconds == pytest.approx(1.20)


def test_tools_take_their_time_through_their_slots() -> None:
    text = """
        workflow w(q: text)
        tool look(key: text) -> text from python "lib:look" effects read, cost 2s
        a = look(q)
        b = llm { user "{{ a }}" }
        output b
    """
    rows = [{"q": str(n)} for n in range(10)]
    cost = cost_of(text, rows, lengths={"b": 1}, engine=ROUND, slots={"look": 4})
    assert cost.tool_calls == 10
    assert cost.bounds.tools == pytest.approx(5.0)
    assert cost.bounds.binder == "tools"
    # The tool's result is taken for 128 tokens; the one token of the reply comes with them.
    assert cost.bounds.critical_path == pytest.approx(2.0 + 0.128)
    assert "tools that declare no cost" not in " ".join(cost.notes)


def test_rows_beyond_the_limit_are_scaled_up() -> None:
    text = 'workflow w(q: text)\na = llm { user "{{ q }}" }\noutput a'
    rows = [{"q": f"question {n:04}"} for n in range(1000)]
    cost = cost_of(text, rows, exact_calls=0, most_calls=100)
    assert (cost.rows, cost.calls, cost.prompt_tokens) == (1000, 1000, 13_000)
    assert "counted over the first 100 of 1,000 rows and scaled up" in cost.notes


def test_rows_that_lack_an_input_are_not_called() -> None:
    text = 'workflow w(q: text)\na = llm { user "{{ q }}" }\noutput a'
    cost = cost_of(text, [{"q": "x"}, {"q": None}, {}, {"q": "  "}])
    assert cost.calls == 1
    assert "3 rows lack an input and are not called" in cost.notes


def test_declared_functions_are_computed_where_they_are_given() -> None:
    plan = plan_of("""
        workflow w(q: text)
        function weigh(text: text) -> int from python "lib:weigh"
        a = llm { user "{{ weigh(q) }}" }
        output a
    """)
    tree = build_tree(plan, CHARS)
    rows = [{"q": "x" * 12345}]
    without = estimate(plan, tree, CHARS, rows=rows)
    with_ = estimate(plan, tree, CHARS, rows=rows, callables=Tools().callables)
    assert with_.prompt_tokens == len("12345")
    assert without.prompt_tokens != with_.prompt_tokens
    assert with_.exact
    assert not without.exact


def test_json_of_a_cost() -> None:
    cost = cost_of(GOLDEN, [{"q": "x"}], prices=Prices(prompt=1, output=1))
    shown = json.loads(json.dumps(Comparison(plain=cost, optimized=cost).as_json()))
    assert shown["plain"]["calls"] == 3
    assert shown["optimized"]["bounds"]["binder"] in ("critical-path", "engine", "kv-area", "tools")
    assert [step["step"] for step in shown["plain"]["steps"]] == ["op1", "op2", "op3"]
    assert sum(step["cached_tokens"] for step in shown["plain"]["steps"]) == pytest.approx(cost.cached_tokens)


# --- what is assumed ---------------------------------------------------------------------------------------------


def test_estimates_say_so() -> None:
    cost = cost_of(GOLDEN, [{"q": "x"}], tokenizer=estimated())
    assert not cost.exact
    assert "tokens are estimated from characters" in cost.notes
    assert "lengths of replies are assumed to be 256 tokens" in cost.notes


def test_every_assumption_of_a_plan_is_named() -> None:
    text = """
        workflow w(q: text)
        parts = llm -> list[text] { user "{{ q }}" }
        keep when len(parts) > 1
        spread parts as part
        a = llm { user "{{ part }}" }
        if a == "x" { b = llm { user "{{ a }}" } }
        group by a { s = llm { user "{{ rows | len }}" } }
        output s
    """
    notes = " ".join(cost_of(text, [{"q": "x"}]).notes)
    for said in ("filters keep half", "lists of unknown length", "branches are taken evenly", "groups are a fifth"):
        assert said in notes
