"""The syntax tree of a workflow: made by the parser and by the Python DSL, printed by `helix fmt`, read by binding.

Nothing is resolved here: names are names, types are as written. Spans take no part in equality, so a workflow written
as text and the same one written in Python are equal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal as OneOf

from helix.expr import Expr, ListExpr
from helix.span import Span
from helix.templates.template import Template
from helix.types import Type


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The base of all syntax nodes."""

    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Param(Node):
    """An input of a workflow or a parameter of a tool: `name: type = default`."""

    name: str
    type: Type
    default: Expr | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Option(Node):
    """`name: value` of a model or an llm step, or a trait of a tool (`effects read`)."""

    name: str
    value: Expr


# --- declarations -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Let(Node):
    """A constant: `let tone = "plain"`."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDecl(Node):
    """`model main { name: "..." temperature: 0 }`."""

    name: str
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDecl(Node):
    """`tool orders(customer: text) -> json from python "shop_tools:find_orders" effects read`."""

    name: str
    params: tuple[Param, ...]
    returns: Type
    origin: str
    target: str
    traits: tuple[Option, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionDecl(Node):
    """A pure Python function for expressions: `function score(a: text) -> int from python "lib:score"`."""

    name: str
    params: tuple[Param, ...]
    returns: Type
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UseDecl(Node):
    """`use "extract.helix" as extract`."""

    path: str
    name: str


# --- steps --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePart(Node):
    """One message of a prompt: `system "..."`."""

    role: OneOf["system", "user", "assistant"]
    content: Template


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPart(Node):
    """Messages from a list of records {role, content}: `history turns`."""

    value: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class UnorderedPart(Node):
    """One message made of parts whose order the author leaves open: `user unordered { part "..." part "..." }`."""

    role: OneOf["system", "user", "assistant"]
    parts: tuple[Template, ...]


PromptPart = MessagePart | HistoryPart | UnorderedPart


@dataclass(frozen=True, slots=True, kw_only=True)
class Llm(Node):
    """`llm main(temperature: 0.9) -> choice[...] { system "..." user "..." }`."""

    model: str | None = None
    options: tuple[Option, ...] = ()
    returns: Type | None = None
    parts: tuple[PromptPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent(Llm):
    """`agent main -> text { tools [orders, sales]  max_turns 8  system "..." user "..." }`.

    `tools` holds names; `limits` are its settings inside the braces, in the order written.
    """

    tools: ListExpr
    limits: tuple[Option, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class For(Node):
    """`for role in [...] { ... yield view }`: the list of the yielded values."""

    variable: str
    over: Expr
    body: tuple[Statement, ...]
    result: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Node):
    """`name = value when condition`: a step whose condition does not hold gives null."""

    name: str
    value: Expr | Llm | For
    when: Expr | None = None
    name_span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class If(Node):
    """`if c { ... } else if d { ... } else { ... }`; names assigned in several arms join."""

    arms: tuple[tuple[Expr, tuple[Statement, ...]], ...]
    otherwise: tuple[Statement, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat(Node):
    """`repeat up to 3 until review.ok { ... }`: at most `times` rounds; names assigned in it are carried round."""

    times: Expr
    until: Expr | None = None
    body: tuple[Statement, ...]


# --- over the whole table -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep(Node):
    """`keep when score >= 3`: only rows whose condition holds go on."""

    condition: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread(Node):
    """`spread chunks as chunk`: one row for each item of a list."""

    value: Expr
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupBy(Node):
    """`group by product { ... }`: one row for each distinct value of the keys, `rows` in it the group's rows."""

    keys: tuple[str, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sort(Node):
    """`sort by score desc, name`: each key with whether it descends. Stable; null comes last."""

    keys: tuple[tuple[Expr, bool], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit(Node):
    """`limit 10`: the first rows only."""

    count: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputItem(Node):
    """A column of the result: `review.note as note`."""

    value: Expr
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Output(Node):
    """`output ticket, category, review.note as note`."""

    items: tuple[OutputItem, ...]


Declaration = Let | ModelDecl | ToolDecl | FunctionDecl | UseDecl
Statement = Declaration | Step | If | Repeat | Keep | Spread | GroupBy | Sort | Limit | Output


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """A comment as written, from `#` to the end of its line; `alone` says that nothing else is on the line."""

    line: int
    text: str
    alone: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow(Node):
    """A whole workflow. Comments and blank lines matter to `helix fmt` only."""

    name: str
    params: tuple[Param, ...]
    statements: tuple[Statement, ...]
    comments: tuple[Comment, ...] = field(default=(), compare=False, repr=False)
