"""What a plan will ask of engines and tools, read off the plan alone: for people, before anything runs."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from helix.agents import MOST_CALLS
from helix.canonical import canonical_bytes
from helix.expr import ListExpr
from helix.graph import Chain, longest_chain
from helix.logical import (
    UNHASHED,
    Agent,
    Apply,
    Body,
    Choose,
    Const,
    Effects,
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
    Relation,
    Repeat,
    Unnest,
    Value,
    bodies,
    body_nodes,
    encode,
    every_node,
    spine,
    topological,
)
from helix.traits import traits


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """How many calls: at least `low`, at most `high` (None: it depends on the data)."""

    low: int = 0
    high: int | None = 0

    def __str__(self) -> str:
        if self.high is None:
            return f"{self.low} or more"
        return str(self.low) if self.low == self.high else f"{self.low} to {self.high}"

    def plus(self, other: Calls) -> Calls:
        """Both."""
        high = None if self.high is None or other.high is None else self.high + other.high
        return Calls(low=self.low + other.low, high=high)

    def times(self, other: Calls) -> Calls:
        """One for each of the other."""
        nothing = self.high == 0 or other.high == 0
        high = 0 if nothing else None if self.high is None or other.high is None else self.high * other.high
        return Calls(low=self.low * other.low, high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a plan will do.

    `calls` are those for one input row, without retries and without what is known already. `models` and `tools` name
    the steps that use each; None is the model that the command line or the engine chooses. `shared` are the steps whose
    equal calls are made once (contract 4), `equal` those of them that are the same but for their names, so that they
    always share their calls. `known` are steps whose reply is known already.
    """

    operators: tuple[tuple[str, int], ...]
    calls: Calls
    chain: Chain
    models: tuple[tuple[str | None, tuple[str, ...]], ...]
    tools: tuple[tuple[str, Effects, tuple[str, ...]], ...]
    shared: tuple[str, ...]
    equal: tuple[tuple[str, ...], ...]
    known: tuple[str, ...] = ()


def summarize(plan: LogicalPlan) -> Summary:
    """Counts a plan's operators and calls, and names its models, tools and equal steps."""
    nodes = tuple(node for node in every_node(plan.sink) if not isinstance(node, Parameters))
    calling = {(node.step, node.id): node for node in nodes if isinstance(node, Generate | Invoke)}.values()
    models: dict[str | None, dict[str, None]] = {}
    tools: dict[tuple[str, Effects], dict[str, None]] = {}
    for node in calling:
        if isinstance(node, Generate):
            models.setdefault(node.model.name, {}).setdefault(node.step)
            for tool in node.tools if isinstance(node, Agent) else ():
                tools.setdefault((tool.name, tool.effects), {}).setdefault(node.step)
        else:
            tools.setdefault((node.tool.name, node.tool.effects), {}).setdefault(node.step)
    return Summary(
        operators=tuple(sorted(Counter(type(node).__name__ for node in nodes).items())),
        calls=_plan_calls(plan),
        chain=longest_chain(plan),
        models=tuple((name, tuple(steps)) for name, steps in models.items()),
        tools=tuple((name, effects, tuple(steps)) for (name, effects), steps in tools.items()),
        shared=tuple(dict.fromkeys(node.step for node in calling if traits(node).deterministic)),
        equal=_equal_steps(plan),
        known=tuple(dict.fromkeys(node.step for node in nodes if isinstance(node, Fetch))),
    )


def plan_summary(plan: LogicalPlan) -> str:
    """The summary of a plan as text, one fact a line, ending in a line break."""
    found = summarize(plan)
    lines = [
        ("operators", ", ".join(f"{count} {name}" for name, count in found.operators)),
        ("calls per row", str(found.calls)),
    ]
    if found.chain.calls:
        lines.append(("longest chain of calls", f"{found.chain.calls}: {', '.join(found.chain.steps)}"))
    for name, steps in found.models:
        lines.append(("model", f"{name or '(not named)'}: {', '.join(steps)}"))
    for name, effects, steps in found.tools:
        lines.append(("tool", f"{name} ({effects}): {', '.join(steps)}"))
    if found.shared:
        lines.append(("equal calls are made once", ", ".join(found.shared)))
    if found.known:
        lines.append(("replies known already", ", ".join(found.known)))
    lines.extend(("equal steps", " = ".join(group)) for group in found.equal)
    return "".join(f"{what}: {text}\n" for what, text in lines)


