"""What went on in a simulation over time, in as many equal spans as fit into bounded memory.

Spans begin at a millisecond and double whenever there are more of them than `most`, so a simulation of hours takes as
much as one of seconds.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from helix.executor.engines.sim.call import SimCall
    from helix.executor.engines.sim.worker import Worker

MOST = 400
FULL = 0.8
_FIRST_SPAN = 1 << 20  # nanoseconds


class PhaseSums:
    """Calls that were admitted in a part of the run, and the tokens of their prompts."""

    __slots__ = ("cached", "calls", "prompt")

    def __init__(self) -> None:
        self.calls = self.prompt = self.cached = 0

    def count(self, prompt: int, cached: int) -> None:
        """Adds a call."""
        self.calls += 1
        self.prompt += prompt
        self.cached += cached

    def add(self, other: PhaseSums) -> None:
        """Adds another part."""
        self.calls += other.calls
        self.prompt += other.prompt
        self.cached += other.cached


class History:
    """A watcher of `ranks` workers. Times are in nanoseconds, pages in tokens.

    `span` is the length of each of the `spans`. Of each rank `prefill` and `decode` hold the time of such passes in
    them, `locked` and `evictable` the tokens times the time that the cache held them (locked: by running requests).
    `calls` are those that were admitted in a span, `prompt` and `cached` the tokens of their prompts; warm-ups are left
    out.

    `full` is the first and the last time that all caches together were locked to FULL of their size, and `parts` are
    the sums before it, in it and behind it.
    """

    def __init__(self, ranks: int, *, most: int = MOST) -> None:
        self.ranks = ranks
        self.span = _FIRST_SPAN
        self.spans = 0
        self.end = 0
        self.capacity = 0
        self.full: tuple[int, int] | None = None
        self.parts = (PhaseSums(), PhaseSums(), PhaseSums())
        self.peak = 0
        self._most = most
        self.prefill = [array("d") for _ in range(ranks)]
        self.decode = [array("d") for _ in range(ranks)]
        self.locked = [array("d") for _ in range(ranks)]
        self.evictable = [array("d") for _ in range(ranks)]
        self._floats = (*self.prefill, *self.decode, *self.locked, *self.evictable)
        self.calls = array("q")
        self.prompt = array("q")
        self.cached = array("q")
        # Of each rank the time up to which it is written down, and what it holds since.
        self._seen = [0] * ranks
        self._held = [(0, 0)] * ranks
        self._sizes = [0] * ranks

    def admitted(self, worker: Worker, call: SimCall, now: int) -> None:
        """Hears of a request that is admitted."""
        if not call.most_new:
            return
        cached = call.cached or 0
        at = self._at(now)
        self.calls[at] += 1
        self.prompt[at] += call.prompt
        self.cached[at] += cached
        self.parts[0 if self.full is None else 2].count(call.prompt, cached)

    def passed(self, worker: Worker, began: int, now: int, *, prefill: bool) -> None:
        """Hears of a pass."""
        rank, pool = worker.number, worker.pool
        self._add((self.prefill if prefill else self.decode)[rank], began, now, 1.0)
        self._hold(rank, began)
        locked = (pool.tree.locked + pool.private) * pool.page
        self._held[rank] = locked, pool.tree.evictable * pool.page
        self._hold(rank, now)
        size = pool.capacity * pool.page
        self.capacity += size - self._sizes[rank]
        self._sizes[rank] = size
        total = sum(held for held, _ in self._held)
        self.peak = max(self.peak, total)
        if total >= FULL * self.capacity and all(self._sizes):
            if self.full is None:
                self.full = now, now
            else:
                self.full = self.full[0], now
                self.parts[1].add(self.parts[2])
                self.parts = (self.parts[0], self.parts[1], PhaseSums())

    def finish(self, now: int) -> None:
        """Writes down what was held up to the end of the simulation."""
        self.end = max(self.end, now)
        for rank in range(self.ranks):
            self._hold(rank, now)

    def phases(self) -> tuple[tuple[int, int, PhaseSums], ...]:
        """Three parts of the run, each as its beginning, its end and its sums: those of `full`, or thirds of the time
        (to whole spans) where the caches never were that full.
        """
        if self.full is not None:
            edges = (0, self.full[0], self.full[1], max(self.end, self.full[1]))
            return tuple((edges[at], edges[at + 1], self.parts[at]) for at in range(3))
        thirds = tuple(PhaseSums() for _ in range(3))
        cut = [round(self.spans * at / 3) for at in range(4)]
        for at, sums in enumerate(thirds):
            for span in range(cut[at], cut[at + 1]):
                sums.calls += self.calls[span]
                sums.prompt += self.prompt[span]
                sums.cached += self.cached[span]
        ends = [min(each * self.span, self.end) for each in cut[:3]] + [self.end]
        return tuple((ends[at], ends[at + 1], thirds[at]) for at in range(3))

    def _hold(self, rank: int, now: int) -> None:
        """Writes down what a rank holds since it was last looked at."""
        seen = self._seen[rank]
        if now > seen:
            locked, evictable = self._held[rank]
            self._add(self.locked[rank], seen, now, locked)
            self._add(self.evictable[rank], seen, now, evictable)
            self._seen[rank] = now

    def _add(self, series: array[float], began: int, ended: int, value: float) -> None:
        """Adds a value times the time, to each span that the time reaches into."""
        last = self._at(max(began, ended - 1))
        self.end = max(self.end, ended)
        span = self.span
        for at in range(began // span, last + 1):
            series[at] += value * (min(ended, (at + 1) * span) - max(began, at * span))

    def _at(self, now: int) -> int:
        """The span of a time; there are as many as that afterwards."""
        self.end = max(self.end, now)
        while now // self.span >= self._most:
            self._double()
        at = now // self.span
        if at >= self.spans:
            more = at + 1 - self.spans
            for series in self._floats:
                series.extend([0.0] * more)
            self.calls.extend([0] * more)
            self.prompt.extend([0] * more)
            self.cached.extend([0] * more)
            self.spans = at + 1
        return at

    def _double(self) -> None:
        self.span *= 2
        half = (self.spans + 1) // 2
        for floats in self._floats:
            for at in range(half):
                floats[at] = sum(floats[2 * at : 2 * at + 2])
            del floats[half:]
        for counts in (self.calls, self.prompt, self.cached):
            for at in range(half):
                counts[at] = sum(counts[2 * at : 2 * at + 2])
            del counts[half:]
        self.spans = half
