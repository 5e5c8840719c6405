"""Logical plans as JSON, to keep, to compare and to hand on. Loading one runs no code: a plan file is data.

A file holds one entry for each operator, those inside sub-plans too, inputs before their readers; `{"$": 3}` refers to
an entry by its position. An entry has the operator's id, which is checked when it is loaded: a file that was changed is
refused, with the entry that no longer fits. Where each operator was written is kept as file, line and column, without
the workflow's text; equal operators written in two places have two entries.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any

from helix import expr, logical, schema
from helix import types as kinds
from helix.errors import PlanError, TemplateError, near_match
from helix.logical import LogicalPlan, Node, Sink, bodies, body_nodes, content
from helix.span import Source, Span
from helix.templates import template
from helix.verify import verify

FORMAT = "helix-plan"
VERSION = 1
MAX_NODES = 100_000
MAX_DEPTH = 400
MAX_VALUES = 5_000_000
MAX_EXPANDED = 1_000_000
MAX_NESTING = 150

_OPERATORS: tuple[type[Node], ...] = (
    logical.Agent,
    logical.Apply,
    logical.Choose,
    logical.Const,
    logical.Fetch,
    logical.Filter,
    logical.Generate,
    logical.GroupReduce,
    logical.Invoke,
    logical.Limit,
    logical.Map,
    logical.Parameters,
    logical.Project,
    logical.Render,
    logical.Repeat,
    logical.Scan,
    logical.Sink,
    logical.Sort,
    logical.Unnest,
)
_RECORDS: tuple[type, ...] = (
    logical.Body,
    logical.Model,
    logical.PromptPart,
    logical.Tool,
    logical.Truncate,
    schema.Column,
    template.Block,
    template.Slot,
    template.Template,
    template.Text,
    kinds.Choice,
    kinds.ListOf,
    kinds.Nothing,
    kinds.Optional,
    kinds.Record,
    kinds.Scalar,
    kinds.Table,
    expr.Arg,
    expr.Binary,
    expr.Call,
    expr.Field,
    expr.Index,
    expr.ListExpr,
    expr.Literal,
    expr.RecordExpr,
    expr.Unary,
)
_BY_NAME = {kind.__name__: kind for kind in (*_OPERATORS, *_RECORDS)}


# --- writing ------------------------------------------------------------------------------------------------------


def to_json(plan: LogicalPlan) -> dict[str, Any]:
    """A plan as a JSON value. Equal plans with equal spans give equal values."""
    nodes, places = _all_nodes(plan.sink)
    sources: dict[str, int] = {}
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": plan.name,
        "steps": list(plan.steps),
        "nodes": [_entry(node, places, sources) for node in nodes],
        "sources": list(sources),
    }


def _entry(node: Node, places: Mapping[int, int], sources: dict[str, int]) -> dict[str, Any]:
    written = content(node, lambda read: places[id(read)])
    entry: dict[str, Any] = {"id": node.id, "operator": type(node).__name__, "fields": written}
    span = node.span
    if span is not None:
        source = sources.setdefault(span.source.name, len(sources))
        entry["span"] = [source, span.line, span.column, span.end_line, span.end_column]
    if isinstance(node, logical.Value) and node.label:
        entry["label"] = node.label
    return entry


def _all_nodes(root: Node) -> tuple[list[Node], dict[int, int]]:
    """All operators, what one reads and the operators of its sub-plans before it, and the place of each object.

    Objects that are equal in all, also in where they were written and what they read, have one place.
    """
    nodes: list[Node] = []
    places: dict[int, int] = {}
    known: dict[tuple[Any, ...], int] = {}
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        node, expanded = stack.pop()
        if id(node) in places:
            continue
        inner = [each for _, body in bodies(node) for each in (body.parameters, *(v for _, v in body.results))]
        reads = (*node.inputs, *inner)
        if expanded:
            key = (node.id, node.span, getattr(node, "label", ""), tuple(places[id(each)] for each in reads))
            places[id(node)] = known.setdefault(key, len(nodes))
            if places[id(node)] == len(nodes):
                nodes.append(node)
        else:
            stack.append((node, True))
            stack.extend((each, False) for each in reversed(reads))
    return nodes, places


# --- reading ------------------------------------------------------------------------------------------------------


def from_json(data: Any) -> LogicalPlan:
    """The plan that a JSON value holds. Raises PlanError for all else, with the entry that is wrong."""
    envelope = _envelope(data)
    reader = _Reader()
    sources = [Source(name=name) for name in envelope.sources]
    for place, entry in enumerate(envelope.nodes):
        reader.add(place, entry, sources)
    sink = reader.nodes[-1] if reader.nodes else None
    if not isinstance(sink, Sink):
        raise PlanError("the last node of a plan is its Sink")
    unread = next((place for place in range(len(reader.nodes) - 1) if place not in reader.read), None)
    if unread is not None:
        raise PlanError(f"node {unread} ({_named(reader.nodes[unread])}) is read by nobody")
    plan = LogicalPlan(name=envelope.name, sink=sink, steps=tuple(envelope.steps))
    verify(plan)
    return plan


def _envelope(data: Any) -> Any:
    """The outermost layer, checked by pydantic: keys, versions, the shape of entries."""
    from pydantic import BaseModel, ConfigDict, Field, ValidationError

    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        raise PlanError(f'this is not a plan: it has no `"format": "{FORMAT}"`')
    if data.get("version") != VERSION or isinstance(data.get("version"), bool):
        raise PlanError(f"a plan of version {kinds.found(data.get('version'))}; this Helix reads version {VERSION}")

    class Entry(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True)
        id: str = Field(pattern=r"^[0-9a-f]{16}\z")
        operator: str
        fields: dict[str, Any]
        span: list[int] | None = Field(default=None, min_length=5, max_length=5)
        label: str | None = None

    class Envelope(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True)
        format: str
        version: int
        name: str
        sources: list[str]
        steps: list[str] = Field(default=[], max_length=MAX_NODES)
        nodes: list[Entry] = Field(max_length=MAX_NODES)

    try:
        return Envelope.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
        raise PlanError(f"the plan is malformed at {_shown(place)}: {first['msg'].lower()}") from None


class _Reader:
    """Builds operators from entries, in order: an entry refers to earlier ones only, so there are no cycles."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.read: set[int] = set()
        self._values = 0
        self._expanded: dict[str, int] = {}
        self._nesting: dict[str, int] = {}

    def add(self, place: int, entry: Any, sources: list[Source]) -> None:
        """Builds the operator of one entry and checks its id."""
        where = f"node {place} ({_shown(entry.operator)} {entry.id})"
        kind = _BY_NAME.get(entry.operator)
        if kind is None or kind not in _OPERATORS:
            known = [each.__name__ for each in _OPERATORS]
            raise PlanError(f"node {place}: unknown operator {_unknown(entry.operator, known)}")
        try:
            node = self._build(self._record(kind, entry.fields, where))
            extra: dict[str, Any] = {"span": _span(entry.span, sources, where)}
            if entry.label is not None and issubclass(kind, logical.Value):
                extra["label"] = entry.label
            node = replace(node, **extra)
        except RecursionError:
            raise PlanError(f"{where} is nested too deeply") from None
        except UnicodeEncodeError:
            raise PlanError(f"{where}: a text holds half a character (a lone surrogate)") from None
        except (ValueError, TypeError) as error:
            raise PlanError(f"{where}: {error}") from None
        assert isinstance(node, Node)
        if isinstance(node, logical.Render):
            _check_blocks(node, where)
        if node.id != entry.id:
            raise PlanError(f"{where} was changed: its content has the id {node.id}")
        self.nodes.append(node)
        self._measure(node, where)

    def _measure(self, node: Node, where: str) -> None:
        """Refuses plans that are small as a file and huge when walked, and sub-plans inside each other without end."""
        inside = [body_nodes(body) for _, body in bodies(node)]
        self._expanded[node.id] = 1 + sum(self._expanded[part.id] for parts in inside for part in parts)
        nested = [1 + self._nesting[part.id] for parts in inside for part in parts]
        self._nesting[node.id] = max(nested, default=0)
        if self._expanded[node.id] > MAX_EXPANDED or self._nesting[node.id] > MAX_NESTING:
            raise PlanError(f"{where} holds too many sub-plans")

    def _record(self, kind: type, given: Mapping[str, Any], where: str) -> _Open:
        """A record to be made of fields that are still to be read."""
        wanted = {each.name: each for each in fields(kind) if each.init and each.name not in logical.UNHASHED}
        for name in given:
            if name not in wanted:
                raise PlanError(f"{where}: unknown field {_unknown(name, list(wanted))}")
        for name, each in wanted.items():
            if name not in given and each.default is MISSING:
                raise PlanError(f"{where}: field `{name}` is missing")
        hints = _hints(kind)
        parts = [(hints[name], value, f"{where}.{name}") for name, value in given.items()]
        return _Open(lambda values: kind(**dict(zip(given, values, strict=True))), parts)

    def _build(self, opened: _Open) -> Any:
        """What an open value becomes, its parts first. Not recursive: a file may be nested as deeply as it likes."""
        stack = [opened]
        while True:
            top = stack[-1]
            if len(top.values) < len(top.parts):
                hint, value, where = top.parts[len(top.values)]
                self._values += 1
                if len(stack) > MAX_DEPTH:
                    raise PlanError(f"{where[:80]}...: the plan is nested too deeply")
                if self._values > MAX_VALUES:
                    raise PlanError(f"{where}: the plan is too large")
                read = self._read(hint, value, where)
                if isinstance(read, _Open):
                    stack.append(read)
                else:
                    top.values.append(read)
                continue
            made = top.make(top.values)
            stack.pop()
            if not stack:
                return made
            stack[-1].values.append(made)

    def _read(self, hint: Any, value: Any, where: str) -> Any:
        """A JSON value as what the annotation of a field says: ready, or open where it has parts."""
        origin = typing.get_origin(hint)
        if hint is Any:
            return _json(value, where)
        if origin is tuple:
            return _tuple(typing.get_args(hint), value, where)
        if origin is typing.Literal:
            allowed = typing.get_args(hint)
            if not isinstance(value, str) or value not in allowed:
                raise PlanError(f"{where}: expected {' or '.join(allowed)}, found {kinds.found(value)}")
            return value
        accepted = typing.get_args(hint) if origin in (typing.Union, types.UnionType) else (hint,)
        if isinstance(value, Mapping):
            return self._object(accepted, value, where)
        if any(each in (str, int, float, bool, type(None)) and type(value) is each for each in accepted):
            return value
        for each in accepted:
            if typing.get_origin(each) in (tuple, typing.Literal):
                return self._read(each, value, where)
        raise PlanError(f"{where}: expected {_expected(accepted)}, found {kinds.found(value)}")

    def _object(self, accepted: tuple[Any, ...], value: Mapping[str, Any], where: str) -> Any:
        """A reference to an earlier operator (`$`), or a record with its class (`@`)."""
        if value.keys() == {"$"}:
            place = value["$"]
            if type(place) is not int or not 0 <= place < len(self.nodes):
                raise PlanError(f"{where}: no node {_shown(str(place))} stands before this one")
            self.read.add(place)
            node = self.nodes[place]
            if not any(isinstance(each, type) and isinstance(node, each) for each in accepted):
                raise PlanError(f"{where}: expected {_expected(accepted)}, found {_named(node)}")
            return node
        name = value.get("@")
        kind = _BY_NAME.get(name) if isinstance(name, str) else None
        if kind is None or kind not in _RECORDS:
            known = [each.__name__ for each in _RECORDS]
            raise PlanError(f"{where}: unknown class {_unknown(str(name), known)}")
        if not any(isinstance(each, type) and issubclass(kind, each) for each in accepted):
            raise PlanError(f"{where}: expected {_expected(accepted)}, found {name}")
        return self._record(kind, {key: item for key, item in value.items() if key != "@"}, where)


