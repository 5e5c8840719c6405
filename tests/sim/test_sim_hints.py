"""A simulated cache that is told what is used next (KVFlow), and the policies that ask it what it is doing."""

from __future__ import annotations

from typing import Any

import pytest

import helix
from helix.executor.engines.base import Hint, Message, Request
from helix.executor.engines.sim import SimEngine, SimSettings, run_virtual
from helix.executor.engines.sim.eviction import steps
from helix.executor.engines.sim.radix import NEVER, RadixTree
from helix.results import RunResult
from helix.simulation.cost import published_cost


def hinted(**hints: int) -> RadixTree:
    tree = RadixTree(1)
    tree.evict_by(steps)
    tree.hint((key, "", count) for key, count in hints.items())
    return tree


def held(tree: RadixTree) -> dict[str, int]:
    return {node.key: node.steps for node in tree.nodes()}


def test_what_is_used_again_last_goes_first() -> None:
    tree = hinted(abcd=3, abxy=1)
    for key in ("abcdef", "abxyz", "zzz"):
        tree.insert(key)
    # What several share counts by the next use of any; what no hint tells of is never used again.
    assert held(tree) == {"ab": 1, "cdef": 3, "xyz": 1, "zzz": NEVER}
    tree.evict(1)
    assert "zzz" not in held(tree)
    tree.evict(1)
    assert held(tree) == {"ab": 1, "xyz": 1}
    tree.check()


def test_new_hints_take_the_place_of_old_ones() -> None:
    tree = hinted(abcd=3, xy=1)
    tree.insert("abcd")
    tree.insert("xyz")
    tree.hint([("abcd", "", 0), ("xyz", "", 4), ("abcd", "another model", 0)])
    assert held(tree) == {"abcd": 0, "xyz": 4}
    tree.evict(1)
    assert held(tree) == {"abcd": 0}
    tree.hint([])
    assert held(tree) == {"abcd": NEVER}


def test_a_tree_in_use_keeps_its_policy() -> None:
    tree = RadixTree(1)
    tree.insert("a")
    with pytest.raises(AssertionError, match="order of another policy"):
        tree.evict_by(steps)


def in_turn(*, hints: bool) -> tuple[int, int]:
    """Six prompts, four of which fit, one after the other, four times round: tokens asked and found."""
    engine = SimEngine(SimSettings(kv_tokens=2300, reply_tokens=10), published_cost("h100"))
    prompts = [(Message(role="user", content=f"{at} " + chr(97 + at) * 2000),) for at in range(6)]

    async def work() -> None:
        await engine.open(concurrency=1)
        if hints:
            engine.take_hints()
        for turn in range(24):
            if hints:
                engine.hint(Hint(messages=prompt, steps=(at - turn) % 6) for at, prompt in enumerate(prompts))
            await engine.generate(Request(model=None, messages=prompts[turn % 6], max_tokens=10))

    run_virtual(work())
    return engine.figures.asked, engine.figures.cached


def test_a_round_that_is_too_large_for_the_cache_is_kept_in_part() -> None:
    asked, found = in_turn(hints=False)
    # The least recently used is the very one that comes next: next to nothing is found.
    assert found < 0.05 * asked
    _, hinted = in_turn(hints=True)
    # Of six, three stay through each round after the first.
    assert hinted > 0.4 * asked


def test_what_comes_next_is_loaded_from_the_host_ahead() -> None:
    """Six prompts, of which two fit beside the one that runs: the others are on the host."""

    def told(hints: bool) -> tuple[int, float]:
        given = SimSettings(kv_tokens=2000, host=20_000, reply_tokens=200, overlap="off")
        engine = SimEngine(given, published_cost("h100"))
        prompts = [(Message(role="user", content=f"{at} " + chr(97 + at) * 2000),) for at in range(6)]
        waited = 0.0

        async def work() -> None:
            nonlocal waited
            await engine.open(concurrency=1)
            if hints:
                engine.take_hints()
            for turn in range(18):
                if hints:
                    engine.hint(Hint(messages=prompt, steps=(at - turn) % 6) for at, prompt in enumerate(prompts))
                reply = await engine.generate(Request(model=None, messages=prompts[turn % 6], max_tokens=200))
                waited += reply.queue_seconds or 0.0

        run_virtual(work())
        return engine.figures.loaded, waited

    loaded, waited = told(False)
    assert loaded > 0
    ahead, hinted = told(True)
    assert ahead > 0
    # The load of the next prompt goes on while the one before is answered.
    assert hinted < waited / 2


# Four steps in a line with long beginnings of their own, and rows whose prompts are longer still.
LINE = "workflow w(q: text)\nmodel m { temperature: 0, max_tokens: 20 }\n" + "".join(
    f'a{at} = llm {{ system "{f"Rule {at}. " * 200}" user "{{{{ q }}}} {f"{{{{ a{at - 1} }}}}" if at else ""}" }}\n'
    for at in range(4)
)
LINE += "output a3\n"
ROWS = [{"q": f"{at} " + "question " * 150} for at in range(40)]


def run(policy: str, **changes: Any) -> tuple[RunResult, SimEngine]:
    settings = {"kv_tokens": 6_000, "max_running": 4, "reply_tokens": 20, **changes}
    engine = SimEngine(SimSettings(**settings), published_cost("h100"))
    return helix.loads(LINE).run(ROWS, engine=engine, policy=policy, rules=[]), engine


def test_kvflow_keeps_the_beginnings_that_come_next() -> None:
    result, engine = run("kvflow")
    plain, least = run("fcfs")
    assert result.rows == plain.rows
    assert engine.figures.prefilled < least.figures.prefilled
    again, same = run("kvflow")
    assert same.log.digest == engine.log.digest
    assert again.report.seconds == result.report.seconds


@pytest.mark.parametrize("policy", ["concur", "thunder-agent", "helium", "parrot"])
def test_policies_with_clocks_of_their_own_repeat(policy: str) -> None:
    (one, first), (two, second) = run(policy), run(policy)
    plain, _ = run("fcfs")
    assert one.rows == two.rows == plain.rows
    assert first.log.digest == second.log.digest
    assert one.report.failed_rows == 0
