"""Explain over real tables on the embedded model's tokenizer, against prompts that are taken apart here by hand."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import helix as hx
from helix import api
from helix.executor.engines.embedded import EmbeddedEngine

TATQA = Path(__file__).parent / "tatqa.helix"
# What the embedded model's chat template spends on each message.
TURN = 5


def distinct(requests: list[Any]) -> tuple[int, int]:
    """The tokens of the prompts, and those of their distinct beginnings: one for each prefix that there is."""

    async def main() -> tuple[int, int]:
        engine = EmbeddedEngine(quiet=True)
        await engine.open(concurrency=1)
        prefixes: set[tuple[Any, ...]] = set()
        total = 0
        try:
            for request in requests:
                prompt: list[Any] = []
                for message in request.messages:
                    prompt += [(message.role, place) for place in range(TURN)]
                    prompt += await engine.tokenize(message.content)
                prompt += [("assistant", place) for place in range(TURN)]
                total += len(prompt)
                prefixes.update(tuple(prompt[:end]) for end in range(1, len(prompt) + 1))
        finally:
            await engine.close()
        return total, len(prefixes)

    return asyncio.run(main())


@pytest.mark.shared
@pytest.mark.embedded
def test_three_pages_by_hand(shared_data: Path) -> None:
    source = shared_data / "text" / "tatqa_dev_100ctx.json"
    workflow = api.load(TATQA)
    scripted = hx.ScriptedEngine()
    workflow.run(source, engine=scripted, limit=3)
    total, prefixes = distinct(scripted.requests)
    report = workflow.explain(source, engine="embedded", limit=3).report
    cost = report.costs.optimized
    assert report.exact_prefixes
    assert cost.calls == len(scripted.requests) == 18
    assert cost.p_min == prefixes
    # Pieces of a prompt are counted one by one, which takes a token more here and there.
    assert cost.prompt_tokens == pytest.approx(total, rel=0.02)


@pytest.mark.shared
@pytest.mark.embedded
def test_what_the_model_counts_is_near_what_was_estimated(shared_data: Path) -> None:
    source = shared_data / "text" / "tatqa_dev_100ctx.json"
    measured = api.load(TATQA).explain(source, engine="embedded", limit=2, analyze=True).report.measured
    assert measured is not None
    (step,) = measured.steps
    assert step.report.calls == measured.cost.calls == 12
    assert step.report.prompt_tokens == pytest.approx(measured.cost.prompt_tokens, rel=0.03)
    assert measured.bounds is not None
    assert not measured.bounds.estimated
    prefilled = step.report.prompt_tokens - step.report.cached_tokens
    assert measured.bounds.p_min <= prefilled * 1.02
