"""A syntax tree to a bound logical plan: names resolved, types checked, every mistake found before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from helix.errors import BindError, SourceErrors, TypeMismatch
from helix.expr import Call
from helix.grammar.bind_expr import bind_expr, constant_value
from helix.grammar.bind_steps import bind_statements, split_output, unread
from helix.grammar.declare import columns, declare
from helix.grammar.scope import (
    Callable,
    Context,
    DeclaredTool,
    Scope,
    Warning,
    assigned_names,
    later_steps,
    null,
    used_names,
)
from helix.logical import (
    Filter,
    GroupReduce,
    LogicalPlan,
    Project,
    Scan,
    Sink,
    Unnest,
    Value,
)
from helix.logical import Limit as LimitNode
from helix.logical import Sort as SortNode
from helix.schema import NO_DEFAULT
from helix.syntax import (
    FunctionDecl,
    GroupBy,
    If,
    Keep,
    Let,
    Limit,
    ModelDecl,
    OutputItem,
    Repeat,
    Sort,
    Spread,
    Statement,
    Step,
    ToolDecl,
    Workflow,
)
from helix.types import JSON, Choice, ListOf, Record, Scalar, Table, required

RESERVED = ("_row", "_error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A workflow that is right: its plan, the Python functions and the tools it declares by their qualified names, and
    what is probably not meant.
    """

    plan: LogicalPlan
    callables: Mapping[str, Callable]
    warnings: tuple[Warning, ...]
    tools: Mapping[str, DeclaredTool]


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
    try:
        return _bind(workflow, folder, overrides or {}, modules or {})
    except RecursionError:
        message = "the workflow is nested too deeply"
        raise SourceErrors([BindError(message, workflow.span, "give parts of it steps of their own")]) from None


def _bind(
    workflow: Workflow, folder: Path | None, overrides: Mapping[str, str], modules: Mapping[str, Workflow]
) -> Bound:
    context = Context(
        folder=folder,
        root=folder,
        modules=modules,
        errors=[],
        warnings=[],
        overrides=dict(overrides),
    )
    no_scope = Scope(rows=Scan(columns=()), names={}, taken={})
    inputs = columns(context, no_scope, workflow.params, "input `{}`")
    scan = Scan(columns=inputs, span=workflow.span)
    scope = Scope(rows=scan, names={}, taken={})
    places = {param.name: param.span for param in reversed(workflow.params)}
    for column in inputs:
        name, span = column.name, places[column.name]
        if name in RESERVED:
            context.error(BindError(f"`{name}` is a column of every result", span, "rename the input"))
        # A default takes the place of null, so that steps see none.
        kind = column.type if column.default in (NO_DEFAULT, None) else required(column.type)
        scope.names[name] = Project(source=scan, field=name, type=kind, span=span)
        scope.taken[name] = span
    declare(context, scope, workflow)
    steps, items = split_output(context, workflow)
    scope.later = later_steps(steps)
    for statement in steps:
        _bind_top(context, scope, statement)
    sink_columns = _output(context, scope, items)
    if context.errors:
        raise SourceErrors(context.errors)
    also = unread(scope.calls, (scope.rows, *(value for _, value in sink_columns)))
    sink = Sink(rows=scope.rows, columns=sink_columns, also=also, span=workflow.span)
    _warn_unused(context, workflow)
    plan = LogicalPlan(name=workflow.name, sink=sink, steps=tuple(context.steps))
    return Bound(
        plan=plan,
        callables=dict(context.callables),
        warnings=tuple(context.warnings),
        tools=dict(context.declared),
    )


def _bind_top(context: Context, scope: Scope, statement: Statement) -> None:
    """Binds one statement of the outermost level."""
    match statement:
        case Keep(condition=condition):
            scope.rows = Filter(rows=scope.rows, condition=bind_expr(context, scope, condition), span=statement.span)
        case Spread():
            _spread(context, scope, statement)
        case GroupBy():
            _group(context, scope, statement)
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


