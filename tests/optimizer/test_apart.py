"""Decode passes without the longest chain: by hand, and beside schedules that were made."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix.optimizer.apart import lines_by_steps, passes_apart
from helix.optimizer.bounds import Work
from helix.optimizer.engine_time import EngineTime


def engine(**more: float) -> EngineTime:
    made = {"a": 0.0, "b": 0.0, "c": 0.0, "d": 10.0, "e": 1.0, "f": 0.0, "workers": 2, "mixes": True}
    return EngineTime(**{**made, **more})  # type: ignore[arg-type]


def work(*lines: tuple[float, float], p_min: float = 0.0) -> Work:
    """The sums over calls that each are a line: their decode steps, and their prompts, which they share with nobody."""
    made = Work(p_min=p_min, chain=max(steps for steps, _ in lines))
    for steps, prompt in lines:
        made.call(prompt, 0.0, steps + 1)
    made.lines = lines_by_steps((steps, prompt + steps) for steps, prompt in lines)
    return made


def seconds(some: Work, made: EngineTime) -> float:
    return some.bounds(made, {}, estimated=False).engine * 1000


def test_lines_by_their_steps() -> None:
    assert lines_by_steps([(3.0, 10.0), (2.0, 5.0), (3.0, 20.0)]) == [(2.0, 1, 5.0), (3.0, 2, 30.0)]


def test_a_chain_alone_takes_its_own_time() -> None:
    """Workers beside it do not help: with passes of the chain alone half of its time would be the bound."""
    assert seconds(work((100, 0)), engine()) == pytest.approx(100 * 11)
    assert seconds(work((100, 0)), engine(workers=8)) == pytest.approx(100 * 11)
    assert seconds(work((100, 0)), engine(workers=1)) == 100 * 11


def test_two_equal_chains_take_a_worker_each() -> None:
    lines = lines_by_steps([(100, 0)] * 2)
    found = passes_apart(engine(), lines, chain=100, contexts=0, prefill=0, decoding=200)
    assert found == pytest.approx(100)
    assert seconds(work((100, 0), (100, 0)), engine()) == pytest.approx(100 * 11)


def test_a_shorter_one_is_done_before_the_longest() -> None:
    """What it takes is less than the time that the other worker has."""
    assert seconds(work((100, 0), (60, 0)), engine()) == pytest.approx(100 * 11, rel=0.001)


def test_prompts_are_computed_beside_the_chain() -> None:
    """Where these fill the time of the other worker, all is shared out evenly."""
    assert passes_apart(engine(), [(10, 1, 0)], chain=10, contexts=0, prefill=5000, decoding=10) == 0
    assert seconds(work((10, 0), p_min=5000), engine(b=1.0)) == (5000 + 10 * 11) / 2


def test_without_lines_or_other_workers_nothing_is_apart() -> None:
    some = {"chain": 10.0, "contexts": 0.0, "prefill": 0.0, "decoding": 10.0}
    assert passes_apart(engine(), [], **some) == 0
    assert passes_apart(engine(workers=1), [(10, 1, 0)], **some) == 0
    # Workers that only prefill are not those that the chain could be on.
    assert passes_apart(engine(workers=2, decoders=1), [(10, 1, 0)], **some) == 0
    assert passes_apart(engine(workers=3, decoders=2), [(10, 1, 0)], **some) > 0


@given(
    steps=st.lists(st.integers(1, 12), min_size=1, max_size=8),
    workers=st.integers(1, 4),
    prompts=st.integers(0, 400),
    d=st.floats(0.1, 20),
    e=st.floats(0, 3),
    f=st.floats(0, 0.1),
    data=st.data(),
)
def test_no_schedule_is_faster(
    steps: list[int], workers: int, prompts: int, d: float, e: float, f: float, data: st.DataObject
) -> None:
    """Lines go from worker to worker as they like, a token in a round each; all workers begin a round together, or each
    goes on by itself as long as no line changes its worker.
    """
    made = engine(workers=workers, d=d, e=e, f=f, b=0.5)
    widths = [data.draw(st.integers(0, 300)) for _ in steps]
    p_min = float(prompts)
    left, times, together = list(steps), [0.0] * workers, data.draw(st.booleans())
    fixed = [data.draw(st.integers(0, workers - 1)) for _ in steps]
    for turn in count():
        on: list[list[int]] = [[] for _ in range(workers)]
        for line, more in enumerate(left):
            # Every line has its turn in the end.
            if more and (turn > 20 or data.draw(st.booleans())):
                on[data.draw(st.integers(0, workers - 1)) if together else fixed[line]].append(line)
        for worker, lines in enumerate(on):
            if lines:
                times[worker] += d + sum(e + f * (widths[line] + steps[line] - left[line] + 1) for line in lines)
            for line in lines:
                left[line] -= 1
        if together:
            times = [max(times)] * workers
        if not any(left):
            break
    # Prompts are computed on whichever worker is done first; what is left of them all share.
    spare = sum(max(times) - time for time in times)
    makespan = max(times) + max(0.0, 0.5 * p_min - spare) / workers
    assert seconds(work(*zip(steps, widths, strict=True), p_min=p_min), made) <= makespan * (1 + 1e-9)
