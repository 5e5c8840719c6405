"""What one rank's prefix cache holds, as far as the executor knows: a radix tree over the texts of prompts.

The engine's own tree cannot be read, so this one follows it: what calls compute becomes resident, what was used longest
ago goes first when the cache is full, leaf before parent (as SGLang's radix cache evicts). Beside that it counts who
still needs each part: calls that wait or run (`users`), and what must not be evicted while it is used (`pins`).

Lengths are in characters; the owner knows how many make a token. Operations are linear in the length of a prompt.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from helix.executor.engines.base import Message

# Where a message begins, and where its text does. A prompt that holds one of them shares nothing.
ROLE, TEXT = "\x1e", "\x1f"
_COMPACT = 4096


def prompt_text(namespace: str, messages: tuple[Message, ...]) -> str | None:
    """A prompt as one text; None where it cannot be told apart. `namespace` is what caches never share across."""
    made = [namespace]
    for message in messages:
        shown = message.content if not message.calls else message.shown
        if ROLE in shown or TEXT in shown:
            return None
        made += (ROLE, message.role, TEXT, shown)
    return "".join(made)


def messages_of(text: str) -> tuple[Message, ...]:
    """The messages of the beginning of a prompt's text; the last one may be a beginning itself.

    A beginning that ends within the name of a role ends before that message.
    """
    made: list[Message] = []
    for part in text.split(ROLE)[1:]:
        role, found, content = part.partition(TEXT)
        if found:
            made.append(Message(role=role, content=content))
    return tuple(made)


class Node:
    """A part of prompts: the text from its parent to here. `users` are calls below or at it that are not done.

    `pins` count what holds it in the cache, `parks` those of them that only keep it for later, `resident` says whether
    it is there or will be, `computing` is the call that was sent to compute it and has not ended, `warm` the warm-up
    that is computing it just now.
    """

    __slots__ = ("children", "computing", "parent", "parks", "pins", "resident", "stamp", "text", "users", "warm")

    def __init__(self, text: str, parent: Node | None) -> None:
        self.text = text
        self.parent = parent
        self.children: dict[str, Node] = {}
        self.users = 0
        self.pins = 0
        self.parks = 0
        self.resident = False
        self.stamp = 0
        self.computing: object | None = None
        self.warm: object | None = None

    @property
    def sure(self) -> bool:
        """Whether a call that is sent now finds it in the cache."""
        return self.resident and self.computing is None

    @property
    def evictable(self) -> bool:
        """Whether it is a resident leaf that nothing holds."""
        return self.resident and not self.pins and not any(child.resident for child in self.children.values())

    def path(self) -> list[Node]:
        """The nodes from just below the root to this one."""
        made: list[Node] = []
        node: Node | None = self
        while node is not None and node.parent is not None:
            made.append(node)
            node = node.parent
        made.reverse()
        return made

    def prompt(self) -> str:
        """The text from the root to here."""
        return "".join(node.text for node in self.path())


class PrefixCache:
    """The tree of one rank. `capacity` is in characters (None: nothing is ever evicted)."""

    def __init__(self, capacity: float | None = None) -> None:
        self.capacity = capacity
        self.resident = 0
        self.pinned = 0
        # What of it is pinned for later only.
        self.parked = 0
        # The prompts of all calls that are not done, each shared beginning once.
        self.wanted = 0
        self._root = Node("", None)
        self._clock = 0
        self._serial = 0
        # Nodes by the time of their last use. An entry whose time is not the node's own any more counts for nothing.
        self._oldest: list[tuple[int, int, Node]] = []
        self._compact_at = _COMPACT

    def __len__(self) -> int:
        """The nodes below the root."""
        return sum(1 for _ in self.nodes())

    def nodes(self) -> Iterator[Node]:
        """The nodes below the root, in the same order each time."""
        stack = list(self._root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    # --- calls that need a prompt ---

    def add(self, text: str) -> Node:
        """Counts one more user of a prompt, and gives the node at its end."""
        node, at = self._root, 0
        while at < len(text):
            child = node.children.get(text[at])
            if child is None:
                child = Node(text[at:], node)
                node.children[text[at]] = child
            elif not text.startswith(child.text, at):
                child = self._split(child, _common(child.text, text, at))
            child.users += 1
            if child.users == 1:
                self.wanted += len(child.text)
            at += len(child.text)
            node = child
        return node

    def drop(self, node: Node) -> None:
        """One user less, from this node up; what nobody needs and the cache does not hold goes."""
        for each in reversed(node.path()):
            each.users -= 1
            if each.users == 0:
                self.wanted -= len(each.text)
            self._tidy(each)

    def pin(self, node: Node, *, park: bool = False) -> None:
        """Holds a prompt's nodes in the cache; `park`: for later, while nothing uses them."""
        for each in node.path():
            parked = each.pins == each.parks > 0
            each.pins += 1
            each.parks += park
            if each.pins == 1:
                self.pinned += len(each.text)
            self.parked += len(each.text) * ((each.pins == each.parks) - parked)

    def unpin(self, node: Node, *, park: bool = False) -> None:
        """Takes back one `pin`."""
        for each in reversed(node.path()):
            parked = each.pins == each.parks > 0
            each.pins -= 1
            each.parks -= park
            self.parked += len(each.text) * ((each.pins == each.parks > 0) - parked)
            if each.pins == 0:
                self.pinned -= len(each.text)
                self._may_go(each)
                self._tidy(each)

    def only(self, node: Node) -> int:
        """The characters that nothing but one `pin` holds."""
        return sum(len(each.text) for each in node.path() if each.pins == 1)

    def unpinned(self, node: Node) -> int:
        """The characters that `pin` would hold more."""
        return sum(len(each.text) for each in node.path() if each.pins == 0)

    # --- what the engine holds ---

    def matched(self, text: str, *, expected: bool = False) -> int:
        """The length of the beginning that is resident; with `expected` also what waiting and running calls will
        compute.
        """
        node, at = self._root, 0
        while at < len(text):
            child = node.children.get(text[at])
            if child is None or not (child.resident or (expected and child.users)):
                return at
            if not text.startswith(child.text, at):
                return at + _common(child.text, text, at)
            at += len(child.text)
            node = child
        return at

    def held(self, node: Node) -> int:
        """The length of a prompt's beginning that is resident."""
        at = 0
        for each in node.path():
            if not each.resident:
                break
            at += len(each.text)
        return at

    def computed(self, node: Node) -> None:
        """The engine has, or is about to have, this prompt: its nodes become resident and most recently used."""
        self._clock += 1
        for each in reversed(node.path()):
            if not each.resident:
                each.resident = True
                self.resident += len(each.text)
            each.stamp = self._clock
            self._may_go(each)
        self._evict()

    def extend(self, node: Node, text: str) -> Node | None:
        """A reply has been decoded behind a prompt: the next turn of a dialogue finds it there. Gives its end."""
        if not text or not node.resident:
            return None
        end = self.add(node.prompt() + text)
        self.computed(end)
        self.drop(end)
        return end if end.resident else None

    def forget(self, node: Node, kept: int) -> None:
        """The engine has told that only the first `kept` characters of a prompt were there: the rest was evicted."""
        at = 0
        for each in node.path():
            if at >= kept and each.resident and not each.pins:
                self._leave(each)
            at += len(each.text)

    def clear(self) -> None:
        """The engine's cache is empty: it was flushed, or the server started anew."""
        for node in list(self.nodes()):
            self._leave(node)
        for node in list(self.nodes()):
            self._tidy(node)

    def _may_go(self, node: Node) -> None:
        """Puts a node where eviction looks, once it is a leaf that nothing holds."""
        if self.capacity is None or not node.evictable:
            return
        self._serial += 1
        heapq.heappush(self._oldest, (node.stamp, self._serial, node))
        if len(self._oldest) > self._compact_at:
            self._oldest = [entry for entry in self._oldest if entry[2].stamp == entry[0] and entry[2].evictable]
            heapq.heapify(self._oldest)
            self._compact_at = 2 * len(self._oldest) + _COMPACT

    def _evict(self) -> None:
        while self.capacity is not None and self.resident > self.capacity and self._oldest:
            stamp, _, node = heapq.heappop(self._oldest)
            if node.stamp == stamp and node.evictable:
                self._leave(node)
                if node.parent is not None:
                    self._may_go(node.parent)
                self._tidy(node)

    def _leave(self, node: Node) -> None:
        if node.resident:
            node.resident = False
            self.resident -= len(node.text)

    def _tidy(self, node: Node) -> None:
        """Removes a node that is of no use any more."""
        if node.users or node.pins or node.resident or node.children or node.warm or node.parent is None:
            return
        if node.parent.children.get(node.text[0]) is node:
            del node.parent.children[node.text[0]]

    def _split(self, node: Node, length: int) -> Node:
        """Cuts a node in two and gives the upper one; the lower one stays the same object."""
        parent = node.parent
        assert parent is not None
        upper = Node(node.text[:length], parent)
        upper.users, upper.pins, upper.resident, upper.warm = node.users, node.pins, node.resident, node.warm
        upper.parks = node.parks
        parent.children[node.text[0]] = upper
        node.text = node.text[length:]
        node.parent = upper
        upper.children[node.text[0]] = node
        upper.stamp, upper.computing = node.stamp, node.computing
        return upper


def _common(edge: str, text: str, at: int) -> int:
    """How many characters an edge shares with a text from a place on; at least one, and not the whole edge."""
    low, high = 1, min(len(edge), len(text) - at)
    while low < high:
        middle = (low + high + 1) // 2
        if text.startswith(edge[:middle], at):
            low = middle
        else:
            high = middle - 1
    return low
