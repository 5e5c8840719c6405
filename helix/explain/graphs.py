"""A plan or a tree of prompts as a graph: boxes, what they stand in, and arrows. What Mermaid and Graphviz draw.

Of a plan the steps, the table, the filters and the result are drawn; pure expressions are not, since they only hand on
what they read. Sub-plans are frames around their steps: the items of a `for`, the arms of a branch, the rounds of a
`repeat`. An arrow is a value that flows; a dotted one says only that something comes after something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from helix.agents import shown_names
from helix.labels import Labels, captured
from helix.logical import (
    Agent,
    Apply,
    Body,
    Choose,
    Fetch,
    Filter,
    Generate,
    GroupReduce,
    Invoke,
    Limit,
    LogicalPlan,
    Map,
    Node,
    Parameters,
    Project,
    Relation,
    Render,
    Repeat,
    Scan,
    Sort,
    Unnest,
    Value,
    body_nodes,
    readable,
    spine,
    topological,
)
from helix.optimizer.tree import Hole, Static, Tree, Turn
from helix.physical import PhysicalPlan

BoxKind = Literal["table", "result", "rows", "llm", "tool", "known", "pure", "prompt"]

# Ids of boxes that a value comes from.
Origins = tuple[str, ...]
_LONGEST = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A box: its id, what it is, its text in lines, and the frame that it stands in (empty: none)."""

    id: str
    kind: BoxKind
    lines: tuple[str, ...]
    frame: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameBox:
    """A frame around boxes and frames."""

    id: str
    title: str
    frame: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """An arrow between two boxes. `order`: only what comes after what. `label` is what it says."""

    source: str
    target: str
    order: bool = False
    label: str = ""


@dataclass(slots=True, kw_only=True)
class Graph:
    """A graph in the order in which it is to be written."""

    boxes: list[Box] = field(default_factory=list)
    frames: list[FrameBox] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)

    def inside(self, frame: str) -> tuple[list[Box], list[FrameBox]]:
        """What stands directly in a frame."""
        return [box for box in self.boxes if box.frame == frame], [each for each in self.frames if each.frame == frame]


def plan_graph(plan: LogicalPlan) -> Graph:
    """The graph of a plan."""
    return _Drawer(plan).graph


