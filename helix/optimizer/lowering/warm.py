"""The beginnings of prompts that are computed ahead: those that no row changes, the shallow ones first."""

from __future__ import annotations

from collections.abc import Sequence

from helix.optimizer.lowering.ops import Op
from helix.optimizer.tree.shape import Hole, Static, Tree, Turn, bits
from helix.physical import WarmPrefix

# What a beginning has to add to one that is computed before it, as a share of the least length.
_MORE = 0.25
_SHOWN = 72


def warm_prefixes(tree: Tree, ops: Sequence[Op], theta: int) -> tuple[WarmPrefix, ...]:
    """Beginnings of at least `theta` tokens with two calls or more. One that goes on from another names it.

    They end where prompts part, where one ends, and before the first value that rows fill differently. The last token
    before a value may merge with it and is not counted.
    """
    made: list[WarmPrefix] = []
    below = _below(tree)
    # Each entry: a node, the tokens and segments of the path above it, the beginning that it goes on from.
    stack: list[tuple[int, int, tuple[Turn | Static, ...], int | None]] = [(0, 0, (), None)]
    while stack:
        node, tokens, path, parent = stack.pop()
        label = tree.label(node)
        whole, loose = True, 0
        for segment in label:
            if isinstance(segment, Hole):
                whole = False
                loose = 1 if path and isinstance(path[-1], Static) else 0
                break
            tokens += segment.tokens
            path = (*path, segment)
        children = list(tree.children(node)) if whole else []
        if whole and children and any(_begins_with_hole(tree, child) for child in children):
            loose = 1 if path and isinstance(path[-1], Static) else 0
        ends = not whole or bool(tree.ends(node)) or len(children) > 1
        users = list(bits(below[node]))
        calls = sum(ops[op].calls for op in users)
        known = 0.0 if parent is None else made[parent].tokens
        least = theta if parent is None else max(1.0, _MORE * theta)
        if ends and path and calls >= 2 and tokens - loose >= theta and tokens - loose - known >= least:
            steps = tuple(dict.fromkeys(ops[op].node.step for op in users))
            made.append(
                WarmPrefix(
                    steps=steps,
                    text=_shown(path),
                    tokens=float(tokens - loose),
                    calls=calls,
                    node=ops[users[0]].node.id,
                    messages=_messages(path),
                    after=parent,
                )
            )
            parent = len(made) - 1
        stack.extend((child, tokens, path, parent) for child in reversed(children))
    return _shallow_first(made)


def _below(tree: Tree) -> list[int]:
    """The ops that end at or below each node, as bits."""
    below = [0] * len(tree)
    for op in tree.ops:
        below[op.end] |= 1 << op.index
    for node in range(len(tree) - 1, 0, -1):
        below[tree.parents[node]] |= below[node]
    return below


def _begins_with_hole(tree: Tree, node: int) -> bool:
    label = tree.label(node)
    return bool(label) and isinstance(label[0], Hole)


def _messages(path: Sequence[Turn | Static]) -> tuple[tuple[str, str], ...]:
    """The messages of a beginning as role and text; the last may be cut off. The reply's own turn is none."""
    made: list[tuple[str, str]] = []
    for at, segment in enumerate(path):
        if isinstance(segment, Static):
            made[-1] = (made[-1][0], made[-1][1] + segment.text)
        elif at < len(path) - 1 or segment.role != "assistant":
            made.append((segment.role, ""))
    return tuple(made)


def _shown(path: Sequence[Turn | Static]) -> str:
    text = " ".join(" ".join(f"[{role}] {text}" for role, text in _messages(path)).split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _shallow_first(made: Sequence[WarmPrefix]) -> tuple[WarmPrefix, ...]:
    """By how many beginnings each goes on from, else in the order of the tree."""
    depths: list[int] = []
    for prefix in made:
        depths.append(0 if prefix.after is None else depths[prefix.after] + 1)
    order = sorted(range(len(made)), key=lambda at: (depths[at], at))
    place = {at: number for number, at in enumerate(order)}
    return tuple(made[at].behind(None if made[at].after is None else place[made[at].after]) for at in order)  # type: ignore[index]
