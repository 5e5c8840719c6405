"""The invariants of a logical plan: what every rule may rely on and must keep.

Binding makes plans that hold them; after that a plan changes only through rules and plan files, and both are checked
here, so that a mistake is told where it was made and not by the run that trips over it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from helix.agents import MOST_TURNS, value_type
from helix.canonical import constant_text
from helix.errors import OutputError, PlanError
from helix.expr import Arg, Binary, Call, Expr, Name, Unary, children
from helix.functions import FUNCTIONS
from helix.logical import (
    Agent,
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
    LogicalPlan,
    Map,
    Node,
    Parameters,
    Project,
    Relation,
    Render,
    Repeat,
    Scan,
    Sink,
    Sort,
    Unnest,
    Value,
    bodies,
    body_nodes,
    list_of,
    readable,
    spine,
    topological,
)
from helix.replies import parse_reply
from helix.schema import Column, has_default
from helix.types import JSON, TEXT, ListOf, Record, Table, Type, fits, join, mismatch, required

RESERVED = ("_row", "_error")
_OPERATORS = frozenset(["and", "or", "==", "!=", "<", "<=", ">", ">=", "in", "+", "-", "*", "/"]) | {"not in"}
_MAX_DEPTH = 200


def verify(plan: LogicalPlan) -> None:
    """Raises PlanError for the first invariant that a plan breaks, naming the operator and what is wrong with it."""
    sink = plan.sink
    chain = _chain(sink)
    _unique((name for name, _ in sink.columns), sink, "column")
    for name, _ in sink.columns:
        if name in RESERVED:
            raise _broken(sink, f"`{name}` is a column of every result")
    _Scope(chain, topological(sink)).check()


def describe(node: Node) -> str:
    """An operator as a message names it: what it is, its step, and its id."""
    step = getattr(node, "step", None)
    return f"{type(node).__name__}{f' `{step}`' if step else ''} ({node.id})"


def _broken(node: Node, what: str) -> PlanError:
    return PlanError(f"{describe(node)}: {what}")


def _chain(sink: Sink) -> tuple[Relation, ...]:
    """The relations from the input table to the sink, the table first."""
    chain = spine(sink.rows)
    if not isinstance(chain[0], Scan):
        raise _broken(chain[0], "the rows of a plan come from a Scan")
    ordered = next((each for each in chain if isinstance(each, Limit | Sort | GroupReduce)), None)
    if chain[0].order and ordered is not None:
        raise _broken(chain[0], f"{describe(ordered)} takes the rows as they come, so they keep their order")
    return chain


class _Scope:
    """The operators over one chain of relations: a plan's own, or those of a sub-plan over its parameters.

    Every operator has a level, the relation of the chain that it runs over (None: it reads no row). A grouping ends
    what is below it: a value from below must not be read above, except through the grouping's own outputs.
    """

    def __init__(self, chain: tuple[Relation, ...], nodes: tuple[Node, ...]) -> None:
        self._levels: dict[str, int | None] = {relation.id: level for level, relation in enumerate(chain)}
        self._nodes = nodes
        grouped = [isinstance(relation, GroupReduce) for relation in chain]
        self._epochs = [sum(grouped[: level + 1]) for level in range(len(chain))]

    def check(self) -> None:
        """Checks each operator, its inputs first."""
        steps: dict[str, Node] = {}
        for node in self._nodes:
            match node:
                case Relation():
                    self._relation(node)
                case Sink(rows=rows, columns=columns, also=also):
                    self._over(node, rows, (value for _, value in columns))
                    self._over(node, rows, also, any_epoch=True)
                case _:
                    self._levels[node.id] = self._level(node)
            step = getattr(node, "step", None)
            if isinstance(step, str):
                if step in steps:
                    raise _broken(node, f"another step has this name: {describe(steps[step])}")
                steps[step] = node
            _check(node)
            for part, body in bodies(node):
                _check_body(node, part, body)

    def _relation(self, relation: Relation) -> None:
        level = self._levels.get(relation.id)
        if level is None:
            raise _broken(relation, "these rows are not those of the plan around it")
        below = getattr(relation, "rows", None)
        if isinstance(below, Relation):
            values = (each for each in relation.inputs if each != below)
            self._over(relation, below, values)

    def _level(self, node: Node) -> int | None:
        rows = getattr(node, "rows", None)
        if isinstance(rows, Relation):
            if rows.id not in self._levels:
                raise _broken(node, f"it runs over {describe(rows)}, which is not below the point of use")
            self._over(node, rows, (each for each in node.inputs if each != rows))
            return self._levels[rows.id]
        levels = [level for each in node.inputs if (level := self._levels[each.id]) is not None]
        epochs = {self._epochs[level] for level in levels}
        if len(epochs) > 1:
            raise _broken(node, "it reads values from before and after a GroupReduce")
        return max(levels, default=None)

    def _over(self, reader: Node, rows: Relation, values: Iterable[Node], *, any_epoch: bool = False) -> None:
        """Checks that values are there in the rows that a reader runs over."""
        at = self._levels[rows.id]
        assert at is not None
        for value in values:
            level = self._levels[value.id]
            if level is None:
                continue
            if level > at:
                raise _broken(reader, f"it reads {describe(value)}, which is there only in later rows")
            if self._epochs[level] != self._epochs[at] and not any_epoch:
                raise _broken(reader, f"it reads {describe(value)}, which ends at a GroupReduce")


# --- single operators ---------------------------------------------------------------------------------------------


def _check(node: Node) -> None:
    """What holds for an operator by itself: its fields are there and of the right types."""
    match node:
        case Scan(columns=columns, order=order):
            _unique((column.name for column in columns), node, "column")
            _defaults(node, columns)
            _unique(order, node, "column of the order")
            unknown = set(order) - {column.name for column in columns}
            if unknown:
                raise _broken(node, f"it has no column `{min(unknown)}` to be grouped by")
        case Parameters(columns=parameters):
            _unique((name for name, _ in parameters), node, "parameter")
        case Unnest(value=value):
            _is_list(node, value.type)
        case GroupReduce(keys=keys, columns=named):
            _unique((name for name, _ in keys), node, "key")
            _unique((name for name, _ in named), node, "column")
        case Limit(count=count) if count < 0:
            raise _broken(node, f"{count} rows")
        case Filter() | Sort() | Limit():
            pass
        case Const(json=text, type=kind):
            _constant(node, text, kind)
        case Project(source=source, field=field, type=kind):
            known = _output(source, field)
            if known is None:
                raise _broken(node, f"{describe(source)} has no `{field}`")
            if not (fits(known, kind) and (kind == required(known) or fits(kind, known))):
                raise _broken(node, f"`{field}` is {known}, not {kind}")
        case Apply(expr=expr, args=args):
            _bound(node, (expr,), args)
        case Render(template=template, args=args, type=kind):
            _bound(node, template.expressions, args)
            if kind != TEXT:
                raise _broken(node, f"a prompt is text, not {kind}")
        case Agent():
            _agent(node)
        case Generate():
            _generate(node, list_of(node.returns, node.sample))
        case Fetch():
            _fetch(node)
        case Invoke(tool=tool, args=args, type=kind):
            if len(args) != len(tool.params):
                raise _broken(node, f"`{tool.name}` takes {len(tool.params)} arguments, not {len(args)}")
            for param, arg in zip(tool.params, args, strict=True):
                _fits(node, arg.type, param.type, f"argument `{param.name}`")
            _same(node, kind, tool.returns)
        case Map(over=over, captures=captures, body=body, type=kind):
            item = _is_list(node, over.type)
            _given(node, body, (("the item", item), *_named(body, 1, captures)))
            results = [name for name, _ in body.results if readable(name)]
            if results != ["yield"]:
                raise _broken(node, f"the body of a Map gives `yield`, not {results}")
            _same(node, required(kind), ListOf(body.result("yield").type))
        case Choose(captures=captures, then=then, otherwise=otherwise):
            _given(node, then, _named(then, 0, captures))
            _given(node, otherwise, _named(otherwise, 0, captures))
            if [name for name, _ in then.results] != [name for name, _ in otherwise.results]:
                raise _broken(node, "its branches give different names")
        case Repeat(times=times, carried=carried, captures=captures, body=body):
            if times < 1:
                raise _broken(node, f"{times} rounds")
            _carried(node, carried, captures, body)


def _agent(node: Agent) -> None:
    if not node.tools:
        raise _broken(node, "it has no tools")
    _unique((tool.name for tool in node.tools), node, "tool")
    if not 1 <= node.max_turns <= MOST_TURNS:
        raise _broken(node, f"{node.max_turns} turns")
    if node.sample != 1 or node.on_overflow is not None:
        raise _broken(node, "an agent takes no samples, and its prompt is never cut")
    if any(limit is not None and not limit > 0 for limit in (node.max_total_tokens, node.max_time)):
        raise _broken(node, "a limit that leaves nothing")
    _generate(node, value_type(node.returns, trace=node.trace))


def _generate(node: Generate, given: Type) -> None:
    if not node.prompt:
        raise _broken(node, "the prompt is empty")
    for part in node.prompt:
        for content in part.content:
            wanted: Type = Table() if part.role == "history" else TEXT
            _fits(node, content.type, wanted, f"`{part.role}`")
    if node.sample < 1:
        raise _broken(node, f"{node.sample} samples")
    if node.type != given and not (node.on_error == "null" and required(node.type) == required(given)):
        raise _broken(node, f"it is {node.type}, but gives {given}")


def _fetch(node: Fetch) -> None:
    """The text of a reply that is known is one that the step would accept."""
    if node.type != node.returns and required(node.type) != required(node.returns):
        raise _broken(node, f"it is {node.type}, but gives {node.returns}")
    try:
        parse_reply(node.text, node.returns, coerce=node.coerce)
    except OutputError as error:
        raise _broken(node, error.message) from None


def _carried(node: Repeat, carried: tuple[tuple[str, Value], ...], captures: tuple[Value, ...], body: Body) -> None:
    _given(node, body, (*((name, value.type) for name, value in carried), *_named(body, len(carried), captures)))
    results = dict(body.results)
    for (name, _), (parameter, kind) in zip(carried, body.parameters.columns, strict=False):
        if name != parameter:
            raise _broken(node, f"`{name}` is carried round as `{parameter}`")
        if name not in results:
            raise _broken(node, f"`{name}` is carried round, but its body does not give it")
        _fits(node, results[name].type, kind, f"`{name}` of the next round")


def _check_body(node: Node, part: str, body: Body) -> None:
    """A sub-plan reads its parameters and nothing else."""
    _unique((name for name, _ in body.results), node, "result")
    nodes = body_nodes(body)
    for inner in nodes:
        if isinstance(inner, Relation) and inner != body.parameters:
            raise _broken(node, f"its `{part}` reads {describe(inner)} from outside")
    _Scope((body.parameters,), nodes).check()


def _given(node: Node, body: Body, values: tuple[tuple[str, Type], ...]) -> None:
    """Checks what an operator passes into a sub-plan against the parameters there."""
    parameters = body.parameters.columns
    if len(parameters) != len(values):
        raise _broken(node, f"it passes {len(values)} values to {len(parameters)} parameters")
    for (_, kind), (parameter, wanted) in zip(values, parameters, strict=True):
        _fits(node, kind, wanted, f"`{parameter}`")


def _named(body: Body, start: int, captures: tuple[Value, ...]) -> tuple[tuple[str, Type], ...]:
    names = [name for name, _ in body.parameters.columns[start:]]
    names += [""] * (len(captures) - len(names))
    return tuple((name, value.type) for name, value in zip(names, captures, strict=False))


def _output(source: Node, field: str) -> Type | None:
    """The type of an output of an operator that has several, or None where it has no such output."""
    match source:
        case Scan(columns=columns):
            column = next((each for each in columns if each.name == field), None)
            return None if column is None else column.type
        case Parameters(columns=parameters):
            return dict(parameters).get(field)
        case Unnest(name=name, value=value) if name == field:
            kind = required(value.type)
            return kind.item if isinstance(kind, ListOf) else JSON
        case GroupReduce(keys=keys, columns=columns):
            if field == "rows":
                return ListOf(Record(tuple((name, value.type) for name, value in columns)))
            return next((value.type for name, value in keys if name == field), None)
        case Choose(then=then, otherwise=otherwise):
            kinds = [dict(body.results)[field].type for body in (then, otherwise) if field in dict(body.results)]
            return join(kinds[0], kinds[1]) if len(kinds) == 2 else None
        case Repeat(body=body) if field != Repeat.UNTIL:
            result = dict(body.results).get(field)
            return None if result is None else result.type
    return None


def _constant(node: Const, text: str, kind: Type) -> None:
    try:
        value = json.loads(text)
        canonical = constant_text(value)
    except (ValueError, RecursionError):
        raise _broken(node, "its value is not JSON") from None
    if canonical != text:
        raise _broken(node, "its value is not in canonical form")
    bad = None if value is None else mismatch(value, kind)
    if bad:
        raise _broken(node, f"its value does not fit its type: {bad[1]}")


def _bound(node: Node, expressions: tuple[Expr, ...], args: tuple[Value, ...]) -> None:
    """Checks expressions: inputs that are there, known operators, no deeper than Python can walk."""
    stack = [(expr, 1) for expr in expressions]
    while stack:
        part, depth = stack.pop()
        match part:
            case Name(name=name):
                raise _broken(node, f"the name `{name}` is not bound")
            case Arg(index=index) if not 0 <= index < len(args):
                raise _broken(node, f"it reads input {index} of {len(args)}")
            case Unary(op=op) if op not in ("not", "-"):
                raise _broken(node, f"`{op}` is not an operator")
            case Binary(op=op) if op not in _OPERATORS:
                raise _broken(node, f"`{op}` is not an operator")
            case Call(function=function, args=given, named=named) if function in FUNCTIONS:
                known = FUNCTIONS[function]
                if named or not known.required <= len(given) <= len(known.parameters):
                    raise _broken(node, f"`{function}` does not take {len(given) + len(named)} arguments")
        if depth > _MAX_DEPTH:
            raise _broken(node, f"an expression has more than {_MAX_DEPTH} levels")
        stack.extend((each, depth + 1) for each in children(part))


def _defaults(node: Scan, columns: tuple[Column, ...]) -> None:
    for column in columns:
        bad = mismatch(column.default, column.type) if has_default(column) else None
        if bad:
            raise _broken(node, f"the default of `{column.name}`: {bad[1]}")


def _is_list(node: Node, kind: Type) -> Type:
    inner = required(kind)
    if isinstance(inner, ListOf):
        return inner.item
    if isinstance(inner, Table) or inner == JSON:
        return JSON
    raise _broken(node, f"it runs over a list, not {kind}")


def _fits(node: Node, source: Type, target: Type, what: str) -> None:
    if not fits(source, target):
        raise _broken(node, f"{what} is {target}, not {source}")


def _same(node: Node, found: Type, wanted: Type) -> None:
    if found != wanted:
        raise _broken(node, f"it is {found}, but gives {wanted}")


def _unique(names: Iterable[str], node: Node, what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise _broken(node, f"{what} `{name}` stands twice")
        seen.add(name)
