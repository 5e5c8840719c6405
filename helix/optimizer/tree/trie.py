"""Tries of calls: which prompts share which beginnings, bound as calls become ready.

`CallTrie` knows prompts by their segments. The operator-level tree stays one for all rows; binding a call resolves
each place of its path to an edge, keyed by the edge above, the place and the value's bytes, so that equal values of
different rows meet in one edge. Edges are counted and go with the last live call below them: memory follows the calls
that are live, about 200 bytes an edge.

`TokenTrie` knows prompts by their tokens, so that values that merely begin alike share too. Bounds need it. It keeps
what it is given, four bytes for each distinct token.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b

from helix.optimizer.tree.shape import Hole, Tree

# A value's bytes as a number: two different values get one number with a chance of 2^-96.
_BITS = 96
_SHIFT = _BITS + 1
_TOKEN = 4  # bytes


def value_number(text: str) -> int:
    """The number under which a value's text is known to a trie: the same in every process."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_BITS // 8).digest(), "little")


def unknown_number(serial: int) -> int:
    """The number of the `serial`-th value that is not known yet: equal to no other."""
    return (1 << _BITS) + serial


class Paths:
    """The prompts of a tree cut into places: a hole with the literal text after it, or literal text that begins a node.

    `holes[p]` is the number of a place's hole in `keys` (-1: none), `literal[p]` the tokens of its literal text,
    `paths[op]` the places of an op's prompt. Ops that share a beginning share its places. `decoded[p]`: the hole is
    the reply to all that stands before it, so that its decoding has left it in the cache.
    """

    __slots__ = ("decoded", "holes", "keys", "literal", "paths")

    def __init__(self, tree: Tree) -> None:
        self.keys: dict[int, int] = {}
        self.holes = array("i")
        self.literal = array("i")
        above: list[tuple[int, ...]] = []
        for node in range(len(tree)):
            places = list(above[tree.parents[node]]) if node else []
            fresh = True
            if node and tree.parents[node] == 0:
                places.append(self._place(-1))  # what namespaces do not share
            for segment in tree.label(node):
                if isinstance(segment, Hole):
                    places.append(self._place(self.keys.setdefault(segment.key, len(self.keys))))
                elif fresh:
                    places.append(self._place(-1))
                fresh = False
                if not isinstance(segment, Hole):
                    self.literal[-1] += segment.tokens
            above.append(tuple(places))
        self.paths = [above[op.end] for op in tree.ops]
        self.decoded = bytearray(len(self.holes))
        replies = {(self.paths[op.index], self.keys.get(op.reply, -1)) for op in tree.ops if op.reply}
        for path in self.paths:
            for at, place in enumerate(path):
                if self.holes[place] >= 0 and (path[:at], self.holes[place]) in replies:
                    self.decoded[place] = 1

    def _place(self, hole: int) -> int:
        self.holes.append(hole)
        self.literal.append(0)
        return len(self.holes) - 1

    def order(self, ops: Iterable[int]) -> list[tuple[int, int]]:
        """Ops in the order of the tree, each with how many places it shares with the one before."""
        made: list[tuple[int, int]] = []
        before: tuple[int, ...] = ()
        for op in sorted(ops, key=lambda each: (self.paths[each], each)):
            path, common = self.paths[op], 0
            while common < min(len(before), len(path)) and before[common] == path[common]:
                common += 1
            made.append((op, common))
            before = path
        return made


