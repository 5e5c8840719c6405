"""Rows are grouped by what prompts share, and the result is that of the plain run, byte for byte."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from plan_runs import run_plan
from prefixes import cached_share
from rules_support import plan_of, seen

from helix.canonical import canonical_text
from helix.executor import row_order, writer
from helix.executor.engines.base import Reply
from helix.executor.engines.scripted import ScriptedEngine
from helix.executor.run import Run
from helix.executor.settings import RunSettings
from helix.executor.spool import Spool
from helix.executor.tables import MemorySink, open_rows, open_sink
from helix.logical import LogicalPlan
from helix.optimizer.driver import optimize
from helix.optimizer.rule import RuleContext
from helix.optimizer.rules.order_rows import order_rows

TEXT = """
workflow w(question: text, policy: text)
reply = llm { system "Answer by this policy: {{ policy }}" user "{{ question }}" }
output question, reply
"""
TABLE = seen(1000, question=(1000, 20), policy=(12, 400))


def ordered(text: str, context: RuleContext = TABLE) -> tuple[str, ...]:
    """The columns by which the rule groups the rows of a workflow."""
    return optimize(plan_of(text), context, [order_rows]).plan.scan.order


def asking(*prompts: str, inputs: str = "a: text, b: text, c: text, d: text", more: str = "") -> str:
    steps = "\n".join(f'x{number} = llm {{ user "{prompt}" }}' for number, prompt in enumerate(prompts))
    names = ", ".join(f"x{number}" for number in range(len(prompts)))
    return f"workflow w({inputs})\n{more}\n{steps}\noutput {names}"


# --- by which columns ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompts", "context", "order"),
    [
        # The columns of the prompt in their order, as far as something repeats.
        (["{{ a }} {{ b }} {{ c }}"], seen(1000, a=(5, 90), b=(20, 90), c=(1000, 90)), ("a", "b")),
        (["{{ b }} {{ a }} {{ c }}"], seen(1000, a=(5, 90), b=(20, 90), c=(1000, 90)), ("b", "a")),
        # What stands after a value of each row's own is shared by nobody.
        (["{{ c }} {{ a }}"], seen(1000, a=(5, 90), c=(1000, 90)), ()),
        # Of two prompts the one with more tokens to win comes first.
        (["{{ a }} {{ c }}", "{{ b }} {{ c }}"], seen(1000, a=(5, 30), b=(5, 90), c=(1000, 5)), ("b", "a")),
        (["{{ a }} {{ c }}", "{{ b }} {{ c }}"], seen(1000, a=(5, 90), b=(5, 30), c=(1000, 5)), ("a", "b")),
        # A column that another one decides comes with it; before it, it makes larger groups.
        (["{{ a }} {{ b }} {{ c }}"], seen(1000, (("b", "a"),), a=(5, 90), b=(20, 90), c=(1000, 9)), ("a", "b")),
        (["{{ b }} {{ a }} {{ c }}"], seen(1000, (("b", "a"),), a=(5, 90), b=(20, 90), c=(1000, 9)), ("b",)),
        # Two columns in one piece: the one with the larger groups first.
        (["{{ a + b }} {{ c }}"], seen(1000, a=(20, 90), b=(5, 90), c=(1000, 9)), ("b", "a")),
        # A column with one value groups nothing.
        (["{{ a }} {{ c }}"], seen(1000, a=(1, 90), c=(1000, 9)), ()),
        (["{{ a }} {{ b }} {{ c }}"], seen(1000, a=(1, 90), b=(5, 90), c=(1000, 9)), ("b",)),
        # Not worth holding the result back for.
        (["{{ a }} {{ c }}"], seen(1000, a=(990, 90), c=(1000, 9)), ()),
        (["{{ a }} {{ c }}"], seen(1000, a=(5, 1), c=(1000, 500)), ()),
        # Equal prompts are one call already.
        (["{{ a }}"], seen(1000, a=(5, 90)), ()),
        (["{{ a }} {{ c }}"], seen(1, a=(1, 90), c=(1, 9)), ()),
    ],
)  # fmt: skip
def test_columns_are_those_that_win_the_most_tokens(
    prompts: list[str], context: RuleContext, order: tuple[str, ...]
) -> None:
    assert ordered(asking(*prompts), context) == order


def test_replies_are_decided_by_what_they_were_asked() -> None:
    context = seen(1000, a=(5, 90), b=(20, 90), c=(1000, 9))
    assert ordered(asking("{{ b }}", "{{ x0 }} {{ c }}"), context) == ("b",)
    sampled = 'y = llm(temperature: 1) { user "{{ b }}" }'
    assert ordered(asking("{{ y }} {{ c }}", more=sampled), seen(1000, b=(20, 9), c=(1000, 900))) == ()


def test_prompts_in_loops_and_branches_count() -> None:
    inside = """
