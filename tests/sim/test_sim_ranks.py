"""Several ranks in simulated time: placement beside rows sent round about, in tokens and in time."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import helix
from helix.executor.engines.sim import SimEngine, SimSettings
from helix.results import RunResult
from helix.simulation.cost import LinearCost

ROLES = ("an optimist", "a pessimist", "a lawyer", "a teacher")
# About what a small model takes on a CPU: a long prefill is felt.
COST = LinearCost(name="slow", a=25.0, b=1.7, c=0.0, d=29.6, e=4.9, f=0.0)
STEPS = "\n".join(
    f'r{at} = llm m {{ user "{{{{ doc }}}}\\n{{{{ question }}}}\\nAnswer as {role}." }}'
    for at, role in enumerate(ROLES)
)
SAID = " ".join(f"{{{{ r{at} }}}}" for at in range(len(ROLES)))
WORKFLOW = helix.loads(
    "workflow w(doc: text, question: text)\n"
    f"model m {{ temperature: 0, max_tokens: 12 }}\n{STEPS}\n"
    f'last = llm m {{ user "{{{{ doc }}}}\\n{{{{ question }}}}\\nSum up: {SAID}" }}\n'
    "output last\n"
)


def rows() -> list[dict[str, Any]]:
    made = [
        {"doc": f"Policy {at}. " + f"Clerk {at} files a form before noon. " * 40, "question": f"What of form {number}?"}
        for at in range(16)
        for number in range(4)
    ]
    Random(3).shuffle(made)
    return made


def ran(ranks: int, kv_tokens: int, **options: Any) -> tuple[RunResult, int]:
    engine = SimEngine(
        SimSettings(kv_tokens=kv_tokens, policy="lpm", max_running=16, chunk=512, reply_tokens=12, ranks=ranks), COST
    )
    result = WORKFLOW.run(rows(), engine=engine, **options)
    assert result.report.failed_rows == 0
    return result, engine.figures.prefilled


@pytest.mark.parametrize("kv_tokens", [32_768, 3_000])
def test_two_ranks_share_the_work_and_compute_nothing_twice(kv_tokens: int) -> None:
    alone, least = ran(1, kv_tokens)
    two, prefilled = ran(2, kv_tokens)
    assert two.rows == alone.rows
    # What all prompts begin with is computed on both ranks, and one group of rows may be shared out.
    assert prefilled <= 1.05 * least
    assert two.report.seconds <= 0.6 * alone.report.seconds
    for at_once in (32, 64, 128):
        around, more = ran(2, kv_tokens, policy="fcfs", rules=[], concurrency=at_once)
        assert around.rows == alone.rows
        assert two.report.seconds < around.report.seconds
        assert prefilled < more
