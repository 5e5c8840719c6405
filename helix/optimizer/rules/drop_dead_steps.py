"""The rule `drop_dead_steps`."""

from __future__ import annotations

from dataclasses import replace

from helix.logical import Body, Choose, LogicalPlan, Node, Project, Repeat, Value, every_node, topological
from helix.optimizer.rewrite import rewrite, trim
from helix.optimizer.rule import RuleContext, rule
from helix.traits import traits


@rule()
def drop_dead_steps(plan: LogicalPlan, context: RuleContext) -> LogicalPlan:
    """A step that nobody reads is not there.

    Sound: steps whose tools may act (anything but pure and read) are kept; the failure of a step that nobody reads is
    no row's error.
    Pays: calls that nobody wants are not made.

    >>> show('''
    ... workflow demo(text: text)
    ... mood = llm { user "Mood of {{ text }}" }
    ... reply = llm { user "{{ text }}" }
    ... output reply
    ... ''', drop_dead_steps)
    Sink reply
      Generate reply
        user "{text}"
      Scan text: text
    """
    kept = tuple(value for value in plan.sink.also if _acts(value))
    if kept != plan.sink.also:
        plan = replace(plan, sink=replace(plan.sink, also=kept))
    return rewrite(_without_unread_results(plan), trim)


def _acts(value: Value) -> bool:
    """Whether computing a value may do something to the world."""
    return any(traits(node).effects not in ("pure", "read") for node in topological(value))


def _without_unread_results(plan: LogicalPlan) -> LogicalPlan:
    """The plan without the names that branches and loops set for nobody."""
    read: dict[str, set[str]] = {}
    for node in every_node(plan.sink):
        if isinstance(node, Project):
            read.setdefault(node.source.id, set()).add(node.field)
    smaller: dict[str, Node] = {}

    def change(node: Node) -> Node:
        if isinstance(node, Choose | Repeat) and node.id in read:
            smaller[node.id] = node
        return node

    # Readers are found by id, so holders are changed from the outside in: once a round, as often as the driver comes.
    rewrite(plan, change)
    wanted = {held: _fewer(node, read[held]) for held, node in smaller.items()}
    wanted = {held: node for held, node in wanted.items() if node.id != held}
    if not wanted:
        return plan
    return rewrite(plan, lambda node: wanted.get(node.id, node))


def _fewer(node: Node, read: set[str]) -> Node:
    """The operator without results that are not in `read`, nor carried round, nor acting on the world."""
    if isinstance(node, Choose):
        names = {name for name, _ in node.then.results}
        drop = {
            name
            for name in names - read
            if not _acts(node.then.result(name)) and not _acts(node.otherwise.result(name))
        }
        if not drop or drop == names:
            return node
        return replace(node, then=_less(node.then, drop), otherwise=_less(node.otherwise, drop))
    assert isinstance(node, Repeat)
    keep = read | {Repeat.UNTIL} | {name for name, _ in node.carried}
    drop = {name for name, value in node.body.results if name not in keep and not _acts(value)}
    return replace(node, body=_less(node.body, drop)) if drop else node


def _less(body: Body, drop: set[str]) -> Body:
    return Body(
        parameters=body.parameters, results=tuple((name, value) for name, value in body.results if name not in drop)
    )
