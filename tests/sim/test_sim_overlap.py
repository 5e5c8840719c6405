"""The overlapped scheduler by hand: a pass is chosen before the results of the one before it are looked at."""

from __future__ import annotations

import pytest
from simulating import Recorder, ask, ended, simulate, tokens

from helix.errors import OptionError

MODES = ("off", "device", "host")


@pytest.mark.parametrize("mode", MODES)
def test_alone_a_call_takes_as_long_as_ever(mode: str) -> None:
    engine = Recorder(overlap=mode)
    simulate(engine, ask(tokens("a", 100), 5))
    assert ended(engine) == pytest.approx([100 + 4 * 10])
    assert engine.figures.decode_passes == 4


@pytest.mark.parametrize(("mode", "cached"), [("off", [0, 99]), ("device", [0, 0]), ("host", [0, 0])])
def test_a_prompt_is_not_found_by_the_next_pass(mode: str, cached: list[int]) -> None:
    # A pass has room for one of them.
    engine = Recorder(overlap=mode, max_prefill=64)
    text = tokens("a", 100)
    replies = simulate(engine, ask(text, 8), ask(text, 8))
    assert [reply.cached_tokens for reply in replies] == cached


@pytest.mark.parametrize(("mode", "header"), [("off", 2), ("device", 0), ("host", 0)])
def test_the_pass_after_the_next_finds_it(mode: str, header: int) -> None:
    engine = Recorder(overlap=mode, max_prefill=64)
    text = tokens("a", 100)
    replies = simulate(engine, ask(text, 8), ask(tokens("b", 100), 8), ask(text, 8))
    assert [reply.cached_tokens for reply in replies] == [0, header, 99]


@pytest.mark.parametrize(("mode", "began"), [("off", 120), ("device", 130), ("host", 120)])
def test_on_a_device_a_pass_takes_nobody_who_came_after_the_last_one_began(mode: str, began: int) -> None:
    # The second call comes in the second pass of decoding: 110 to 120 ms.
    engine = Recorder(overlap=mode)
    simulate(engine, ask(tokens("a", 100), 9), ask(tokens("b", 50), 1), at=(0.0, 0.115))
    assert engine.calls[1].admitted == began * 1_000_000


@pytest.mark.parametrize(("mode", "first"), [("off", 110), ("device", 110), ("host", 120)])
def test_where_one_processor_does_all_a_reply_waits_for_the_pass_behind_it(mode: str, first: int) -> None:
    # Both are computed in one pass of 100 ms; the first is done after one pass of decoding, the second goes on.
    engine = Recorder(overlap=mode)
    simulate(engine, ask(tokens("a", 50), 2), ask(tokens("b", 50), 5))
    assert ended(engine) == pytest.approx([first, 140])


@pytest.mark.parametrize("mode", MODES)
def test_who_ends_by_length_is_known_to(mode: str) -> None:
    engine = Recorder(overlap=mode, max_running=1)
    simulate(engine, ask(tokens("a", 100), 3), ask(tokens("b", 100), 3))
    # The second one finds the header of the first: 2 tokens.
    assert ended(engine) == pytest.approx([120, 238])


@pytest.mark.parametrize(("mode", "lost"), [("off", 0), ("device", 10), ("host", 10)])
def test_who_ends_by_a_token_of_its_own_decodes_once_more(mode: str, lost: int) -> None:
    engine = Recorder(overlap=mode, max_running=1, reply_tokens=4)
    simulate(engine, ask(tokens("a", 100), 100), ask(tokens("b", 100), 100))
    first = 100 + 10 * (engine.calls[0].target - 1)
    # The reply goes out meanwhile on a device, and behind it on a processor.
    assert ended(engine)[0] == pytest.approx(first + (lost if mode == "host" else 0))
    assert engine.calls[1].admitted == pytest.approx((first + lost) * 1_000_000)


def test_a_place_is_free_a_pass_late() -> None:
    # Two run, one waits. When the first is done a pass of decoding of the second is chosen already.
    admitted = {}
    for mode in MODES:
        engine = Recorder(overlap=mode, max_running=2)
        simulate(engine, ask(tokens("a", 50), 2), ask(tokens("b", 50), 9), ask(tokens("c", 50), 1))
        admitted[mode] = (engine.calls[2].admitted or 0) / 1e6
    assert admitted == {"off": 110, "device": 120, "host": 120}


def test_a_call_that_is_given_up_leaves_nothing() -> None:
    for mode in MODES:
        engine = Recorder(overlap=mode)
        replies = simulate(engine, ask(tokens("a", 50), 50), ask(tokens("b", 50), 50), aborts=(0.135,))
        assert [reply is None for reply in replies] == [True, False]
        assert engine.workers[0].load == 0
        assert engine.workers[0].pool.private == 0


def test_an_unknown_overlap_is_an_error() -> None:
    with pytest.raises(OptionError, match="unknown overlap `devise`; did you mean `device`"):
        Recorder(overlap="devise")
