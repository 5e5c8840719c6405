"""Prefill and decoding on ranks of their own: what moves, when, and what is reserved for it, by hand."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from simulating import Recorder, ask, ended, simulate, tokens

from helix.errors import EngineError, OptionError
from helix.executor.engines.base import Capabilities, Load, Message, Reply
from helix.executor.engines.sim import SimSettings, run_virtual

# A token takes 1 ms to move, each transfer 1 ms more.
LINK = {"kv_bytes": 1_000_000, "pd_latency_us": 1000.0, "pd_gbs": 1.0}


def split(**changes: Any) -> Recorder:
    return Recorder(**{"ranks": 2, "decode_ranks": 1, **LINK, **changes})


def test_a_prompt_is_computed_then_moved_then_decoded() -> None:
    engine = split()
    (reply,) = simulate(engine, ask(tokens("a", 100), 5))
    assert (reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens, reply.rank) == (100, 5, 0, 0)
    # The pass of prefill gives the first token.
    assert ended(engine) == [100 + (1 + 100) + 4 * 10]
    assert [event.split()[1:] for event in engine.log.events or ()] == [
        ["0", "arrive", "1", "100", "5"],
        ["1", "reserve", "1", "100"],
        ["0", "prefill", "100", "10000", "1"],
        ["0", "move", "1", "100"],
        ["1", "moved", "1", "100"],
        ["1", "end", "1", "5", "0"],
    ]
    assert engine.figures.moved == 100


def test_the_tree_is_on_the_side_of_prefill_and_knows_no_replies() -> None:
    async def work() -> tuple[Reply, Reply]:
        await engine.open(concurrency=1)
        first = await engine.generate(ask(tokens("a", 100), 20))
        said = (Message(role="user", content=tokens("a", 100)), Message(role="assistant", content=first.text))
        return first, await engine.generate(ask("", 1, messages=(*said, Message(role="user", content="more"))))

    engine = split()
    assert run_virtual(work())[1].cached_tokens == 100
    assert [worker.pool.tree.size > 0 for worker in engine.workers] == [True, False]


def test_parts_move_while_the_next_ones_are_computed() -> None:
    engine = split(chunk=50)
    simulate(engine, ask(tokens("a", 100), 2))
    # The second part waits for the first one, which takes until 101.
    assert ended(engine) == [101 + 51 + 10]


def test_a_prompt_is_computed_once_there_are_pages_for_it() -> None:
    engine = split(kv_tokens=300, pd_reserve=150)
    simulate(engine, ask(tokens("a", 100), 5), ask(tokens("b", 100), 2))
    assert ended(engine) == [241, 241 + 98 + 1 + 98 + 2 + 10]
    reserved = [event.split()[0] for event in engine.events("reserve")]
    assert reserved == ["0", "241000000"]


def test_those_that_decode_share_the_requests() -> None:
    engine = split(ranks=3, decode_ranks=2)
    simulate(engine, *(ask(tokens(letter, 100), 5) for letter in "abcd"))
    assert sorted(event.split()[1] for event in engine.events("moved")) == ["1", "1", "2", "2"]


def test_one_that_joins_decodes_from_the_next_pass_on() -> None:
    engine = split()
    simulate(engine, ask(tokens("a", 100), 10), ask("", 3), at=(0, 0.1))
    # The first one decodes from 201 on. Of the second one 3 tokens are computed, and 5 moved at 201 + 6.
    assert ended(engine) == [201 + 90, 211 + 20]


def test_when_pages_run_out_a_request_goes_and_comes_back_with_what_it_has() -> None:
    engine = split(kv_tokens=260, pd_reserve=0, retract_steps=1)
    replies = simulate(engine, ask(tokens("a", 100), 80), ask(tokens("b", 100), 80))
    assert [reply.completion_tokens for reply in replies] == [call.target for call in engine.calls]
    assert engine.figures.retractions > 0
    assert engine.figures.loaded > 100
    # Nothing is computed twice.
    assert engine.figures.prefilled == 200


@pytest.mark.parametrize("after", [0.05, 0.15, 0.205, 0.5, 5.0])
def test_requests_that_are_given_up_leave_nothing_behind(after: float) -> None:
    engine = split(kv_tokens=300, pd_reserve=120)
    requests = [ask(tokens(letter, 100), 40) for letter in "abc"]
    replies = simulate(engine, *requests, aborts=(after, after))
    assert replies[2] is not None
    assert len(engine.events("end", "abort")) == 3
    assert all(worker.pool.private == worker.pool.tree.locked == worker.load == 0 for worker in engine.workers)


def test_what_generates_nothing_ends_where_it_is_computed() -> None:
    async def work() -> None:
        await engine.open(concurrency=1)
        await engine.warm(ask(tokens("a", 100)))
        await engine.generate(ask(tokens("a", 100), 1))

    engine = split()
    run_virtual(work())
    assert engine.figures.moved == 0
    assert {event.split()[1] for event in engine.log.events or ()} == {"0"}


def test_clients_see_the_ranks_that_prefill() -> None:
    async def work() -> tuple[Capabilities, tuple[Load, ...]]:
        found = await engine.open(concurrency=1)
        waiting = asyncio.ensure_future(engine.generate(ask(tokens("a", 100), 2)))
        await asyncio.sleep(0.01)
        with pytest.raises(EngineError, match="has 2 ranks, from 0; found rank 2"):
            await engine.generate(ask("a", 1, rank=2))
        load = await engine.load()
        await waiting
        return found, load

    engine = split(ranks=5, decode_ranks=3, max_running=8)
    found, load = run_virtual(work())
    assert (found.ranks, found.max_running) == (2, 12)
    assert [(each.rank, each.running) for each in load] == [(0, 1), (1, 0)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"decode_ranks": 2, "ranks": 2}, "of 2 ranks 2 decode; at least one must prefill"),
        ({"decode_ranks": -1}, "decode_ranks must be at least 0"),
        ({"decode_ranks": 1, "ranks": 2, "mixed_chunk": True}, "mix nothing"),
        ({"pd_gbs": -3.0}, "pd_gbs must be above 0 GB/s"),
        ({"pd_reserve": -1}, "pd_reserve must be at least 0"),
    ],
)
def test_settings_that_do_not_fit_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        SimSettings(**{"kv_tokens": 10_000, **given})
