"""What a watcher writes down of a simulation: time, cache and hits, in bounded memory."""

from __future__ import annotations

import pytest

from helix.executor.engines.base import Message, Request
from helix.executor.engines.sim import SimEngine, SimSettings, run_virtual
from helix.executor.engines.sim.history import History
from helix.simulation.cost import LinearCost

COST = LinearCost(name="round", a=10.0, b=0.0, c=0.0, d=5.0, e=0.0, f=0.0)


def simulated(calls: list[tuple[str, int]], *, watcher: History | None, **more: object) -> SimEngine:
    """An engine that has answered these calls (text, tokens of the reply), one after the other."""
    settings = SimSettings(**{"kv_tokens": 1000, "request_ms": 0.0, "step_gap_us": 0.0, **more})  # type: ignore[arg-type]
    lengths = dict(calls)
    engine = SimEngine(
        settings, COST, watcher=watcher, answer=lambda asked: "a" * 4 * lengths[asked.messages[0].content]
    )

    async def main() -> None:
        await engine.open(concurrency=1)
        for text, tokens in calls:
            message = Message(role="user", content=text)
            await engine.generate(Request(model=None, messages=(message,), max_tokens=tokens))
        await engine.close()

    run_virtual(main())
    return engine


def test_a_run_by_hand() -> None:
    history = History(1)
    engine = simulated([("x" * 400, 4), ("x" * 400, 4)], watcher=history)
    # Two prefills of 10 ms, each with 3 passes of 5 ms behind it: the first token of a reply comes with its prefill.
    assert sum(history.prefill[0]) == 20e6
    assert sum(history.decode[0]) == 30e6
    assert history.end == 50_000_000
    prompt = engine.figures.asked // 2
    assert history.prompt[0] == prompt
    assert sum(history.cached) == prompt - 1
    assert sum(history.calls) == 2
    # The second prompt is admitted after 25 ms.
    at = next(at for at, cached in enumerate(history.cached) if cached)
    assert at == 25_000_000 // history.span
    history.finish(60_000_000)
    assert sum(history.evictable[0]) > 0
    total = sum(history.locked[0]) + sum(history.evictable[0])
    # The cache holds the prompt from the first pass on, and nothing is lost of it: 60 ms, less what grows.
    assert prompt * 60e6 <= total <= (prompt + 8) * 60e6


def test_spans_double_and_nothing_is_lost() -> None:
    whole, small = History(1), History(1, most=8)
    calls = [(f"{at:04}" * 100, 20) for at in range(12)]
    simulated(calls, watcher=whole)
    simulated(calls, watcher=small)
    assert small.spans <= 8 < whole.spans
    assert small.span > whole.span
    for name in ("prefill", "decode", "locked", "evictable"):
        assert sum(getattr(small, name)[0]) == pytest.approx(sum(getattr(whole, name)[0]))
    assert (sum(small.prompt), sum(small.cached), sum(small.calls)) == (
        sum(whole.prompt), sum(whole.cached), sum(whole.calls)
    )  # fmt: skip


def test_a_watcher_changes_nothing() -> None:
    calls = [(f"{at % 3:04}" * 60, 9) for at in range(9)]
    assert simulated(calls, watcher=None).log.digest == simulated(calls, watcher=History(1)).log.digest


def test_phases_are_thirds_where_the_cache_is_never_full() -> None:
    history = History(1)
    simulated([(f"{at:04}" * 20, 10) for at in range(30)], watcher=history)
    history.finish(history.end)
    phases = history.phases()
    assert history.full is None
    assert sum(sums.calls for _, _, sums in phases) == 30
    assert [begins for begins, _, _ in phases] == [0, phases[0][1], phases[1][1]]
    assert phases[2][1] == history.end
    assert all(sums.calls > 5 for _, _, sums in phases)


def test_phases_are_those_of_a_full_cache_where_there_is_one() -> None:
    history = History(1)
    # 1,000 tokens: the second call locks more than 800, those around it do not.
    small, large = ("s" * 400, 5), ("l" * 3400, 5)
    simulated([small, large, ("t" * 400, 5)], watcher=history)
    history.finish(history.end)
    assert history.full is not None
    (_, ends, warm), (begins, until, middle), (_, _, drain) = history.phases()
    assert (ends, until) == history.full == (begins, until)
    assert warm.calls + middle.calls + drain.calls == 3
    assert drain.calls == 1
    assert history.peak >= 800


def test_ranks_are_kept_apart() -> None:
    history = History(2)
    simulated([("a" * 80, 4), ("b" * 80, 4), ("c" * 80, 4)], watcher=history, ranks=2)
    # Round robin: two on the first rank, one on the second.
    assert sum(history.prefill[0]) == 2 * sum(history.prefill[1])
    assert history.capacity == 2000
