"""The tree of prompts on the page: an outline that opens and closes, with a bar for the tokens of each piece."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from helix.explain.figures import number
from helix.explain.report import ExplainReport
from helix.optimizer.tree import Hole, Static, Tree, Turn
from helix.progress import clean

# Text that is longer is cut to two lines, with the whole below it.
_LONG = 150


def tree_outline(report: ExplainReport) -> str:
    """The outline, and what it shows."""
    outline = _Outline(report.tree, report.sizes)
    said = (
        "The prompts of all steps as one tree: what stands above a fork is the same for all below it and is computed "
        "once. The bar shows the tokens of a piece (dark) behind those that lead to it (light)"
    )
    known = "" if report.sizes is not None else "; values are not in it, since their length is not known"
    return f'<p class="quiet">{said}{known}.</p><div class="tree" tabindex="0"><ul>{outline.items(0)}</ul></div>'


class _Outline:
    def __init__(self, tree: Tree, sizes: Mapping[int, float] | None) -> None:
        self._tree = tree
        self._sizes = sizes
        self._own = [self._tokens(node) for node in range(len(tree))]
        self._above = [0.0] * len(tree)
        for node in range(1, len(tree)):
            parent = tree.parents[node]
            self._above[node] = self._above[parent] + self._own[parent]
        self._longest = max((above + own for above, own in zip(self._above, self._own, strict=True)), default=0.0)

    def _tokens(self, node: int) -> float:
        sizes = self._sizes or {}
        holes = sum(sizes.get(part.key, 0.0) for part in self._tree.label(node) if isinstance(part, Hole))
        return self._tree.tokens(node) + holes

    def items(self, node: int) -> str:
        """The items of what stands below a node. A tree is as deep as its prompts have forks, which are few."""
        return "".join(f"<li>{self._item(child)}</li>" for child in self._tree.children(node))

    def _item(self, node: int) -> str:
        row, whole, below = self._row(node), self._whole(node), self.items(node)
        inside = f"{whole}<ul>{below}</ul>" if below else whole
        if not inside:
            return f'<div class="end">{row}</div>'
        return f"<details{' open' if below else ''}><summary>{row}</summary>{inside}</details>"

    def _row(self, node: int) -> str:
        tree = self._tree
        if tree.parents[node] == 0:
            end = node + tree.sizes[node]
            space = next(op.namespace for op in tree.ops if node <= op.end < end)
            below = tree.ops_below(node)
            count = f"{below} step{'s' * (below > 1)}"
            return (
                f'<span class="says">{_text(str(tree.namespaces[space]))}</span><span></span>'
                f'<span class="count">{count}</span>'
            )
        says = "".join(_part(part) for part in tree.label(node)).strip() or "(nothing)"
        steps = "".join(f'<span class="step">{_text(tree.ops[op].step)}</span>' for op in tree.ends(node))
        ends = f"<span>{steps}</span>" if steps else ""
        return (
            f'<span class="says"><span class="cut">{says}</span>{ends}</span>{self._bar(node)}'
            f'<span class="count">{_text(self._facts(node))}</span>'
        )

    def _facts(self, node: int) -> str:
        holes = [part for part in self._tree.label(node) if isinstance(part, Hole)]
        count = self._own[node]
        facts = [f"{number(count)} token{'' if round(count) == 1 else 's'}"]
        if holes and self._sizes is None:
            facts[0] += f" + {len(holes)} value{'s' * (len(holes) > 1)}"
        scopes = list(dict.fromkeys(str(hole.scope) for hole in holes))
        if scopes:
            facts.append(f"by {', '.join(scopes)}")
        below = self._tree.ops_below(node)
        if below > 1:
            facts.append(f"shared by {below}")
        return ", ".join(facts)

    def _bar(self, node: int) -> str:
        if not self._longest:
            return "<span></span>"
        above, own = (100 * tokens / self._longest for tokens in (self._above[node], self._own[node]))
        return (
            f'<span class="bar" aria-hidden="true"><i style="width:{above:.1f}%"></i><i style="width:{own:.1f}%"></i>'
            "</span>"
        )

    def _whole(self, node: int) -> str:
        """The whole text of a piece that is cut in its row."""
        label = self._tree.label(node)
        text = "".join(_plain(part) for part in label)
        if len(text) <= _LONG:
            return ""
        shown = "".join(_part(part) for part in label)
        return f'<details class="whole"><summary>whole text</summary><pre>{shown}</pre></details>'


def _plain(part: Turn | Static | Hole) -> str:
    match part:
        case Turn(role=role):
            return f"[{role}]"
        case Static(text=text):
            return text
    return f"{{{part.text}}}"


def _part(part: Turn | Static | Hole) -> str:
    shown = _text(_plain(part))
    if isinstance(part, Static):
        return shown
    return f' <span class="turn">{shown}</span> ' if isinstance(part, Turn) else f'<span class="hole">{shown}</span>'


def _text(text: str) -> str:
    return escape(clean(text))