def _spread(context: Context, scope: Scope, spread: Spread) -> None:
    value = bind_expr(context, scope, spread.value)
    kind = required(value.type)
    if not (isinstance(kind, ListOf | Table) or kind == JSON):
        context.error(TypeMismatch(f"`spread` takes a list, found {value.type}", spread.value.span or spread.span))
    item = kind.item if isinstance(kind, ListOf) else JSON
    scope.rows = Unnest(rows=scope.rows, value=value, name=spread.name, span=spread.span)
    projected = Project(source=scope.rows, field=spread.name, type=item, span=spread.span)
    scope.define(context, spread.name, projected, spread.span)


def _group(context: Context, scope: Scope, group: GroupBy) -> None:
    keys: list[tuple[str, Value]] = []
    unknown = [name for name in group.keys if name not in scope.names]
    for name in group.keys:
        value = scope.lookup(context, name, group.span)
        if not isinstance(required(value.type), Scalar | Choice):
            context.error(TypeMismatch(f"rows are grouped by texts, numbers or bools, found {value.type}", group.span))
        keys.append((name, value))
    visible = tuple((name, value) for name, value in scope.names.items() if name not in context.constants)
    relation = GroupReduce(rows=scope.rows, keys=tuple(keys), columns=visible, span=group.span)
    names: dict[str, Value] = {name: scope.names[name] for name in context.constants if name in scope.names}
    for name, value in keys:
        names[name] = Project(source=relation, field=name, type=value.type, span=group.span)
    record = Record(tuple((name, value.type) for name, value in visible))
    names["rows"] = Project(source=relation, field="rows", type=ListOf(record), span=group.span)
    if "rows" in scope.taken:
        message = "inside `group by` the name `rows` is the list of the group's rows"
        context.error(BindError(message, scope.taken["rows"] or group.span, "give this one another name"))
    why = "after `group by` a row is a group: read the column from `rows` inside the block"
    if unknown:
        # What the table has then is not known: that is told above, and nothing more of it below.
        names = {name: null() for name, _ in visible} | names
    scope.gone |= {name: why for name, _ in visible if name not in group.keys}
    scope.gone.pop("rows", None)
    scope.rows, scope.names, scope.steps = relation, names, set()
    outer = scope.taken
    scope.taken = outer | {"rows": group.span}
    scope.later = later_steps(group.body) | scope.later
    bind_statements(context, scope, group.body)
    scope.names.pop("rows", None)
    if "rows" not in outer:
        scope.taken.pop("rows", None)
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


def _warn_unused(context: Context, workflow: Workflow) -> None:
    """Warns of what is declared or computed and never read, with a near match among what is."""
    read = set(used_names(workflow.statements)) | context.used
    quiet: set[str] = set()
    for position, statement in enumerate(workflow.statements):
        if isinstance(statement, GroupBy):
            read.update(statement.keys)
            if "rows" in used_names(statement.body):
                # Which columns of `rows` a prompt shows cannot always be seen.
                quiet.update(param.name for param in workflow.params)
                quiet.update(name for name, _ in assigned_names(workflow.statements[:position]))
    read |= quiet
    for param in workflow.params:
        if param.name not in read:
            context.warn(f"input `{param.name}` is never used", param.span)
    effects = set(_run_for_effect(context, workflow.statements))
    for name, span in assigned_names(workflow.statements):
        if name not in read and name not in effects:
            context.warn(f"step `{name}` is never used", span)
    kinds = ((Let, "constant"), (ModelDecl, "model"), (ToolDecl, "tool"), (FunctionDecl, "function"))
    for statement in workflow.statements:
        for kind, word in kinds:
            if isinstance(statement, kind) and statement.name not in read:
                context.warn(f"{word} `{statement.name}` is never used", statement.span)


def _run_for_effect(context: Context, statements: Iterable[Statement]) -> Iterator[str]:
    """The steps whose tool does more than look something up: nobody needs to read what it returns."""
    for statement in statements:
        match statement:
            case Step(name=name, value=Call(function=function)) if function in context.tools:
                if context.tools[function].effects not in ("pure", "read"):
                    yield name
            case If(arms=arms, otherwise=otherwise):
                for body in (*(body for _, body in arms), otherwise):
                    yield from _run_for_effect(context, body)
            case Repeat(body=body) | GroupBy(body=body):
                yield from _run_for_effect(context, body)
