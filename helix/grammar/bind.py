"""A syntax tree to a bound logical plan: names resolved, types checked, every mistake found before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from helix.errors import BindError, SourceErrors, TypeMismatch
from helix.grammar.bind_expr import bind_expr, constant_value
from helix.grammar.bind_steps import bind_statements, split_output
from helix.grammar.declare import columns, declare
from helix.grammar.scope import Context, Scope, Warning, assigned_names, later_steps, used_names
from helix.logical import (
    Const,
    Filter,
    GroupReduce,
    LogicalPlan,
    Project,
    Scan,
    Sink,
    Unnest,
    Value,
    topological,
)
from helix.logical import Limit as LimitNode
from helix.logical import Sort as SortNode
from helix.syntax import (
    FunctionDecl,
    GroupBy,
    Keep,
    Let,
    Limit,
    ModelDecl,
    OutputItem,
    Sort,
    Spread,
    Statement,
    ToolDecl,
    Workflow,
)
from helix.traits import traits
from helix.types import JSON, Choice, ListOf, Optional, Record, Scalar, Table, required

RESERVED = ("_row", "_error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A workflow that is right: its plan, its declared functions by name, and what is probably not meant."""

    plan: LogicalPlan
    functions: Mapping[str, FunctionDecl]
    warnings: tuple[Warning, ...]


def bind(
    workflow: Workflow,
    *,
    folder: Path | None = None,
    overrides: Mapping[str, str] | None = None,
    modules: Mapping[str, Workflow] | None = None,
) -> Bound:
    """Binds a workflow. `folder` is where its `use` and its tools are looked up, `overrides` the texts of `--set`.

    `modules` holds sub-workflows that are not files, by the path that their `use` names. Raises SourceErrors with every
    mistake found.
    """
    context = Context(
        folder=folder,
        root=folder,
        modules=modules or {},
        errors=[],
        warnings=[],
        overrides=dict(overrides or {}),
    )
    no_scope = Scope(rows=Scan(columns=()), names={}, taken={})
    inputs = columns(context, no_scope, workflow.params, "input")
    scan = Scan(columns=inputs, span=workflow.span)
    scope = Scope(rows=scan, names={}, taken={}, top=True)
    for param, column in zip(workflow.params, inputs, strict=True):
        if param.name in RESERVED:
            context.error(BindError(f"`{param.name}` is a column of every result", param.span, "rename the input"))
        kind = required(column.type) if isinstance(column.type, Optional) and column.default else column.type
        scope.names[param.name] = Project(source=scan, field=param.name, type=kind, span=param.span)
        scope.taken[param.name] = param.span
    declare(context, scope, workflow)
    steps, items = split_output(context, workflow)
    scope.later = later_steps(steps)
    calls: list[Value] = []
    for statement in steps:
        _bind_top(context, scope, statement, calls)
    sink_columns = _output(context, scope, items)
    if context.errors:
        raise SourceErrors(context.errors)
    sink = Sink(rows=scope.rows, columns=sink_columns, also=_unread(scope, sink_columns, calls), span=workflow.span)
    _warn_unused(context, workflow)
    plan = LogicalPlan(name=workflow.name, sink=sink)
    return Bound(plan=plan, functions=dict(context.functions), warnings=tuple(context.warnings))


def _bind_top(context: Context, scope: Scope, statement: Statement, calls: list[Value]) -> None:
    """Binds one statement of the outermost level; steps that call something are kept in `calls`, in order."""
    before = dict(scope.names)
    match statement:
        case Keep(condition=condition):
            scope.rows = Filter(rows=scope.rows, condition=bind_expr(context, scope, condition), span=statement.span)
        case Spread():
            _spread(context, scope, statement)
        case GroupBy():
            _group(context, scope, statement, calls)
            return
        case Sort(keys=keys):
            bound = tuple((bind_expr(context, scope, key), descending) for key, descending in keys)
            for (value, _), (key, _) in zip(bound, keys, strict=True):
                if not isinstance(required(value.type), Scalar | Choice):
                    message = f"rows are sorted by numbers or texts, found {value.type}"
                    context.error(TypeMismatch(message, key.span or statement.span))
            scope.rows = SortNode(rows=scope.rows, keys=bound, span=statement.span)
        case Limit(count=count):
            number = constant_value(context, scope, count, "the number of rows")
            if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 0):
                context.error(TypeMismatch("`limit` takes an int of at least 0", count.span or statement.span))
                number = 0
            scope.rows = LimitNode(rows=scope.rows, count=number or 0, span=statement.span)
        case _:
            bind_statements(context, scope, (statement,))
    calls.extend(value for name, value in scope.names.items() if before.get(name) is not value)


