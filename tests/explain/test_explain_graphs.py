"""Graphs of plans and trees: what is drawn, and that Mermaid and Graphviz can read what is written."""

from __future__ import annotations

import re

import pytest
from explain_support import EXAMPLES, TWICE, explained, plan_of

from helix import api
from helix.explain.dot import graph_dot
from helix.explain.graphs import Graph, plan_graph, tree_graph
from helix.explain.mermaid import graph_mermaid

NAMES = sorted(path.stem for path in EXAMPLES.glob("*/*.helix"))
LOOP = """
workflow loop(text: text)

draft = "x"

repeat up to 3 until note == "fine" {
  note = llm { user "Judge {{ draft }} of {{ text }}" }
  draft = llm { user "Improve {{ draft }} by {{ note }}" }
}

keep when draft != "bad"

parts = for word in split(draft, " ") {
  said = llm { user "{{ word }} of {{ text }}" }
  yield said
}

if len(parts) > 2 {
  sum = llm { user "{{ parts }}" }
} else {
  sum = "short"
}

output draft, sum
"""
QUOTED = """
workflow quoted(text: text)

x = llm { user "a \\"quoted\\" <b>text</b> | {{ text }} ; end" }

keep when x != "say \\"no\\" <or> `yes`; \\\\ [a](b) {c}"

output x
"""


def named(graph: Graph) -> dict[str, str]:
    """The first line of each box by its id."""
    return {box.id: box.lines[0] for box in graph.boxes}


def drawn(graph: Graph) -> set[tuple[str, str, str]]:
    """The arrows between names, each with what it is."""
    names = named(graph)
    kinds = {False: "flow", True: "order"}
    return {(names[each.source], names[each.target], each.label or kinds[each.order]) for each in graph.arrows}


def test_steps_frames_and_arrows() -> None:
    graph = plan_graph(plan_of(LOOP))
    assert [box.kind for box in graph.boxes if box.kind != "llm"] == ["table", "rows", "result"]
    titles = {frame.title for frame in graph.frames}
    assert titles == {"repeat up to 3", 'for word in split(draft, " ")', "if len(parts) > 2"}
    frames = {frame.id: frame.title for frame in graph.frames}
    inside = {box.lines[0]: frames.get(box.frame, "") for box in graph.boxes}
    assert inside["note"] == inside["draft"] == "repeat up to 3"
    assert inside["parts.said"] == 'for word in split(draft, " ")'
    assert inside["sum"] == "if len(parts) > 2"
    arrows = drawn(graph)
    assert {("table", "note", "flow"), ("note", "draft", "flow"), ("draft", "note", "next round")} <= arrows
    assert ("draft", 'keep when draft != "bad"', "flow") in arrows
    assert ('keep when draft != "bad"', "parts.said", "order") in arrows
    assert {("draft", "parts.said", "flow"), ("parts.said", "sum", "flow"), ("sum", "result", "flow")} <= arrows


def test_what_calls_nothing_draws_no_frame() -> None:
    graph = plan_graph(plan_of('workflow w(a: list[text])\n\nb = for x in a {\n  yield x + "."\n}\n\noutput b\n'))
    assert graph.frames == []
    assert drawn(graph) == {("table", "result", "flow")}


@pytest.mark.parametrize("name", NAMES)
def test_every_arrow_joins_boxes_that_are_there_and_every_step_is_drawn(name: str) -> None:
    made = api.load(EXAMPLES / name / f"{name}.helix").explain()
    for graph in (plan_graph(made.report.plain), plan_graph(made.plan), tree_graph(made.report.tree)):
        ids = [each.id for each in (*graph.boxes, *graph.frames)]
        assert len(ids) == len(set(ids))
        assert {end for arrow in graph.arrows for end in (arrow.source, arrow.target)} <= {
            box.id for box in graph.boxes
        }
        assert {each.frame for each in (*graph.boxes, *graph.frames)} <= {"", *(each.id for each in graph.frames)}
    drawn = {box.lines[0] for box in plan_graph(made.plan).boxes if box.kind == "llm"}
    assert drawn == {op.step for op in made.report.tree.ops}
    assert len(tree_graph(made.report.tree).arrows) >= len(made.report.tree.ops)


# A line of Mermaid is one of these: a box, a frame and its end, an arrow, a class.
MERMAID = re.compile(
    r"flowchart (TD|LR)"
    r'|\s*[nps]\d+(\["[^"]*"\]|\("[^"]*"\)|\(\["[^"]*"\]\)|\[\("[^"]*"\)\]|\[\["[^"]*"\]\]|\{\{"[^"]*"\}\}|\[/"[^"]*"/\])'
    r'|\s*subgraph f\d+\["[^"]*"\]|\s*end'
    r'|\s*[nps]\d+ (-->|-\.->)(\|"[^"]*"\|)? [nps]\d+'
    r"|\s*classDef \w+ \S+|\s*class [nps\d,]+ \w+"
)
# A line of Graphviz: quotes inside quotes are escaped.
QUOTE = r'"(?:[^"\\]|\\.)*"'
DOT = re.compile(
    rf"digraph {QUOTE} \{{|  rankdir=(TB|LR);|  (node|edge|graph) \[.*\];"
    rf"|\s*[nps]\d+ \[label={QUOTE}, [^\"]*({QUOTE}[^\"]*)*\];"
    rf"|\s*subgraph cluster_f\d+ \{{|\s*label={QUOTE}; [^\"]*{QUOTE}; style=rounded;"
    rf"|  [nps]\d+ -> [nps]\d+( \[.*\])?;|\s*\}}"
)


@pytest.mark.parametrize("text", [LOOP, QUOTED, TWICE])
def test_what_is_written_can_be_read(text: str) -> None:
    made = explained(text)
    for stage in ("all", "logical", "tree"):
        mermaid = made.to_mermaid(stage=stage).splitlines()
        assert [line for line in mermaid if not MERMAID.fullmatch(line)] == []
        assert sum("subgraph" in line for line in mermaid) == sum(line.strip() == "end" for line in mermaid)
        dot = made.to_dot(stage=stage).splitlines()
        assert [line for line in dot if not DOT.fullmatch(line)] == []
        assert sum(line.endswith("{") for line in dot) == sum(line.strip() == "}" for line in dot)


def test_texts_of_users_are_escaped() -> None:
    graph = plan_graph(plan_of(QUOTED))
    mermaid = graph_mermaid(graph, "TD")
    assert "keep when x #33;#61; #34;say #92;#34;no" in mermaid
    assert "`" not in mermaid
    assert "<or>" not in mermaid
    assert '\\"say \\\\\\"no' in graph_dot(graph, "quoted", "TB")


def test_the_stage_chooses_the_plan() -> None:
    made = explained(TWICE)
    assert "spare" in made.to_mermaid(stage="logical")
    assert "spare" not in made.to_mermaid()
    assert "spare" not in made.to_dot(stage="optimized")
    assert made.to_dot(stage="tree").startswith('digraph "twice" {\n  rankdir=LR;\n')
