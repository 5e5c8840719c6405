"""A plan or a tree of prompts as a graph for Graphviz."""

from __future__ import annotations

from collections.abc import Iterator

from helix.explain.graphs import BoxKind, Graph, physical_graph, plan_graph, tree_graph
from helix.explain.report import ExplainReport
from helix.explain.text import Stage

_SHAPES: dict[BoxKind, str] = {
    "table": 'shape=cylinder, color="#555555"',
    "result": 'shape=box, style="rounded,bold", color="#555555"',
    "rows": 'shape=hexagon, color="#777777"',
    "llm": 'shape=box, style="rounded,filled", color="#2f6fd0", fillcolor="#e4edfb"',
    "tool": 'shape=component, style=filled, color="#b36410", fillcolor="#fbeede"',
    "known": 'shape=note, style=filled, color="#2e8b57", fillcolor="#e3f3ea"',
    "pure": "shape=box",
    "prompt": 'shape=box, color="#999999"',
}


def report_dot(report: ExplainReport, *, stage: Stage = "all") -> str:
    """The optimized plan as a graph; `logical` gives the plain plan, `tree` the prompts, `physical` the schedule."""
    if stage == "tree":
        return graph_dot(tree_graph(report.tree), report.name, "LR")
    if stage == "physical":
        return graph_dot(physical_graph(report.physical), report.name, "TB")
    return graph_dot(plan_graph(report.plain if stage == "logical" else report.plan), report.name, "TB")


def graph_dot(graph: Graph, name: str, direction: str) -> str:
    """A graph in the language of Graphviz, ending in a line break."""
    lines = [
        f"digraph {_text(name)} {{",
        f"  rankdir={direction};",
        '  node [fontname="Helvetica", fontsize=11];',
        '  edge [fontname="Helvetica", fontsize=10, color="#555555"];',
        '  graph [fontname="Helvetica", fontsize=11];',
        *_inside(graph, "", 1),
    ]
    for arrow in graph.arrows:
        facts = ["style=dashed"] if arrow.order else []
        if arrow.label:
            facts += [f"label={_text(arrow.label)}", "constraint=false"]
        said = f" [{', '.join(facts)}]" if facts else ""
        lines.append(f"  {arrow.source} -> {arrow.target}{said};")
    return "".join(f"{line}\n" for line in [*lines, "}"])


def _inside(graph: Graph, frame: str, depth: int) -> Iterator[str]:
    boxes, frames = graph.inside(frame)
    indent = "  " * depth
    for box in boxes:
        shown = "\\n".join(_escaped(line) for line in box.lines)
        yield f'{indent}{box.id} [label="{shown}", {_SHAPES[box.kind]}];'
    for each in frames:
        yield f"{indent}subgraph cluster_{each.id} {{"
        yield f'{indent}  label={_text(each.title)}; labeljust=l; color="#999999"; style=rounded;'
        yield from _inside(graph, each.id, depth + 1)
        yield f"{indent}}}"


def _text(text: str) -> str:
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
