"""A logical plan to segments: relations cut into levels, every operator put into a slot."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from helix.evaluate import Callables, evaluator
from helix.executor.foresee import Guesser, foreseen
from helix.executor.frame import Dataflow
from helix.executor.operators import Branch, Compute, Given, Keep, Loop, MapOver, Operator, SpreadRows, SubPlan
from helix.executor.places import NOWHERE, Place, Places
from helix.executor.program import Level, Program, Segment
from helix.executor.values import PENDING
from helix.expr import Arg, Expr
from helix.logical import (
    Agent,
    Apply,
    Body,
    Choose,
    Const,
    Fetch,
    Filter,
    Generate,
    GroupReduce,
    Invoke,
    LogicalPlan,
    Map,
    Node,
    Parameters,
    Project,
    Relation,
    Render,
    Repeat,
    Sink,
    Sort,
    Unnest,
    Value,
    bodies,
    body_nodes,
    every_node,
    readable,
    topological,
)
from helix.replies import parse_reply
from helix.templates.template import map_template, renderer
from helix.tools.effects import HARMLESS
from helix.traits import traits

MakeCall = Callable[[Node, int, Place, Mapping[str, int], list[Operator]], Operator]


class Compiler:
    """Compiles one plan for one run. `make_call` builds the operators that ask an engine or a tool.

    `guesser`, where there is one, is told of branches and of the calls in them that could be made before.
    """

    def __init__(
        self, flow: Dataflow, callables: Callables, make_call: MakeCall, guesser: Guesser | None = None
    ) -> None:
        self.guesser = guesser
        self._flow = flow
        self._callables = callables
        self._make_call = make_call
        self._index: dict[str, int] = {}
        self._places = Places((), ())
        self._found: dict[str, Place] = {}
        self._floating: frozenset[str] = frozenset()

    def compile(self, plan: LogicalPlan) -> list[Segment]:
        """The segments of a plan, in the order in which rows pass through them."""
        sink = plan.sink
        for node in every_node(sink):
            self._index.setdefault(node.id, len(self._index))
        self._places = Places(plan.steps, [name for name, _ in sink.columns])
        self._found = self._places.plan(sink)
        order = topological(sink)
        chain = _relations(sink.rows)
        self._floating = _floating(order)
        order = tuple(node for node in order if node.id not in self._floating)
        depths = _depths(order, chain)
        starts = [position for position, relation in enumerate(chain) if not isinstance(relation, Filter)]
        level_of = {node.id: max(n for n, start in enumerate(starts) if start <= depths[node.id]) for node in order}
        placed: list[list[Node]] = [[] for _ in starts]
        for node in order:
            placed[level_of[node.id]].append(node)
        crossing = _crossing(order, level_of, len(starts))
        return self._segments(sink, chain, starts, placed, crossing)

    def _segments(
        self,
        sink: Sink,
        chain: list[Relation],
        starts: list[int],
        placed: list[list[Node]],
        crossing: list[tuple[Node, ...]],
    ) -> list[Segment]:
        levels: list[Level] = []
        for number, start in enumerate(starts):
            following = chain[starts[number + 1]] if number + 1 < len(starts) else None
            levels.append(self._level(chain[start], placed[number], crossing[number], following))
        segments: list[Segment] = []
        current: list[Level] = []
        for number, level in enumerate(levels):
            current.append(level)
            boundary: Any = chain[starts[number + 1]] if number + 1 < len(starts) else sink
            if isinstance(boundary, Unnest):
                self._spread(level, levels[number + 1], boundary)
                continue
            first = number + 1 - len(current)
            passed_on = crossing[number + 1] if number + 1 < len(starts) else ()
            segments.append(self._segment(chain[starts[first]], current, boundary, passed_on))
            current = []
        for level, nodes in zip(levels, placed, strict=True):
            level.program.also = _effects(level.program, nodes)
            level.kept = frozenset((level.alive, *level.program.also))
        for segment in segments:
            last = segment.levels[-1]
            last.kept |= {*segment.exports.values(), *segment.keys, *segment.columns}
        return segments

    def _segment(self, source: Relation, levels: list[Level], boundary: Any, following: tuple[Node, ...]) -> Segment:
        slots = levels[-1].program.slots
        made = Segment(source=source, levels=levels, boundary=boundary, exports={})
        match boundary:
            case Sink(columns=columns):
                made.exports = {name: slots[value.id] for name, value in columns}
            case GroupReduce(keys=keys, columns=columns):
                made.keys = tuple(slots[value.id] for _, value in keys)
                made.columns = tuple(slots[value.id] for _, value in columns)
            case Sort(keys=keys):
                made.keys = tuple(slots[value.id] for value, _ in keys)
                made.exports = {node.id: slots[node.id] for node in following}
            case _:
                made.exports = {node.id: slots[node.id] for node in following}
        return made

    # --- programs ---

    def _level(
        self, source: Relation, nodes: list[Node], imports: tuple[Node, ...], following: Relation | None
    ) -> Level:
        builder = _Builder(self, source, self._found, ())
        for node in imports:
            slot = builder.add(node, Given(self._index[node.id], NOWHERE), ())
            builder.program.imports[node.id] = slot
        alive = 0
        for node in nodes:
            if node.id not in builder.program.slots:
                builder.place(node)
            if isinstance(node, Filter):
                alive = builder.program.slots[node.id]
        if following is not None:
            builder.place_floating(following)
        return Level(program=builder.finish(), alive=alive)

    def _spread(self, level: Level, below: Level, unnest: Unnest) -> None:
        """Adds the operator that starts the frames of the level below."""
        program = level.program
        imports = {program.slots[node]: slot for node, slot in below.program.imports.items()}
        operator = SpreadRows(
            self._index[unnest.id],
            self._found[unnest.id],
            self._flow,
            program.slots[unnest.value.id],
            unnest.name,
            below,
            imports,
        )
        level.spread = _append(program, operator, (level.alive, program.slots[unnest.value.id]))

    def body(self, body: Body, holder: Place, maps: tuple[str, ...]) -> Program:
        """The program of a sub-plan. `holder` names what in it has no name, `maps` are the `for`s around it."""
        nodes = body_nodes(body)
        roots = {value.id: holder for _, value in body.results}
        builder = _Builder(self, body.parameters, self._places.scope(nodes, roots, maps), maps)
        for node in nodes:
            if not isinstance(node, Parameters) and node.id not in builder.program.slots:
                builder.place(node)
        program = builder.finish()
        program.results = {name: program.slots[value.id] for name, value in body.results}
        program.also = _effects(program, nodes)
        return program

    def operator(self, node: Node, builder: _Builder) -> tuple[Operator, tuple[int, ...]]:
        """The operator of a node, and the slots that it waits for."""
        index, place, maps = self._index[node.id], builder.places[node.id], builder.maps
        slots = builder.program.slots
        control = builder.control(node)
        match node:
            case Apply(expr=expr, args=args):
                run = evaluator(_rebased(expr, args, slots), self._callables)
                return Compute(index, place, run), _slots(args, slots)
            case Render(template=template, args=args):
                render = renderer(map_template(template, lambda leaf: _rebased(leaf, args, slots)), self._callables)
                return Compute(index, place, render), _slots(args, slots)
            case Filter(condition=condition):
                return Keep(index, place, slots[condition.id]), (control, slots[condition.id])
            case Fetch(text=text, returns=returns, coerce=coerce):
                # Each row gets a value of its own, as it would from a call.
                return Compute(index, place, lambda values: parse_reply(text, returns, coerce=coerce)), (control,)
            case Generate() | Invoke():
                made = self._make_call(node, index, place, slots, builder.program.operators)
                return made, _unique((control, *_slots(node.inputs, slots)))
            case Map(step=step, over=over, captures=captures, body=body):
                program = self.body(body, place.item(), (*maps, step))
                variable, *names = [name for name, _ in body.parameters.columns]
                held = dict(zip(names, _slots(captures, slots), strict=True))
                sub = SubPlan(self._flow, program, held)
                result = program.results["yield"]
                made = MapOver(index, place, self._flow, slots[over.id], variable, sub, result)
                return made, _unique((control, slots[over.id]))
            case Choose(condition=condition, captures=captures, then=then, otherwise=otherwise):
                names = [name for name, _ in then.parameters.columns]
                held = dict(zip(names, _slots(captures, slots), strict=True))
                arms = [SubPlan(self._flow, self.body(arm, place, maps), held) for arm in (then, otherwise)]
                made = Branch(index, place, self._flow, slots[condition.id], *arms)
                return made, _unique((control, slots[condition.id]))
            case Repeat(times=times, carried=carried, captures=captures, body=body):
                program = self.body(body, place, maps)
                names = [name for name, _ in body.parameters.columns][len(carried) :]
                held = dict(zip(names, _slots(captures, slots), strict=True))
                sub = SubPlan(self._flow, program, held)
                begin = {name: slots[value.id] for name, value in carried}
                until = Repeat.UNTIL if Repeat.UNTIL in program.results else None
                return Loop(index, place, self._flow, times, begin, sub, until), (control,)
        raise TypeError(f"{type(node).__name__} has no operator")


class _Builder:
    """Builds one program: slots in the order of their inputs."""

    def __init__(
        self, compiler: Compiler, source: Relation, places: Mapping[str, Place], maps: tuple[str, ...]
    ) -> None:
        self._compiler = compiler
        self.places = places
        self.maps = maps
        self._source = source
        self.program = Program()
        self._steps: list[tuple[str, int]] = []
        self.add(source, Given(0, NOWHERE), ())

    def add(self, node: Node, operator: Operator, waits: tuple[int, ...], value: Any = PENDING) -> int:
        slot = len(self.program.operators)
        self.program.slots[node.id] = slot
        self.program.operators.append(operator)
        self.program.waits.append(waits)
        self.program.initial.append(value)
        return slot

    def control(self, node: Node) -> int:
        """The slot that says whether the row is still there at the node's place: a filter, or the source."""
        rows = getattr(node, "rows", None)
        return 0 if rows is None else self.program.slots.get(rows.id, 0)

    def place_floating(self, node: Node) -> None:
        """Places the inputs of a node that belong to no row, constants and what is made of them, on this level too."""
        for read in node.inputs:
            if read.id in self._compiler._floating and read.id not in self.program.slots:
                self.place(read)

    def place(self, node: Node) -> None:
        slots = self.program.slots
        if not isinstance(node, Relation) or isinstance(node, Filter):
            self.place_floating(node)
        index = self._compiler._index[node.id]
        match node:
            case Const(json=text):
                self.add(node, Given(index, NOWHERE), (), json.loads(text))
            case Project(source=source, field=field) if isinstance(source, Relation):
                self._project(node, self.program.inputs, field)
            case Project(source=source, field=field):
                holder = self.program.operators[slots[source.id]]
                assert isinstance(holder, Branch | Loop)
                slot = self._project(node, holder.outputs, field)
                if readable(field) and _has_calls(source, field):
                    self._steps.append((node.label or field, slot))
            case Sink():
                return
            case Relation() if not isinstance(node, Filter):
                return
            case _:
                operator, waits = self._compiler.operator(node, self)
                slot = self.add(node, operator, waits)
                if isinstance(node, Generate | Invoke | Map | Fetch):
                    self._steps.append((node.step, slot))
                guesser = self._compiler.guesser
                if guesser is not None and isinstance(node, Choose) and isinstance(operator, Branch):
                    self._watch(node, operator, guesser)

    def _watch(self, node: Choose, branch: Branch, guesser: Guesser) -> None:
        """Lets somebody know of a branch, and of the calls in it whose inputs may be there before its condition."""
        branch.name, branch.watch = node.id, guesser
        slots = self.program.slots
        control = self.control(node)
        for operator, waits in foreseen(node, branch, slots[node.condition.id], guesser):
            self.program.operators.append(operator)
            self.program.waits.append(_unique((control, *waits)))
            self.program.initial.append(PENDING)

    def _project(self, node: Project, outputs: dict[str, int], field: str) -> int:
        """The slot of an output of a relation, branch or loop: one for all that read it, under whatever type."""
        if field in outputs:
            self.program.slots[node.id] = outputs[field]
        else:
            outputs[field] = self.add(node, Given(self._compiler._index[node.id], NOWHERE), ())
        return outputs[field]

    def finish(self) -> Program:
        program = self.program
        program.steps = tuple(self._steps)
        _wire(program)
        return program