def _spread(context: Context, scope: Scope, spread: Spread) -> None:
    value = bind_expr(context, scope, spread.value)
    kind = required(value.type)
    if not (isinstance(kind, ListOf | Table) or kind == JSON):
        context.error(TypeMismatch(f"`spread` takes a list, found {value.type}", spread.value.span or spread.span))
    item = kind.item if isinstance(kind, ListOf) else JSON
    scope.rows = Unnest(rows=scope.rows, value=value, name=spread.name, span=spread.span)
    projected = Project(source=scope.rows, field=spread.name, type=item, span=spread.span)
    scope.define(context, spread.name, projected, spread.span)


def _group(context: Context, scope: Scope, group: GroupBy, calls: list[Value]) -> None:
    keys: list[tuple[str, Value]] = []
    for name in group.keys:
        value = scope.lookup(context, name, group.span)
        if not isinstance(required(value.type), Scalar | Choice):
            context.error(TypeMismatch(f"rows are grouped by texts, numbers or bools, found {value.type}", group.span))
        keys.append((name, value))
    visible = tuple((name, value) for name, value in scope.names.items() if name not in context.constants)
    relation = GroupReduce(rows=scope.rows, keys=tuple(keys), columns=visible, span=group.span)
    names: dict[str, Value] = {name: value for name, value in scope.names.items() if isinstance(value, Const)}
    for name, value in keys:
        names[name] = Project(source=relation, field=name, type=value.type, span=group.span)
    record = Record(tuple((name, value.type) for name, value in visible))
    names["rows"] = Project(source=relation, field="rows", type=ListOf(record), span=group.span)
    if "rows" in scope.taken:
        message = "inside `group by` the name `rows` is the list of the group's rows"
        context.error(BindError(message, scope.taken["rows"] or group.span, "give this one another name"))
    why = "after `group by` a row is a group: read the column from `rows` inside the block"
    scope.gone = {name: why for name, _ in visible if name not in group.keys}
    scope.rows, scope.names = relation, names
    scope.taken = {name: span for name, span in scope.taken.items() if name not in scope.gone}
    scope.later = later_steps(group.body) | scope.later
    before = dict(scope.names)
    bind_statements(context, scope, group.body)
    calls.extend(value for name, value in scope.names.items() if before.get(name) is not value)
    scope.names.pop("rows", None)
    scope.gone["rows"] = "`rows` is there only inside the block of `group by`"


def _output(context: Context, scope: Scope, items: tuple[OutputItem, ...]) -> tuple[tuple[str, Value], ...]:
    found: dict[str, Value] = {}
    for item in items:
        value = bind_expr(context, scope, item.value)
        if item.name in RESERVED:
            message = f"`{item.name}` is a column of every result"
            context.error(BindError(message, item.span, "give the column another name with `as`"))
        elif item.name in found:
            message = f"column `{item.name}` stands twice in the output"
            context.error(BindError(message, item.span, "give one of them another name with `as`"))
        found[item.name] = value
    return tuple(found.items())


def _unread(scope: Scope, sink_columns: tuple[tuple[str, Value], ...], calls: list[Value]) -> tuple[Value, ...]:
    """The steps with calls that neither a column nor the choice of rows depends on: they are run all the same."""
    read: set[str] = set()
    for root in (scope.rows, *(value for _, value in sink_columns)):
        read.update(node.id for node in topological(root))
    unread: dict[str, Value] = {}
    for value in calls:
        makes_calls = any(traits(node).is_call for node in topological(value) if node.id not in read)
        if value.id not in read and makes_calls:
            unread[value.id] = value
    # What another unread step reads is run for that one.
    inner = {node.id for value in unread.values() for node in topological(value) if node.id != value.id}
    return tuple(value for value in unread.values() if value.id not in inner)


def _warn_unused(context: Context, workflow: Workflow) -> None:
    """Warns of what is declared or computed and never read, with a near match among what is."""
    read = set(used_names(workflow.statements)) | context.used
    for statement in workflow.statements:
        if isinstance(statement, GroupBy):
            read.update(statement.keys)
    for param in workflow.params:
        if param.name not in read:
            context.warn(f"input `{param.name}` is never used", param.span)
    for name, span in assigned_names(workflow.statements):
        if name not in read:
            context.warn(f"step `{name}` is never used", span)
    kinds = ((Let, "constant"), (ModelDecl, "model"), (ToolDecl, "tool"), (FunctionDecl, "function"))
    for statement in workflow.statements:
        for kind, word in kinds:
            if isinstance(statement, kind) and statement.name not in read:
                context.warn(f"{word} `{statement.name}` is never used", statement.span)
