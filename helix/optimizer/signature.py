"""What two steps must share to be equal: everything but the names in them and the rows that they run over."""

from __future__ import annotations

from typing import Any

from helix.canonical import canonical_text
from helix.logical import Body, Choose, Node, Parameters, Project, Repeat, bodies, body_nodes, content, encode


def signature(node: Node) -> str:
    """The same text for equal steps over equal inputs."""
    return canonical_text(_shown(node, {}))


def _shown(node: Node, places: dict[str, int]) -> list[Any]:
    """An operator without names: what it reads by place inside a sub-plan, by id outside."""
    if isinstance(node, Project):
        return [type(node).__name__, _reference(node.source, places), _output(node), encode(node.type)]
    shown = content(node, lambda read: _reference(read, places))
    shown.pop("step", None)
    shown.pop("rows", None)
    if isinstance(node, Repeat):
        names = [name for name, _ in node.body.results]
        shown["carried"] = [[names.index(name), _reference(value, places)] for name, value in node.carried]
    for part, body in bodies(node):
        shown[part] = _body(body)
    return [type(node).__name__, shown]


def _reference(node: Node, places: dict[str, int]) -> str | int:
    return places.get(node.id, node.id)


def _output(node: Project) -> str | int:
    """Which output of an operator: by place where its name is nobody's business."""
    match node.source:
        case Parameters(columns=columns):
            return [name for name, _ in columns].index(node.field)
        case Choose() | Repeat():
            return output_place(node.source, node.field)
    return node.field


def output_place(source: Choose | Repeat, field: str) -> int:
    """Which of its outputs a branch or loop calls by a name: equal ones give theirs in the same order."""
    return output_names(source).index(field)


def output_names(source: Choose | Repeat) -> list[str]:
    """The names that a branch or loop gives."""
    body = source.then if isinstance(source, Choose) else source.body
    return [name for name, _ in body.results]


def _body(body: Body) -> list[Any]:
    places: dict[str, int] = {}
    shown: list[Any] = []
    for node in body_nodes(body):
        places[node.id] = len(places)
        if isinstance(node, Parameters):
            shown.append([encode(kind) for _, kind in node.columns])
        else:
            shown.append(_shown(node, places))
    # What ends a loop is not known by its place.
    results = [[name == Repeat.UNTIL, places[value.id]] for name, value in body.results]
    return [shown, results]