class _Drawer:
    def __init__(self, plan: LogicalPlan) -> None:
        self.graph = Graph()
        self._arrows: dict[tuple[str, str, bool, str], None] = {}
        relations = spine(plan.sink.rows)
        nodes = tuple(node for node in topological(plan.sink) if node != plan.sink)
        labels = Labels(nodes, (plan.sink.columns, (("", value) for value in plan.sink.also)), relations)
        known = self._scope(nodes, labels, {}, "")
        columns = ", ".join(name for name, _ in plan.sink.columns)
        result = self._box("result", ("result", columns), "")
        read = (*(value for _, value in plan.sink.columns), *plan.sink.also)
        self._flow(known, read, result)
        if not isinstance(plan.sink.rows, Scan):
            self._link(known[plan.sink.rows.id], result, order=True)
        self.graph.arrows = [
            Arrow(source=source, target=target, order=order, label=label)
            for source, target, order, label in self._arrows
        ]

    def _box(self, kind: BoxKind, lines: Iterable[str], frame: str) -> str:
        ident = f"n{len(self.graph.boxes)}"
        shown = tuple(_clipped(line) for line in lines if line)
        self.graph.boxes.append(Box(id=ident, kind=kind, lines=shown, frame=frame))
        return ident

    def _framed(self, title: str, frame: str) -> str:
        ident = f"f{len(self.graph.frames)}"
        self.graph.frames.append(FrameBox(id=ident, title=_clipped(title), frame=frame))
        return ident

    def _link(self, sources: Origins, target: str, *, order: bool = False, label: str = "") -> None:
        for source in sources:
            flows = (source, target, False, label) in self._arrows
            if source != target and not (order and flows):
                self._arrows.setdefault((source, target, order, label))

    def _flow(self, known: Mapping[str, Origins], values: Iterable[Value], target: str) -> None:
        for value in values:
            self._link(known[value.id], target)

    # --- scopes ---

    def _scope(
        self, nodes: Iterable[Node], labels: Labels, given: Mapping[str, Origins], frame: str
    ) -> dict[str, Origins]:
        """Draws the operators of a scope. `given` are the boxes that its parameters come from, by name."""
        known: dict[str, Origins] = {}
        for node in nodes:
            match node:
                case Parameters():
                    known[node.id] = ()
                case Relation():
                    known[node.id] = (self._relation(node, labels, known),)
                case Project(source=Parameters(), field=name):
                    known[node.id] = given.get(name, ())
                case Project(source=Choose() | Repeat() as source, field=name):
                    known[node.id] = known[f"{source.id}.{name}"]
                case Generate() | Invoke() | Fetch():
                    known[node.id] = (self._step(node, known, frame),)
                case Map():
                    known[node.id] = self._map(node, labels, known, frame)
                case Choose():
                    self._choose(node, labels, known, frame)
                case Repeat():
                    self._repeat(node, labels, known, frame)
                case _:
                    known[node.id] = tuple(dict.fromkeys(box for read in node.inputs for box in known[read.id]))
        return known

    def _relation(self, node: Relation, labels: Labels, known: Mapping[str, Origins]) -> str:
        if isinstance(node, Scan):
            return self._box("table", ("table", ", ".join(column.name for column in node.columns)), "")
        box = self._box("rows", (_said(node, labels),), "")
        self._flow(known, (read for read in node.inputs if isinstance(read, Value)), box)
        below = getattr(node, "rows", None)
        if isinstance(below, Relation):
            self._link(known[below.id], box, order=True)
        return box

    def _step(self, node: Generate | Invoke | Fetch, known: Mapping[str, Origins], frame: str) -> str:
        kind: BoxKind = "llm"
        about = ""
        if isinstance(node, Generate):
            about = node.model.name or ""
            about += f" x {node.sample}" if node.sample > 1 else ""
            if isinstance(node, Agent):
                about += f" with {', '.join(shown_names(node.tools))}, up to {node.max_turns} turns"
        elif isinstance(node, Invoke):
            kind, about = "tool", node.tool.name
        else:
            kind, about = "known", "known already"
        box = self._box(kind, (node.step, about.strip()), frame)
        self._flow(known, (read for read in node.inputs if isinstance(read, Value)), box)
        self._after(node.rows, known, (box,))
        return box

    def _after(self, rows: Relation, known: Mapping[str, Origins], boxes: Iterable[str]) -> None:
        """Steps that run over rows which a filter has left come after that filter."""
        if not isinstance(rows, Scan | Parameters):
            for box in boxes:
                self._link(known[rows.id], box, order=True)

    # --- sub-plans ---

    def _body(
        self, body: Body, title: str, given: Mapping[str, Origins], frame: str
    ) -> tuple[dict[str, Origins], list[str]]:
        """Draws a sub-plan in a frame of its own: where its results come from, and the boxes in it."""
        nodes = body_nodes(body)
        calls = any(isinstance(node, Generate | Invoke | Fetch | Map | Choose | Repeat) for node in nodes)
        before = len(self.graph.boxes)
        inner = self._framed(title, frame) if calls else frame
        known = self._scope(nodes, Labels(nodes, (body.results,), (body.parameters,)), given, inner)
        if calls and len(self.graph.boxes) == before:
            # Sub-plans inside that draw nothing either.
            self.graph.frames = [each for each in self.graph.frames if each.id != inner and each.frame != inner]
        results = {name: known[value.id] for name, value in body.results}
        return results, [box.id for box in self.graph.boxes[before:]]

    def _captures(self, node: Node, known: Mapping[str, Origins]) -> dict[str, Origins]:
        return {name: known[value.id] for name, value in captured(node).items()}

    def _map(self, node: Map, labels: Labels, known: Mapping[str, Origins], frame: str) -> Origins:
        item = node.body.parameters.columns[0][0]
        over = known[node.over.id]
        given = {item: over, **self._captures(node, known)}
        results, boxes = self._body(node.body, f"for {item} in {labels.text(node.over)}", given, frame)
        self._after(node.rows, known, boxes)
        return tuple(dict.fromkeys((*results["yield"], *over))) if not results["yield"] else results["yield"]

    def _choose(self, node: Choose, labels: Labels, known: dict[str, Origins], frame: str) -> None:
        condition = _condition(node.condition, labels)
        given = self._captures(node, known)
        arms: list[dict[str, Origins]] = []
        negated = f"({condition})" if " " in condition else condition
        for title, body in ((f"if {condition}", node.then), (f"if not {negated}", node.otherwise)):
            results, boxes = self._body(body, title, given, frame)
            arms.append(results)
            for box in boxes:
                self._link(known[node.condition.id], box, order=True)
            self._after(node.rows, known, boxes)
        for name in arms[0]:
            found = tuple(dict.fromkeys((*arms[0][name], *arms[1].get(name, ()))))
            known[f"{node.id}.{name}"] = found or known[node.condition.id]

    def _repeat(self, node: Repeat, labels: Labels, known: dict[str, Origins], frame: str) -> None:
        given = self._captures(node, known)
        given |= {name: known[value.id] for name, value in node.carried}
        results, boxes = self._body(node.body, f"repeat up to {node.times}", given, frame)
        self._after(node.rows, known, boxes)
        inside = set(boxes)
        carried = {name for name, _ in node.carried}
        names = {name: results[name] for name in carried if name in results}
        readers = self._readers(node.body, names, inside)
        for source, target in readers:
            if (source, target, False, "") not in self._arrows:
                self._link((source,), target, label="next round")
        for name, found in results.items():
            if readable(name):
                known[f"{node.id}.{name}"] = found or tuple(
                    box for start, value in node.carried if start == name for box in known[value.id]
                )

    def _readers(self, body: Body, carried: Mapping[str, Origins], inside: set[str]) -> list[tuple[str, str]]:
        """The arrows of a loop's next round: from what makes a carried value to the steps that read it."""
        steps: dict[str, str] = {}
        for box in self.graph.boxes:
            if box.id in inside and box.lines:
                steps.setdefault(box.lines[0], box.id)
        found: list[tuple[str, str]] = []
        for node in body_nodes(body):
            if not isinstance(node, Generate | Invoke) or node.step not in steps:
                continue
            for name in _columns_read(node):
                found.extend((box, steps[node.step]) for box in carried.get(name, ()) if box in inside)
        return list(dict.fromkeys(found))


