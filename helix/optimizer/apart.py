"""How many decode passes the workers make at the least that the longest chain of calls has no part in.

A chain decodes on one worker at a time, so that for n - 1 times the makespan T the other n - 1 are without it. In that
time they compute prompts, and decode in q passes which are not the chain's. With c passes of the chain

    n T = d (c + q) + prefill + decoding          what all passes of all workers take
    (n - 1) T <= d q + prefill + F(q)             what may be done without the chain

where F(q) is the most that q passes decode: each other line of calls that follow on one another has one token in each.
The least q for which both hold bounds T from below, also for rows that go from worker to worker. Time without work on a
worker, or for prompts that are computed again, makes T longer by at least as much as passes do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from helix.optimizer.engine_time import EngineTime

# Lines of as many decode steps: these, how many lines there are, and the sum of their widest contexts in tokens.
Lines = tuple[float, int, float]
# Halvings of the range in which the number of passes is looked for.
HALVINGS = 40


def lines_by_steps(lines: Iterable[tuple[float, float]]) -> list[Lines]:
    """Lines by their decode steps, from the steps and the widest context of each."""
    found: dict[float, tuple[int, float]] = {}
    for steps, context in lines:
        count, contexts = found.get(steps, (0, 0.0))
        found[steps] = count + 1, contexts + context
    return [(steps, count, contexts) for steps, (count, contexts) in sorted(found.items())]


def passes_apart(
    engine: EngineTime, lines: Sequence[Lines], *, chain: float, contexts: float, prefill: float, decoding: float
) -> float:
    """The least q, 0 without lines. `decoding` and `prefill` are in milliseconds, what passes cost by themselves left
    out; `contexts` are the tokens of context of all decode steps, in the sum.
    """
    workers = engine.decoders or engine.workers
    if workers < 2 or not lines:
        return 0.0
    longest, count, widest = lines[-1]
    if longest >= chain:
        # That is the chain, or one like it.
        lines = [*lines[:-1], (longest, count - 1, widest * (count - 1) / count)]

    def missing(passes: float) -> float:
        """The time without the chain that so many passes leave unfilled."""
        steps = sum(count * min(each, passes) for each, count, _ in lines)
        read = min(contexts, sum(widest * min(each, passes) for each, _, widest in lines))
        makespan = (engine.d * (chain + passes) + prefill + decoding) / workers
        return (workers - 1) * makespan - engine.d * passes - prefill - engine.e * steps - engine.f * read

    least, most = 0.0, workers * chain
    if missing(least) <= 0:
        return 0.0
    for _ in range(HALVINGS):
        middle = (least + most) / 2
        least, most = (middle, most) if missing(middle) > 0 else (least, middle)
    return least
