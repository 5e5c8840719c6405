"""A workflow function while it is called: the steps it has made so far, block by block, and what they declared.

Each step gets a `Binding`, and expressions refer to it by `Symbol`. Names are given only at the end (`helix.dsl.emit`),
when all of them are known, so that a variable carried round a loop or joined from branches is never mixed up with an
earlier value of the same name.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any
from typing import Literal as OneOf

from helix.dsl.markers import marker, refuse_markers, split_markers
from helix.dsl.names import Taken
from helix.dsl.places import here, problem
from helix.dsl.values import Names, Value, describe, is_tstring, kind_of
from helix.expr import Binary, Call, Expr, ListExpr, Literal, Name, RecordExpr, transform
from helix.span import Span
from helix.syntax import Declaration, Keep, Limit, Llm, Param, Sort
from helix.templates.template import Segment, Slot, Template, Text, template


@dataclass(eq=False, slots=True, kw_only=True)
class Binding:
    """A step or variable. `hint` is the name it would like, `name` the one it has for sure."""

    block: Block
    hint: str | None = None
    explicit: bool = False
    name: str | None = None
    local: bool = False
    span: Span | None = None
    python: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbol(Expr):
    """A binding inside an expression, until names are given."""

    binding: Binding


@dataclass(eq=False, slots=True)
class Block:
    """A list of steps: the workflow itself, or the inside of a map, branch, repeat or group."""

    kind: OneOf["workflow", "map", "branch", "repeat", "group"]
    parent: Block | None = None
    owner: object = None
    items: list[Item] = field(default_factory=list)


@dataclass(eq=False, slots=True, kw_only=True)
class MapValue:
    """The value of a step that maps: the body is run for each item."""

    variable: Binding
    over: Expr
    block: Block
    result: Expr


@dataclass(eq=False, slots=True, kw_only=True)
class StepItem:
    """`name = value when condition`."""

    binding: Binding
    value: Expr | Llm | MapValue
    when: Expr | None = None
    span: Span | None = None


@dataclass(eq=False, slots=True, kw_only=True)
class Arm:
    """A branch: its condition (None: otherwise), its steps, and what it gives for each joined name."""

    condition: Expr | None
    block: Block
    results: dict[str, Expr] = field(default_factory=dict)


@dataclass(eq=False, slots=True, kw_only=True)
class ChooseItem:
    """Branches, and a binding for each name that they join in."""

    arms: list[Arm]
    joins: dict[str, Binding]
    span: Span | None = None


@dataclass(eq=False, slots=True, kw_only=True)
class Carried:
    """A value carried round a loop: at first `initial`, in a round `now`, then `following`, after the loop `last`."""

    now: Binding
    last: Binding
    initial: Expr
    following: Expr


@dataclass(eq=False, slots=True, kw_only=True)
class RepeatItem:
    """A bounded loop. `tail` holds the steps that the condition made: they run at the end of each round."""

    times: Expr
    block: Block
    tail: Block
    carried: list[Carried] = field(default_factory=list)
    until: Expr | None = None
    span: Span | None = None


@dataclass(eq=False, slots=True, kw_only=True)
class SpreadItem:
    """One row for each item of a list."""

    binding: Binding
    value: Expr
    span: Span | None = None


@dataclass(eq=False, slots=True, kw_only=True)
class GroupItem:
    """One row for each value of the keys, which are names."""

    keys: list[Expr]
    block: Block
    span: Span | None = None


@dataclass(eq=False, slots=True, kw_only=True)
class OutputItems:
    """The columns of the result: each value with its name, or None for its own."""

    items: list[tuple[Expr, str | None]]
    span: Span | None = None


TableNode = Keep | Sort | Limit
Item = StepItem | ChooseItem | RepeatItem | SpreadItem | GroupItem | OutputItems | TableNode

# A longer text is not a sum, which would nest one level for each of its pieces.
_MAX_ADDED = 12

_numbers = itertools.count(1)
_active: ContextVar[Trace | None] = ContextVar("helix_trace", default=None)


class Trace:
    """The record of one call of a workflow function."""

    def __init__(self, name: str, params: tuple[Param, ...], owner: object = None) -> None:
        self.name = name
        self.params = params
        self.owner = owner
        self.number = next(_numbers)
        self.top = Block("workflow")
        self.block = self.top
        self.declarations: dict[str, Declaration] = {}
        self.callables: dict[str, Callable[..., Any]] = {}
        self.uses: dict[str, Any] = {}
        self._names = Taken({param.name: "an input" for param in params})
        self._marked: list[Expr] = []
        self._declared: dict[int, tuple[object, str]] = {}

    @contextmanager
    def active(self) -> Iterator[Trace]:
        """Makes this the trace that steps go to."""
        token = _active.set(self)
        try:
            yield self
        finally:
            _active.reset(token)

    @contextmanager
    def inside(self, block: Block) -> Iterator[Block]:
        """Lets steps go to a block until the end of the `with`."""
        before = self.block
        self.block = block
        try:
            yield block
        finally:
            self.block = before

    # --- declarations ---

    def declare(self, key: object, hint: str | None, fallback: str, make: Callable[[str], Declaration]) -> str:
        """The name under which something is declared; made at its first use, in a name of its own."""
        known = self._declared.get(id(key))
        if known is not None:
            return known[1]
        name = self._names.free(hint, fallback)
        self._names.take(name, "declared")
        self.declarations[name] = make(name)
        self._declared[id(key)] = (key, name)
        return name

    # --- values ---

    def step(
        self,
        value: Expr | Llm | MapValue,
        *,
        hint: str | None,
        explicit: bool = False,
        when: Expr | None = None,
        python: Any = None,
        span: Span | None = None,
    ) -> Value:
        """Makes a step in the current block; the value that stands for its result."""
        span = span or here()
        binding = Binding(block=self.block, hint=hint, explicit=explicit, span=span, python=python)
        self.block.items.append(StepItem(binding=binding, value=value, when=when, span=span))
        return self.value(binding)

    def input(self, param: Param) -> Value:
        """The value that stands for an input."""
        return Value(Name(name=param.name), self)

    def value(self, binding: Binding) -> Value:
        """The value that stands for a step or variable."""
        return Value(Symbol(binding=binding), self)

    def mark(self, expr: Expr) -> str:
        """The text that stands for an expression until a prompt splits it."""
        self._marked.append(expr)
        return marker(self.number, len(self._marked) - 1)

    def marked(self, trace: int, number: int) -> Expr:
        """The expression of a marker. Raises BindError for one of another workflow."""
        if trace != self.number or number >= len(self._marked):
            message = f"a text holds a value of another workflow than `{self.name}`"
            raise problem(message, "make the text inside the workflow function that uses it")
        return self._marked[number]

    def lift(self, value: Any) -> Expr:
        """The expression that stands for something of Python: a value, a constant, or both in lists and records."""
        span = here()
        match value:
            case Value():
                return self._own(value)
            case Names():
                return self.lift(dict(value._values))
            case Enum():
                return self.lift(value.value)
            case str():
                return _concatenated(split_markers(str.__str__(value), self), span)
            case bool() | None:
                return Literal(value=value, span=span)
            case int():
                return Literal(value=int(value), span=span)
            case float():
                if not math.isfinite(value):
                    raise problem(f"{value} is not a number of JSON")
                return Literal(value=float(value), span=span)
            case list() | tuple():
                return ListExpr(items=tuple(self.lift(item) for item in value), span=span)
            case dict():
                return RecordExpr(fields=tuple((_key(key), self.lift(item)) for key, item in value.items()), span=span)
        if is_tstring(value):
            return _concatenated(self._tstring(value), span)
        if is_dataclass(value) and not isinstance(value, type):
            named = [(each.name, getattr(value, each.name)) for each in fields(value)]
            return RecordExpr(fields=tuple((name, self.lift(item)) for name, item in named), span=span)
        if hasattr(type(value), "model_fields"):
            return self.lift(value.model_dump(mode="json", by_alias=True))
        found = f"`{value.__name__}`" if hasattr(value, "__name__") else type(value).__name__
        help = "values are texts, numbers, bools, None, lists, dicts, dataclasses and pydantic models"
        raise problem(f"{found} cannot be a value of a workflow", help)

    def template(self, value: Any, what: str = "a prompt") -> Template:
        """The template that stands for a prompt of Python: a text with values in it, a t-string, or one value."""
        span = here()
        if isinstance(value, Value):
            pieces: list[str | Expr] = [self._own(value)]
        elif isinstance(value, str):
            pieces = split_markers(value, self)
        elif is_tstring(value):
            pieces = self._tstring(value)
        else:
            help = "write a text, an f-string or a value of the workflow; several messages are `messages=[...]`"
            raise problem(f"{what} is a text, found {kind_of(value)}", help)
        segments: list[Segment] = [Text(text=p) if isinstance(p, str) else Slot(value=p) for p in pieces]
        return template(*segments, span=span)

    def _own(self, value: Value) -> Expr:
        if value._trace is not self:
            message = f"`{describe(value._expr)}` is a value of workflow `{value._trace.name}`, not of `{self.name}`"
            raise problem(message, "give it to this workflow as an input")
        return value._expr

    def _tstring(self, value: Any) -> list[str | Expr]:
        pieces: list[str | Expr] = []
        for text, hole in itertools.zip_longest(value.strings, value.interpolations):
            if text:
                pieces += split_markers(text, self)
            if hole is None:
                continue
            if hole.conversion or hole.format_spec:
                sign = f"!{hole.conversion}" if hole.conversion else f":{hole.format_spec}"
                raise problem(f"a value of a workflow takes no format, found `{sign}`", "put the value in as it is")
            if is_tstring(hole.value):
                pieces += self._tstring(hole.value)
            elif isinstance(hole.value, str):
                pieces += split_markers(hole.value, self)
            else:
                pieces.append(self.lift(hole.value))
        return pieces


def python_type(expr: Expr) -> Any:
    """The Python type whose objects a step's value becomes, or None where it is plain JSON."""
    return expr.binding.python if isinstance(expr, Symbol) else None