def _said(node: Relation, labels: Labels) -> str:
    """What an operator over rows does, in words."""
    match node:
        case Filter(condition=condition):
            return f"keep when {_condition(condition, labels)}"
        case Unnest(name=name, value=value):
            return f"a row for each {name} in {labels.text(value)}"
        case GroupReduce(keys=keys):
            return f"group by {', '.join(name for name, _ in keys)}"
        case Sort(keys=keys):
            return "sort by " + ", ".join(labels.text(value) + " desc" * descending for value, descending in keys)
        case Limit(count=count):
            return f"the first {count}"
    return type(node).__name__


def _condition(value: Value, labels: Labels) -> str:
    """A condition as it is computed, also where plan text gives it a name of its own."""
    return labels.apply(value) if isinstance(value, Apply) and not value.label else labels.text(value)


def _columns_read(node: Node) -> list[str]:
    """The parameters that a step reads, through pure expressions."""
    names: dict[str, None] = {}
    stack = list(reversed(node.inputs))
    while stack:
        part = stack.pop()
        if isinstance(part, Project) and isinstance(part.source, Parameters):
            names.setdefault(part.field)
        elif isinstance(part, Apply | Render):
            stack.extend(reversed(part.inputs))
    return list(names)


def physical_graph(plan: PhysicalPlan) -> Graph:
    """The graph of how a plan is run: its phases one after the other, what is computed ahead, the ranks."""
    graph = Graph()
    arrows: dict[tuple[str, str], None] = {}

    def box(kind: BoxKind, lines: Iterable[str], frame: str = "") -> str:
        ident = f"n{len(graph.boxes)}"
        graph.boxes.append(Box(id=ident, kind=kind, lines=tuple(_clipped(line) for line in lines if line), frame=frame))
        return ident

    ranks: list[str] = []
    for rank in range(plan.ranks):
        mine = [group for group in plan.groups if rank in group.ranks]
        told = f"{len(mine):,} groups by {', '.join(plan.group_by)}" if mine else ""
        ranks.append(box("table", (f"rank {rank}", told)))
    steps: dict[str, str] = {}
    ended = ranks
    for number in sorted({step.phase for step in plan.steps}):
        frame = f"f{len(graph.frames)}"
        graph.frames.append(FrameBox(id=frame, title=f"phase {number + 1}"))
        inside: list[str] = []
        for step in (step for step in plan.steps if step.phase == number):
            own = f"{step.prompt_tokens:,.0f} tokens, {step.private_tokens:,.0f} its own"
            inside.append(box("llm", (step.step, own), frame))
            steps.setdefault(step.step, inside[-1])
            for before in ended if len(inside) == 1 else inside[-2:-1]:
                arrows[before, inside[-1]] = None
        ended = inside[-1:]
    for warm in plan.warm:
        ahead = box("known", ("ahead", warm.text, f"{warm.tokens:,.0f} tokens"))
        for name in warm.steps:
            arrows[ahead, steps[name]] = None
    graph.arrows = [Arrow(source=source, target=target, order=True) for source, target in arrows]
    return graph


def tree_graph(tree: Tree) -> Graph:
    """The graph of a tree of prompts: its nodes, and at their ends the steps."""
    graph = Graph()
    for node in range(1, len(tree)):
        if tree.parents[node] == 0:
            end = node + tree.sizes[node]
            space = next(op.namespace for op in tree.ops if node <= op.end < end)
            graph.boxes.append(Box(id=f"p{node}", kind="table", lines=(str(tree.namespaces[space]),)))
            continue
        label = tree.label(node)
        text = "".join(
            f" [{part.role}] "
            if isinstance(part, Turn)
            else part.text
            if isinstance(part, Static)
            else f"{{{part.text}}}"
            for part in label
        )
        holes = sum(isinstance(part, Hole) for part in label)
        count = tree.tokens(node)
        tokens = f"{count:,} token{'s' * (count != 1)}" + (f" + {holes} value{'s' * (holes > 1)}" if holes else "")
        below = tree.ops_below(node)
        facts = f"{tokens}, shared by {below}" if below > 1 else tokens
        graph.boxes.append(Box(id=f"p{node}", kind="prompt", lines=(_clipped(text.strip()), facts)))
        graph.arrows.append(Arrow(source=f"p{tree.parents[node]}", target=f"p{node}"))
        for op in tree.ends(node):
            graph.boxes.append(Box(id=f"s{op}", kind="llm", lines=(tree.ops[op].step,)))
            graph.arrows.append(Arrow(source=f"p{node}", target=f"s{op}"))
    return graph


def _clipped(text: str) -> str:
    """A text on one line, short enough for a box."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."
