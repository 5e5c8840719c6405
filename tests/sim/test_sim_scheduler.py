"""The simulated scheduler: what a pass takes and how long it lasts, by hand."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from simulating import PLAIN, Recorder, ask, ended, simulate, tokens

from helix.errors import EngineError, OptionError
from helix.executor.engines.base import Message, Reply
from helix.executor.engines.sim import SimEngine, SimSettings, run_virtual
from helix.executor.engines.sim.call import SimCall
from helix.executor.engines.sim.settings import ROUTERS


def test_one_call_takes_its_prompt_and_its_reply() -> None:
    engine = Recorder(request_ms=3.0, step_gap_us=1.0)
    (reply,) = simulate(engine, ask(tokens("a", 100), 5))
    assert (reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens) == (100, 5, 0)
    assert reply.finish == "length"
    assert len(reply.text) == 20
    # The pass of prefill gives the first token, four passes the others; each begins 1 us after its cause.
    assert ended(engine) == pytest.approx([3 + 100 + 4 * 10 + 5 * 0.001])
    assert engine.figures.decode_passes == 4
    assert engine.figures.generated == 4


def test_what_is_cached_is_not_computed_but_for_the_last_token() -> None:
    engine = Recorder()
    text = tokens("a", 100)
    replies = simulate(engine, ask(text, 1), ask(text, 1), at=(0.0, 5.0))
    assert [reply.cached_tokens for reply in replies] == [0, 99]
    assert engine.figures.prefilled == 101


def test_a_later_turn_finds_the_reply_but_for_its_last_token() -> None:
    async def work() -> tuple[Reply, Reply]:
        await engine.open(concurrency=1)
        first = await engine.generate(ask(tokens("a", 100), 20))
        said = (Message(role="user", content=tokens("a", 100)), Message(role="assistant", content=first.text))
        return first, await engine.generate(ask("", 1, messages=(*said, Message(role="user", content="more"))))

    engine = Recorder()
    first, second = run_virtual(work())
    assert first.completion_tokens == 20
    assert second.cached_tokens == 100 + 19


def test_pages_floor_what_is_found() -> None:
    engine = Recorder(page=16)
    text = tokens("a", 100)
    replies = simulate(engine, ask(text, 1), ask(text, 1), at=(0.0, 5.0))
    assert replies[1].cached_tokens == 96


def test_no_cache_finds_nothing() -> None:
    engine = Recorder(prefix_cache=False)
    text = tokens("a", 100)
    replies = simulate(engine, ask(text, 1), ask(text, 1), at=(0.0, 5.0))
    assert replies[1].cached_tokens == 0
    assert engine.workers[0].pool.free == 10_000


def test_requests_of_one_pass_share_nothing_with_each_other() -> None:
    engine = Recorder()
    text = tokens("a", 100)
    simulate(engine, ask(text + "bbbb", 1), ask(text + "cccc", 1))
    assert engine.figures.prefilled == 202


def test_lpm_puts_off_a_request_that_begins_like_another_one() -> None:
    # The first pass is under way when the others come. The next one has room for one of them and a part: where that is
    # of one that begins like the first, what the first computes is computed again.
    alike = (ask(tokens("a", 100) + end, 1) for end in ("bbbb", "cccc"))
    requests = [ask(tokens("z", 50), 1), *alike, ask(tokens("d", 60), 1)]
    for policy, order, prefilled in (
        ("lpm", [1, 2, 4, 3], 50 + 99 + 58 + 4),
        ("fcfs", [1, 2, 3, 4], 50 + 99 + 99 + 58),
    ):
        engine = Recorder(policy=policy, chunk=120)
        simulate(engine, *requests, at=(0, 0.01, 0.01, 0.01))
        assert engine.order == order
        assert engine.figures.prefilled == prefilled


def test_the_longest_match_goes_first_up_to_128_waiting() -> None:
    for waiting, first in ((10, 12), (130, 2)):
        engine = Recorder(policy="lpm", max_running=1, kv_tokens=100_000)
        warm, other = tokens("w", 100), tokens("o", 200)
        requests = [ask(warm, 1), *(ask(f"{at:04}" + other, 1) for at in range(waiting)), ask(warm + "more", 1)]
        simulate(engine, *requests, at=(0.0, *(0.05,) * (waiting + 1)))
        # One that runs when the others come is the first in any case.
        assert engine.order[1] == (first if waiting == 10 else 2)


def test_longest_output_first() -> None:
    engine = Recorder(policy="lof", max_running=1)
    simulate(engine, ask("x", 5), ask("a", 2), ask("b", 9), ask("c", 4), at=(0, 0.001, 0.001, 0.001))
    assert engine.order == [1, 3, 4, 2]


def test_random_is_another_order_and_the_same_each_time() -> None:
    orders = []
    for seed in (1, 1, 2):
        engine = Recorder(policy="random", max_running=1, seed=seed)
        simulate(engine, *(ask(f"{at:04}", 2) for at in range(12)))
        orders.append(engine.order)
    assert orders[0] == orders[1] != orders[2]


def test_the_routing_key_that_runs_most_goes_first() -> None:
    engine = Recorder(policy="routing-key", max_running=2)
    keys = ["x", "y", "x", None, "y", "y"]
    more = [{"extra": (("routing_key", key),)} if key else {} for key in keys]
    lengths = [4, 30, 1, 1, 1, 1]
    requests = [ask(f"{at:04}", length, **each) for at, (length, each) in enumerate(zip(lengths, more, strict=True))]
    simulate(engine, *requests, at=(0, 0, 0.01, 0.01, 0.01, 0.01))
    # When the short x ends, only y runs.
    # Then none of those left does, and they go by their keys.
    assert engine.order == [1, 2, 5, 6, 4, 3]


def test_depth_first_goes_where_most_requests_end() -> None:
    engine = Recorder(policy="dfs-weight", max_running=1)
    one, two = tokens("a", 100), tokens("b", 100)
    warm = [ask(one, 1), ask(two, 1)]
    waiting = [ask(one + "1111", 1), *(ask(two + end * 4, 1) for end in "123")]
    simulate(engine, *warm, ask("zzzz", 30), *waiting, at=(0, 0, 0.5, 0.6, 0.6, 0.6, 0.6))
    # With one left of each the older branch is the first.
    assert engine.order == [1, 2, 3, 5, 6, 4, 7]


def test_a_long_prompt_is_cut_and_nothing_else_is_taken_beside_its_chunks() -> None:
    engine = Recorder(chunk=64)
    simulate(engine, ask(tokens("a", 150), 1), ask(tokens("b", 20), 1))
    parts = [event.split()[3] for event in engine.events("prefill")]
    assert parts == ["64", "64", str(22 + 18)]
    # Of the second prompt the header was there.
    assert ended(engine) == [168.0, 168.0]


def test_decoding_waits_for_prefill_unless_chunks_are_mixed() -> None:
    times = []
    for mixed in (False, True):
        engine = Recorder(chunk=64, mixed_chunk=mixed)
        simulate(engine, ask(tokens("a", 10), 8), ask(tokens("b", 300), 1), at=(0, 0.015))
        times.append(ended(engine))
        assert engine.figures.generated == 7
    # 10 ms of prefill and one pass; then 298 tokens of the other one, then six more passes.
    assert times[0] == [10 + 10 + 298 + 6 * 10, 10 + 10 + 298]
    # Or five passes of both, of 63 tokens and the rest, then one more.
    assert times[1] == [10 + 10 + 298 + 5 * 10 + 10, 10 + 10 + 298 + 5 * 10]


def test_those_that_decode_sit_a_mixed_pass_out_where_its_prompts_take_the_room() -> None:
    # Eight pages of 16 tokens: three prompts fill one each, and the next token of each takes another one. The fourth
    # prompt takes four pages of the five.
    engine = Recorder(kv_tokens=128, page=16, clip=1, ratio=0.0, least_ratio=0.0, mixed_chunk=True)
    calls = [ask(tokens(name, 16), 2) for name in "abc"]
    simulate(engine, *calls, ask(tokens("d", 56), 1), at=(0, 0, 0, 0.01))
    assert [call.retractions for call in engine.calls] == [0, 0, 0, 0]
    first, second = engine.events("prefill")
    assert (first.split()[3], second.split()[3]) == ("48", "56")
    # 48 and 56 ms of prefill alone, then a pass of decoding.
    assert ended(engine) == [48 + 56 + 10] * 3 + [48 + 56]


def test_admission_keeps_room_for_what_may_be_generated() -> None:
    # 40 tokens and at most 50 each: of 200 tokens the first keeps 0.7 * 50, the second needs 40 + 50 + 1.
    engine = Recorder(kv_tokens=200, reply_tokens=20)
    simulate(engine, ask(tokens("a", 40), 50), ask(tokens("b", 40), 50), ask(tokens("c", 40), 50))
    assert engine.events("prefill")[0].split()[5:] == ["1", "2"]
    assert engine.figures.retractions == 0
    assert engine.calls[2].admitted is not None
    assert engine.calls[2].admitted >= min(call.ended or 0 for call in engine.calls[:2])


def test_when_pages_run_out_the_one_with_fewest_tokens_goes_back_to_the_queue() -> None:
    engine = Recorder(kv_tokens=300, clip=1, ratio=0.0, least_ratio=0.0, reply_tokens=100)
    replies = simulate(engine, ask(tokens("a", 100), 140), ask(tokens("b", 100), 140), at=(0, 0.15))
    assert [call.retractions for call in engine.calls] == [0, 1]
    assert engine.figures.retractions == 1
    assert [reply.completion_tokens for reply in replies] == [call.target for call in engine.calls]
    # What it had is computed again, but for what is in the tree.
    assert engine.figures.prefilled > 200


def test_priorities_order_and_preempt() -> None:
    def order(**changes: Any) -> list[int]:
        engine = Recorder(max_running=1, **changes)
        requests = [ask("a", 20, priority=0), ask("b", 2), ask("c", 2, priority=5), ask("d", 2, priority=50)]
        simulate(engine, *requests, at=(0, 0.02, 0.02, 0.02))
        finished = sorted(engine.calls, key=lambda call: call.ended or 0)
        return [call.serial for call in finished]

    assert order() == [1, 2, 3, 4]
    assert order(priority_scheduling=True, preemption=False) == [1, 4, 3, 2]
    assert order(priority_scheduling=True) == [4, 3, 1, 2]


def test_routers() -> None:
    long, short = ask(tokens("a", 400), 2), ask(tokens("b", 10), 2)
    ranks = {}
    for router in ROUTERS:
        engine = Recorder(ranks=2, router=router)
        replies = simulate(engine, long, short, short, long, short, at=(0, 0.1, 0.2, 1.0, 2.0))
        ranks[router] = [reply.rank for reply in replies]
    assert ranks["round-robin"] == [0, 1, 0, 1, 0]
    assert ranks["least-queue"] == [0, 1, 1, 0, 0]
    assert ranks["prefix-aware"] == [0, 1, 1, 0, 1]


def test_a_rank_that_a_request_names_takes_it() -> None:
    engine = Recorder(ranks=3)
    replies = simulate(engine, *(ask("a", 1, rank=rank) for rank in (2, 0, 2)))
    assert [reply.rank for reply in replies] == [2, 0, 2]
    with pytest.raises(EngineError, match="has 3 ranks, from 0; found rank 3"):
        simulate(engine, ask("a", 1, rank=3))


def test_warm_ups_compute_and_generate_nothing() -> None:
    async def work() -> tuple[Reply, Reply]:
        await engine.open(concurrency=1)
        warm = await engine.warm(ask(tokens("a", 100)))
        return warm, await engine.generate(ask(tokens("a", 100) + "more", 1))

    engine = Recorder()
    warm, after = run_virtual(work())
    assert (warm.text, warm.prompt_tokens, warm.completion_tokens) == ("", 97, 0)
    assert after.cached_tokens == 97
    assert engine.figures.generated == 0


def test_cancelled_calls_end_where_they_are() -> None:
    async def work() -> Reply:
        await engine.open(concurrency=1)
        calls = [asyncio.ensure_future(engine.generate(ask(tokens(letter, 50), 500))) for letter in "abc"]
        for call, after in zip(calls, (0.0, 0.02, 1.0), strict=True):
            await asyncio.sleep(after)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        return await engine.generate(ask("x", 2))

    engine = Recorder(max_running=2)
    assert run_virtual(work()).completion_tokens == 2
    assert len(engine.events("abort")) == 2
    assert engine.workers[0].pool.private == engine.workers[0].pool.tree.locked == 0


def test_prompts_longer_than_the_cache_are_refused() -> None:
    engine = Recorder(kv_tokens=100, page=4)
    with pytest.raises(EngineError, match="needs 92 tokens, has 91") as caught:
        simulate(engine, ask(tokens("a", 92), 1))
    assert caught.value.kind == "prompt.too_long"
    (reply,) = simulate(engine, ask(tokens("a", 90), 50))
    assert reply.completion_tokens == 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"page": 0}, "page must be at least 1, found 0"),
        ({"page": 100, "kv_tokens": 700}, "at least 8 pages"),
        ({"chunk": 8, "page": 16}, "chunk must hold a page"),
        ({"policy": "lmp"}, "did you mean `lpm`"),
        ({"router": "robin"}, "unknown router `robin`"),
        ({"eviction": "lrux"}, "did you mean `lru`"),
        ({"priority_scheduling": True, "policy": "lpm"}, "for the policies fcfs and lof"),
        ({"ratio": 0.05}, "least_ratio <= ratio"),
        ({"request_ms": -1.0}, "request_ms must be at least 0"),
    ],
)
def test_settings_that_do_not_fit_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        SimSettings(**{"kv_tokens": 10_000, **given})


@pytest.mark.parametrize(
    "given", [{}, {"host": 1000}, {"ranks": 2, "decode_ranks": 1, "pd_reserve": 8}, {"dialect": "vllm"}]
)
def test_nothing_is_kept_of_requests_that_have_ended(given: dict[str, Any]) -> None:
    engine = SimEngine(SimSettings(kv_tokens=600, reply_tokens=8, **given), PLAIN)

    async def client(number: int) -> None:
        for turn in range(40):
            await engine.generate(ask(f"{turn % 5:04}" * 30 + f"{number:04}{turn:04}", 8))

    async def work() -> int:
        await engine.open(concurrency=1)
        await asyncio.gather(*map(client, range(10)))
        await asyncio.sleep(60)
        gc.collect()
        return sum(isinstance(each, SimCall) for each in gc.get_objects())

    assert run_virtual(work()) <= 2
    assert engine.figures.ended == 400
    assert len(engine._pending) == 0
    for worker in engine.workers:
        # Entries of leaves that count for nothing any more are let be up to a number.
        assert len(worker.pool.tree._heap) < 2000
