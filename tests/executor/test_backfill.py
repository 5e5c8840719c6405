"""Calls that find room go on while a larger one waits for it, but not for ever; the order within a row; and how many
calls an engine gets beside those that it runs.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_baselines import a_call, end, place, rows_of, taken, timed

from helix.executor.engines.base import Capabilities
from helix.executor.policies.cache_aware import CacheAwareQueue
from helix.executor.policies.helix_policy import Helix
from helix.executor.policies.outline import Outline


class Rests(Outline):
    """What follows on each step, in seconds."""

    def __init__(self, **levels: float) -> None:
        super().__init__()
        self._levels = levels


def test_small_calls_pass_one_that_has_no_room_as_often_as_the_engine_runs_calls() -> None:
    queue = CacheAwareQueue(place(kv=1000, slots=4), outline=Rests(large=1.0, small=9.0), warm_ups=False)
    large = [a_call(row, "large", f"{row}" * 2400) for row in range(2)]
    small = [a_call(row, "small", f"{row}" * 34) for row in range(2, 9)]
    for call in (*large, *small):
        queue.put(call)
    # Beside the first large one there is room for a small one and no other large one.
    assert rows_of(taken(queue)) == [0, 2]
    gone = []
    running = small[0]
    while True:
        end(queue, running, prompt=10)  # of forty characters, its role included
        queue.row_ended(running.instance)
        following = taken(queue)
        if not following:
            break
        assert len(following) == 1
        running = following[0]
        gone.append(running.row)
    # Four have passed the second large one with the first of them; now it waits alone.
    assert gone == [3, 4, 5]
    end(queue, large[0], prompt=600)
    assert rows_of(taken(queue))[0] == 1


@pytest.mark.parametrize(
    ("new", "dialogue", "gone"),
    [
        # The run waits for the longest chains: what is short has time.
        (0, False, ["long"]),
        # A dialogue finds its prompt while it is there.
        (0, True, ["long", "short"]),
        # Six rows are at work: half as many more begin first, and pass what has no room.
        (3, False, [*["start"] * 3, "long"]),
        # So many rows begin in their turn.
        (4, False, ["long", "short", *["start"] * 4]),
    ],
)
def test_near_the_end_the_longest_chains_decide(new: int, dialogue: bool, gone: list[str]) -> None:
    outline = Rests(start=10.0, long=9.0, short=1.0)
    outline._continued = frozenset(("short",) if dialogue else ())

    async def work() -> None:
        queue = CacheAwareQueue(place(kv=1000, slots=12), outline=outline, warm_ups=False)
        queue.attach(lambda: None)

        def put(row: int, step: str, size: int) -> None:
            call = a_call(row, step, f"{row}" * size, index=int(step != "start"))
            assert call.request is not None
            call.request = replace(call.request, max_tokens=8)
            queue.put(call)

        for row in range(6):
            put(row, "start", 40)
        for call in taken(queue):
            end(queue, call, prompt=12)
        # No second long one has room beside the first.
        for row in range(6):
            put(row, "short" if row % 2 else "long", 60 if row % 2 else 2000)
        for row in range(6, 6 + new):
            put(row, "start", 60)
        assert [call.step for call in taken(queue)] == gone

    timed(work)


def test_within_a_row_the_longest_rest_goes_first() -> None:
    queue = CacheAwareQueue(place(slots=8), outline=Rests(short=1.0, long=5.0), warm_ups=False)
    for row in (1, 0):
        queue.put(a_call(row, "short", f"{row} short", index=0))
        queue.put(a_call(row, "long", f"{row} long", index=1))
    assert [(call.row, call.step) for call in taken(queue)] == [(0, "long"), (0, "short"), (1, "long"), (1, "short")]


@pytest.mark.parametrize(
    ("reply", "returns", "sent"), [(8, False, 23), (31, False, 18), (63, False, 16), (8, True, 16)]
)
def test_as_many_wait_in_the_engine_as_end_before_it_hears_of_the_next_ones(
    reply: int, returns: bool, sent: int
) -> None:
    capabilities = Capabilities(kv_tokens=100_000, prefix_cache=True, max_running=16)
    outline = Rests()
    outline._returns = frozenset(("step",) if returns else ())
    slots = Helix().slots(capabilities, 7)
    assert slots == 32
    queue = CacheAwareQueue(replace(place(), capabilities=capabilities, slots=slots), outline=outline)
    for row in range(64):
        call = a_call(row, "step", f"{row} asks")
        assert call.request is not None
        call.request = replace(call.request, max_tokens=reply)
        queue.put(call)
    # A reply of n tokens takes n + 1 passes, and four go by until the next one begins: 16 * 4 / (n + 1) more.
    assert len(taken(queue)) == sent
