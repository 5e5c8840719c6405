"""Builds the templated radix tree of a plan: prompts inserted by their longest common beginnings.

A literal is split only between words, where tokenizers split too: "You are a bull" and "You are a bear" share
"You are a". A word is letters with the white space before them, or any other single character; so texts without
spaces split between their characters. The tree is the same whatever the order of insertion.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections.abc import Iterable, Sequence

from helix.logical import Agent, Generate, LogicalPlan
from helix.optimizer.tokens import Tokenizer
from helix.optimizer.tree.refs import CallSite, Piece, Resolution
from helix.optimizer.tree.resolve import resolve_plan
from helix.optimizer.tree.shape import Frame, Hole, LlmOp, Namespace, Segment, Static, Tree, Turn, bits
from helix.types import TEXT

_WORD = re.compile(r"\s*(?:[A-Za-z]+|\S|\Z)")
# Fields of a request that decide which cached prefixes it can meet.
_MARKS = ("adapter", "cache_salt", "chat_template", "chat_template_kwargs", "extra_key", "lora", "lora_path", "tools")

Paths = Iterable[tuple[int, int, Sequence[Piece]]]


class _Node:
    """A node in the making: its label, its children by their first word, the ops whose prompt ends at it."""

    __slots__ = ("children", "first", "label", "ops")

    def __init__(self, label: list[Piece]) -> None:
        self.label = label
        self.children: dict[object, _Node] = {}
        self.ops: list[int] = []
        self.first = -1


def build_tree(plan: LogicalPlan, tokenizer: Tokenizer, resolution: Resolution | None = None) -> Tree:
    """The templated radix tree of a plan's llm steps. `resolution` is the plan laid open, where that is at hand."""
    found = resolve_plan(plan) if resolution is None else resolution
    sites = [site for site in found.calls if isinstance(site.node, Generate)]
    spaces: dict[Namespace, int] = {}
    own = [spaces.setdefault(namespace_of(site.node), len(spaces)) for site in sites]  # type: ignore[arg-type]
    root = insert_paths((op, own[op], site.prompt) for op, site in enumerate(sites))
    return _finished(root, found, sites, own, tuple(spaces), tokenizer)


def namespace_of(node: Generate) -> Namespace:
    """Which KV cache an llm step's prompts can meet in."""
    marks = tuple((name, text) for name, text in node.model.extra if name in _MARKS)
    return Namespace(node.model.engine, node.model.name, marks)


def insert_paths(paths: Paths) -> _Node:
    """The tree of some prompts, each with the number of its op and of its namespace, below an empty root."""
    root = _Node([])
    for op, namespace, prompt in paths:
        node = root.children.get(namespace)
        if node is None:
            node = root.children[namespace] = _Node([])
        _insert(node, op, list(prompt))
    return root


def _insert(node: _Node, op: int, rest: list[Piece]) -> None:
    while rest:
        key = _key(rest[0])
        child = node.children.get(key)
        if child is None:
            child = node.children[key] = _Node(rest)
            child.ops.append(op)
            return
        whole, partial = _common(child.label, rest)
        upper, lower = _cut(child.label, whole, partial)
        if lower:
            top = node.children[key] = _Node(upper)
            child.label = lower
            top.children[_key(lower[0])] = child
            child = top
        rest = _cut(rest, whole, partial)[1]
        node = child
    node.ops.append(op)


def _cut(pieces: list[Piece], whole: int, partial: int) -> tuple[list[Piece], list[Piece]]:
    """Pieces cut after so many whole ones and so many characters of the literal behind them."""
    upper, lower = pieces[:whole], pieces[whole:]
    if partial:
        text = lower[0]
        assert isinstance(text, str)
        upper.append(text[:partial])
        lower[:1] = [text[partial:]] if partial < len(text) else []
    return upper, lower


def _key(piece: Piece) -> object:
    """What decides which child a piece leads to: a turn's role, a hole's value, the first word of a literal."""
    if isinstance(piece, str):
        return _first_word(piece)
    return ("hole", piece.key) if isinstance(piece, Hole) else ("turn", piece[0])


def _first_word(text: str) -> str:
    found = _WORD.match(text)
    assert found is not None
    end = found.end()
    while not _boundary(text, end):
        end += 1
    return text[:end]


def _common(first: Sequence[Piece], second: Sequence[Piece]) -> tuple[int, int]:
    """How many whole pieces two prompts share, and how much of the literal after them."""
    count = min(len(first), len(second))
    for position in range(count):
        one, other = first[position], second[position]
        if isinstance(one, str) and isinstance(other, str):
            if one != other:
                return position, _common_words(one, other)
        elif one is not other and _key(one) != _key(other):
            return position, 0
    return count, 0


