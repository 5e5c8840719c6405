"""What must hold in every simulation, whatever is asked of it: drawn at random."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import ROOT
from simulating import Recorder, ask, simulate

from helix.executor.engines.base import Request
from helix.executor.engines.sim.eviction import EVICTION
from helix.executor.engines.sim.log import EventLog
from helix.executor.engines.sim.pd import DecodeWorker
from helix.executor.engines.sim.settings import ORDERS, OVERLAPS, ROUTERS, WRITES
from helix.executor.engines.sim.worker import Worker


class Checked(EventLog):
    """Looks at the pools whenever something happens."""

    def __init__(self, engine: Recorder) -> None:
        super().__init__(keep=True)
        self._engine = engine

    def add(self, time: int, rank: int, kind: str, *numbers: int) -> None:
        super().add(time, rank, kind, *numbers)
        for worker in self._engine.workers:
            check(worker, self._engine)


def check(worker: Worker, engine: Recorder) -> None:
    """No page is lost or held twice, and nothing that is needed has gone."""
    pool = worker.pool
    pool.tree.check()
    assert pool.free >= 0
    assert pool.free + pool.tree.size + pool.private == pool.capacity
    if isinstance(worker, DecodeWorker):
        own = [call for call in engine.calls if worker.has(call)]
        reserved = sum(call.reserved for call in engine.calls if call.seat == worker.number and not worker.has(call))
        returning = sum(call.reserved for call in own)
        assert pool.private == sum(call.private for call in own) + reserved + returning
        return
    own = [call for call in engine.calls if call.rank == worker.number and not gone(call, engine)]
    assert pool.private == sum(call.private for call in own)
    for call in own:
        assert call.private >= 0
        if call.node is not None:
            assert pool.tree.peek(call.beginning(call.held * pool.page), call.space) == call.held
    if worker.host is not None:
        worker.host.tree.check()
        assert worker.host.tree.size <= worker.host.capacity


def gone(call: Any, engine: Recorder) -> bool:
    """Whether a request is on a rank that decodes."""
    decoder = None if call.seat is None else engine.workers[call.seat]
    return isinstance(decoder, DecodeWorker) and decoder.has(call)


class Watched(Recorder):
    async def open(self, *, concurrency: int) -> Any:
        self.calls.clear()
        found = await super().open(concurrency=concurrency)
        self.log = Checked(self)
        for worker in self.workers:
            worker._log = self.log
            if worker.host is not None:
                worker.host._log = self.log
        return found


CALLS = st.lists(
    st.tuples(st.text("ab", max_size=90), st.integers(1, 60), st.integers(0, 40), st.sampled_from([None, 0, 20, 40])),
    min_size=1,
    max_size=14,
)
SIZES = {
    "kv_tokens": st.sampled_from([96, 160, 400]),
    "page": st.sampled_from([1, 4]),
    "max_running": st.integers(1, 6),
    "eviction": st.sampled_from(sorted(EVICTION)),
    "router": st.sampled_from(ROUTERS),
    "reply_tokens": st.sampled_from([5, 60]),
    # Without a gap a call that comes at the end of a pass may find the next one begun.
    "step_gap_us": st.just(1.0),
}
BUDGETS = {
    "chunk": st.sampled_from([None, 8, 20]),
    "max_prefill": st.sampled_from([16, 64]),
    "clip": st.sampled_from([1, 16, 4096]),
    "retract_steps": st.sampled_from([1, 20]),
}
OVERLAP = {"overlap": st.sampled_from(OVERLAPS)}
PLAIN = st.fixed_dictionaries(
    {
        **SIZES,
        **BUDGETS,
        **OVERLAP,
        "ranks": st.integers(1, 2),
        "prefix_cache": st.booleans(),
        "mixed_chunk": st.booleans(),
    }
)
# Slow links, so that transfers last as long as passes.
TIERS = {
    "host": st.sampled_from([0, 32, 1000]),
    "host_write": st.sampled_from(WRITES),
    "host_load_gbs": st.sampled_from([0.01, 0.5]),
    "host_write_gbs": st.sampled_from([0.01, 0.5]),
}
TIERED = st.fixed_dictionaries(
    {**SIZES, **BUDGETS, **TIERS, **OVERLAP, "ranks": st.just(1), "mixed_chunk": st.booleans()}
)
SPLIT = st.fixed_dictionaries(
    {
        **SIZES,
        **BUDGETS,
        **TIERS,
        "ranks": st.just(3),
        "decode_ranks": st.integers(1, 2),
        "pd_gbs": st.sampled_from([0.01, 1.0]),
        "pd_reserve": st.sampled_from([0, 10, 512]),
    }
)
VLLM = st.fixed_dictionaries(
    {
        **SIZES,
        "dialect": st.just("vllm"),
        "budget": st.sampled_from([3, 16, 64]),
        "ranks": st.integers(1, 2),
        "prefix_cache": st.booleans(),
    }
)
ABORTS = st.lists(st.floats(0.001, 2.0), max_size=3)


def requests_of(calls: list[tuple[str, int, int, int | None]]) -> tuple[list[Request], tuple[float, ...]]:
    made = [ask(text, reply, priority=priority) for text, reply, _, priority in calls]
    return made, tuple(when / 100 for _, _, when, _ in calls)


def holds(calls: list[tuple[str, int, int, int | None]], given: dict[str, Any], aborts: list[float]) -> None:
    """Runs it twice, checked and with each pass by itself."""
    requests, at = requests_of(calls)
    engine = Watched(**given)
    replies = simulate(engine, *requests, at=at, aborts=aborts)
    ends = Counter(event.split()[3] for event in engine.events("end", "abort"))
    assert ends == Counter(str(call.serial) for call in engine.calls), "each request ends once"
    for worker in engine.workers:
        assert worker.pool.private == worker.load == 0
        assert worker.transfers or worker.pool.tree.locked == 0
    answered = [reply for reply in replies if reply is not None]
    assert engine.figures.asked == sum(reply.prompt_tokens or 0 for reply in answered)
    # Passes that are taken together change nothing.
    single = Recorder(**given, together=1)
    assert simulate(single, *requests, at=at, aborts=aborts) == replies
    assert single.log.digest == engine.log.digest


@settings(max_examples=70, deadline=None)
@given(calls=CALLS, given=PLAIN, order=st.sampled_from(ORDERS), priority=st.booleans(), aborts=ABORTS)
def test_it_holds(
    calls: list[tuple[str, int, int, int | None]],
    given: dict[str, Any],
    order: str,
    priority: bool,
    aborts: list[float],
) -> None:
    scheduled = priority and order in ("fcfs", "lof")
    holds(calls, {**given, "policy": order, "priority_scheduling": scheduled}, aborts)


@settings(max_examples=50, deadline=None)
@given(calls=CALLS, given=TIERED, order=st.sampled_from(["fcfs", "lpm"]), aborts=ABORTS)
def test_it_holds_with_a_host_tier(
    calls: list[tuple[str, int, int, int | None]], given: dict[str, Any], order: str, aborts: list[float]
) -> None:
    holds(calls, {**given, "policy": order}, aborts)


@settings(max_examples=50, deadline=None)
@given(calls=CALLS, given=SPLIT, order=st.sampled_from(["fcfs", "lpm"]), aborts=ABORTS)
def test_it_holds_with_ranks_that_prefill_and_ranks_that_decode(
    calls: list[tuple[str, int, int, int | None]], given: dict[str, Any], order: str, aborts: list[float]
) -> None:
    holds(calls, {**given, "policy": order}, aborts)


@settings(max_examples=50, deadline=None)
@given(calls=CALLS, given=VLLM, aborts=ABORTS)
def test_it_holds_in_the_dialect_of_vllm(
    calls: list[tuple[str, int, int, int | None]], given: dict[str, Any], aborts: list[float]
) -> None:
    holds(calls, given, aborts)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(calls=CALLS, given=st.one_of(PLAIN, TIERED, SPLIT, VLLM), aborts=ABORTS)
def test_it_holds_a_thousand_times(
    calls: list[tuple[str, int, int, int | None]], given: dict[str, Any], aborts: list[float]
) -> None:
    holds(calls, given, aborts)


@settings(max_examples=20, deadline=None)
@given(calls=CALLS, given=st.one_of(PLAIN, TIERED, SPLIT, VLLM))
def test_replies_do_not_depend_on_the_schedule(
    calls: list[tuple[str, int, int, int | None]], given: dict[str, Any]
) -> None:
    requests, at = requests_of(calls)
    # The cache bounds how long a reply may be, so that stays.
    other = {"kv_tokens": given["kv_tokens"], "page": given["page"], "reply_tokens": given["reply_tokens"]}
    texts = [reply and reply.text for reply in simulate(Recorder(**given), *requests, at=at)]
    assert [reply and reply.text for reply in simulate(Recorder(**other), *requests)] == texts


def test_pages_that_a_load_has_locked_go_no_sooner_where_passes_are_taken_together() -> None:
    # Passes that end before a load does evict others; those that end after it may evict what it brought.
    calls = [("", 16, 0, None), ("", 54, 0, None), ("a" * 21, 21, 0, None), ("", 47, 0, None), ("", 27, 0, None)]
    given = {"kv_tokens": 96, "max_running": 5, "eviction": "fifo", "reply_tokens": 60, "step_gap_us": 1.0}
    tier = {"host": 1000, "host_write": "write-through", "host_load_gbs": 0.01, "host_write_gbs": 0.01}
    holds(calls, {**given, **tier, "max_prefill": 16, "clip": 1, "retract_steps": 1}, [])


SCRIPT = """
import json, sys