@dataclass(slots=True)
class _Open:
    """A value whose parts are still to be read: how it is made of them, and each with its annotation and its place."""

    make: Callable[[list[Any]], Any]
    parts: list[tuple[Any, Any, str]]
    values: list[Any] = field(default_factory=list)


def _tuple(items: tuple[Any, ...], value: Any, where: str) -> _Open:
    many = len(items) == 2 and items[1] is Ellipsis
    if not isinstance(value, list) or not (many or len(value) == len(items)):
        size = "" if many else f" of {len(items)}"
        raise PlanError(f"{where}: expected a list{size}, found {kinds.found(value)}")
    hints = [items[0]] * len(value) if many else items
    parts = [(hint, item, f"{where}[{place}]") for place, (hint, item) in enumerate(zip(hints, value, strict=True))]
    return _Open(tuple, parts)


def _json(value: Any, where: str) -> Any:
    if isinstance(value, Mapping):
        pairs = value.get("map")
        if value.keys() != {"map"} or not isinstance(pairs, list):
            raise PlanError(f"{where}: expected a JSON value, found {kinds.found(dict(value))}")
        for pair in pairs:
            if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
                raise PlanError(f"{where}: expected a field and its value, found {kinds.found(pair)}")
        names = [name for name, _ in pairs]
        parts = [(Any, item, f"{where}.{_shown(name)}") for name, item in pairs]
        return _Open(lambda values: dict(zip(names, values, strict=True)), parts)
    if isinstance(value, list):
        return _Open(list, [(Any, item, f"{where}[{place}]") for place, item in enumerate(value)])
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise PlanError(f"{where}: {type(value).__name__} is not a JSON value")