workflow w(a: text, c: text, names: list[text])
views = for name in names {
  view = llm { user "{{ a }} {{ c }} {{ name }}" }
  yield view
}
output views
"""
    assert ordered(inside, seen(1000, a=(5, 90), c=(1000, 9), names=(1000, 9))) == ("a",)


CHUNKS = """
workflow w(chunks: list[text], q: text)
notes = for chunk in chunks {{
  note = llm {{ user "{prompt}" }}
  yield note
}}
output notes
"""


@pytest.mark.parametrize(
    ("prompt", "context", "order"),
    [
        # Rows with the same list have the same items.
        ("{{ chunk }} {{ q }}", seen(1000, chunks=(20, 900), q=(1000, 9)), ("chunks",)),
        ("{{ q }} {{ chunk }}", seen(1000, chunks=(20, 900), q=(1000, 9)), ()),
        ("{{ chunk }} {{ q }}", seen(1000, chunks=(1000, 900), q=(1000, 9)), ()),
        # The items take as many tokens as the column, what is passed into the loop its own.
        ("{{ chunk }} {{ q }}", seen(1000, chunks=(20, 4), q=(1000, 900)), ()),
    ],
)
def test_the_items_of_a_list_come_with_it(prompt: str, context: RuleContext, order: tuple[str, ...]) -> None:
    assert ordered(CHUNKS.format(prompt=prompt), context) == order


def test_items_of_what_changes_with_chance_are_decided_by_nothing() -> None:
    text = """