def tracing() -> Trace | None:
    """The trace that is going on, or None outside a workflow function."""
    return _active.get()


def current(what: str) -> Trace:
    """The trace that is going on. Raises BindError where `what` was written outside a workflow function."""
    trace = _active.get()
    if trace is None:
        raise problem(f"{what} stands only inside a function marked `@hx.workflow`")
    return trace


def shown(expr: Expr) -> Expr:
    """The expression with each symbol as the name it would like: for messages."""

    def leaf(part: Expr) -> Expr:
        if isinstance(part, Symbol):
            return Name(name=part.binding.name or part.binding.hint or "step", span=part.span)
        return part

    return transform(expr, leaf)


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise problem(f"a field of a record is named by a text, found {kind_of(key)}")
    return refuse_markers(str(key), "the name of a field", "make a list of records, each with a field for the name")


def _concatenated(pieces: list[str | Expr], span: Span | None) -> Expr:
    """The expression for a text with values in it: its pieces added up, values turned into texts; many are joined."""
    if len(pieces) > _MAX_ADDED:
        items = tuple(Literal(value=piece, span=span) if isinstance(piece, str) else piece for piece in pieces)
        return Call(function="join", args=(ListExpr(items=items, span=span),), span=span)
    parts = [
        Literal(value=piece, span=span) if isinstance(piece, str) else Call(function="text", args=(piece,), span=span)
        for piece in pieces
    ]
    if not parts:
        return Literal(value="", span=span)
    result: Expr = parts[0]
    for part in parts[1:]:
        result = Binary(op="+", left=result, right=part, span=span)
    return result
