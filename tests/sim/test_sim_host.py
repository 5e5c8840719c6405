"""The host tier of the simulated cache: what is copied there, when it comes back, and how long that takes, by hand."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from simulating import Recorder, ask, ended, simulate, tokens

from helix.errors import EngineError, OptionError
from helix.executor.engines.base import Reply
from helix.executor.engines.sim import SimSettings, run_virtual
from helix.executor.engines.sim.channel import Channel

# A token takes 1 ms to copy, each transfer 1 ms more.
LINK = {"kv_bytes": 1_000_000, "host_latency_us": 1000.0, "host_load_gbs": 1.0, "host_write_gbs": 1.0}
A, B = tokens("a", 100), tokens("b", 100)


def tiered(**changes: Any) -> Recorder:
    """A cache in which one of the prompts fits, with a host tier in which all do."""
    return Recorder(**{"kv_tokens": 160, "host": 10_000, **LINK, **changes})


def test_a_channel_sends_one_thing_after_another() -> None:
    channel = Channel(2.0, 4.0)
    assert channel.send(100, 4000) == 100 + 2000 + 1000
    assert channel.send(200, 8000) == 3100 + 2000 + 2000
    assert channel.send(50_000, 4) == 50_000 + 2000 + 1
    assert channel.sent == 12_004


def test_what_was_evicted_is_loaded_before_the_prompt_is_computed() -> None:
    engine = tiered()
    replies = simulate(engine, ask(A), ask(B), ask(A), at=(0, 0.5, 1))
    # Of the second prompt its header was there. The third finds 97 tokens more than that on the host.
    assert [reply.cached_tokens for reply in replies] == [0, 2, 99]
    assert ended(engine) == [100, 500 + 98, 1000 + 1 + 97 + 1]
    assert engine.figures.loaded == 97
    assert [event.split()[2:] for event in engine.events("load", "loaded")] == [["load", "97"], ["loaded", "3"]]


def test_without_a_tier_it_is_computed_again() -> None:
    engine = Recorder(kv_tokens=160)
    assert [each.cached_tokens for each in simulate(engine, ask(A), ask(B), ask(A), at=(0, 0.5, 1))] == [0, 2, 2]


def test_few_tokens_are_not_loaded() -> None:
    for least, cached in ((97, 99), (98, 2)):
        engine = tiered(host_least=least)
        assert simulate(engine, ask(A), ask(B), ask(A), at=(0, 0.5, 1))[2].cached_tokens == cached


def test_write_through_copies_while_others_go_on_and_holds_the_pages_so_long() -> None:
    engine = tiered(kv_tokens=201)
    simulate(engine, ask(A), ask(B), ask(tokens("c", 100)), at=(0, 0.1, 0.198))
    # The first copy ends at 201 ms, the second, of 98 tokens, at 300: until then no page of it can go.
    assert engine.events("write")[0].split() == ["100000000", "0", "write", "100"]
    assert engine.events("write")[1].split() == ["198000000", "0", "write", "98"]
    assert ended(engine)[2] == 201 + 98


def test_selective_copies_what_is_used_twice() -> None:
    once, twice = tiered(host_write="write-through-selective"), tiered(host_write="write-through-selective")
    assert simulate(once, ask(A), ask(B), ask(A), at=(0, 0.5, 1))[2].cached_tokens == 2
    replies = simulate(twice, ask(A), ask(A), ask(B), ask(A), at=(0, 0.2, 0.5, 1))
    assert [reply.cached_tokens for reply in replies] == [0, 99, 2, 99]


def test_write_back_copies_what_is_evicted_and_the_pass_waits_for_it() -> None:
    engine = tiered(host_write="write-back")
    replies = simulate(engine, ask(A), ask(B), ask(A), at=(0, 0.5, 1))
    assert replies[2].cached_tokens == 99
    # The second call evicts 98 tokens first, which are copied with the header before them. What the third one evicts
    # for its load goes out before that comes in.
    assert ended(engine) == [100, 500 + (1 + 100) + 98, 1000 + (1 + 98) + (1 + 97) + 1]


def test_others_go_on_while_one_loads() -> None:
    engine = tiered(kv_tokens=260)
    simulate(engine, ask(A), ask(B), ask(tokens("c", 100)), ask(A), ask("x" * 40), at=(0, 0.5, 0.7, 1, 1.01))
    assert ended(engine)[4] < ended(engine)[3]


def test_requests_that_begin_alike_wait_for_one_load() -> None:
    engine = tiered(kv_tokens=300)
    filling = [ask(tokens(letter, 100)) for letter in "bcd"]
    replies = simulate(engine, ask(A), *filling, ask(A + "1111"), ask(A + "2222"), at=(0, 0.5, 1, 1.5, 2, 2.01))
    assert [reply.cached_tokens for reply in replies[4:]] == [97, 97]
    assert [event.split()[2:] for event in engine.events("load", "loaded")] == [["load", "95"], ["loaded", "5", "6"]]


def test_the_tier_has_a_size_and_evicts_what_was_used_longest_ago() -> None:
    # Two prompts fit beside each other, not three.
    engine = tiered(host=220)
    others = [ask(tokens(letter, 100)) for letter in "bc"]
    replies = simulate(engine, ask(A), *others, ask(A), ask(tokens("c", 100)), at=(0, 0.5, 1, 1.5, 2))
    assert [reply.cached_tokens for reply in replies] == [0, 2, 2, 2, 99]
    small = tiered(host=50)
    assert simulate(small, ask(A), ask(B), ask(A), at=(0, 0.5, 1))[2].cached_tokens == 2
    assert small.figures.written == 0


def test_a_request_that_is_given_up_while_it_loads_ends_at_once() -> None:
    engine = tiered()
    replies = simulate(engine, ask(A), ask(B), ask(A), at=(0, 0.5, 1), aborts=(9, 9, 0.01))
    assert replies[2] is None
    assert engine.events("abort")[0].split()[:4] == ["1010000000", "0", "abort", "3"]
    assert engine.workers[0].pool.tree.locked == 0


def test_beginnings_are_loaded_ahead() -> None:
    async def work() -> tuple[int, int, Reply]:
        await engine.open(concurrency=1)
        for text in (A, B):
            await engine.generate(ask(text))
            await asyncio.sleep(1)
        coming = await engine.prefetch(ask(A))
        again = await engine.prefetch(ask(A))
        await asyncio.sleep(1)
        began = asyncio.get_running_loop().time()
        reply = await engine.generate(ask(A))
        assert asyncio.get_running_loop().time() - began == pytest.approx(0.003)
        return coming, again, reply

    engine = tiered()
    coming, again, reply = run_virtual(work())
    # Without the header at the end of a prompt, and what is on its way is not sent for twice.
    assert (coming, again, reply.cached_tokens) == (95, 0, 97)


def test_nothing_is_loaded_ahead_where_there_is_no_tier_or_no_room() -> None:
    async def work(engine: Recorder) -> int:
        await engine.open(concurrency=1)
        for text in (A, B):
            await engine.generate(ask(text))
        running = asyncio.ensure_future(engine.generate(ask(tokens("c", 100), 40)))
        await asyncio.sleep(0.5)
        coming = await engine.prefetch(ask(A))
        await running
        return coming

    assert run_virtual(work(tiered())) == 0
    assert run_virtual(work(Recorder(kv_tokens=160))) == 0
    with pytest.raises(EngineError, match="is not open"):
        run_virtual(tiered().prefetch(ask(A)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"host": 8, "page": 16}, "host must be at least 1 pages of 16, found 8"),
        ({"host": 100, "host_write": "write-thru"}, "did you mean `write-through`"),
        ({"host": 100, "host_load_gbs": 0.0}, "host_load_gbs must be above 0 GB/s"),
        ({"host": 100, "host_latency_us": -1.0}, "host_latency_us must be at least 0"),
        ({"host": 100, "host_least": 0}, "host_least must be at least 1"),
        ({"host": 100, "prefix_cache": False}, "a host tier takes a prefix cache"),
    ],
)
def test_settings_that_do_not_fit_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        SimSettings(**{"kv_tokens": 10_000, **given})