def _check_blocks(node: logical.Render, where: str) -> None:
    """What Jinja2 renders has to be what templates may say."""
    from helix.templates.jinja import block_names

    for segment in node.template.segments:
        if isinstance(segment, template.Block):
            try:
                names = block_names(segment.source, None)
            except TemplateError as error:
                raise PlanError(f"{where}: {error}") from None
            if names != segment.names or len(names) != len(segment.inputs):
                raise PlanError(f"{where}: a block reads {', '.join(names)}, not {', '.join(segment.names)}")


_HINTS: dict[type, dict[str, Any]] = {}


def _hints(kind: type) -> dict[str, Any]:
    known = _HINTS.get(kind)
    if known is None:
        known = _HINTS[kind] = typing.get_type_hints(kind)
    return known


def _span(given: list[int] | None, sources: list[Source], where: str) -> Span | None:
    if given is None:
        return None
    source, line, column, end_line, end_column = given
    if not 0 <= source < len(sources) or min(line, column, end_line, end_column) < 1:
        raise PlanError(f"{where}: its span points nowhere")
    return Span(source=sources[source], line=line, column=column, end_line=end_line, end_column=end_column)


def _named(node: Node) -> str:
    return f"{type(node).__name__} {node.id}"


def _expected(accepted: tuple[Any, ...]) -> str:
    words = {str: "text", int: "int", float: "float", bool: "bool", type(None): "null"}
    return " or ".join(words.get(each) or getattr(each, "__name__", None) or str(each) for each in accepted)


def _unknown(name: str, known: list[str]) -> str:
    near = near_match(name, known)
    return f"`{_shown(name)}`" + (f"; did you mean `{near}`?" if near else f"; known: {', '.join(sorted(known))}")


def _shown(text: str) -> str:
    shown = "".join(char if char.isprintable() else "?" for char in text[:60])
    return shown if len(text) <= 60 else shown + "..."