workflow w(a: text, q: text)
parts = llm(temperature: 1) -> list[text] { user "{{ a }}" }
notes = for part in parts {
  note = llm { user "{{ part }} {{ q }}" }
  yield note
}
output notes
"""
    assert ordered(text, seen(1000, a=(5, 1), q=(1000, 9))) == ()
    assert ordered(text.replace("(temperature: 1)", ""), seen(1000, a=(5, 1), q=(1000, 9))) == ("a",)


# --- where it must not fire ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [
        "sort by question",
        "limit 10",
        'group by policy {\n  reply = llm { user "{{ policy }}" }\n}'.replace("'", '"'),
        'tool save(text: text) -> json from python "lib:save" effects write\nsaved = save(question)',
        'tool save(text: text) -> json from python "lib:save"\nsaved = save(question)',
    ],
)
def test_what_takes_rows_as_they_come_or_acts_keeps_their_order(more: str) -> None:
    reply = 'reply = llm { system "By this: {{ policy }}" user "{{ question }}" }'
    shown = "policy" if more.startswith("group") else "question"
    first = "" if more.startswith("group") else reply
    text = f"workflow w(question: text, policy: text)\n{first}\n{more}\noutput {shown}, reply"
    plan = plan_of(text)
    assert order_rows(plan, TABLE) is plan


def test_without_a_look_at_the_table_nothing_changes() -> None:
    plan = plan_of(TEXT)
    assert order_rows(plan, RuleContext()) is plan


def test_a_plan_that_is_grouped_stays() -> None:
    plan = optimize(plan_of(TEXT), TABLE, [order_rows]).plan
    assert plan.scan.order == ("policy",)
    assert order_rows(plan, TABLE) is plan


# --- what comes out -----------------------------------------------------------------------------------------------

POLICIES = [f"{number}: " + f"rule {number} says so. " * 40 for number in range(20)]


def table(count: int, seed: int = 7) -> list[dict[str, Any]]:
    dice = Random(seed)
    return [{"question": f"question {number}?", "policy": POLICIES[dice.randrange(20)]} for number in range(count)]


def grouped(text: str, context: RuleContext = TABLE) -> LogicalPlan:
    plan = optimize(plan_of(text), context, [order_rows]).plan
    assert plan.scan.order
    return plan


def test_a_shuffled_table_is_worked_on_in_groups() -> None:
    rows = table(200)
    plain, better = (run_plan(plan, rows, concurrency=1) for plan in (plan_of(TEXT), grouped(TEXT)))
    assert better.rows == plain.rows
    assert sorted(better.prompts()) == sorted(plain.prompts())
    shares = [[cached_share(run.prompts(), room) for room in (1_500, 4_000, 1_000_000)] for run in (plain, better)]
    # With room for all policies the order makes no difference; with room for a few it decides.
    assert shares[0][0] < 0.2
    assert shares[0][1] < 0.35
    assert all(share > 0.85 for share in shares[1])
    assert abs(shares[1][2] - shares[0][2]) < 0.001


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_the_output_is_that_of_the_plain_run_byte_for_byte(tmp_path: Path, suffix: str) -> None:
    rows = table(40)
    rows[3]["policy"] = None
    rows[5]["question"] = "bad"
    rows[7] = {"policy": POLICIES[0]}
    outputs = []
    for number, plan in enumerate((plan_of(TEXT), grouped(TEXT))):
        path = tmp_path / f"{number}.{suffix}"
        columns = tuple((name, value.type) for name, value in plan.sink.columns)
        engine = ScriptedEngine([{"contains": "bad", "error": 400}])
        ran = run_plan(plan, rows, engine=engine, sink=open_sink(path, columns))
        outputs.append((path.read_bytes(), ran.report.errors, ran.report.failed_rows, ran.report.output_rows))
    assert outputs[0] == outputs[1]
    assert outputs[0][2:] == (3, 40)


MORE = {
    "filters and spread rows": """
workflow w(question: text, policy: text)
keep when question != "question 3?"
words = split(question, " ")
spread words as word
reply = llm { system "By this: {{ policy }}" user "{{ word }}" }
keep when len(reply) > 0 and split(word, "4")[0] != "x"
output word, reply
""",
    "failing expressions": """
workflow w(question: text, policy: text)
part = split(question, "1")[1]
reply = llm { system "By this: {{ policy }}" user "{{ part }}" }
output question, reply, part
""",
    "samples and loops": """
