"""A plan or a tree of prompts as a Mermaid flowchart."""

from __future__ import annotations

from collections.abc import Iterator

from helix.explain.graphs import Box, BoxKind, Graph, physical_graph, plan_graph, tree_graph
from helix.explain.report import ExplainReport
from helix.explain.text import Stage

_SHAPES: dict[BoxKind, tuple[str, str]] = {
    "table": ("[(", ")]"),
    "result": ("([", "])"),
    "rows": ("{{", "}}"),
    "llm": ("(", ")"),
    "tool": ("[[", "]]"),
    "known": ("[/", "/]"),
    "pure": ("[", "]"),
    "prompt": ("[", "]"),
}
# Fills that are read on white and on black.
_CLASSES: dict[BoxKind, str] = {
    "llm": "fill:#2f6fd022,stroke:#2f6fd0",
    "tool": "fill:#b3641022,stroke:#b36410",
    "known": "fill:#2e8b5722,stroke:#2e8b57",
    "rows": "fill:#80808022,stroke:#808080",
}


def report_mermaid(report: ExplainReport, *, stage: Stage = "all") -> str:
    """The optimized plan as a flowchart; `logical` gives the plain one, `tree` the prompts, `physical` the schedule."""
    if stage == "tree":
        return graph_mermaid(tree_graph(report.tree), "LR")
    if stage == "physical":
        return graph_mermaid(physical_graph(report.physical), "TD")
    return graph_mermaid(plan_graph(report.plain if stage == "logical" else report.plan), "TD")


def graph_mermaid(graph: Graph, direction: str) -> str:
    """A graph as Mermaid text, ending in a line break."""
    lines = [f"flowchart {direction}", *_inside(graph, "", 1)]
    for arrow in graph.arrows:
        said = f"|{_text(arrow.label)}|" if arrow.label else ""
        lines.append(f"  {arrow.source} {'-.->' if arrow.order else '-->'}{said} {arrow.target}")
    for kind, style in _CLASSES.items():
        boxes = [box.id for box in graph.boxes if box.kind == kind]
        if boxes:
            lines.append(f"  classDef {kind} {style}")
            lines.append(f"  class {','.join(boxes)} {kind}")
    return "".join(f"{line}\n" for line in lines)


def _inside(graph: Graph, frame: str, depth: int) -> Iterator[str]:
    boxes, frames = graph.inside(frame)
    indent = "  " * depth
    for box in boxes:
        yield f"{indent}{box.id}{_shape(box)}"
    for each in frames:
        yield f"{indent}subgraph {each.id}[{_text(each.title)}]"
        yield from _inside(graph, each.id, depth + 1)
        yield f"{indent}end"


def _shape(box: Box) -> str:
    left, right = _SHAPES[box.kind]
    shown = "<br>".join(_escaped(line) for line in box.lines)
    return f'{left}"{shown}"{right}'


def _text(text: str) -> str:
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    """A text between quotes: all that Mermaid or HTML could read as theirs is written by its number."""
    return "".join(char if char.isalnum() or char in " .,:+-_/()" else f"#{ord(char)};" for char in text)
