"""The rule `merge_equal_steps`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from helix.logical import (
    Apply,
    Body,
    Choose,
    Filter,
    Generate,
    Invoke,
    Limit,
    LogicalPlan,
    Map,
    Node,
    Project,
    Relation,
    Render,
    Repeat,
    Sink,
    Sort,
    Value,
    bodies,
    body_nodes,
)
from helix.optimizer.rewrite import with_inputs
from helix.optimizer.rule import RuleContext, rule
from helix.optimizer.scopes import Scope, body_of, scope_of
from helix.optimizer.signature import output_names, output_place, signature
from helix.places import PIN, Order, Places
from helix.traits import traits


@rule()
def merge_equal_steps(plan: LogicalPlan, context: RuleContext) -> LogicalPlan:
    """x = f(a), y = f(a) is x = f(a), y = x.

    Sound: only steps whose results depend on their inputs alone: temperature 0 or a seed and no `cache off`, tools that
    only read. They run over the same rows, or one over rows that filters, sorts and limits which fail no row have left
    of the other's. Inputs first, so that steps that differ only in the names of equal steps merge too. The step that
    comes first in the workflow keeps its name, and only where its failure always comes to light: else an error would
    have the wrong name.
    Pays: one call where there were two.

    >>> show('''
    ... workflow demo(text: text)
    ... a = llm { user "Sum up: {{ text }}" }
    ... b = llm { user "Sum up: {{ text }}" }
    ... output a, b
    ... ''', merge_equal_steps)
    Sink a, b=a
      Generate a
        user "Sum up: {text}"
      Scan text: text
    """
    try:
        sink = _Merger(scope_of(plan), Places(plan.steps)).merged()[plan.sink.id]
    except _Blurred:
        return plan
    assert isinstance(sink, Sink)
    return plan if sink.id == plan.sink.id else replace(plan, sink=sink)


Step = Generate | Invoke | Map | Choose | Repeat


class _Blurred(Exception):
    """What merges would leave an error with the wrong name."""


@dataclass(slots=True, eq=False)
class _Class:
    """Equal nodes of one scope: the first in the workflow, all of them, and the lowest rows that one runs over."""

    first: Node
    members: list[Node]
    rows: Relation | None
    made: Node | None = None


@dataclass(slots=True, eq=False)
class _Reading:
    """The steps that read the same, in classes of equal ones. One alone is compared with nothing."""

    first: Node
    alone: list[_Class] = field(default_factory=list)
    by_signature: dict[str, list[_Class]] | None = None

    def equal_to(self, node: Node) -> list[_Class]:
        """The classes of the steps that are equal to one."""
        if node is self.first:
            return self.alone
        if self.by_signature is None:
            self.by_signature = {signature(self.first): self.alone}
        return self.by_signature.setdefault(signature(node), [])


class _Merger:
    """Merges the equal steps of one scope, and those of the sub-plans below it each within itself."""

    def __init__(self, scope: Scope, places: Places) -> None:
        self._scope = scope
        self._places = places
        self._alike: dict[str, Node] = {}
        self._classes: dict[str, _Class] = {}
        self._bodies: dict[tuple[str, str], Body] = {}
        self._outputs: dict[tuple[str, int], Project] = {}
        self._reading: dict[tuple[str, ...], _Reading] = {}

    def merged(self) -> dict[str, Node]:
        """The new node for each node of the scope."""
        for node in self._scope.nodes:
            for part, body in bodies(node):
                inside = _Merger(self._scope.inside(node, part, body), self._places).merged()
                self._bodies[node.id, part] = body_of(body, inside)
            if isinstance(node, Project) and isinstance(node.source, Choose | Repeat):
                self._outputs.setdefault((node.source.id, output_place(node.source, node.field)), node)
        self._classify()
        return self._rebuilt()

    # --- which are equal ---

    def _classify(self) -> None:
        by_id: dict[str, list[_Class]] = {}
        for node in self._scope.nodes:
            alike = self._with_bodies(with_inputs(node, self._alike), node)
            if isinstance(node, Project) and isinstance(node.source, Choose | Repeat):
                alike = self._named_like_first(node, node.source, alike)
            self._alike[node.id] = alike
            if isinstance(node, Apply | Render):
                self._note_value(node, alike, by_id)
            elif isinstance(node, Step) and _mergeable(node):
                assert isinstance(alike, Step)
                self._note_step(node, alike)

    def _note_value(self, node: Apply | Render, alike: Node, known: dict[str, list[_Class]]) -> None:
        """Values that are equal now become one: where they can fail, the first one's name must be right."""
        same = known.setdefault(alike.id, [])
        if not same:
            same.append(self._begun(node))
        elif (
            node.label != getattr(same[0].first, "label", "")
            and not self._joins(same[0], node)
            and self._scope.fates.may_begin_in(node)
        ):
            raise _Blurred

    def _note_step(self, node: Step, alike: Step) -> None:
        read = (type(alike).__name__, *(each.id for each in alike.inputs if each != alike.rows))
        if read not in self._reading:
            self._reading[read] = _Reading(alike)
        same = self._reading[read].equal_to(alike)
        for group in same:
            if self._joins(group, node):
                self._alike[node.id] = self._alike[group.members[0].id]
                return
        same.append(self._begun(node))

    def _begun(self, node: Node) -> _Class:
        made = self._classes[node.id] = _Class(node, [node], getattr(node, "rows", None))
        return made

    def _joins(self, group: _Class, node: Node) -> bool:
        """Takes a node into a class of equal ones, where the name of the first of them is right for all."""
        first = min(group.first, node, key=self._order)
        members = [*group.members, node]
        if any(not self._comes_to_light(each, first) for each in members if each is not first):
            return False
        if group.rows is not None:
            rows = self._lowest(group.rows, getattr(node, "rows"))  # noqa: B009
            if rows is None:
                return False
            group.rows = rows
        group.first, group.members = first, members
        self._classes[node.id] = group
        return True

    def _order(self, node: Node) -> Order:
        """Where a node begins in the workflow."""
        if isinstance(node, Generate | Invoke | Map):
            return self._places.named(node.step).rank
        if isinstance(node, Choose | Repeat):
            labels = [
                label
                for _, body in bodies(node)
                for inner in body_nodes(body)
                if (label := getattr(inner, "step", "") or getattr(inner, "label", ""))
            ]
            labels += [
                reader.label
                for reader in self._scope.readers.get(node.id, ())
                if isinstance(reader, Project) and reader.label
            ]
            return min((self._places.named(label.removeprefix(PIN)).rank for label in labels), default=())
        label = node.label if isinstance(node, Value) else ""
        return self._places.named(label.removeprefix(PIN)).rank

    def _comes_to_light(self, hidden: Node, shown: Node) -> bool:
        if not isinstance(hidden, Choose | Repeat):
            return self._scope.comes_to_light(hidden, shown)
        outputs = {
            reader.field: reader for reader in self._scope.readers.get(shown.id, ()) if isinstance(reader, Project)
        }
        for reader in self._scope.readers.get(hidden.id, ()):
            if not isinstance(reader, Project):
                continue
            twin = outputs.get(_renamed(hidden, reader.field, shown))
            if twin is None or not self._scope.comes_to_light(reader, twin):
                return False
        return True

    def _lowest(self, one: Relation, other: Relation) -> Relation | None:
        """The lower of two relations, where the rows of the higher are some of its rows and have failed alike."""
        for low, high in ((one, other), (other, one)):
            rows = high
            while rows != low and isinstance(rows, Filter | Sort | Limit):
                rows = rows.rows
            if rows == low and self._scope.fates.control(low) == self._scope.fates.control(high):
                return low
        return None

    def _named_like_first(self, node: Project, source: Choose | Repeat, alike: Node) -> Node:
        group = self._classes.get(source.id)
        if group is None or group.members[0] == source:
            return alike
        return replace(alike, field=_renamed(source, node.field, group.members[0]))  # type: ignore[call-arg]

    def _with_bodies(self, node: Node, old: Node) -> Node:
        changed: dict[str, Any] = {
            part: merged for part, body in bodies(old) if (merged := self._bodies[old.id, part]) is not body
        }
        return replace(node, **changed) if changed else node

    # --- the scope with one of each ---

    def _rebuilt(self) -> dict[str, Node]:
        done: dict[str, Node] = {}
        for node in self._scope.nodes:
            group = self._classes.get(node.id)
            if group is None or len(group.members) == 1:
                fresh = self._with_bodies(with_inputs(node, done), node)
                if isinstance(node, Project):
                    fresh = self._of_first(node, fresh)
                done[node.id] = fresh
                continue
            if group.made is None:
                group.made = self._made(group, with_inputs(node, done), done)
            done[node.id] = group.made
        return done

    def _made(self, group: _Class, fresh: Node, done: dict[str, Node]) -> Node:
        """The one node that stands for a class: the first one by name and sub-plans, over what each of them reads."""
        first = group.first
        changed: dict[str, Any] = {"span": first.span}
        if isinstance(first, Generate | Invoke | Map):
            changed["step"] = first.step
        if isinstance(first, Value):
            changed["label"] = first.label
        if isinstance(first, Repeat) and isinstance(fresh, Repeat):
            names = [name for name, _ in first.carried]
            changed["carried"] = tuple(zip(names, (value for _, value in fresh.carried), strict=True))
        if group.rows is not None:
            changed["rows"] = done[group.rows.id]
        changed |= {part: self._bodies[first.id, part] for part, _ in bodies(first)}
        return replace(fresh, **changed)

    def _of_first(self, node: Project, fresh: Node) -> Node:
        source, group = node.source, self._classes.get(node.source.id)
        if group is None or not isinstance(source, Choose | Repeat) or group.first == source:
            return fresh
        field = _renamed(source, node.field, group.first)
        twin = self._outputs.get((group.first.id, output_place(source, node.field)))
        label = node.label if twin is None else twin.label
        return replace(fresh, field=field, label=label)  # type: ignore[call-arg]


def _mergeable(node: Node) -> bool:
    own = traits(node)
    return own.deterministic and own.effects in ("pure", "read")


def _renamed(source: Node, field: str, other: Node) -> str:
    """What an equal branch or loop calls an output."""
    assert isinstance(source, Choose | Repeat)
    assert isinstance(other, Choose | Repeat)
    return output_names(other)[output_place(source, field)]
