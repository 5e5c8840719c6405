"""What a templated radix tree is made of: segments of prompts, the steps that end in it, and the tree itself.

The tree is of the *template*: it does not grow with the rows. Its nodes lie in arrays, its segments in one table in
which equal ones are held once, so that a large workflow's tree takes some tens of KiB.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

ScopeKind = Literal["batch", "group", "row", "sample", "item", "iter"]
FrameKind = Literal["rows", "filter", "spread", "group", "sort", "limit", "items", "rounds", "then", "otherwise"]

_LEVEL = {"batch": 0, "group": 1, "row": 1, "sample": 1}


@dataclass(frozen=True, slots=True)
class Scope:
    """Over what a value is the same: the batch, a group, a row, an item or round of a loop.

    `sample` is the reply of a step that samples: one value for the row, which no other row shares but by chance.
    `depth` counts the loops around the value, from 1 for `item` and `iter`, else 0.
    """

    kind: ScopeKind
    depth: int = 0

    @property
    def level(self) -> int:
        """0 for the batch, 1 for a row or group, 2 and more inside loops: a larger one is narrower."""
        return _LEVEL.get(self.kind, 1 + self.depth)

    @property
    def rank(self) -> tuple[int, int]:
        """The order of scopes, the widest first."""
        return self.level, 1 if self.kind == "sample" else 0

    def __str__(self) -> str:
        return f"{self.kind}({self.depth})" if self.depth > 1 else self.kind


BATCH, GROUP, ROW, SAMPLE = Scope("batch"), Scope("group"), Scope("row"), Scope("sample")


@dataclass(frozen=True, slots=True)
class Turn:
    """Where a message begins: its role. The last turn of a prompt is the reply's own, `assistant`.

    `tokens` is what the chat template is taken to spend on it.
    """

    role: str
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Static:
    """Literal text, and its tokens after the text before it on the path."""

    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Hole:
    """A value put in: of which step or column (`producer`), which part of it, through which filters.

    Two holes are equal only where `key` is: the same value through the same expression. `messages` holds whole
    messages (`history`), each with its turn.
    """

    key: int
    producer: str
    field: str
    filters: tuple[str, ...]
    scope: Scope
    messages: bool = False

    @property
    def text(self) -> str:
        """The hole as a prompt writes it, without braces."""
        return " | ".join((f"{self.producer}{self.field}", *self.filters))


Segment = Turn | Static | Hole


@dataclass(frozen=True, slots=True)
class Namespace:
    """What shares one KV cache: prompts of different namespaces never do. None is left to the run.

    `marks` are further fields of the request that decide what a cached prefix is: adapter, salt, chat template.
    """

    engine: str | None
    model: str | None
    marks: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        shown = [self.model or "(model not named)"]
        if self.engine is not None:
            shown.append(f"on {self.engine}")
        return " ".join([*shown, *(f"{name}={value}" for name, value in self.marks)])


@dataclass(frozen=True, slots=True)
class Frame:
    """Where steps run, inside another frame (`parent`, -1 for none): over the rows, for each item, in a branch.

    `expected` is how often it runs for each run of its parent, by `source`: `plan` (certain), `assumed` or `type`.
    A group's is the share of distinct keys, a limit's its count. `node` is the id of the operator.
    """

    kind: FrameKind
    parent: int
    name: str
    node: str
    expected: float
    source: str


@dataclass(frozen=True, slots=True)
class LlmOp:
    """An llm step where it stands in the workflow: a step inside two branches is two of them.

    `needs` are the ops whose values it waits for, with none between, as bits (see `bits`). `shared`: equal prompts
    share one call. `end` is the node at which its prompt ends. `reply` is the key of the hole that shows its reply as
    it came, 0 where no hole can.
    """

    index: int
    step: str
    frame: int
    namespace: int
    sample: int
    shared: bool
    max_tokens: int | None
    needs: int
    end: int
    reply: int


@dataclass(frozen=True, slots=True)
class Prefix:
    """A beginning that prompts share: all up to a place in the label of `node`.

    `segments` counts those of the label that belong to it, `tokens` those of its text; of these the last `loose` may
    merge with what follows. `holes` names its holes, `leaves` and `ops` count what ends below.
    """

    node: int
    segments: int
    tokens: int
    loose: int
    holes: tuple[str, ...]
    leaves: int
    ops: int


class Tree:
    """The tree. Nodes are numbered in the order of a walk, parents before children, 0 is the root.

    Below the root stands one node for each namespace, with an empty label. Children stand in the order in which the
    workflow first reaches them. `ops` are in the order of the workflow.
    """

    __slots__ = (
        "_ended",
        "_ending",
        "_labels",
        "_leaves_below",
        "_ops_below",
        "_starts",
        "frames",
        "namespaces",
        "ops",
        "parents",
        "segments",
        "sizes",
        "tokenizer",
    )

    def __init__(
        self,
        *,
        tokenizer: str,
        segments: tuple[Segment, ...],
        labels: array[int],
        starts: array[int],
        parents: array[int],
        sizes: array[int],
        ops: tuple[LlmOp, ...],
        frames: tuple[Frame, ...],
        namespaces: tuple[Namespace, ...],
    ) -> None:
        """`labels[starts[n]:starts[n + 1]]` are the segments of node n; `sizes` counts nodes of its subtree."""
        self.tokenizer = tokenizer
        self.segments = segments
        self._labels = labels
        self._starts = starts
        self.parents = parents
        self.sizes = sizes
        self.ops = ops
        self.frames = frames
        self.namespaces = namespaces
        # The ops by the node at which they end: those of node n stand between two places.
        self._ending = array("i", sorted(range(len(ops)), key=lambda op: (ops[op].end, op)))
        counts = array("i", [0]) * (len(parents) + 1)
        for op in ops:
            counts[op.end + 1] += 1
        self._ended = array("i", accumulate(counts))
        self._ops_below = array("i", [0]) * len(parents)
        self._leaves_below = array("i", [0]) * len(parents)
        for node in range(len(parents) - 1, -1, -1):
            own = self._ended[node + 1] - self._ended[node]
            self._ops_below[node] += own
            self._leaves_below[node] += 1 if own else 0
            if node:
                self._ops_below[parents[node]] += self._ops_below[node]
                self._leaves_below[parents[node]] += self._leaves_below[node]

    def __len__(self) -> int:
        return len(self.parents)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tree) and self.as_json() == other.as_json()

    __hash__ = None  # type: ignore[assignment]

    def label(self, node: int) -> tuple[Segment, ...]:
        """The segments of a node."""
        return tuple(self.segments[n] for n in self._labels[self._starts[node] : self._starts[node + 1]])

    def label_ids(self, node: int) -> array[int]:
        """The segments of a node as positions in `segments`."""
        return self._labels[self._starts[node] : self._starts[node + 1]]

    def children(self, node: int) -> Iterator[int]:
        """The nodes directly below one, in order."""
        child, end = node + 1, node + self.sizes[node]
        while child < end:
            yield child
            child += self.sizes[child]

    def path_nodes(self, node: int) -> tuple[int, ...]:
        """The nodes from the root to one, both among them."""
        found = [node]
        while found[-1]:
            found.append(self.parents[found[-1]])
        return tuple(reversed(found))

    def path(self, op: LlmOp | int) -> tuple[Segment, ...]:
        """The whole prompt of an op as segments."""
        end = (op if isinstance(op, LlmOp) else self.ops[op]).end
        return tuple(segment for node in self.path_nodes(end) for segment in self.label(node))

    def ends(self, node: int) -> array[int]:
        """The ops whose prompt ends at a node, in order."""
        return self._ending[self._ended[node] : self._ended[node + 1]]

    def ops_below(self, node: int) -> int:
        """How many ops end at a node or below it."""
        return self._ops_below[node]

    def leaves_below(self, node: int) -> int:
        """How many different prompt templates end at a node or below it."""
        return self._leaves_below[node]

    def tokens(self, node: int) -> int:
        """The tokens of a node's literal text and turns."""
        return sum(segment.tokens for segment in self.label(node) if not isinstance(segment, Hole))

    @property
    def holes(self) -> tuple[Hole, ...]:
        """All holes, each once, in the order of the walk."""
        return tuple(segment for segment in self.segments if isinstance(segment, Hole))

    def static_prefixes(self) -> tuple[Prefix, ...]:
        """What all calls of some ops begin with: the paths up to the first hole that rows fill differently."""
        return tuple(prefix for prefix in self._prefixes(0) if prefix.tokens)

    def row_prefixes(self) -> tuple[Prefix, ...]:
        """What the calls of several leaves of one row begin with: paths to a fork that hold no value of a loop."""
        return tuple(prefix for prefix in self._prefixes(1) if prefix.holes and prefix.leaves >= 2)

    def _prefixes(self, level: int) -> Iterator[Prefix]:
        """The places where paths fork, end, or come to a hole narrower than a level; each once, none below another's
        narrow hole.
        """
        seen: set[tuple[int, int]] = set()
        stack: list[tuple[int, int, tuple[str, ...]]] = [(0, 0, ())]
        while stack:
            node, tokens, holes = stack.pop()
            label = self.label(node)
            used = 0
            for segment in label:
                if isinstance(segment, Hole):
                    if segment.scope.level > level:
                        break
                    holes = (*holes, segment.text) if segment.scope.level else holes
                else:
                    tokens += segment.tokens
                used += 1
            whole = used == len(label)
            children = list(self.children(node)) if whole else []
            parent = self.parents[node]
            place = (node, used) if used or not node else (parent, len(self.label(parent)))
            stops = bool(self.ends(node))
            ends = not whole or stops or (level > 0 and len(children) + stops > 1)
            if ends and place not in seen and (used or not whole):
                seen.add(place)
                # A child that begins with a narrow hole ends the prefix at the end of its parent.
                yield self._prefix(node if used else place[0], used, tokens, holes, label)
            stack.extend((child, tokens, holes) for child in reversed(children))

    def _prefix(self, node: int, used: int, tokens: int, holes: tuple[str, ...], label: tuple[Segment, ...]) -> Prefix:
        before = label[used - 1] if used else (self.label(node) or (None,))[-1]
        followed = used < len(label) and isinstance(label[used], Hole)
        return Prefix(
            node=node,
            segments=used or len(self.label(node)),
            tokens=tokens,
            loose=1 if followed and isinstance(before, Static) else 0,
            holes=holes,
            leaves=self.leaves_below(node),
            ops=self.ops_below(node),
        )

    def needs_all(self) -> list[int]:
        """For each op all ops that it waits for, also through others, as bits."""
        found: list[int] = []
        for op in self.ops:
            needed = op.needs
            for other in bits(op.needs):
                needed |= found[other]
            found.append(needed)
        return found

    def leaf_needs(self) -> dict[int, tuple[int, ...]]:
        """For each leaf (the node at which its ops end) the leaves that its ops wait for, also through others."""
        found: dict[int, set[int]] = {op.end: set() for op in self.ops}
        for op, needed in zip(self.ops, self.needs_all(), strict=True):
            found[op.end].update(self.ops[other].end for other in bits(needed))
        return {end: tuple(sorted(needed)) for end, needed in sorted(found.items())}

    def as_json(self) -> dict[str, Any]:
        """The tree as JSON values: nodes in the order of the walk, each with its parent's number."""
        return {
            "tokenizer": self.tokenizer,
            "namespaces": [
                {"engine": each.engine, "model": each.model, "marks": dict(each.marks)} for each in self.namespaces
            ],
            "frames": [
                {"kind": f.kind, "parent": f.parent, "name": f.name, "expected": f.expected, "source": f.source}
                for f in self.frames
            ],
            "nodes": [
                {
                    "parent": self.parents[node] if node else None,
                    "label": [_segment_json(segment) for segment in self.label(node)],
                    "tokens": self.tokens(node),
                    "ops": list(self.ends(node)),
                    "ops_below": self.ops_below(node),
                }
                for node in range(len(self))
            ],
            "ops": [
                {
                    "step": op.step,
                    "end": op.end,
                    "frame": op.frame,
                    "namespace": op.namespace,
                    "sample": op.sample,
                    "needs": list(bits(op.needs)),
                    "needs_all": list(bits(needed)),
                }
                for op, needed in zip(self.ops, self.needs_all(), strict=True)
            ],
        }


def _segment_json(segment: Segment) -> dict[str, Any]:
    match segment:
        case Turn(role=role):
            return {"turn": role}
        case Static(text=text, tokens=tokens):
            return {"text": text, "tokens": tokens}
        case Hole():
            return {"hole": segment.text, "scope": str(segment.scope), "key": f"{segment.key:016x}"}


def bits(mask: int) -> Iterator[int]:
    """The positions of the bits that are set, the lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
