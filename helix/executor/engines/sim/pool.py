"""The KV cache of one worker: pages in the radix tree, pages of running requests, and free ones."""

from __future__ import annotations

from helix.executor.engines.sim.call import SimCall
from helix.executor.engines.sim.eviction import eviction
from helix.executor.engines.sim.radix import RadixTree
from helix.executor.engines.sim.settings import SimSettings


class Pool:
    """All counts are in pages; `private` are those of running requests that are not in the tree."""

    def __init__(self, settings: SimSettings, width: int) -> None:
        self.page = settings.page
        self.capacity = settings.kv_tokens // settings.page
        self.private = 0
        # Blocks of vLLM are evicted one by one, nodes of SGLang whole.
        blocks = settings.dialect == "vllm"
        self.tree = RadixTree(
            settings.page * width, eviction(settings.eviction), leaf_pages=blocks, marks_rest=not blocks
        )
        self._caches = settings.prefix_cache
        self._raises = settings.eviction == "priority" and not blocks

    @property
    def free(self) -> int:
        return self.capacity - self.tree.size - self.private

    @property
    def available(self) -> int:
        """Pages that are free or can be made so."""
        return self.free + self.tree.evictable

    def pages(self, tokens: int) -> int:
        """The pages that some tokens take."""
        return -(-tokens // self.page)

    def attach(self, call: SimCall) -> None:
        """Finds what of a request is in the tree, and locks it. The last token is always computed."""
        call.matched_node = None
        if self._caches:
            call.held, call.node = self.tree.match(call.beginning(call.fill - 1), call.space)
            self.tree.lock(call.node)
        call.kv = call.held * self.page

    def growth(self, call: SimCall, tokens: int) -> int:
        """The pages that a request still needs to hold so many tokens."""
        return max(0, self.pages(tokens) - call.held - call.private)

    def grow(self, call: SimCall, tokens: int) -> None:
        """Gives a request the pages for so many tokens, evicting what has to go. The caller knows that they fit."""
        pages = self.growth(call, tokens)
        if pages:
            if pages > self.free:
                self.tree.evict(pages - self.free)
            assert pages <= self.free, "admitted more than fits"
            call.private += pages
            self.private += pages
        call.kv = max(call.kv, tokens)

    def grow_all(self, calls: list[SimCall], tokens: int) -> None:
        """Gives each request the pages for so many tokens more."""
        if self.page > 1:
            for call in calls:
                self.grow(call, call.kv + tokens)
            return
        # Where a token is a page, all need the same.
        pages = tokens * len(calls)
        if pages > self.free:
            self.tree.evict(pages - self.free)
        assert pages <= self.free, "decodes more than fits"
        self.private += pages
        for call in calls:
            call.private += tokens
            call.kv += tokens

    def keep(self, call: SimCall) -> None:
        """Puts what is computed of a request into the tree, and locks it there."""
        if not self._caches:
            return
        pages = call.kv // self.page
        before = call.node
        text = call.beginning(pages * self.page)
        # What the request found is a hit once, when it is first put in behind it.
        priority = call.priority or 0
        _, node = self.tree.insert(text, call.space, priority=priority, known=call.known)
        if self._raises and call.kv > call.prompt:
            # The prompt is to outlive the reply behind it: SGLang puts it in once more, one above.
            whole = call.prompt // self.page
            self.tree.insert(call.beginning(whole * self.page), call.space, priority=priority + 1, known=whole)
        # Pages that another request has put in meanwhile are held twice, and its own go.
        call.private -= pages - call.held
        self.private -= pages - call.held
        call.held, call.known, call.node = pages, pages, node
        self.tree.lock(node)
        if before is not None:
            self.tree.unlock(before)

    def make_free(self, pages: int) -> None:
        """Evicts until so many pages are free. The caller knows that it can be done."""
        if pages > self.free:
            self.tree.evict(pages - self.free)
        assert pages <= self.free, "frees more than can be"

    def reserve(self, call: SimCall, tokens: int) -> None:
        """Keeps pages for a request that is not here yet. The caller knows that they fit."""
        call.reserved = self.pages(tokens)
        self.make_free(call.reserved)
        self.private += call.reserved

    def cancel(self, call: SimCall) -> None:
        """Gives back what was reserved."""
        self.private -= call.reserved
        call.reserved = 0

    def seat(self, call: SimCall, tokens: int) -> None:
        """A request comes that pages were reserved for: it holds so many tokens there."""
        call.private, call.reserved, call.kv = call.reserved, 0, tokens

    def release(self, call: SimCall) -> None:
        """Lets go of a request: what of it is not in the tree is free, the rest can be evicted."""
        self.private -= call.private
        if call.node is not None:
            self.tree.unlock(call.node)
        call.node = None
        call.held = call.known = call.private = call.kv = 0
