"""A templated radix tree as text, for `helix explain`.

    SmolLM2-135M-Instruct: 3 steps, 3 prompts
    └─ [system] You read one part of "{title}". ...  27 tokens + 1 value, shared by 3
       ├─ ...

A node's line shows its text and holes, the tokens of its literal text and how many steps end below it; steps that
end at a node stand behind `->`, with how often they run for a row where that is not once.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from helix.errors import cell_width
from helix.optimizer.tree.shape import Hole, LlmOp, Static, Tree, Turn
from helix.types import quote

_NARROWEST = 40
_COLOURS = {"turn": "36", "hole": "32", "quiet": "2", "step": "1"}
_MOST_STEPS = 4

Part = tuple[str, str]
"""A stretch of a line: its style (empty for plain) and its text."""


def tree_text(tree: Tree, width: int = 100, *, sizes: Mapping[int, float] | None = None, color: bool = False) -> str:
    """The tree as text, ending in a line break; no line is wider than `width` terminal cells (40 at least).

    `sizes` gives the mean tokens of holes by key, which are then added to the counts. `color` adds ANSI colours.
    """
    width = max(width, _NARROWEST)
    lines: list[str] = []
    guides: list[str] = [""] * len(tree)
    for node in range(1, len(tree)):
        parent = tree.parents[node]
        last = node + tree.sizes[node] == parent + tree.sizes[parent]
        if parent == 0:
            lines.append(
                _fitted([("step", str(tree.namespaces[_space(tree, node)]))], _heading(tree, node), width, color)
            )
            continue
        guides[node] = guides[parent] + ("   " if last else "│  ")
        lead = guides[parent] + ("└─ " if last else "├─ ")
        lines.append(lead + _fitted(_label(tree, node), _facts(tree, node, sizes), width - len(lead), color))
    return "".join(f"{line}\n" for line in lines) or "no llm steps\n"


def _space(tree: Tree, node: int) -> int:
    """The namespace of a node just below the root."""
    end = node + tree.sizes[node]
    return next(op.namespace for op in tree.ops if node <= op.end < end)


def _heading(tree: Tree, node: int) -> list[list[Part]]:
    ops, leaves = tree.ops_below(node), tree.leaves_below(node)
    exact = "" if tree.tokenizer != "estimate" else ", tokens estimated"
    return [[("quiet", f"  {_count(ops, 'step')}, {_count(leaves, 'prompt')}{exact}")]]


def _label(tree: Tree, node: int) -> list[Part]:
    parts: list[Part] = []
    for segment in tree.label(node):
        match segment:
            case Turn(role=role):
                parts.append(("turn", f"{' ' if parts else ''}[{role}] "))
            case Static(text=text):
                parts.append(("", quote(text)[1:-1].replace('\\"', '"')))
            case Hole():
                parts.append(("hole", f"{{{quote(segment.text)[1:-1]}}}".replace('\\"', '"')))
    if parts:
        parts[-1] = (parts[-1][0], parts[-1][1].rstrip(" "))
    return parts or [("quiet", "(nothing)")]


def _facts(tree: Tree, node: int, sizes: Mapping[int, float] | None) -> list[list[Part]]:
    """What stands behind a label: tokens, holes, fan-out, and the steps that end here. In full first, then shorter."""
    holes = [segment for segment in tree.label(node) if isinstance(segment, Hole)]
    tokens = float(tree.tokens(node))
    values = ""
    if sizes is not None and all(hole.key in sizes for hole in holes):
        tokens += sum(sizes[hole.key] for hole in holes)
    elif holes:
        values = f" + {_count(len(holes), 'value')}"
    size = _count(round(tokens), "token")
    scopes = ", ".join(dict.fromkeys(str(hole.scope) for hole in holes))
    by = [f"by {scopes}"] if scopes else []
    below = tree.ops_below(node)
    shared = [f"shared by {below}"] if below > 1 else []
    ops = [tree.ops[op] for op in tree.ends(node)]
    steps = [("quiet", " -> "), ("step", ", ".join(_steps(tree, ops)))] if ops else []
    told = ([f"{size}{values}", *by, *shared], [f"{size}{values}", *shared], [size, *shared], [size])
    return [[("quiet", f"  {', '.join(facts)}"), *steps] for facts in told]


def _steps(tree: Tree, ops: list[LlmOp]) -> list[str]:
    shown = [f"{step}{_often(tree, next(group))}" for step, group in groupby(ops, key=lambda op: op.step)]
    return shown if len(shown) <= _MOST_STEPS else [*shown[:_MOST_STEPS], f"{len(shown) - _MOST_STEPS} more"]


def _often(tree: Tree, op: LlmOp) -> str:
    """How often an op runs for one row, where that is not once: `x 3`, `x 0.25` of a branch, `x 2.5?` if assumed."""
    often, sure, frame = float(op.sample), True, op.frame
    while frame >= 0:
        place = tree.frames[frame]
        if place.kind in ("items", "rounds", "then", "otherwise", "spread", "filter"):
            often *= place.expected
            sure = sure and place.source == "plan"
        frame = place.parent
    return "" if often == 1 else f" x {often:.2g}{'' if sure else '?'}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


# --- fitting ------------------------------------------------------------------------------------------------------


def _fitted(label: list[Part], told: list[list[Part]], width: int, color: bool) -> str:
    """A label and what is told of it in so many cells: as much as leaves the label a third of them."""
    least = min(sum(text_width(text) for _, text in label), width // 3)
    sizes = [sum(text_width(text) for _, text in facts) for facts in told]
    fits = next((at for at, size in enumerate(sizes) if size <= width - least), len(told) - 1)
    facts = _cut(told[fits], width - least)
    room = width - sum(text_width(text) for _, text in facts)
    return "".join(_painted(style, text, color) for style, text in (*_cut(label, room), *facts))


def _cut(parts: list[Part], room: int) -> list[Part]:
    if sum(text_width(text) for _, text in parts) <= room:
        return parts
    made: list[Part] = []
    left = room - 3
    for style, text in parts:
        kept = take_cells(text, left)
        left -= text_width(kept)
        if kept:
            made.append((style, kept))
        if kept != text:
            break
    return [*made, ("quiet", "..."[: max(0, room)])]


def take_cells(text: str, room: int) -> str:
    """The longest beginning of a text that fits into so many terminal cells."""
    used = 0
    for place, char in enumerate(text):
        used += cell_width(char)
        if used > room:
            return text[:place]
    return text


def text_width(text: str) -> int:
    """The terminal cells that a text takes."""
    return len(text) if text.isascii() else sum(cell_width(char) for char in text)


def _painted(style: str, text: str, color: bool) -> str:
    return f"\x1b[{_COLOURS[style]}m{text}\x1b[0m" if color and style else text