def _common_words(one: str, other: str) -> int:
    """The length of the longest common beginning that ends between two words of both texts."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    while not (_boundary(one, low) and _boundary(other, low)):
        low -= 1
    return low


def _boundary(text: str, at: int) -> bool:
    """Whether a word of a text ends at a place. It depends on the characters around the place alone."""
    if at <= 0 or at >= len(text):
        return True
    before, after = text[at - 1], text[at]
    if before.isspace() or (before.isascii() and after.isascii() and before.isalpha() and after.isalpha()):
        return False
    # What stands on the character before it stays with it: combining marks, joiners, variation selectors.
    return after.isascii() or (before != "\u200d" and unicodedata.category(after) not in ("Mn", "Mc", "Me", "Cf"))


# --- the finished tree --------------------------------------------------------------------------------------------


def _finished(
    root: _Node,
    found: Resolution,
    sites: Sequence[CallSite],
    own: Sequence[int],
    spaces: tuple[Namespace, ...],
    tokenizer: Tokenizer,
) -> Tree:
    _number(root)
    segments: dict[Segment, int] = {}
    labels, starts = array("i"), array("i", [0])
    parents, sizes = array("i"), array("i")
    ends = [0] * len(sites)
    stack: list[tuple[_Node, int, str]] = [(root, 0, "")]
    while stack:
        node, parent, run = stack.pop()
        number = len(parents)
        parents.append(parent)
        sizes.append(1)
        for piece in node.label:
            segment, run = _segment(piece, run, tokenizer)
            labels.append(segments.setdefault(segment, len(segments)))
        starts.append(len(labels))
        for op in node.ops:
            ends[op] = number
        below = sorted(node.children.values(), key=lambda child: child.first, reverse=True)
        stack.extend((child, number, run) for child in below)
    for number in range(len(parents) - 1, 0, -1):
        sizes[parents[number]] += sizes[number]
    frames, ops = _frames(found), _ops(found, sites, own, ends)
    return Tree(
        tokenizer=tokenizer.name,
        segments=tuple(segments),
        labels=labels,
        starts=starts,
        parents=parents,
        sizes=sizes,
        ops=ops,
        frames=frames,
        namespaces=spaces,
    )


def _number(root: _Node) -> None:
    """Gives each node the first op that ends at it or below it: the order of children."""
    order = [root]
    for node in order:
        order.extend(node.children.values())
    for node in reversed(order):
        node.ops.sort()
        firsts = [child.first for child in node.children.values()]
        node.first = min(firsts + node.ops[:1], default=-1)


def _segment(piece: Piece, run: str, tokenizer: Tokenizer) -> tuple[Segment, str]:
    """A piece as a segment, and the literal text that the next one stands behind: a literal is counted in context."""
    if isinstance(piece, Hole):
        return piece, ""
    if not isinstance(piece, str):
        return Turn(piece[0], tokenizer.turn), ""
    whole = run + piece
    tokens = tokenizer.count(whole) - (tokenizer.count(run) if run else 0)
    return Static(piece, max(0, tokens)), whole


def _frames(found: Resolution) -> tuple[Frame, ...]:
    return tuple(
        Frame(place.kind, place.parent, place.name, place.node.id, place.expected, place.source)
        for place in found.places
    )


def _ops(found: Resolution, sites: Sequence[CallSite], own: Sequence[int], ends: Sequence[int]) -> tuple[LlmOp, ...]:
    """The llm steps as ops: what they need is followed through tools to other llm steps."""
    number = {site.index: op for op, site in enumerate(sites)}
    direct: list[int] = []
    ops: list[LlmOp] = []
    for site in found.calls:
        near = 0
        for other in bits(site.needs & ((1 << site.index) - 1)):
            near |= 1 << number[other] if other in number else direct[other]
        direct.append(near)
        if site.index in number:
            op, node = number[site.index], site.node
            assert isinstance(node, Generate)
            shown = None
            # An agent's answer is not its reply as it was decoded.
            if node.returns == TEXT and node.sample == 1 and not isinstance(node, Agent):
                shown = found.holes.get(int(found.refs[site.ref].ident, 16))
            ops.append(
                LlmOp(
                    index=op,
                    step=node.step,
                    frame=site.frame,
                    namespace=own[op],
                    sample=node.sample,
                    shared=node.deterministic and node.cache,
                    max_tokens=node.model.max_tokens,
                    needs=near,
                    end=ends[op],
                    reply=0 if shown is None else shown.hole.key,
                )
            )
    return tuple(ops)
