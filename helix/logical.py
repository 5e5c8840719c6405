"""The logical plan: a DAG of operators, one per step of the workflow, independent of the number of rows.

There are two kinds of operators. A *relation* says which rows there are: `Scan`, `Filter`, `Unnest`, `GroupReduce`,
`Sort`, `Limit`, and `Parameters` inside a sub-plan. A *value* is computed for each row of a relation. An operator that
calls something (`Generate`, `Invoke`), stands for a call (`Fetch`) or holds a sub-plan (`Map`, `Choose`, `Repeat`)
names the relation it runs over in `rows`; `Apply`, `Render` and `Const` are pure and run wherever their inputs are.

Nodes are immutable and compared by `id`, a hash of operator, fields and the ids of the inputs. Two processes give the
same plan the same ids. A sub-plan (`Body`) is closed: it reads its parameters only, and the operator that holds it
passes in what it captures from outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from helix.expr import Expr
from helix.node import UNHASHED as UNHASHED
from helix.node import Holder
from helix.node import Node as Node
from helix.node import content as content
from helix.node import content_id as content_id
from helix.node import encode as encode
from helix.schema import Column
from helix.services import Effects as Effects
from helix.services import Model as Model
from helix.services import Tool as Tool
from helix.templates.template import Template
from helix.types import TEXT, ListOf, Type

OnError = Literal["fail", "null"]


# --- relations ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Relation(Node):
    """The base of operators that say which rows there are."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scan(Relation):
    """The rows of the input table, in its order.

    `order` are columns by which the rows are grouped while they are worked on; the result keeps the table's order.
    """

    columns: tuple[Column, ...]
    order: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Filter(Relation):
    """The rows whose condition holds; a row whose condition failed stays, with its error."""

    rows: Relation
    condition: Value


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Unnest(Relation):
    """One row for each item of a list, in its order; output `name`. No row for an empty list or null."""

    rows: Relation
    value: Value
    name: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupReduce(Relation):
    """One row for each distinct value of the keys, in order of first appearance.

    Outputs: the keys by name, and `rows`, the list of the group's rows as records of `columns`.
    """

    rows: Relation
    keys: tuple[tuple[str, Value], ...]
    columns: tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sort(Relation):
    """The rows in the order of the keys, each with whether it descends; stable, null last, failed rows after all."""

    rows: Relation
    keys: tuple[tuple[Value, bool], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Limit(Relation):
    """The first rows."""

    rows: Relation
    count: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parameters(Relation):
    """The one row of a sub-plan: what it is given, each with its type."""

    columns: tuple[tuple[str, Type], ...]


# --- values -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Value(Node):
    """The base of operators that compute one value for each row.

    `label` is what the workflow calls the value, loops included (`views.text`); like the span it takes no part in ids.
    """

    label: str = field(default="", compare=False, repr=False)
    type: Type


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Const(Value):
    """The same JSON value for every row, held as its text (`constant_text`) so that the node stays immutable."""

    json: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Project(Value):
    """One output of an operator that has several: a column of a relation, a name set in a branch or a loop."""

    source: Node
    field: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Apply(Value):
    """A pure expression over its inputs (`Arg(0)`, `Arg(1)`, ...)."""

    expr: Expr
    args: tuple[Value, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Render(Value):
    """A text: a template over its inputs."""

    template: Template
    args: tuple[Value, ...]
    type: Type = TEXT


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncate(Holder):
    """What to do with a prompt that is too long: cut this input of the prompt, keeping its head or its tail."""

    name: str
    value: Value
    keep: Literal["head", "tail"] = "head"

    @property
    def held(self) -> tuple[Node, ...]:
        return (self.value,)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPart(Holder):
    """One message (`role` and a text), the messages of a list ("history"), or parts that the author left unordered."""

    role: Literal["system", "user", "assistant", "history"]
    content: tuple[Value, ...]
    unordered: bool = False

    @property
    def held(self) -> tuple[Node, ...]:
        return self.content


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Generate(Value):
    """A call of a language model. With `sample` over 1 the value is the list of that many replies to one prompt.

    `lead`: the first of the calls that begin alike ends before the others are released, so that they find the common
    beginning of their prompts in the cache.
    """

    rows: Relation
    step: str
    model: Model
    prompt: tuple[PromptPart, ...]
    returns: Type
    sample: int = 1
    cache: bool = True
    attempts: int | None = None
    timeout: float | None = None
    reask: int = 1
    coerce: bool = False
    on_error: OnError = "fail"
    on_overflow: Truncate | None = None
    lead: bool = False

    @property
    def repeats(self) -> bool:
        """Whether the model is taken to give equal replies to equal prompts."""
        return self.model.temperature == 0 or self.model.seed is not None

    @property
    def deterministic(self) -> bool:
        """Whether equal prompts may share one call (contract 4)."""
        return self.repeats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Agent(Generate):
    """A model at work with tools: turn by turn it asks for calls of them, or answers. `returns` is the answer's type.

    The prompt begins with `helix.agents.protocol`, for engines without tool calls of their own. There are at most
    `max_turns` calls of the model. After `max_total_tokens` tokens of prompts and replies, or `max_time` seconds, the
    next turn is the last; in the last one it may only answer, or with `at_limit` "fail" it is not made. `tool_calls`
    says how calls are asked for: natively, by a schema, or as the engine can. With `trace` the value is a record of
    the answer and the turns.
    """

    tools: tuple[Tool, ...]
    max_turns: int = 8
    max_total_tokens: int | None = None
    max_time: float | None = None
    at_limit: Literal["answer", "fail"] = "answer"
    tool_calls: Literal["auto", "native", "schema"] = "auto"
    trace: bool = False

    @property
    def deterministic(self) -> bool:
        """Whether equal prompts may share one agent: no tool may act, nor give another result for equal arguments."""
        return self.repeats and all(tool.deterministic and tool.is_settled for tool in self.tools)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fetch(Value):
    """A reply that is known already: `text` as the model gave it, read as a `Generate` reads it. Nothing is called."""

    rows: Relation
    step: str
    text: str
    returns: Type
    coerce: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Invoke(Value):
    """A call of a tool; one argument for each parameter, in their order."""

    rows: Relation
    step: str
    tool: Tool
    args: tuple[Value, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Body(Holder):
    """A sub-plan: what it is given, and what it gives by name.

    A result whose name is not `readable` is no output: `until?` of a loop, and `also?0`, ... for calls that are made
    though no output needs them.
    """

    parameters: Parameters
    results: tuple[tuple[str, Value], ...]

    @property
    def held(self) -> tuple[Node, ...]:
        return ()  # a sub-plan is closed and hides its own

    def result(self, name: str) -> Value:
        """The value of a result. Raises KeyError."""
        return dict(self.results)[name]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Map(Value):
    """The list of what the body yields for each item of a list; null of null. Parameters: the item, the captures."""

    rows: Relation
    step: str
    over: Value
    captures: tuple[Value, ...]
    body: Body


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choose(Node):
    """One of two sub-plans by a condition; both give the same names, read by `Project`. Parameters: the captures."""

    rows: Relation
    condition: Value
    captures: tuple[Value, ...]
    then: Body
    otherwise: Body


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Repeat(Node):
    """A bounded loop: at most `times` rounds, until the result `until` holds, where the body has one.

    The body's parameters are the carried names, then the captures. A carried name starts with its value from outside
    and takes the body's result of that name into the next round. Names are read by `Project` after the last round.
    """

    UNTIL = "until?"

    rows: Relation
    times: int
    carried: tuple[tuple[str, Value], ...]
    captures: tuple[Value, ...]
    body: Body


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sink(Node):
    """The result table: its columns in order. `also` are steps that are run though no column needs them."""

    rows: Relation
    columns: tuple[tuple[str, Value], ...]
    also: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogicalPlan:
    """A whole plan. Its identity is that of its sink; the workflow's name takes no part.

    `steps` are the names of all steps in the order of the workflow. No rule changes them: of several failures of a row
    the one whose step comes first is the row's error, whatever the plan looks like.
    """

    name: str
    sink: Sink
    steps: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The content id of the plan: equal for equal workflows, whatever their front end, layout and comments."""
        return self.sink.id

    @property
    def scan(self) -> Scan:
        """The operator that reads the input table."""
        first = spine(self.sink.rows)[0]
        assert isinstance(first, Scan)
        return first


# --- walking ------------------------------------------------------------------------------------------------------


def topological(root: Node) -> tuple[Node, ...]:
    """The root and all it reads, inputs before their readers, in the order of fields; sub-plans are not entered."""
    global _latest
    known, found = _latest
    if known is root:
        return found
    order: dict[str, Node] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        if node.id not in order:
            missing = [child for child in node.inputs if child.id not in order]
            if missing:
                missing.reverse()
                stack += missing
                continue
            order[node.id] = node
        stack.pop()
    found = tuple(order.values())
    if isinstance(root, Sink):
        _latest = root, found
    return found


# The last whole plan that was walked: rules, checks and the tree walk the same one after another.
_latest: tuple[Node | None, tuple[Node, ...]] = (None, ())


def spine(top: Relation) -> tuple[Relation, ...]:
    """The relations that one is made from, the one that reads nothing first and itself last."""
    found = [top]
    while isinstance(rows := getattr(found[-1], "rows", None), Relation):
        found.append(rows)
    return tuple(reversed(found))


def readable(name: str) -> bool:
    """Whether a result of a sub-plan can be read outside it: the other names are such as no text can write."""
    return "?" not in name


def body_nodes(body: Body) -> tuple[Node, ...]:
    """The operators of a sub-plan, inputs before their readers."""
    order: dict[str, Node] = {body.parameters.id: body.parameters}
    for _, value in body.results:
        for node in topological(value):
            order.setdefault(node.id, node)
    return tuple(order.values())


def bodies(node: Node) -> tuple[tuple[str, Body], ...]:
    """The sub-plans that an operator holds, by the name of their part."""
    kind = type(node)
    # Asked of every operator by every rule, and most hold none.
    if kind is Map or kind is Repeat:
        return (("body", node.body),)  # type: ignore[attr-defined]
    if kind is Choose:
        return (("then", node.then), ("otherwise", node.otherwise))  # type: ignore[attr-defined]
    return ()


def every_node(root: Node) -> Iterator[Node]:
    """All operators of a plan, those inside sub-plans after the operator that holds them."""
    for node in topological(root):
        yield node
        yield from _inside(node)


def _inside(node: Node) -> Iterator[Node]:
    for _, body in bodies(node):
        for part in body_nodes(body):
            yield part
            yield from _inside(part)


def list_of(kind: Type, sample: int) -> Type:
    """The type of an llm step: a list where it samples more than once."""
    return ListOf(kind) if sample > 1 else kind