def _append(program: Program, operator: Operator, waits: tuple[int, ...]) -> int:
    program.operators.append(operator)
    program.waits.append(_unique(waits))
    program.initial.append(PENDING)
    _wire(program)
    return len(program.operators) - 1


def _wire(program: Program) -> None:
    """Turns who waits for whom around: constants wake nobody, since they are there from the start."""
    constant = [value is not PENDING for value in program.initial]
    readers: list[list[int]] = [[] for _ in program.operators]
    program.needs = []
    for slot, waits in enumerate(program.waits):
        open_waits = [wait for wait in waits if not constant[wait]]
        program.needs.append(len(open_waits))
        for wait in open_waits:
            readers[wait].append(slot)
    program.readers = [tuple(each) for each in readers]
    program.unresolved = constant.count(False)
    program.ready = tuple(
        slot
        for slot, operator in enumerate(program.operators)
        if program.needs[slot] == 0 and not constant[slot] and not isinstance(operator, Given)
    )


def _relations(last: Relation) -> list[Relation]:
    chain: list[Relation] = [last]
    while hasattr(chain[-1], "rows"):
        chain.append(chain[-1].rows)
    return chain[::-1]


def _depths(order: Iterable[Node], chain: list[Relation]) -> dict[str, int]:
    """How far down the chain of relations each node stands: where its rows are first known."""
    place = {relation.id: position for position, relation in enumerate(chain)}
    depths: dict[str, int] = {}
    for node in order:
        below = [depths.get(each.id, 0) for each in node.inputs]
        depths[node.id] = place.get(node.id, max(below, default=0))
    return depths


