"""Which worker takes a request that names none."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from helix.executor.engines.sim.call import SimCall
from helix.executor.engines.sim.settings import SimSettings
from helix.executor.engines.sim.worker import Worker

# sglang-router's defaults: what of a prompt must be known for its worker to get it; and how far apart the longest and
# the shortest queue may be, in requests and as a ratio, before the shortest one gets everything.
KNOWN = 0.3
APART, RATIO = 64, 1.5
# What the router remembers for each worker, in sizes of its cache, and at most, in characters.
REMEMBERED, MOST = 4, 1 << 26
_COMPACT = 256


class Router:
    """`round-robin` takes turns, `least-queue` takes the worker with the fewest requests.

    `prefix-aware` is the cache-aware policy of sglang-router: while queues are about equal, the worker that was sent
    most of the prompt before, if that is more than `KNOWN` of it; else the one with the fewest requests, of equal ones
    that which was sent least. It knows what it sent where, not what caches hold.
    """

    def __init__(self, settings: SimSettings, workers: Sequence[Worker], width: int) -> None:
        self._name = settings.router
        self._workers = workers
        self._turn = 0
        self._sent = SentTree(settings.page * width, min(MOST, REMEMBERED * settings.kv_tokens * width))

    def pick(self, call: SimCall) -> Worker:
        """The worker for a request."""
        workers = self._workers
        if len(workers) == 1:
            return workers[0]
        if self._name == "round-robin":
            worker = workers[self._turn % len(workers)]
            self._turn += 1
            return worker
        loads = [worker.load for worker in workers]
        least = min(loads)
        chosen = loads.index(least)
        if self._name == "prefix-aware":
            text = call.beginning(call.prompt)
            most = max(loads)
            balanced = most - least <= APART or most <= RATIO * least
            known, holders = self._sent.find(text, call.space) if balanced else (0, ())
            if known > KNOWN * len(text):
                chosen = min(holders, key=lambda number: (loads[number], number))
            else:
                held = self._sent.held
                chosen = min(range(len(workers)), key=lambda number: (loads[number], held.get(number, 0), number))
            self._sent.add(text, call.space, chosen)
        return workers[chosen]


class _Node:
    """Part of prompts; `workers` were sent it, each with the time of the last one."""

    __slots__ = ("children", "key", "parent", "workers")

    def __init__(self, key: str, parent: _Node | None) -> None:
        self.key = key
        self.parent = parent
        self.children: dict[str, _Node] = {}
        self.workers: dict[int, int] = {}


class SentTree:
    """Which worker was sent which prompts: a radix tree in units of `unit` characters, of which each worker has at most
    `most` characters, least recently sent first to go.
    """

    def __init__(self, unit: int, most: int) -> None:
        self._unit = unit
        self._most = most
        self._roots: dict[str, _Node] = {}
        self._clock = 0
        self._serial = 0
        self.held: dict[int, int] = {}
        # Of each worker its nodes by time; an entry whose time is not the node's own any more counts for nothing.
        self._oldest: dict[int, list[tuple[int, int, _Node]]] = {}
        self._compact_at: dict[int, int] = {}

    def find(self, key: str, space: str) -> tuple[int, Sequence[int]]:
        """How much of a key was sent to some worker, and to which ones, in order."""
        node, at = self._roots.get(space), 0
        holders: Sequence[int] = ()
        while node is not None and at < len(key):
            child = node.children.get(key[at : at + self._unit])
            if child is None or not child.workers:
                break
            holders = sorted(child.workers)
            common = self._common(child.key, key, at)
            at += common
            if common < len(child.key):
                break
            node = child
        return at, holders

    def add(self, key: str, space: str, worker: int) -> None:
        """A worker was sent a key."""
        self._clock += 1
        node, at = self._roots.setdefault(space, _Node("", None)), 0
        while at < len(key):
            child = node.children.get(key[at : at + self._unit])
            if child is None:
                child = node.children[key[at : at + self._unit]] = _Node(key[at:], node)
            else:
                common = self._common(child.key, key, at)
                if common < len(child.key):
                    child = self._split(child, common)
            if worker not in child.workers:
                self.held[worker] = self.held.get(worker, 0) + len(child.key)
            child.workers[worker] = self._clock
            at += len(child.key)
            node = child
        self._offer(node, worker)
        self._forget(worker)

    def _split(self, node: _Node, length: int) -> _Node:
        parent = node.parent
        assert parent is not None
        upper = _Node(node.key[:length], parent)
        upper.workers = dict(node.workers)
        upper.children[node.key[length : length + self._unit]] = node
        parent.children[node.key[: self._unit]] = upper
        node.key = node.key[length:]
        node.parent = upper
        return upper

    def _common(self, key: str, other: str, at: int) -> int:
        """Characters that a node's key shares with another one from `at` on: whole units, at least one."""
        if other.startswith(key, at):
            return len(key)
        unit = self._unit
        low, high = 1, max(1, min(len(key), len(other) - at) // unit)
        while low < high:
            middle = (low + high + 1) // 2
            if other.startswith(key[low * unit : middle * unit], at + low * unit):
                low = middle
            else:
                high = middle - 1
        return low * unit

    def _offer(self, node: _Node, worker: int) -> None:
        """Makes the end of what a worker was sent known as one that may be forgotten."""
        heap = self._oldest.setdefault(worker, [])
        self._serial += 1
        heapq.heappush(heap, (node.workers[worker], self._serial, node))
        if len(heap) > self._compact_at.get(worker, _COMPACT):
            heap[:] = list({id(entry[2]): entry for entry in heap if self._counts(entry, worker)}.values())
            heapq.heapify(heap)
            self._compact_at[worker] = 2 * len(heap) + _COMPACT

    def _counts(self, entry: tuple[int, int, _Node], worker: int) -> bool:
        time, _, node = entry
        return node.workers.get(worker) == time and not any(worker in child.workers for child in node.children.values())

    def _forget(self, worker: int) -> None:
        heap = self._oldest[worker]
        while self.held[worker] > self._most and heap:
            entry = heapq.heappop(heap)
            node = entry[2]
            if node.parent is None or not self._counts(entry, worker):
                continue
            del node.workers[worker]
            self.held[worker] -= len(node.key)
            parent = node.parent
            if not node.workers:
                del parent.children[node.key[: self._unit]]
            if worker in parent.workers:
                self._offer(parent, worker)
