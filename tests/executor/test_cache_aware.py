"""The default policy on an engine with a prefix cache: what is computed, what is found, where calls go.

A token of the engine is four characters (tests/executor/caching_engine.py).
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from caching_engine import CachingEngine

import helix
from helix.results import RunResult

ROLES = ("an optimist", "a pessimist", "a lawyer", "a teacher", "a child", "a judge")


def context(number: int, length: int = 600) -> str:
    return (f"Context {number}: " + f"fact {number} matters. " * 60)[:length]


def roles_workflow(reply_tokens: int = 40) -> Any:
    steps = "\n".join(
        f'r{at} = llm {{ user "Read this.\\n{{{{ doc }}}}\\nAnswer as {role}." }}' for at, role in enumerate(ROLES)
    )
    names = " ".join(f"{{{{ r{at} }}}}" for at in range(len(ROLES)))
    last = f'last = llm {{ user "Read this.\\n{{{{ doc }}}}\\nSum up: {names}" }}'
    model = f'model m {{ name: "m", temperature: 0, max_tokens: {reply_tokens} }}'
    return helix.loads(f"workflow w(doc: text)\n{model}\n{steps}\n{last}\noutput last\n")


QUESTION = helix.loads(
    "workflow w(doc: text, question: text)\n"
    'model m { name: "m", temperature: 0, max_tokens: 40 }\n'
    'a = llm { user "Read this.\\n{{ doc }}\\nQuestion: {{ question }}" }\n'
    "output a\n"
)


def ran(engine: CachingEngine, workflow: Any, rows: list[dict[str, Any]], **options: Any) -> RunResult:
    return workflow.run(rows, engine=engine, **options)


def test_each_beginning_is_computed_once() -> None:
    engine = CachingEngine()
    result = ran(engine, roles_workflow(), [{"doc": context(at)} for at in range(12)])
    assert result.report.failed_rows == 0
    assert engine.prefilled <= 1.02 * engine.least
    assert result.report.warmups == engine.warmups > 0
    assert result.report.policy == "helix"


def test_plain_orders_compute_beginnings_again() -> None:
    """The test above can fail: without warm-ups most of what is shared is computed by each call in flight."""
    engine = CachingEngine()
    ran(engine, roles_workflow(), [{"doc": context(at)} for at in range(12)], policy="fcfs", rules=[])
    assert engine.prefilled > 1.5 * engine.least


def test_twelve_cold_calls_over_three_beginnings() -> None:
    rows = [{"doc": context(at % 3, 1500), "question": f"What of {at}?"} for at in range(12)]
    engine = CachingEngine()
    ran(engine, QUESTION, rows)
    assert engine.warmups >= 3
    assert engine.prefilled <= 1.02 * engine.least


def test_no_warmup_where_nothing_is_shared() -> None:
    rows = [{"doc": f"{at}" * 50, "question": "?"} for at in range(10)]
    engine = CachingEngine()
    result = ran(
        engine, helix.loads('workflow w(doc: text, question: text)\na = llm { user "{{ doc }}" }\noutput a'), rows
    )
    assert engine.warmups == 0
    assert result.report.calls == 10


@pytest.mark.parametrize("shuffled", [False, True])
def test_under_pressure_hits_do_not_collapse(shuffled: bool) -> None:
    rows = [{"doc": context(at % 16), "question": f"What of {at}?"} for at in range(96)]
    if shuffled:
        Random(1).shuffle(rows)
    else:
        rows.sort(key=lambda row: row["doc"])
    shares: dict[str, float] = {}
    outputs: dict[str, list[Any]] = {}
    for policy in ("helix", "fcfs", "lspf"):
        # The contexts alone are four times what the cache holds.
        engine = CachingEngine(kv_tokens=600)
        result = ran(engine, QUESTION, rows, policy=policy, **({} if policy == "helix" else {"rules": []}))
        shares[policy] = engine.prefilled / engine.least
        outputs[policy] = [row["a"] for row in result.rows]
        assert result.report.failed_rows == 0
    assert outputs["helix"] == outputs["fcfs"] == outputs["lspf"]
    assert shares["helix"] <= min(shares["fcfs"], shares["lspf"])
    assert shares["helix"] < 1.25, shares


def test_calls_in_flight_are_bounded_by_the_room_in_the_cache() -> None:
    rows = [{"doc": context(at, 700), "question": "?"} for at in range(20)]
    engine = CachingEngine(kv_tokens=500, running=16)
    result = ran(engine, QUESTION, rows)
    assert result.report.failed_rows == 0
    # Three prompts of 700 and their replies do not fit.
    assert engine.peak[0] == 2
    roomy = CachingEngine(kv_tokens=200_000, running=16)
    ran(roomy, QUESTION, rows)
    assert roomy.peak[0] > 10


def test_a_prompt_larger_than_the_cache_is_sent_all_the_same() -> None:
    engine = CachingEngine(kv_tokens=100)
    result = ran(engine, QUESTION, [{"doc": context(at), "question": "?"} for at in range(5)])
    assert result.report.failed_rows == 0
    assert engine.peak[0] == 1


def test_each_rank_that_uses_a_beginning_computes_it_once() -> None:
    rows = [{"doc": context(at % 8), "question": f"What of {at}?"} for at in range(64)]
    engine = CachingEngine(ranks=2)
    result = ran(engine, QUESTION, rows)
    assert result.report.failed_rows == 0
    assert all(engine.computed_once(f"Read this.\n{context(at)}\n") for at in range(8))
    shares = [engine.calls_of(rank) for rank in range(2)]
    assert sum(shares) == 64
    assert min(shares) >= 20


def test_the_calls_of_a_row_stay_on_their_rank() -> None:
    engine = CachingEngine(ranks=3)
    ran(engine, roles_workflow(), [{"doc": context(at)} for at in range(12)])
    assert all(len(ranks) == 1 for ranks in engine.ranks_of_rows().values())
    assert engine.prefilled <= 1.1 * engine.least


def test_an_engine_that_cannot_warm_is_asked_all_the_same() -> None:
    engine = CachingEngine()
    engine.broken = True
    result = ran(engine, roles_workflow(), [{"doc": context(at)} for at in range(6)])
    assert result.report.failed_rows == 0
    assert result.report.warmups == 0


def test_runs_repeat() -> None:
    logs = []
    for _ in range(2):
        engine = CachingEngine(kv_tokens=800, ranks=2)
        ran(engine, roles_workflow(), [{"doc": context(at % 5)} for at in range(20)])
        logs.append((engine.log, engine.prefilled, engine.warmups))
    assert logs[0] == logs[1]


def test_a_stopped_run_ends() -> None:
    engine = CachingEngine()
    result = ran(engine, roles_workflow(), [{"doc": context(at)} for at in range(12)], max_calls=9)
    assert result.report.calls == 9
    assert result.report.stopped is not None
    assert len(result.rows) == 12


def test_a_dialogue_finds_its_earlier_turns() -> None:
    workflow = helix.loads(
        "workflow w(topic: text)\n"
        'model m { name: "m", temperature: 0, max_tokens: 40 }\n'
        'a = llm { system "Be brief." user "Begin: {{ topic }}" }\n'
        'b = llm { system "Be brief." user "Begin: {{ topic }}" assistant "{{ a }}" user "Go on." }\n'
        'c = llm { system "Be brief." user "Begin: {{ topic }}" assistant "{{ a }}" user "Go on." assistant "{{ b }}" '
        'user "End." }\n'
        "output c\n"
    )
    engine = CachingEngine(kv_tokens=1000)
    result = ran(engine, workflow, [{"topic": context(at, 500)} for at in range(12)])
    assert result.report.failed_rows == 0
    # Each turn computes what is new in it and no more.
    assert engine.cached >= 0.6 * engine.asked


def test_rows_of_a_group_go_where_the_schedule_has_them() -> None:
    """Uneven groups over two ranks: each on one rank, the work shared out, and rows back in their order."""
    sizes = [30, 3, 3, 3, 20, 3, 3, 3]
    rows = [
        {"doc": context(at), "question": f"What of {number}?"}
        for at, size in enumerate(sizes)
        for number in range(size)
    ]
    Random(2).shuffle(rows)
    engine = CachingEngine(ranks=2)
    result = ran(engine, QUESTION, rows)
    assert result.report.failed_rows == 0
    plain = ran(CachingEngine(), QUESTION, rows, rules=[], policy="plan")
    assert result.rows == plain.rows
    ranks_of_docs: dict[str, set[int]] = {}
    for number, row in enumerate(rows):
        ranks_of_docs.setdefault(row["doc"], set()).update(engine.ranks_of_rows()[number])
    assert sum(len(ranks) > 1 for ranks in ranks_of_docs.values()) <= 1
    assert min(engine.calls_of(0), engine.calls_of(1)) >= 0.35 * len(rows)
    # The context of the group that two ranks share is computed on both.
    assert engine.prefilled <= engine.least + 650


def test_steps_take_turns_over_a_block_of_rows_where_the_cache_is_small() -> None:
    """Long instructions for each step that do not fit together: one step for many rows, then the next one."""
    rules = [f"Mind rule {at} of the house. " * 40 for at in range(4)]
    steps = "\n".join(f'r{at} = llm {{ system "{rule}" user "{{{{ x }}}}" }}' for at, rule in enumerate(rules))
    names = " ".join(f"{{{{ r{at} }}}}" for at in range(4))
    model = 'model m { name: "m", temperature: 0, max_tokens: 10 }'
    last = f'last = llm {{ user "Sum up: {names}" }}'
    workflow = helix.loads(f"workflow w(x: text)\n{model}\n{steps}\n{last}\noutput last\n")
    rows = [{"x": f"text number {at}"} for at in range(40)]
    small, plain = CachingEngine(kv_tokens=450), CachingEngine(kv_tokens=450)
    result = ran(small, workflow, rows)
    assert result.report.failed_rows == 0
    assert ran(plain, workflow, rows, policy="plan", rules=[]).rows == result.rows
    assert small.prefilled < 0.5 * plain.prefilled
    first = [step for step, _ in small.log[:40]]
    assert first == ["r0"] * 40


def test_rows_that_wait_for_a_tool_keep_nobody_waiting(tmp_path: Path) -> None:
    """What is held for them would fill the cache: it is let go, and other rows go on."""
    (tmp_path / "slow.py").write_text("import time\n\ndef wait(text):\n    time.sleep(0.1)\n    return text[:20]\n")
    doc = '"Read.\\n{{ doc }}\\n'
    workflow = helix.loads(
        "workflow w(doc: text)\n"
        'model m { name: "m", temperature: 0, max_tokens: 20 }\n'
        'tool wait(text: text) -> text from python "slow:wait" effects read\n'
        f'a = llm {{ user {doc}First." }}\n'
        f'b = llm {{ user {doc}Second." }}\n'
        "t = wait(a)\n"
        f'c = llm {{ user {doc}Third: {{{{ t }}}} {{{{ b }}}}" }}\n'
        "output c\n",
        folder=tmp_path,
    )
    engine = CachingEngine(kv_tokens=400, running=4)
    result = ran(engine, workflow, [{"doc": context(at)} for at in range(8)])
    assert result.report.failed_rows == 0
    # Two rows fill the cache. While their tools work, the others go on, and not one by one.
    assert "c" not in [step for step, _ in engine.log[:10]]
    assert max(engine.at_once[4:10]) >= 2