# --- calls --------------------------------------------------------------------------------------------------------


def _plan_calls(plan: LogicalPlan) -> Calls:
    rows: dict[str, Calls] = {}
    count = Calls(low=1, high=1)
    for relation in spine(plan.sink.rows):
        if isinstance(relation, Unnest):
            count = Calls(low=0, high=None)
        elif isinstance(relation, Filter | Limit | GroupReduce):
            count = Calls(low=0, high=count.high)
        rows[relation.id] = count
    total = Calls()
    for node in topological(plan.sink):
        over = getattr(node, "rows", None)
        if isinstance(over, Relation) and not isinstance(node, Relation):
            total = total.plus(_node_calls(node).times(rows.get(over.id, count)))
    return total


def _node_calls(node: Node) -> Calls:
    """The calls of an operator for one row."""
    match node:
        case Agent(max_turns=turns):
            return Calls(low=1, high=turns + (turns - 1) * MOST_CALLS)
        case Generate(sample=sample):
            return Calls(low=sample, high=sample)
        case Invoke():
            return Calls(low=1, high=1)
        case Map(over=over, body=body):
            return _body_calls(body).times(_length(over))
        case Choose(then=then, otherwise=otherwise):
            arms = [_body_calls(then), _body_calls(otherwise)]
            highs = [arm.high for arm in arms]
            known = [high for high in highs if high is not None]
            return Calls(low=min(arm.low for arm in arms), high=max(known) if len(known) == 2 else None)
        case Repeat(times=times, body=body):
            stops = any(name == Repeat.UNTIL for name, _ in body.results)
            return _body_calls(body).times(Calls(low=1 if stops else times, high=times))
    return Calls()


def _body_calls(body: Body) -> Calls:
    total = Calls()
    for node in body_nodes(body):
        total = total.plus(_node_calls(node))
    return total


def _length(over: Value) -> Calls:
    """How many items a list has, where the plan says so."""
    known: Any = None
    match over:
        case Const(json=text):
            known = json.loads(text)
        case Apply(expr=ListExpr(items=items)):
            known = items
    return Calls(low=0, high=None) if not isinstance(known, list | tuple) else Calls(low=len(known), high=len(known))


# --- equal steps --------------------------------------------------------------------------------------------------


def _equal_steps(plan: LogicalPlan) -> tuple[tuple[str, ...], ...]:
    """Steps of one scope that are equal but for their names: they read the same values, so their calls are equal."""
    ids: dict[str, str] = {}
    groups: list[tuple[str, ...]] = []
    _scope(topological(plan.sink), ids, groups)
    return tuple(dict.fromkeys(groups))


def _scope(nodes: Iterable[Node], ids: dict[str, str], groups: list[tuple[str, ...]]) -> None:
    found: dict[str, dict[str, None]] = {}
    for node in nodes:
        for _, body in bodies(node):
            _scope(body_nodes(body), ids, groups)
        ids[node.id] = _nameless(node, ids)
        if isinstance(node, Generate | Invoke) and traits(node).deterministic:
            found.setdefault(ids[node.id], {}).setdefault(node.step)
    groups.extend(tuple(steps) for steps in found.values() if len(steps) > 1)


def _nameless(node: Node, ids: Mapping[str, str]) -> str:
    """An operator's id without its step's name and those of all that it reads."""
    names = [each.name for each in fields(node) if each.name not in (*UNHASHED, "step")]
    content = {name: encode(getattr(node, name)) for name in names}
    return hashlib.sha256(canonical_bytes([type(node).__name__, _referred(content, ids)])).hexdigest()[:16]


def _referred(value: Any, ids: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"$"}:
            return {"$": ids.get(value["$"], value["$"])}
        return {key: _referred(item, ids) for key, item in value.items()}
    if isinstance(value, list):
        return [_referred(item, ids) for item in value]
    return value
