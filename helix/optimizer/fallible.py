"""What can make a value fail: what a rule must know before it moves a row's fate around.

Failures begin somewhere: in an input row that does not fit, in a call, in an expression that has no value for a row.
From there they travel to all that reads them. The fate of a value is the set of the events that make it fail, as the
bits of an int: the value fails exactly where one of them happens, with the failure that comes first in the workflow.
So two values of one fate fail together and alike, and a value whose fate is 0 never fails.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from helix.expr import Call, Expr, walk
from helix.functions import FUNCTIONS
from helix.logical import (
    Apply,
    Body,
    Choose,
    Const,
    Fetch,
    Filter,
    Generate,
    GroupReduce,
    Invoke,
    Limit,
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
    bodies,
    body_nodes,
)
from helix.optimizer.safety import safe_type
from helix.templates.template import Slot, Text
from helix.traits import traits
from helix.types import JSON, ListOf, Table, Type, required


@dataclass(frozen=True, slots=True)
class Fate:
    """The events that make a value fail. `typed` says that the values are of the declared type for certain: what a
    declared function gives is not checked against its type.
    """

    events: int
    typed: bool = True


@dataclass(slots=True)
class Fates:
    """The fates of the values of one scope.

    `given` are those of its parameters, where it is that of a sub-plan. `acting` says that some step acts on the world:
    where it fails the row has failed from the next limit or sort on. All scopes of a plan share `_events`.
    """

    given: Mapping[str, Fate] = field(default_factory=dict)
    within: tuple[str, ...] = ()
    acting: bool = False
    _events: dict[Hashable, int] = field(default_factory=dict)
    _known: dict[str, Fate] = field(default_factory=dict)
    _inner: dict[tuple[str, str], Fates] = field(default_factory=dict)

    def of(self, value: Value) -> int:
        """The events that make a value fail."""
        return self._fate(value).events

    def control(self, rows: Relation) -> int:
        """The events that make a row of a relation fail: nothing is called for it from there on."""
        return self._fate(rows).events

    def of_node(self, node: Node) -> int:
        """The events that make a value, or the rows of a relation, fail."""
        return self._fate(node).events

    def typed(self, value: Value) -> bool:
        """Whether the values are of the declared type for certain."""
        return self._fate(value).typed

    def of_inputs(self, node: Node) -> int:
        """The events that make something fail that a node reads."""
        events = 0
        for read in node.inputs:
            events |= self._fate(read).events
        return events

    def kinds(self, args: tuple[Value, ...]) -> list[Type]:
        """The types that values have for certain."""
        return [self._kind(arg) for arg in args]

    def safe(self, node: Apply | Render) -> bool:
        """Whether an expression or a template has a value wherever its inputs have one."""
        kinds = self.kinds(node.args)
        if isinstance(node, Apply):
            return safe_type(node.expr, kinds) is not None
        for segment in node.template.segments:
            if isinstance(segment, Text):
                continue
            if not isinstance(segment, Slot) or safe_type(segment.value, kinds) is None:
                return False
        return True

    def may_begin_in(self, node: Node) -> bool:
        """Whether a failure can begin in an expression or template: then its name matters."""
        return isinstance(node, Apply | Render) and not self.safe(node)

    def passes(self, rows: Filter) -> bool:
        """Whether a filter fails no row: its condition has a value for each row that has not failed before."""
        return not self.of(rows.condition) & ~self.control(rows.rows)

    def inside(self, holder: Node, part: str, body: Body) -> Fates:
        """The fates inside a sub-plan that an operator of this scope holds as `part`."""
        known = self._inner.get((holder.id, part))
        if known is None:
            known = Fates(self._given(holder, body), (*self.within, holder.id), _events=self._events)
            self._inner[holder.id, part] = known
        return known

    # --- how it is found ---

    def _fate(self, node: Node) -> Fate:
        """The fate of a node, those of what it reads first."""
        found = self._known.get(node.id)
        if found is not None:
            return found
        stack = [node]
        while stack:
            top = stack[-1]
            if top.id in self._known:
                stack.pop()
                continue
            missing = [read for read in top.inputs if read.id not in self._known]
            if missing:
                stack.extend(missing)
            else:
                self._known[top.id] = self._computed(top)
                stack.pop()
        return self._known[node.id]

    def _event(self, *what: Hashable) -> int:
        key = (self.within, *what)
        return 1 << self._events.setdefault(key, len(self._events))

    def _together(self, *nodes: Node) -> int:
        events = 0
        for node in nodes:
            events |= self._known[node.id].events
        return events

    def _computed(self, node: Node) -> Fate:
        match node:
            case Const() | Parameters():
                return Fate(0)
            case Scan():
                return Fate(self._event("table"))
            case Unnest(rows=rows, value=value):
                listed = isinstance(required(value.type), ListOf | Table) and self._known[value.id].typed
                return Fate(self._together(rows, value) | (0 if listed else self._event("spread", node.id)))
            case GroupReduce(keys=keys):
                unplaced = [self._event("key", node.id, name) for name, value in keys if self._known[value.id].events]
                return Fate(self._event("group", node.id) | sum(set(unplaced)))
            case Filter() | Fetch():
                return Fate(self._together(*node.inputs))
            case Sort() | Limit():
                return Fate(self._together(*node.inputs) | (self._event("effect", node.id) if self.acting else 0))
            case Project(source=source, field=field):
                return self._output(source, field)
            case Apply() | Render():
                own = 0 if self.safe(node) else self._event("value", node.id)
                typed = isinstance(node, Render) or not _declared(node.expr)
                return Fate(
                    self._together(*node.args) | own, typed and all(self._known[arg.id].typed for arg in node.args)
                )
            case Generate() | Invoke():
                return Fate(self._together(*node.inputs) | self._event("step", node.step))
            case Map(over=over, body=body):
                inner = self.inside(node, "body", body)
                result = inner._fate(body.result("yield"))
                listed = isinstance(required(over.type), ListOf | Table) and self._known[over.id].typed
                events = self._together(node.rows, over)
                if result.events or not listed or traits(node).effects not in ("pure", "read"):
                    events |= self._event("step", node.step)
                return Fate(events, result.typed)
        # Branches and loops fail in their outputs; a sink is no value.
        return Fate(0)

    def _output(self, source: Node, field: str) -> Fate:
        match source:
            case Scan():
                return self._known[source.id]
            case Unnest(value=value):
                return Fate(self._known[source.id].events, self._known[value.id].typed)
            case GroupReduce(keys=keys, columns=columns):
                if field == "rows":
                    typed = all(self._known[value.id].typed for _, value in columns)
                    return Fate(self._known[source.id].events, typed)
                key = self._known[dict(keys)[field].id]
                return Fate(self._event("key", source.id, field) if key.events else 0, key.typed)
            case Parameters():
                return self.given[field]
            case Choose():
                return self._chosen(source, field)
            case Repeat():
                return self._repeated(source, field)
        return Fate(self._event("output", source.id, field), False)

    def _chosen(self, source: Choose, field: str) -> Fate:
        """What both arms fail of, and for what only one of them fails of an event of its own."""
        before = self._together(source.rows, source.condition)
        arms = [
            self.inside(source, part, body)._fate(body.result(field))
            for part, body in (("then", source.then), ("otherwise", source.otherwise))
        ]
        common = arms[0].events & arms[1].events
        apart = (arms[0].events | arms[1].events) & ~common & ~before
        own = self._event("output", source.id, field) if apart else 0
        return Fate(before | common | own, arms[0].typed and arms[1].typed)

    def _repeated(self, source: Repeat, field: str) -> Fate:
        before = self._together(source.rows)
        inner = self.inside(source, "body", source.body)
        results = [inner._fate(value) for _, value in source.body.results]
        events = 0
        for result in results:
            events |= result.events
        own = self._event("output", source.id, field) if events & ~before else 0
        return Fate(before | own, all(result.typed for result in results))

    def _given(self, holder: Node, body: Body) -> dict[str, Fate]:
        """The fates of parameters while a sub-plan runs: by then nothing has happened that would have kept it back."""
        names = [name for name, _ in body.parameters.columns]
        match holder:
            case Map(rows=rows, over=over, captures=captures):
                first = {names[0]: Fate(0, self._fate(over).typed)}
                return first | self._captured(names[1:], captures, self._fate(rows).events | self._fate(over).events)
            case Choose(rows=rows, condition=condition, captures=captures):
                return self._captured(names, captures, self._fate(rows).events | self._fate(condition).events)
            case Repeat(rows=rows, carried=carried, captures=captures):
                typed = all(self._fate(value).typed for _, value in carried) and not _has_declared(body)
                rounds = {name: Fate(self._event("round", holder.id, name), typed) for name, _ in carried}
                return rounds | self._captured(names[len(carried) :], captures, self._fate(rows).events)
        raise TypeError(f"{type(holder).__name__} holds no sub-plan")

    def _captured(self, names: list[str], captures: tuple[Value, ...], over: int) -> dict[str, Fate]:
        found: dict[str, Fate] = {}
        for name, value in zip(names, captures, strict=True):
            fate = self._fate(value)
            found[name] = Fate(fate.events & ~over, fate.typed)
        return found

    def _kind(self, value: Value) -> Type:
        return value.type if self._fate(value).typed else JSON


def _declared(expr: Expr) -> bool:
    return any(isinstance(part, Call) and part.function not in FUNCTIONS for part in walk(expr))


def _has_declared(body: Body) -> bool:
    return any(
        (isinstance(node, Apply) and _declared(node.expr)) or any(_has_declared(held) for _, held in bodies(node))
        for node in body_nodes(body)
    )
