"""Prompts that rows come back to outlive the others on an engine that heeds priorities."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from simulating import Recorder, ask, tokens

import helix
from helix.executor.engines.base import Request
from helix.executor.engines.sim import SimEngine, SimSettings, run_virtual
from helix.results import RunResult
from helix.simulation.cost import published_cost

ASKED = '"{{ report }}\\n{{ question }}"'
AGAIN = '"{{ report }}\\n{{ question }}\\n{{ draft }}"'
LATER = '"{{ report }}\\n{{ question }}\\n{{ draft }}\\n{{ first }}"'
REFLECTION = f"""
workflow reflection(report: text, question: text)
model m {{ temperature: 0, max_tokens: 16 }}
draft = llm m {{ system "You answer." user {ASKED} }}
first = llm m {{ system "You check figures." user {AGAIN} }}
second = llm m {{ system "You check words." user {LATER} }}
final = llm m {{ system "You answer." user {ASKED} assistant "{{{{ draft }}}}" user "{{{{ first }}}}{{{{ second }}}}" }}
output draft, final
"""
DIALOGUE = f"""
workflow dialogue(report: text, question: text)
model m {{ temperature: 0, max_tokens: 16 }}
draft = llm m {{ system "You answer." user {ASKED} }}
final = llm m {{ system "You answer." user {ASKED} assistant "{{{{ draft }}}}" user "Again." }}
output draft, final
"""
ROWS = [
    {"report": f"Report {at}. " + f"Figure {at} stands here. " * 60, "question": f"What of {number}?"}
    for at in range(12)
    for number in range(4)
]


class Listening(SimEngine):
    """Keeps what it is asked, warm-ups apart."""

    def __init__(self, settings: SimSettings) -> None:
        super().__init__(settings, published_cost("h100"))
        self.requests: list[Request] = []
        self.begun: list[Request] = []

    async def generate(self, request: Request) -> Any:
        self.requests.append(request)
        return await super().generate(request)

    async def warm(self, request: Request) -> Any:
        self.begun.append(request)
        return await super().warm(request)


def ran(text: str, eviction: str, **changes: Any) -> tuple[RunResult, Listening]:
    settings = SimSettings(
        kv_tokens=3000, max_running=8, policy="lpm", reply_tokens=12, eviction=eviction, overlap="off"
    )
    engine = Listening(replace(settings, **changes))
    return helix.loads(text).run(ROWS, engine=engine), engine


def test_what_a_row_comes_back_to_is_not_computed_again() -> None:
    oldest, plain = ran(REFLECTION, "lru")
    kept, engine = ran(REFLECTION, "priority")
    roomy, all_of_it = ran(REFLECTION, "lru", kv_tokens=60_000)
    assert kept.rows == oldest.rows == roomy.rows
    assert plain.figures.prefilled > 1.08 * all_of_it.figures.prefilled
    assert engine.figures.prefilled < 1.005 * all_of_it.figures.prefilled


def test_drafts_outlive_what_as_many_later_rows_do_not_come_back_to() -> None:
    _, engine = ran(REFLECTION, "priority")
    by_step: dict[str, dict[int, int]] = {}
    for request in engine.requests:
        assert request.priority is not None
        by_step.setdefault(request.step, {})[request.row] = request.priority
    others = by_step["first"]
    assert by_step["second"] == by_step["final"] == others
    assert sorted(others.values()) == list(range(1, len(ROWS) + 1))
    assert by_step["draft"] == {row: number + 8 for row, number in others.items()}
    # A beginning is kept as long as the call for which it is computed.
    assert engine.begun
    assert {request.priority for request in engine.begun} <= {*others.values(), *by_step["draft"].values()}


def test_no_priority_where_it_would_do_nothing_or_something_else() -> None:
    for text, eviction, changes in (
        (REFLECTION, "lru", {}),
        (REFLECTION, "priority", {"policy": "fcfs", "priority_scheduling": True}),
        (DIALOGUE, "priority", {}),
    ):
        _, engine = ran(text, eviction, **changes)
        assert {request.priority for request in (*engine.requests, *engine.begun)} == {None}


def test_what_is_computed_ahead_outlives_older_prompts_that_were_answered() -> None:
    """SGLang has the prompt of a call that has ended one above its reply; a warm-up has no reply."""
    engine = Recorder(kv_tokens=400, eviction="priority", clip=1, ratio=0.0, least_ratio=0.0)
    old, ahead, large = tokens("a", 100), tokens("b", 100), tokens("c", 240)

    async def work() -> tuple[Any, Any]:
        await engine.open(concurrency=1)
        await engine.generate(ask(old, 10))
        await engine.warm(ask(ahead, 0))
        await engine.generate(ask(large, 10))
        # Of the old prompt nothing but the header is left, of the new one all that was computed: not the header of the
        # reply behind it.
        return await engine.generate(ask(ahead, 1)), await engine.generate(ask(old, 1))

    found, lost = run_virtual(work())
    assert found.cached_tokens == 97
    assert lost.cached_tokens < 10
