"""The dialect of vLLM: passes in a budget of tokens, by hand, and against timings of real runs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from simulating import HEADERS, Recorder, ask, ended, simulate, tokens

from helix.errors import OptionError
from helix.executor.engines.base import Message, Request
from helix.executor.engines.sim import SimEngine, SimSettings, run_virtual
from helix.executor.engines.sim.call import SimCall
from helix.simulation.layers import layer_cost


def vllm(**changes: Any) -> Recorder:
    return Recorder(**{"dialect": "vllm", "prefix_cache": False, **changes})


def test_a_pass_decodes_first_and_computes_prompts_in_what_is_left() -> None:
    engine = vllm(budget=64)
    simulate(engine, ask(tokens("a", 10), 8), ask(tokens("b", 300), 1), at=(0, 0.015))
    # Two passes; then five that decode and compute 63 tokens of the other prompt, or what is left of it; then one more.
    assert ended(engine) == [10 + 10 + 5 * 10 + 300 + 10, 10 + 10 + 5 * 10 + 300]
    assert [event.split()[3] for event in engine.events("prefill")] == ["10", "63", "63", "63", "63", "48"]


def test_prompts_share_a_pass() -> None:
    engine = vllm(budget=100)
    simulate(engine, ask(tokens("a", 60), 1), ask(tokens("b", 60), 1))
    assert [event.split()[3:] for event in engine.events("prefill")] == [
        ["100", str(60**2 + 40**2), "1", "2"],
        ["20", str(20 * (20 + 80)), "2"],
    ]
    assert ended(engine) == [100, 120]


def test_a_request_is_taken_when_its_whole_prompt_fits() -> None:
    engine = vllm(kv_tokens=200, budget=16)
    simulate(engine, ask(tokens("a", 100), 10), ask(tokens("b", 120), 1))
    # The second one would have room for its first part from the start.
    assert (engine.calls[1].admitted or 0) / 1e6 == ended(engine)[0]


def test_no_more_run_than_may() -> None:
    engine = vllm(max_running=2)
    simulate(engine, *(ask(tokens(letter, 10), length) for letter, length in (("a", 3), ("b", 6), ("c", 2))))
    assert (engine.calls[2].admitted or 0) / 1e6 == ended(engine)[0]


def test_the_newest_is_preempted_and_computed_again() -> None:
    engine = vllm(kv_tokens=256, page=16)
    simulate(engine, ask(tokens("a", 100), 60), ask(tokens("b", 100), 60), at=(0, 0.01))
    assert [call.retractions for call in engine.calls] == [0, 1]
    assert ended(engine)[0] < ended(engine)[1]
    # Of the 16 blocks both take 8. The first one wants a ninth for its 129th token, of which it has generated 28.
    done = int(engine.events("preempt")[0].split()[4])
    assert done == 28
    assert engine.figures.prefilled == 200 + 100 + done
    assert all(call.done == call.target == 60 for call in engine.calls)


def test_blocks_are_found_in_the_pass_that_computes_them() -> None:
    engine = vllm(prefix_cache=True, page=16)
    replies = simulate(engine, ask(tokens("a", 100) + "bbbb", 1), ask(tokens("a", 100) + "cccc", 1))
    assert [reply.cached_tokens for reply in replies] == [0, 96]
    assert engine.figures.prefilled == 101 + 5


def test_a_preempted_request_finds_what_of_it_is_still_there() -> None:
    engine = vllm(kv_tokens=256, page=16, prefix_cache=True)
    simulate(engine, ask(tokens("a", 100), 60), ask(tokens("b", 100), 60), at=(0, 0.01))
    assert engine.figures.retractions == 1
    assert engine.figures.prefilled < 300


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dialect": "vlm"}, "did you mean `vllm`"),
        ({"dialect": "vllm", "policy": "lpm"}, "knows the policy fcfs only"),
        ({"dialect": "vllm", "host": 100}, "host is for the dialect sglang"),
        ({"dialect": "vllm", "ranks": 2, "decode_ranks": 1}, "decode_ranks is for the dialect sglang"),
        ({"dialect": "vllm", "mixed_chunk": True}, "mixed_chunk is for the dialect sglang"),
        ({"dialect": "vllm", "budget": 0}, "budget must be at least 1"),
    ],
)
def test_settings_that_do_not_fit_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        SimSettings(**{"kv_tokens": 10_000, **given})


# --- real runs ---

# How far means may be off: time to the first token, time for each further one, latency; and the makespan.
LIMITS = {"first": 0.20, "token": 0.10, "latency": 0.12, "makespan": 0.10}
# GPU: requests at once, tokens of the cache (so many that they never run out, where the run says nothing of them).
RUNS = {"RTX4090": (256, 41_408), "RTXPRO6000": (128, 10_000_000)}


class Timed(SimEngine):
    """Keeps its calls."""

    calls: list[SimCall]

    def _call(self, *given: Any) -> SimCall:
        call = super()._call(*given)
        self.calls.append(call)
        return call


def replayed(folder: Path, requests: list[dict[str, Any]], max_running: int, kv_tokens: int) -> list[SimCall]:
    """The calls of a run in which requests come when they came, in their order."""
    engine = Timed(
        SimSettings(
            kv_tokens=kv_tokens,
            page=16,
            max_context=kv_tokens,
            max_running=max_running,
            budget=2048,
            dialect="vllm",
            prefix_cache=False,
            request_ms=0.0,
            reply_tokens=1_000_000,
        ),
        layer_cost(folder, layers=32),
    )
    engine.calls = []

    async def one(number: int, request: dict[str, Any]) -> None:
        await asyncio.sleep(request["queued_ts"] - requests[0]["queued_ts"])
        text = f"{number:08}".ljust(4 * (request["input_toks"] - HEADERS), "x")
        message = Message(role="user", content=text)
        await engine.generate(Request(model=None, messages=(message,), max_tokens=request["output_toks"]))

    async def work() -> None:
        await engine.open(concurrency=1)
        await asyncio.gather(*(one(*each) for each in enumerate(requests)))

    run_virtual(work())
    # They came in this order, one after the other.
    assert [(call.prompt, call.target) for call in engine.calls] == [
        (request["input_toks"], request["output_toks"]) for request in requests
    ]
    return engine.calls


@pytest.mark.shared
@pytest.mark.parametrize("gpu", sorted(RUNS))
def test_simulated_requests_take_about_as_long_as_real_ones(shared_data: Path, gpu: str) -> None:
    folder = shared_data / "sim" / "llmservingsim" / gpu
    with (folder / "vllm_requests.jsonl").open(encoding="utf-8") as lines:
        requests = sorted(map(json.loads, lines), key=lambda request: request["queued_ts"])
    assert len(requests) == 300
    began = requests[0]["queued_ts"]
    real = [
        (each["queued_ts"] - began, each["first_token_ts"] - began, each["last_token_ts"] - began, each["output_toks"])
        for each in requests
    ]
    calls = replayed(folder, requests, *RUNS[gpu])
    simulated = [(call.arrived / 1e9, (call.first or 0) / 1e9, (call.ended or 0) / 1e9, call.target) for call in calls]
    found, wanted = ({
        "first": fmean(first - queued for queued, first, _, _ in times),
        "token": fmean((last - first) / max(1, count - 1) for _, first, last, count in times),
        "latency": fmean(last - queued for queued, _, last, _ in times),
        "makespan": max(last for _, _, last, _ in times),
    } for times in (simulated, real))  # fmt: skip
    off = {name: found[name] / wanted[name] - 1 for name in LIMITS}
    assert {name: abs(off[name]) <= limit for name, limit in LIMITS.items()} == dict.fromkeys(LIMITS, True), off