def _floating(order: Iterable[Node]) -> frozenset[str]:
    """The values that depend on no relation: they are placed wherever they are read."""
    found: set[str] = set()
    for node in order:
        if isinstance(node, Const | Apply | Render) and all(each.id in found for each in node.inputs):
            found.add(node.id)
    return frozenset(found)


def _crossing(order: Iterable[Node], level_of: dict[str, int], count: int) -> list[tuple[Node, ...]]:
    """For each level the values it needs from levels above, its own and those it passes on."""
    crossing: list[dict[str, Node]] = [{} for _ in range(count)]
    for node in order:
        reader = level_of[node.id]
        if isinstance(node, Relation) and not isinstance(node, Filter):
            # What a boundary reads (a list to spread, keys) is read on the level above it.
            reader -= 1
        # What the sink runs besides its columns runs on its own level.
        inputs = tuple(value for _, value in node.columns) if isinstance(node, Sink) else node.inputs
        for read in inputs:
            if not isinstance(read, Relation) and read.id in level_of:
                for level in range(level_of[read.id] + 1, reader + 1):
                    crossing[level][read.id] = read
    return [tuple(each.values()) for each in crossing]


def _has_calls(source: Node, field: str) -> bool:
    """Whether an output of a branch or loop takes a call."""
    values = [value for _, body in bodies(source) for name, value in body.results if name == field]
    return any(traits(node).is_call for value in values for node in topological(value))


def _effects(program: Program, nodes: Iterable[Node]) -> tuple[int, ...]:
    """The slots of steps that run for their effects: their failure is the row's though no column reads them."""
    found: list[int] = []
    for node in nodes:
        holder = node.source if isinstance(node, Project) else node
        if isinstance(holder, Agent | Invoke | Map | Choose | Repeat) and traits(holder).effects not in HARMLESS:
            found.append(program.slots[node.id])
    return tuple(found)


def _rebased(expr: Expr, args: tuple[Value, ...], slots: Mapping[str, int]) -> Expr:
    """The expression with each input's position replaced by its slot, so that it reads the frame's values directly."""
    from helix.expr import transform

    def leaf(part: Expr) -> Expr:
        return Arg(index=slots[args[part.index].id]) if isinstance(part, Arg) else part

    return transform(expr, leaf)


def _slots(nodes: Iterable[Node], slots: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(slots[node.id] for node in nodes if not isinstance(node, Relation))


def _unique(slots: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(slots))