workflow w(question: text, policy: text)
drafts = llm(temperature: 1, sample: 2) { system "By this: {{ policy }}" user "{{ question }}" }
views = for draft in drafts {
  view = llm { user "{{ policy }} {{ draft }}" }
  yield view
}
output drafts, views
""",
}


@pytest.mark.parametrize("text", MORE.values(), ids=MORE.keys())
@pytest.mark.parametrize("settings", [{"concurrency": 1}, {"concurrency": 3}, {"concurrency": 3, "merge": False}])
def test_results_are_those_of_the_plain_run(text: str, settings: dict[str, Any]) -> None:
    rows = table(30)
    rows[4] = {"question": None, "policy": POLICIES[1]}
    plain, better = (run_plan(plan, rows, **settings) for plan in (plan_of(text), grouped(text)))
    assert better.rows == plain.rows
    assert better.report.calls == plain.report.calls
    assert better.report.errors == plain.report.errors


def test_values_of_all_kinds_group_rows() -> None:
    text = 'workflow w(key: json, n: int)\nx = llm { user "{{ key }} {{ n }}" }\noutput key, x'
    keys = [1, "1", None, [1, 2], {"b": 1, "a": 2}, {"a": 2, "b": 1}, True, 1.0, "", "ä", -3, 2**70]
    rows = [{"key": keys[number * 5 % len(keys)], "n": number} for number in range(60)]
    plan = grouped(text, seen(60, key=(12, 90), n=(60, 1)))
    plain, better = (run_plan(each, rows, concurrency=1) for each in (plan_of(text), plan))
    assert better.rows == plain.rows
    order = [canonical_text(keys[int(prompt.rpartition(" ")[2]) * 5 % len(keys)]) for prompt in better.prompts()]
    # Ten changes from one value to the next, and nine where 1 and 1.0 are one number.
    assert sum(first != second for first, second in pairwise(order)) <= 19


def test_many_rows_lie_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    spilled: list[int] = []

    class Small(Spool):
        def __init__(self, descending: tuple[bool, ...], in_memory: int = 0) -> None:
            super().__init__(descending, 50)

        def _spill(self) -> None:
            spilled.append(len(self._items))
            super()._spill()

    monkeypatch.setattr(row_order, "Spool", Small)
    monkeypatch.setattr(writer, "Spool", Small)
    rows = table(3000)
    rows[17] = {"question": None, "policy": "\ud800 half"}
    plain, better = (run_plan(plan, rows) for plan in (plan_of(TEXT), grouped(TEXT)))
    assert better.rows == plain.rows
    assert len(spilled) > 2


def test_a_table_without_rows_gives_none() -> None:
    assert run_plan(grouped(TEXT), []).rows == []


# --- runs that end early ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [{"max_calls": 5}, {"max_failed": 1}, {"max_tokens": 2000}, {"max_failed": 4, "max_failed_percent": True}],
)
def test_a_run_that_may_end_early_does_the_first_rows_first(settings: dict[str, Any]) -> None:
    rows = table(30)
    rules = [{"contains": "question 2?", "error": 400}, {"contains": "question 4?", "error": 400}]
    plain, better = (
        run_plan(plan, rows, engine=ScriptedEngine(rules), concurrency=1, **settings)
        for plan in (plan_of(TEXT), grouped(TEXT))
    )
    assert better.rows == plain.rows
    assert any(row["_error"] is None for row in plain.rows)


def ended(plan: LogicalPlan, rows: list[dict[str, Any]], how: str) -> list[dict[str, Any]]:
    """The rows of a run that is interrupted, or cancelled, when its tenth call is made."""

    async def main() -> list[dict[str, Any]]:
        tenth = asyncio.Event()

        async def reply(request: Any) -> Reply:
            if engine.calls == 10:
                tenth.set()
                await asyncio.sleep(0 if how == "interrupt" else 60)
            return Reply(text=request.messages[-1].content)

        engine = ScriptedEngine(reply=reply)
        source = open_rows(rows, plan.scan.columns)
        sink = MemorySink(tuple((name, value.type) for name, value in plan.sink.columns))
        run = Run(plan, source, sink, RunSettings(concurrency=1), open_engine=lambda address: engine)
        try:
            await run.start()
            task = asyncio.ensure_future(run.finish())
            await tenth.wait()
            if how == "interrupt":
                run.interrupt()
                await task
            else:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        finally:
            await run.close()
            source.close()
        return sink.to_dicts()

    return asyncio.run(asyncio.wait_for(main(), 20))


@pytest.mark.parametrize("how", ["interrupt", "cancel"])
def test_a_run_that_is_stopped_writes_the_rows_that_are_done_in_their_order(how: str) -> None:
    rows = table(40)
    found = ended(grouped(TEXT), rows, how)
    assert len(found) in (9, 10)
    places = [row["_row"] for row in found]
    assert places == sorted(sorted(range(40), key=lambda place: rows[place]["policy"])[: len(found)])
    assert all(row["reply"] == row["question"] for row in found)
