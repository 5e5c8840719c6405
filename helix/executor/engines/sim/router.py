"""Which worker takes a request that names none."""

from __future__ import annotations

from collections.abc import Sequence

from helix.executor.engines.sim.call import SimCall
from helix.executor.engines.sim.worker import Worker


class Router:
    """`round-robin` takes turns, `least-queue` takes the worker with the fewest requests, `prefix-aware` the one that
    holds most of the prompt if that is half of it or more, else the least loaded (as sglang-router does).
    """

    def __init__(self, name: str, workers: Sequence[Worker]) -> None:
        self._name = name
        self._workers = workers
        self._turn = 0

    def pick(self, call: SimCall) -> Worker:
        """The worker for a request."""
        workers = self._workers
        if len(workers) == 1:
            return workers[0]
        if self._name == "round-robin":
            worker = workers[self._turn % len(workers)]
            self._turn += 1
            return worker
        if self._name == "prefix-aware":
            text = call.beginning(call.prompt - 1)
            best = max(workers, key=lambda each: (each.pool.tree.peek(text, call.space), -each.load, -each.number))
            if 2 * best.pool.tree.peek(text, call.space) * best.pool.page >= call.prompt:
                return best
        return min(workers, key=lambda each: (each.load, each.number))