class CallTrie:
    """The trie of bound calls. `made_tokens` are those of all edges ever made, `live_tokens` of those still there.

    As long as nothing is released, `made_tokens` is the number of tokens that have to be prefilled at least once,
    values taken as wholes, without replies that stand in the cache from their decoding. With weights it is the
    expected number, calls taken as independent.
    """

    def __init__(self, paths: Paths) -> None:
        self.paths = paths
        self.made_tokens = 0.0
        self.live_tokens = 0.0
        # The same by place: which part of the tree the tokens are spent in.
        self.made_by_place = array("d", [0.0]) * len(paths.holes)
        self._tables: list[dict[int, int]] = [{} for _ in paths.holes]
        # Edge 0 is the root. An edge's key leads back to its table when it goes.
        self._parents = array("i", [0])
        self._places = array("i", [0])
        self._users = array("i", [1])
        self._tokens = array("f", [0.0])
        self._missing = array("f", [0.0])
        self._depths = array("d", [0.0])
        self._keys: list[int] = [0]
        self._free = array("i")

    def __len__(self) -> int:
        """The edges that are live."""
        return len(self._keys) - 1 - len(self._free)

    def bind(self, op: int, values: Sequence[int], tokens: Sequence[float], weight: float = 1.0) -> int:
        """Binds a call of an op and gives its handle. `values` and `tokens` are by the number of the hole.

        `weight` is the chance that the call is made.
        """
        return self._walk(self.paths.paths[op], 0, 0, values, tokens, weight)

    def bind_all(
        self, order: Sequence[tuple[int, int]], values: Sequence[int], tokens: Sequence[float], weight: float = 1.0
    ) -> list[int]:
        """Binds one call of each op of an `order` of the paths; what they share is looked up once."""
        handles: list[int] = []
        trail: list[int] = [0]
        for op, common in order:
            del trail[common + 1 :]
            handles.append(self._walk(self.paths.paths[op], common, trail[-1], values, tokens, weight, trail))
        return handles

    def _walk(
        self,
        path: tuple[int, ...],
        common: int,
        edge: int,
        values: Sequence[int],
        tokens: Sequence[float],
        weight: float,
        trail: list[int] | None = None,
    ) -> int:
        tables, holes = self._tables, self.paths.holes
        for place in path[common:] if common else path:
            hole = holes[place]
            key = edge if hole < 0 else (edge << _SHIFT) | values[hole]
            found = tables[place].get(key)
            if found is None:
                value = tokens[hole] if hole >= 0 else 0.0
                found = tables[place][key] = self._new(edge, place, key, value, weight)
            elif self._missing[found] and weight:
                self._surer(found, weight)
            edge = found
            if trail is not None:
                trail.append(edge)
        self._users[edge] += 1
        return edge

    def _new(self, parent: int, place: int, key: int, value: float, weight: float) -> int:
        self._users[parent] += 1
        literal = self.paths.literal[place]
        size = literal + value
        fresh = literal if self.paths.decoded[place] else size
        self.made_tokens += fresh * weight
        self.made_by_place[place] += fresh * weight
        self.live_tokens += size
        depth = self._depths[parent] + size
        if self._free:
            edge = self._free.pop()
            self._parents[edge], self._places[edge], self._keys[edge] = parent, place, key
            self._users[edge], self._tokens[edge], self._missing[edge] = 0, size, 1.0 - weight
            self._depths[edge] = depth
            return edge
        self._parents.append(parent)
        self._places.append(place)
        self._users.append(0)
        self._tokens.append(size)
        self._missing.append(1.0 - weight)
        self._depths.append(depth)
        self._keys.append(key)
        return len(self._keys) - 1

    def _surer(self, edge: int, weight: float) -> None:
        missing, place = self._missing[edge], self._places[edge]
        fresh = self.paths.literal[place] if self.paths.decoded[place] else self._tokens[edge]
        more = fresh * missing * weight
        self.made_tokens += more
        self.made_by_place[place] += more
        self._missing[edge] = missing * (1.0 - weight)

    def release(self, handle: int) -> None:
        """Lets a call go: edges that no live call uses are freed. Each handle is released once."""
        users = self._users
        if handle <= 0 or handle >= len(users) or users[handle] <= 0:
            raise ValueError(f"{handle} is not the handle of a live call")
        edge = handle
        users[edge] -= 1
        while edge and not users[edge]:
            parent = self._parents[edge]
            del self._tables[self._places[edge]][self._keys[edge]]
            self.live_tokens -= self._tokens[edge]
            self._keys[edge] = 0
            self._free.append(edge)
            users[parent] -= 1
            edge = parent

    def prompt_tokens(self, handle: int) -> float:
        """The tokens of a live call's whole prompt."""
        return self._depths[handle]

    def users(self, handle: int) -> int:
        """How many live calls and edges stand directly on a handle's edge: 2 or more where equal calls are live."""
        return self._users[handle]


