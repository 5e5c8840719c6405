"""The second tier of a worker's cache, in the memory of the host: after SGLang's HiCache.

What is copied there stays findable when the GPU evicts it, and is loaded again before a prompt that begins so is
computed. The tier is a radix tree of its own, least recently used first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from helix.executor.engines.sim.call import SimCall
from helix.executor.engines.sim.channel import Channel
from helix.executor.engines.sim.log import EventLog, Figures
from helix.executor.engines.sim.pool import Pool
from helix.executor.engines.sim.radix import Node, RadixTree
from helix.executor.engines.sim.settings import SimSettings
from helix.executor.engines.sim.timeline import TRANSFER_END, Timeline

# Hits of a part of the tree from which it is copied when it is put in.
_HITS = {"write-through": 1, "write-through-selective": 2}


@dataclass(slots=True, kw_only=True)
class Load:
    """Something on its way to the GPU: `text` in a namespace, of which `start` characters were there; `node` is its end
    in the GPU's tree, which is locked. `waiting` are the requests that go back into the queue when it is there.
    """

    text: str
    space: str
    start: int
    node: Node
    waiting: list[SimCall] = field(default_factory=list)


class HostTier:
    """The host tier of one worker. `changing` is called before the end of a transfer unlocks what it locked, `changed`
    after that, with the requests that waited.
    """

    def __init__(
        self,
        settings: SimSettings,
        pool: Pool,
        width: int,
        number: int,
        timeline: Timeline,
        log: EventLog,
        figures: Figures,
        changing: Callable[[int], None],
        changed: Callable[[list[SimCall], int], None],
    ) -> None:
        self.capacity = settings.host // settings.page
        self.tree = RadixTree(settings.page * width, marks_rest=True)
        # Transfers under way: they lock pages of the GPU.
        self.under_way = 0
        # When what is being evicted to here has left the GPU: a pass that takes its pages begins no earlier.
        self.free_at = 0
        self._settings = settings
        self._pool = pool
        self._width = width
        self._number = number
        self._timeline = timeline
        self._log = log
        self._figures = figures
        self._changing = changing
        self._changed = changed
        self._to_gpu = Channel(settings.host_latency_us, settings.host_load_gbs)
        self._from_gpu = Channel(settings.host_latency_us, settings.host_write_gbs)
        self._loads: list[Load] = []
        self._evicted = 0
        self._hits = _HITS.get(settings.host_write)
        if self._hits is None:
            pool.tree.on_evict = self._evict

    @property
    def takes_evicted(self) -> bool:
        """Whether what the GPU evicts is copied then."""
        return self._hits is None

    # --- from the GPU ---

    def put_in(self, node: Node, now: int) -> None:
        """Copies the part of the GPU's tree that ends here, where it was used often enough; it stays locked so long."""
        if self._hits is None:
            return
        while node.parent is not None and node.hits < self._hits:
            node = node.parent
        if node.parent is None:
            return
        text, space = self._pool.tree.path(node)
        pages, end = self._insert(text, space)
        if end is None:
            return
        self._pool.tree.lock(node)
        done = self._send(self._from_gpu, pages, now)
        self._figures.written += pages * self._pool.page
        self._log.add(now, self._number, "write", pages * self._pool.page)

        def written(time: int) -> None:
            self._changing(time)
            self._pool.tree.unlock(node)
            self.tree.unlock(end)
            self._ended([], time)

        self._at(done, written)

    def _evict(self, node: Node) -> None:
        """Takes what the GPU is about to evict."""
        text, space = self._pool.tree.path(node)
        pages, end = self._insert(text, space)
        if end is not None:
            self.tree.unlock(end)
            self._evicted += pages

    def settle(self, now: int) -> None:
        """Sends what was evicted since the last time, in one transfer."""
        if self._evicted:
            pages, self._evicted = self._evicted, 0
            self.free_at = self._send(self._from_gpu, pages, now)
            self._figures.written += pages * self._pool.page
            self._log.add(now, self._number, "write", pages * self._pool.page)

    def _insert(self, text: str, space: str) -> tuple[int, Node | None]:
        """Puts a text in; gives how many of its pages are new and its end, locked. (0, None): all of it is there, or it
        does not fit.
        """
        tree = self.tree
        whole = len(text) // tree.unit
        found, node = tree.match(text, space)
        if found >= whole:
            return 0, None
        tree.lock(node)
        pages = whole - found
        free = self.capacity - tree.size
        if pages > free:
            tree.evict(pages - free)
        fits = pages <= self.capacity - tree.size
        end: Node | None = None
        if fits:
            _, end = tree.insert(text, space)
            tree.lock(end)
        tree.unlock(node)
        return (pages, end) if fits else (0, None)

    # --- to the GPU ---

    def wait_for(self, call: SimCall, room: float, now: int) -> bool:
        """Whether a request that is to be admitted has to wait until some of its prompt is on the GPU.

        `room` are the tokens of the GPU's cache that nobody needs. It is loaded for once: what is evicted again before
        its turn is computed.
        """
        text = call.beginning(call.fill - 1)
        coming = self._coming(text, call.space)
        if coming is None and not call.loaded:
            coming = self._load(text, call.space, room, self._settings.host_least, now)
        if coming is None:
            return False
        call.loaded = True
        coming.waiting.append(call)
        return True

    def prefetch(self, text: str, space: str, room: float, now: int) -> int:
        """Loads what is here of a text and not on the GPU; gives the tokens that are on their way then."""
        if self._coming(text, space) is not None:
            return 0
        load = self._load(text, space, room, 1, now)
        return 0 if load is None else (len(load.text) - load.start) // self._width

    def _coming(self, text: str, space: str) -> Load | None:
        """What is on its way to the GPU and belongs to a text."""
        unit = self.tree.unit
        for load in self._loads:
            if load.space == space and text.startswith(load.text[: load.start + unit]):
                return load
        return None

    def _load(self, text: str, space: str, room: float, least: int, now: int) -> Load | None:
        unit, page = self.tree.unit, self._pool.page
        start = self._pool.tree.peek(text, space)
        found = self.tree.peek(text, space)
        pages = found - start
        if pages * page < least or pages * page > room:
            return None
        text = text[: found * unit]
        _, here = self.tree.match(text, space)
        self.tree.lock(here)
        _, above = self._pool.tree.match(text[: start * unit], space)
        self._pool.tree.lock(above)
        if pages > self._pool.available:
            self._pool.tree.unlock(above)
            self.tree.unlock(here)
            return None
        self._pool.make_free(pages)
        self.settle(now)
        _, node = self._pool.tree.insert(text, space, known=start)
        self._pool.tree.lock(node)
        self._pool.tree.unlock(above)
        load = Load(text=text, space=space, start=start * unit, node=node)
        self._loads.append(load)
        done = self._send(self._to_gpu, pages, max(now, self.free_at))
        self._figures.loaded += pages * page
        self._log.add(now, self._number, "load", pages * page)

        def loaded(time: int) -> None:
            self._changing(time)
            self._loads.remove(load)
            self._pool.tree.unlock(load.node)
            self.tree.unlock(here)
            self._log.add(time, self._number, "loaded", *(call.serial for call in load.waiting))
            self._ended(load.waiting, time)

        self._at(done, loaded)
        return load

    # --- transfers ---

    def _send(self, channel: Channel, pages: int, now: int) -> int:
        return channel.send(now, pages * self._pool.page * self._settings.kv_bytes)

    def _at(self, time: int, event: Callable[[int], None]) -> None:
        self.under_way += 1
        self._timeline.at(time, TRANSFER_END, event, self._number)

    def _ended(self, waited: list[SimCall], now: int) -> None:
        self.under_way -= 1
        self._changed(waited, now)

    def drop(self, call: SimCall) -> bool:
        """Lets a request that waits for a load wait no more; whether it did."""
        for load in self._loads:
            if call in load.waiting:
                load.waiting.remove(call)
                return True
        return False

    @property
    def waiting(self) -> int:
        """Requests that wait for a load."""
        return sum(len(load.waiting) for load in self._loads)
