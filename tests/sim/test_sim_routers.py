"""Which rank takes a request that names none: the routers, with 2, 8 and 64 ranks."""

from __future__ import annotations

import time
from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulating import Recorder, ask, simulate, tokens

from helix.errors import EngineError
from helix.executor.engines.base import Reply, Request
from helix.executor.engines.sim.router import KNOWN, SentTree

RANKS = (2, 8, 64)


def grouped(groups: int, each: int, *, seed: int = 1) -> list[Request]:
    """Requests of groups that share 400 of 440 tokens, in no order."""
    made = [ask(f"{group:04}" * 400 + f"{at:04}" * 35, 4) for group in range(groups) for at in range(each)]
    Random(seed).shuffle(made)
    return made


def hit_rate(replies: list[Reply]) -> float:
    return sum(each.cached_tokens or 0 for each in replies) / sum(each.prompt_tokens or 0 for each in replies)


@pytest.mark.parametrize("ranks", RANKS)
def test_round_robin_takes_turns(ranks: int) -> None:
    replies = simulate(Recorder(ranks=ranks), *(ask(f"{at:04}", 1) for at in range(3 * ranks)))
    assert [reply.rank for reply in replies] == [at % ranks for at in range(3 * ranks)]


@pytest.mark.parametrize("ranks", RANKS)
def test_least_queue_takes_the_rank_with_the_fewest_requests(ranks: int) -> None:
    dice = Random(ranks)
    requests = [ask(tokens("x", dice.randrange(20, 300)), dice.randrange(1, 30)) for _ in range(6 * ranks)]
    engine = Recorder(ranks=ranks, router="least-queue")
    simulate(engine, *requests, at=tuple(dice.random() for _ in requests))
    load = [0] * ranks
    for event in engine.events("arrive", "end"):
        _, rank, kind, *_ = event.split()
        if kind == "arrive":
            assert load[int(rank)] == min(load)
        load[int(rank)] += 1 if kind == "arrive" else -1
    assert load == [0] * ranks


@pytest.mark.parametrize("ranks", RANKS)
def test_prefix_aware_sends_what_begins_alike_to_one_rank(ranks: int) -> None:
    requests = grouped(2 * ranks, 4)
    at = tuple(number / ranks for number in range(len(requests)))
    engine, around = Recorder(ranks=ranks, router="prefix-aware", kv_tokens=4000), Recorder(ranks=ranks, kv_tokens=4000)
    replies = simulate(engine, *requests, at=at)
    by_group: dict[str, set[int]] = {}
    for request, reply in zip(requests, replies, strict=True):
        by_group.setdefault(request.messages[0].content[:4], set()).add(reply.rank)
    assert all(len(found) == 1 for found in by_group.values())
    assert hit_rate(replies) > 0.65
    assert hit_rate(replies) > 1.2 * hit_rate(simulate(around, *requests, at=at))
    assert len({reply.rank for reply in replies}) == ranks


def test_prefix_aware_gives_way_where_queues_are_far_apart() -> None:
    # All begin alike: the first 65 go to one rank, then the other one is 64 behind and more.
    engine = Recorder(ranks=2, router="prefix-aware", kv_tokens=100_000)
    replies = simulate(engine, *(ask(tokens("a", 100) + f"{at:04}", 4) for at in range(200)))
    ranks = [reply.rank for reply in replies]
    assert ranks[:65] == [0] * 65
    counts = Counter(ranks)
    # And no further apart than both bounds allow.
    assert abs(counts[0] - counts[1]) <= 65
    assert counts[1] > 50


def test_prefix_aware_needs_more_than_a_share_of_the_prompt() -> None:
    for shared, ranks in ((int(KNOWN * 100) - 5, [0, 1]), (int(KNOWN * 100) + 5, [0, 0])):
        engine = Recorder(ranks=2, router="prefix-aware")
        # Of 100 tokens five are headers, two of them at the beginning.
        ends = ("b", "c")
        requests = [ask("a" * 4 * (shared - 2) + end * 4 * (97 - shared), 40) for end in ends]
        replies = simulate(engine, *requests, at=(0, 0.2))
        assert [reply.rank for reply in replies] == ranks


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("router", ["round-robin", "least-queue", "prefix-aware"])
def test_clients_may_name_the_rank(ranks: int, router: str) -> None:
    engine = Recorder(ranks=ranks, router=router)
    wanted = [(7 * at) % ranks for at in range(2 * ranks)]
    replies = simulate(engine, *(ask("same", 2, rank=rank) for rank in wanted))
    assert [reply.rank for reply in replies] == wanted
    with pytest.raises(EngineError, match=f"has {ranks} ranks, from 0; found rank {ranks}"):
        simulate(engine, ask("a", 1, rank=ranks))


def test_routers_are_quick_with_many_ranks() -> None:
    requests = grouped(200, 10)
    for router in ("round-robin", "least-queue", "prefix-aware"):
        engine = Recorder(ranks=64, router=router, kv_tokens=20_000)
        began = time.process_time()
        simulate(engine, *requests)
        # About 0.5 s; a look at every rank's tree for every request took ten times as long.
        assert time.process_time() - began < 5


class Plain:
    """What was sent where, as sets of beginnings."""

    def __init__(self) -> None:
        self.sent: dict[int, set[str]] = {}

    def add(self, key: str, worker: int) -> None:
        self.sent.setdefault(worker, set()).update(key[:at] for at in range(1, len(key) + 1))

    def find(self, key: str) -> tuple[int, list[int]]:
        for at in range(len(key), 0, -1):
            holders = sorted(worker for worker, known in self.sent.items() if key[:at] in known)
            if holders:
                return at, holders
        return 0, []


KEYS = st.text("ab", min_size=1, max_size=8)


@settings(max_examples=100, deadline=None)
@given(acts=st.lists(st.tuples(KEYS, st.integers(0, 3)), max_size=30), asked=st.lists(KEYS, max_size=5))
def test_what_was_sent_is_found_with_who_got_it(acts: list[tuple[str, int]], asked: list[str]) -> None:
    tree, plain = SentTree(1, 10_000), Plain()
    for key, worker in acts:
        tree.add(key, "", worker)
        plain.add(key, worker)
    for key in (*asked, *(key for key, _ in acts)):
        length, holders = tree.find(key, "")
        assert (length, list(holders)) == plain.find(key)
    assert tree.held == {worker: len(known) for worker, known in plain.sent.items()}
    assert tree.find("a", "another model") == (0, ())


@settings(max_examples=100, deadline=None)
@given(acts=st.lists(st.tuples(KEYS, st.integers(0, 2)), max_size=60), most=st.integers(8, 30))
def test_each_rank_is_remembered_up_to_a_size(acts: list[tuple[str, int]], most: int) -> None:
    tree = SentTree(1, most)
    for key, worker in acts:
        tree.add(key, "", worker)
        assert tree.held[worker] <= most
        # What was sent last is known.
        length, holders = tree.find(key, "")
        assert length == len(key)
        assert worker in holders


def test_what_was_sent_longest_ago_is_forgotten_first() -> None:
    tree = SentTree(1, 10)
    for key in ("aaaaa", "bbbbb", "aaaaa", "ccccc"):
        tree.add(key, "", 0)
    known: dict[str, Any] = {key: tree.find(key, "")[0] for key in ("aaaaa", "bbbbb", "ccccc")}
    assert known == {"aaaaa": 5, "bbbbb": 0, "ccccc": 5}