class TokenTrie:
    """The trie of prompts by their tokens, each a 32-bit number. Handles stay valid."""

    def __init__(self) -> None:
        self._pool = bytearray()
        self._starts = array("q", [0])
        self._lengths = array("i", [0])
        self._parents = array("i", [-1])
        self._users = array("i", [0])
        self._decoded = bytearray(1)
        self._missing = array("d", [0.0])
        self._children: dict[int, int] = {}

    def __len__(self) -> int:
        """The nodes of the trie."""
        return len(self._starts)

    def insert(self, tokens: array[int], output: array[int] | None = None, weight: float = 1.0) -> int:
        """Takes a call's prompt and gives its handle. `output` is its reply, whose tokens the decoding leaves in the
        cache behind the prompt: a later prompt that goes on from there does not prefill them. `weight` is the chance
        that the call is made.
        """
        self._users[0] += 1
        end = self._descend(0, tokens.tobytes(), users=1, decoded=0, absent=1.0 - weight)
        if output:
            self._descend(end, output.tobytes(), users=0, decoded=1, absent=1.0)
        return end

    def _descend(self, node: int, data: bytes, *, users: int, decoded: int, absent: float) -> int:
        at = 0
        while at < len(data):
            key = node << 32 | int.from_bytes(data[at : at + _TOKEN], "little")
            child = self._children.get(key)
            if child is None:
                child = self._append(node, key, data[at:])
                at = len(data)
            else:
                common = self._common(child, data, at)
                if common < self._lengths[child]:
                    child = self._split(child, key, common)
                at += common * _TOKEN
            self._users[child] += users
            self._decoded[child] |= decoded
            self._missing[child] *= absent
            node = child
        return node

    def _append(self, parent: int, key: int, data: bytes) -> int:
        self._starts.append(len(self._pool))
        self._pool += data
        self._lengths.append(len(data) // _TOKEN)
        self._parents.append(parent)
        self._users.append(0)
        self._decoded.append(0)
        self._missing.append(1.0)
        node = self._children[key] = len(self._starts) - 1
        return node

    def _common(self, node: int, data: bytes, at: int) -> int:
        """How many tokens of a node's edge the data shares."""
        pool, start = self._pool, self._starts[node]
        low, high = 1, min(self._lengths[node], (len(data) - at) // _TOKEN)
        while low < high:
            middle = (low + high + 1) // 2
            first, last = low * _TOKEN, middle * _TOKEN
            if pool[start + first : start + last] == data[at + first : at + last]:
                low = middle
            else:
                high = middle - 1
        return low

    def _split(self, node: int, key: int, length: int) -> int:
        """Cuts a node's edge: a new node takes its beginning, the node itself keeps its end and its handle."""
        start = self._starts[node]
        self._starts.append(start)
        self._lengths.append(length)
        self._parents.append(self._parents[node])
        self._users.append(self._users[node])
        self._decoded.append(self._decoded[node])
        self._missing.append(self._missing[node])
        upper = self._children[key] = len(self._starts) - 1
        cut = start + length * _TOKEN
        self._starts[node] = cut
        self._lengths[node] -= length
        self._parents[node] = upper
        self._children[upper << 32 | int.from_bytes(self._pool[cut : cut + _TOKEN], "little")] = node
        return upper

    @property
    def distinct_tokens(self) -> float:
        """P_min: the tokens of the prompts, each shared beginning once, less those that decoding has put there. With
        weights the expected number, calls taken as independent.
        """
        used = zip(self._lengths, self._missing, self._decoded, strict=True)
        return sum(length * (1.0 - missing) for length, missing, decoded in used if not decoded)

    @property
    def distinct_pairs(self) -> float:
        """The sum over the same tokens of n (n + 2 p), for n of them behind p others: twice the pairs of tokens that
        attention looks at, however the prefill is cut.
        """
        before = self._tokens_before()
        used = zip(self._lengths, before, self._missing, self._decoded, strict=True)
        return sum(n * (n + 2.0 * p) * (1.0 - missing) for n, p, missing, decoded in used if not decoded)

    def _tokens_before(self) -> array[int]:
        """For each node the tokens above it."""
        found = array("q", [-1]) * len(self)
        found[0] = 0
        for node in range(len(self)):
            path = []
            while found[node] < 0:
                path.append(node)
                node = self._parents[node]
            for each in reversed(path):
                parent = self._parents[each]
                found[each] = found[parent] + self._lengths[parent]
        return found

    def private_tokens(self, handle: int) -> int:
        """The tokens at the end of a prompt that no other prompt shares and that no decoding has put there."""
        found, node = 0, handle
        while node > 0 and self._users[node] <= 1:
            found += 0 if self._decoded[node] else self._lengths[node]
            node = self._parents[node]
        return found

    def held_area(self, handles: Sequence[int], passes: Callable[[Sequence[int]], float]) -> float:
        """The sum over the edges that are private to no prompt of their tokens times the passes that hold them, which
        `passes` tells of the calls that use one, by their places in `handles`.
        """
        calls: dict[int, list[int]] = {}
        for call, handle in enumerate(handles):
            node = handle
            while node > 0:
                if self._users[node] > 1 or self._decoded[node]:
                    calls.setdefault(node, []).append(call)
                node = self._parents[node]
        return sum(self._lengths[node] * passes(users) for node, users in calls.items())