sys.path[:0] = {paths!r}
from random import Random
from simulating import Recorder, ask, simulate

dice = Random(5)
texts = [letter * dice.randrange(40, 400) for letter in "abcd"]
requests = [ask(dice.choice(texts) + str(at), dice.randrange(1, 40), priority=at % 3) for at in range(60)]
at = tuple(sorted(dice.random() * 4 for _ in requests))
made = []
for given in (
    {{"host": 2000, "host_write": "write-back", "policy": "lpm"}},
    {{"host": 500, "host_write": "write-through-selective", "policy": "dfs-weight"}},
    {{"ranks": 4, "decode_ranks": 2, "pd_reserve": 16, "router": "prefix-aware"}},
    {{"ranks": 3, "dialect": "vllm", "budget": 64, "router": "least-queue"}},
):
    engine = Recorder(kv_tokens=400, kv_bytes=10**6, step_gap_us=1.0, **given)
    simulate(engine, *requests, at=at)
    made.append([engine.log.digest, engine.log.count])
print(json.dumps(made))
"""


def test_equal_simulations_have_equal_logs_under_any_hash_seed() -> None:
    paths = [str(ROOT), str(ROOT / "tests" / "sim")]
    outputs = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", SCRIPT.format(paths=paths)],
                env={**os.environ, "PYTHONHASHSEED": seed},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for seed in ("0", "4242")
    ]
    assert outputs[0] == outputs[1]
    assert len({digest for digest, _ in outputs[0]}) == 4
