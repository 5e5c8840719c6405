"""What a rule may assume of an operator: order, locality, determinism, effects, the fields it reads and writes."""

from __future__ import annotations

import json
from dataclasses import dataclass

from helix.logical import (
    Agent,
    Apply,
    Choose,
    Const,
    Effects,
    Fetch,
    Generate,
    GroupReduce,
    Invoke,
    Limit,
    Map,
    Node,
    Project,
    Render,
    Repeat,
    Scan,
    Sort,
    Unnest,
    bodies,
    body_nodes,
    readable,
)
from helix.sql.clock import is_volatile
from helix.tools.effects import join


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What a rule may assume of an operator; unknown means that it must not move.

    `row_local`: each result depends on one input row. `preserves_order`: result rows keep the order of input rows.
    `deterministic`: equal inputs give equal results. `is_call`: it asks an engine or a tool.
    """

    row_local: bool = True
    preserves_order: bool = True
    deterministic: bool = True
    is_call: bool = False
    effects: Effects = "pure"


def traits(node: Node) -> Traits:
    """The traits of an operator; one with sub-plans has the weakest of those inside."""
    known = node._traits
    if known is None:
        known = _found(node)
        object.__setattr__(node, "_traits", known)
    assert isinstance(known, Traits)
    return known


def _found(node: Node) -> Traits:
    match node:
        case Agent(tools=tools):
            effects = join(*(tool.effects for tool in tools))
            return Traits(deterministic=node.deterministic and node.cache, is_call=True, effects=effects)
        case Generate():
            return Traits(deterministic=node.deterministic and node.cache, is_call=True)
        case Invoke(tool=tool):
            return Traits(deterministic=tool.deterministic and _settled(node), is_call=True, effects=tool.effects)
        case GroupReduce() | Limit():
            return Traits(row_local=False)
        case Sort():
            return Traits(row_local=False, preserves_order=False)
    inner = [traits(part) for _, body in bodies(node) for part in body_nodes(body)]
    return Traits(
        deterministic=all(part.deterministic for part in inner),
        is_call=any(part.is_call for part in inner),
        effects=join(*(part.effects for part in inner)),
    )


def _settled(node: Invoke) -> bool:
    """Whether what a call runs is known before the run, and never asks for the time or for chance.

    A SQL statement that a row or a model writes may do so: equal calls of one are found equal, or not, by the run.
    """
    tool = node.tool
    if tool.is_settled:
        return True
    statement = dict(zip((param.name for param in tool.params), node.args, strict=False)).get("query")
    return tool.is_sqlite and isinstance(statement, Const) and not is_volatile(str(json.loads(statement.json)))


def reads(node: Node) -> tuple[str, ...]:
    """The fields that an operator reads, through pure expressions: columns of a relation, names of a branch or loop."""
    found: dict[str, None] = {}
    seen: set[str] = set()
    stack = list(reversed(node.inputs))
    while stack:
        part = stack.pop()
        if part.id in seen:
            continue
        seen.add(part.id)
        if isinstance(part, Project):
            found.setdefault(part.field)
        elif isinstance(part, Apply | Render):
            stack.extend(reversed(part.inputs))
    return tuple(found)


def writes(node: Node) -> tuple[str, ...]:
    """The names that an operator gives."""
    match node:
        case Generate(step=step) | Invoke(step=step) | Map(step=step) | Fetch(step=step):
            return (step,)
        case Choose(then=body) | Repeat(body=body):
            return tuple(name for name, _ in body.results if readable(name))
        case Scan(columns=columns):
            return tuple(column.name for column in columns)
        case Unnest(name=name):
            return (name,)
        case GroupReduce(keys=keys):
            return (*(name for name, _ in keys), "rows")
    return ()
