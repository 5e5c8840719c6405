"""A radix tree of pages with locks: which beginnings of prompts a worker holds in its KV cache.

A prompt is a string; a page is `unit` characters of it. Nodes hold whole pages, so what two prompts share is found
floored to pages. After SGLang's RadixCache: a node on the path of a running request is locked, unlocked leaves are
evicted whole, and a node's priority is the highest that ever came by.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator

from helix.executor.engines.sim.eviction import Key, lru

_COMPACT = 256
# Steps until the next use of what no hint tells of.
NEVER = 1 << 30


class Node:
    """Pages between its parent and here. `locks` counts running requests at it or below, `used` and `made` are times of
    the tree's own clock, `steps` are those until its next use as hints have it.
    """

    __slots__ = ("children", "hits", "key", "locks", "made", "pages", "parent", "priority", "steps", "used")

    def __init__(self, key: str, pages: int, parent: Node | None, made: int, priority: int) -> None:
        self.key = key
        self.pages = pages
        self.parent = parent
        self.children: dict[str, Node] = {}
        self.locks = 0
        self.hits = 0
        self.used = self.made = made
        self.priority = priority
        self.steps = NEVER


class RadixTree:
    """See the module. All sizes are in pages. `evicted` counts the pages that were, since the start.

    `marks_rest` counts a node that matches in part as used altogether, as SGLang does; else only the part that matched
    is. `leaf_pages` has a leaf give up its last page only, not all at once: as caches of blocks do. `on_evict` hears of
    a node just before it goes.
    """

    def __init__(
        self, unit: int, key: Callable[[Node], Key] = lru, *, leaf_pages: bool = False, marks_rest: bool = False
    ) -> None:
        self.unit = unit
        self.size = 0
        self.locked = 0
        self.evicted = 0
        self._policy = key
        self._leaf_pages = leaf_pages
        self._marks_rest = marks_rest
        self._roots: dict[str, Node] = {}
        self._clock = 0
        # Unlocked leaves by the policy's key. An entry whose key is not the node's own any more counts for nothing.
        self._heap: list[tuple[Key, int, Node]] = []
        self._serial = 0
        self._leaves = 0
        self._hints: list[tuple[str, str, int]] = []
        self._hinted: list[Node] = []
        self.on_evict: Callable[[Node], None] | None = None

    @property
    def evictable(self) -> int:
        """Pages that are not locked. All of them can be evicted: above a node without locks may be locked ones, below
        it are none.
        """
        return self.size - self.locked

    def root(self, space: str) -> Node:
        """The root of a namespace; prompts of different ones share nothing."""
        root = self._roots.get(space)
        if root is None:
            root = self._roots[space] = Node("", 0, None, 0, 0)
        return root

    # --- prompts ---

    def match(self, key: str, space: str = "") -> tuple[int, Node]:
        """How many pages of a key are there, and the node at their end, which is split off for it. Touches the path."""
        self._clock += 2
        node, at = self.root(space), 0
        node.used = self._clock
        length = len(key) // self.unit * self.unit
        while at < length:
            child = node.children.get(key[at : at + self.unit])
            if child is None:
                break
            if at + len(child.key) > length or not key.startswith(child.key, at):
                node = self._split(child, self._common(child.key, key, at, length))
                at += len(node.key)
                break
            child.used = self._clock
            at += len(child.key)
            node = child
        self._offer(node)
        return at // self.unit, node

    def ends(self, node: Node, more: str) -> bool:
        """Whether a key still ends at a node where it ended when it was matched; `more` is its next page ("": none).

        A node that is split stays the lower part. Where single pages are evicted, nobody can tell.
        """
        there = node.parent is not None or not node.key
        return there and not self._leaf_pages and (not more or more not in node.children)

    def touch(self, node: Node) -> None:
        """Marks the path to a node as used, as `match` does."""
        self._clock += 2
        each: Node | None = node
        while each is not None:
            each.used = self._clock
            each = each.parent
        self._offer(node)

    def insert(self, key: str, space: str = "", *, priority: int = 0, known: int = 0) -> tuple[int, Node]:
        """Puts a key in; gives how many of its pages were there, and the node at its end.

        A request that grows puts in a longer key each time: the first `known` pages are its own from before, and count
        as no hit.
        """
        self._clock += 2
        node, at = self.root(space), 0
        node.used = self._clock
        length = len(key) // self.unit * self.unit
        while at < length:
            child = node.children.get(key[at : at + self.unit])
            if child is None:
                break
            if at + len(child.key) > length or not key.startswith(child.key, at):
                child = self._split(child, self._common(child.key, key, at, length))
            child.used = self._clock
            at += len(child.key)
            child.priority = max(child.priority, priority)
            node = child
            if at // self.unit > known:
                node.hits += 1
        found = at // self.unit
        if at < length:
            pages = length // self.unit - found
            made = Node(key[at:length], pages, node, self._clock, priority)
            made.hits = 1
            if self._hints and (steps := self._hinted_steps(key, space, at)) < NEVER:
                made.steps = steps
                self._hinted.append(made)
            node.children[key[at : at + self.unit]] = made
            self.size += pages
            node = made
        self._offer(node)
        return found, node

    def _common(self, key: str, other: str, at: int, length: int) -> int:
        """Characters of whole pages that a node's key shares with another one from `at` on; at least one is shared."""
        unit = self.unit
        low, high = 1, min(len(key), length - at) // unit
        while low < high:
            middle = (low + high + 1) // 2
            if other.startswith(key[low * unit : middle * unit], at + low * unit):
                low = middle
            else:
                high = middle - 1
        return low * unit

    def _split(self, node: Node, length: int) -> Node:
        """Cuts a node in two, and gives the upper part: it has the lower one's locks, hits and priority."""
        if length == len(node.key):
            return node
        parent = node.parent
        assert parent is not None
        upper = Node(node.key[:length], length // self.unit, parent, self._clock, node.priority)
        upper.locks, upper.hits, upper.steps = node.locks, node.hits, node.steps
        if upper.steps < NEVER:
            self._hinted.append(upper)
        upper.children[node.key[length : length + self.unit]] = node
        parent.children[node.key[: self.unit]] = upper
        node.key = node.key[length:]
        node.pages -= upper.pages
        node.parent = upper
        if self._marks_rest:
            # A little before the part that matched: of the two the rest goes first.
            node.used = self._clock - 1
        if upper.steps < NEVER:
            node.steps = self._steps_below(upper, node)
        self._offer(node)
        return upper

    def peek(self, key: str, space: str = "") -> int:
        """How many pages of a key are there, without a touch."""
        root = self._roots.get(space)
        if root is None:
            return 0
        node, at = root, 0
        length = len(key) // self.unit * self.unit
        while at < length:
            child = node.children.get(key[at : at + self.unit])
            if child is None:
                break
            if at + len(child.key) > length or not key.startswith(child.key, at):
                at += self._common(child.key, key, at, length)
                break
            at += len(child.key)
            node = child
        return at // self.unit

    # --- hints ---

    def evict_by(self, key: Callable[[Node], Key]) -> None:
        """Chooses by another policy from now on which leaf goes first; while the tree is empty."""
        assert not self.size, "the leaves are in the order of another policy"
        self._policy = key

    def hint(self, hints: Iterable[tuple[str, str, int]]) -> None:
        """Tells in how many steps beginnings are used next, each as key, namespace and steps; of what lies on several
        of them the fewest count. Takes the place of the hints before.
        """
        self._hints = list(hints)
        touched = dict.fromkeys(self._hinted)
        for node in touched:
            node.steps = NEVER
        self._hinted = []
        for key, space, steps in self._hints:
            node, at = self.root(space), 0
            while at < len(key):
                child = node.children.get(key[at : at + self.unit])
                if child is None or not child.key.startswith(key[at : at + len(child.key)]):
                    break
                child.steps = min(child.steps, steps)
                touched[child] = None
                self._hinted.append(child)
                at += len(child.key)
                node = child
        for node in touched:
            self._offer(node)

    def _hinted_steps(self, text: str, space: str, at: int) -> int:
        """The steps until the next use of the page of a text that begins at a place."""
        page = text[: at + self.unit]
        return min(
            (steps for key, where, steps in self._hints if where == space and key.startswith(page)), default=NEVER
        )

    def _steps_below(self, upper: Node, node: Node) -> int:
        """The steps until the next use of a node that was split off below another."""
        parts = [node.key[: self.unit]]
        each = upper
        while each.parent is not None:
            parts.append(each.key)
            each = each.parent
        space = next(name for name, root in self._roots.items() if root is each)
        text = "".join(reversed(parts))
        return self._hinted_steps(text, space, len(text) - self.unit)

    # --- locks ---

    def lock(self, node: Node) -> None:
        """Keeps a node and all above it from being evicted."""
        each: Node | None = node
        while each is not None and each.parent is not None:
            if each.locks == 0:
                self.locked += each.pages
            each.locks += 1
            each = each.parent

    def unlock(self, node: Node) -> None:
        """Takes one lock back."""
        each: Node | None = node
        while each is not None and each.parent is not None:
            assert each.locks > 0
            each.locks -= 1
            if each.locks == 0:
                self.locked -= each.pages
            each = each.parent
        self._offer(node)

    # --- eviction ---

    def evict(self, pages: int) -> int:
        """Evicts leaves until so many pages are gone, or none is left that may be; gives how many went."""
        gone = 0
        while gone < pages and self._heap:
            key, _, node = heapq.heappop(self._heap)
            parent = node.parent
            if parent is None or node.locks or node.children or key != self._policy(node):
                continue
            if self._leaf_pages and node.pages > 1:
                node.key = node.key[: -self.unit]
                node.pages -= 1
                gone += 1
                self._offer(node)
                continue
            gone += node.pages
            if self.on_evict is not None:
                self.on_evict(node)
            del parent.children[node.key[: self.unit]]
            node.parent = None
            if not parent.children:
                self._offer(parent)
        self.size -= gone
        self.evicted += gone
        return gone

    def _offer(self, node: Node) -> None:
        """Makes a node known to eviction where it is an unlocked leaf."""
        if node.locks or node.children or node.parent is None:
            return
        self._serial += 1
        heapq.heappush(self._heap, (self._policy(node), self._serial, node))
        if len(self._heap) > self._leaves:
            # Entries that count for nothing go, before they are more than those that do.
            newest: dict[int, tuple[Key, int, Node]] = {}
            for entry in self._heap:
                each = entry[2]
                if each.parent is not None and not each.locks and not each.children and entry[0] == self._policy(each):
                    newest[id(each)] = entry
            self._heap = list(newest.values())
            heapq.heapify(self._heap)
            self._leaves = 2 * len(self._heap) + _COMPACT

    # --- looking ---

    def path(self, node: Node) -> tuple[str, str]:
        """The key from the root to the end of a node, and its namespace."""
        parts: list[str] = []
        each: Node = node
        while each.parent is not None:
            parts.append(each.key)
            each = each.parent
        space = next(name for name, root in self._roots.items() if root is each)
        return "".join(reversed(parts)), space

    def nodes(self) -> Iterator[Node]:
        """All nodes below the roots."""
        stack = [child for root in self._roots.values() for child in root.children.values()]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def check(self) -> None:
        """Holds the tree to its own rules; for tests."""
        size = locked = 0
        for node in self.nodes():
            size += node.pages
            locked += node.pages if node.locks else 0
            assert len(node.key) == node.pages * self.unit > 0
            assert node.parent is not None, "what is resident has its beginning resident"
            for start, child in node.children.items():
                assert child.parent is node
                assert child.key.startswith(start)
            assert node.locks >= sum(child.locks for child in node.children.values())
        assert (size, locked) == (self.size, self.locked)
