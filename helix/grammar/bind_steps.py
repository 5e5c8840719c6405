"""Steps to operators: llm and tool calls, sub-workflows, branches, loops over lists and bounded loops."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from helix.canonical import canonical_text
from helix.errors import BindError, TypeMismatch
from helix.expr import Call, Expr, RecordExpr
from helix.grammar.bind_agents import bind_agent
from helix.grammar.bind_calls import bind_llm, bind_tool, call_arguments
from helix.grammar.bind_expr import bind_expr, constant_value
from helix.grammar.declare import columns, declare
from helix.grammar.scope import (
    Context,
    Scope,
    assigned_names,
    later_steps,
    local_names,
    null,
    used_names,
)
from helix.logical import (
    Body,
    Choose,
    Const,
    Map,
    Node,
    Parameters,
    Project,
    Repeat,
    Value,
)
from helix.syntax import (
    Agent,
    For,
    If,
    Keep,
    Limit,
    Llm,
    Output,
    Sort,
    Spread,
    Statement,
    Step,
    Workflow,
)
from helix.syntax import GroupBy as GroupBySyntax
from helix.syntax import Repeat as RepeatSyntax
from helix.types import JSON, NULL, ListOf, Optional, Table, Type, join, optional, required

MAX_ROUNDS = 1000
MAX_ARMS = 100


def bind_statements(
    context: Context,
    scope: Scope,
    statements: Iterable[Statement],
    *,
    where: str = "inside a block",
    instead: str | None = "move it to the outermost level",
) -> None:
    """Binds the steps of a block; statements over the whole table are mistakes here."""
    for statement in statements:
        match statement:
            case Step():
                bind_step(context, scope, statement)
            case If():
                _bind_if(context, scope, statement)
            case RepeatSyntax():
                _bind_repeat(context, scope, statement)
            case Keep() | Spread() | GroupBySyntax() | Sort() | Limit() | Output():
                word = type(statement).__name__.lower().replace("groupby", "group by")
                message = f"`{word}` works on the whole table and cannot stand {where}"
                context.error(BindError(message, statement.span, instead))
            case _:
                message = "a declaration stands at the outermost level"
                context.error(BindError(message, statement.span, "move it out of the block"))


def bind_step(context: Context, scope: Scope, step: Step) -> None:
    """Binds `name = value when condition` and gives the name its value."""
    scope.current = step.name
    if step.when is not None:
        _bind_if(context, scope, If(arms=((step.when, (replace(step, when=None),)),), span=step.span))
    else:
        value = _step_value(context, scope, step)
        scope.define(context, step.name, value, step.name_span)
        scope.steps.add(step.name)
    scope.current = ""


def _step_value(context: Context, scope: Scope, step: Step) -> Value:
    label = scope.prefix + step.name
    match step.value:
        case Agent() as agent:
            return bind_agent(context, scope, agent, label)
        case Llm() as llm:
            return bind_llm(context, scope, llm, label)
        case For() as loop:
            return _bind_for(context, scope, loop, step.name)
        case Call(function=name) as call if name in context.tools:
            return bind_tool(context, scope, call, label)
        case Call(function=name) as call if name in context.uses:
            return _bind_use(context, scope, call, label)
        case Expr() as expr:
            return bind_expr(context, scope, expr)


def _bind_use(context: Context, scope: Scope, call: Call, label: str) -> Value:
    """Binds a sub-workflow in place; its value is the record of its outputs."""
    workflow, inner = context.uses[call.function]
    context.used.add(call.function)
    inner_scope = Scope(rows=scope.rows, names={}, taken={}, prefix=f"{label}.", calls=scope.calls)
    inner.constants, inner.models, inner.tools, inner.functions, inner.uses, inner.broken = {}, {}, {}, {}, {}, set()
    params = columns(context, inner_scope, workflow.params, "input `{}`")
    args = call_arguments(context, scope, call, params, f"`{call.function}`")
    places = {param.name: param.span for param in workflow.params}
    for column, arg in zip(params, args, strict=True):
        inner_scope.define(inner, column.name, arg, places[column.name])
    declare(inner, inner_scope, workflow)
    steps, outputs = split_output(context, workflow)
    inner_scope.later = later_steps(steps)
    bind_statements(inner, inner_scope, steps, where="in a workflow that another uses", instead=None)
    fields = tuple((item.name, item.value) for item in outputs)
    record = bind_expr(inner, inner_scope, RecordExpr(fields=fields, span=call.span))
    return replace(record, span=call.span) if not isinstance(record, Const) else record


def split_output(context: Context, workflow: Workflow) -> tuple[list[Statement], tuple[Any, ...]]:
    """The steps of a workflow apart from its declarations, and the items of its one output."""
    from helix.syntax import FunctionDecl, Let, ModelDecl, ToolDecl, UseDecl

    outputs = [statement for statement in workflow.statements if isinstance(statement, Output)]
    for extra in outputs[1:]:
        context.error(BindError("a workflow has one `output`", extra.span, "name all columns in one"))
    if not outputs:
        help = "end it with `output` and the names of the columns wanted"
        context.error(BindError("the workflow gives no output", workflow.span, help))
    declarations = (Let, ModelDecl, ToolDecl, FunctionDecl, UseDecl, Output)
    steps: list[Statement] = [each for each in workflow.statements if not isinstance(each, declarations)]
    return steps, outputs[0].items if outputs else ()


# --- sub-plans ----------------------------------------------------------------------------------------------------


def _captured(scope: Scope, syntax: Any, without: Iterable[str] = ()) -> dict[str, Value]:
    """What a block reads from outside, in the order it is read; constants need no passing in."""
    skipped = set(without)
    names = dict.fromkeys(name for name in used_names(syntax) if name not in skipped)
    found = {name: scope.names[name] for name in names if name in scope.names}
    return {name: value for name, value in found.items() if not isinstance(value, Const)}


def unread(calls: Iterable[Value], roots: Iterable[Node]) -> tuple[Value, ...]:
    """The values among `calls` that no root reads, nor another of them: they are run all the same."""
    read: set[str] = set()
    for root in roots:
        _mark(root, read)
    found: list[Value] = []
    for value in reversed(tuple(calls)):
        # One output of a branch or loop is enough to run all of it.
        if (value.source.id if isinstance(value, Project) else value.id) not in read:
            found.append(value)
            _mark(value, read)
    return tuple(reversed(found))


def _mark(root: Node, read: set[str]) -> None:
    """Adds an operator and all that it reads to those that are read."""
    stack: list[Node] = [root]
    while stack:
        node = stack.pop()
        if node.id not in read:
            read.add(node.id)
            stack.extend(node.inputs)


def _results(scope: Scope, named: dict[str, Value]) -> dict[str, Value]:
    """What a sub-plan gives: its names, and the calls that none of them needs, under names that no text can write."""
    also = unread(scope.calls, named.values())
    return named | {f"also?{number}": value for number, value in enumerate(also)}


def _inner(scope: Scope, params: dict[str, Type], *, prefix: str = "", body: Iterable[Statement]) -> Scope:
    """The scope of a sub-plan: its parameters, and the constants of the scope around it."""
    parameters = Parameters(columns=tuple(params.items()))
    names: dict[str, Value] = {name: value for name, value in scope.names.items() if isinstance(value, Const)}
    for name, kind in params.items():
        names[name] = Project(source=parameters, field=name, type=kind)
    return Scope(
        rows=parameters,
        names=names,
        taken=dict(scope.taken),
        prefix=scope.prefix + prefix,
        later=scope.later | later_steps(body),
        gone=dict(scope.gone),
        outside=(*scope.names, *scope.outside),
        rounds=scope.rounds,
        current=scope.current,
    )


def _parameters(scope: Scope) -> Parameters:
    assert isinstance(scope.rows, Parameters)
    return scope.rows


def _bind_for(context: Context, scope: Scope, loop: For, name: str) -> Value:
    over = bind_expr(context, scope, loop.over)
    kind = required(over.type)
    if not (isinstance(kind, ListOf | Table) or kind == JSON):
        context.error(TypeMismatch(f"`for` runs over a list, found {over.type}", loop.over.span or loop.span))
    item = kind.item if isinstance(kind, ListOf) else JSON
    if loop.variable in scope.taken:
        place = scope.taken[loop.variable]
        where = f" on line {place.line}" if place is not None else ""
        message = f"`{loop.variable}` is already set{where}"
        context.error(BindError(message, loop.span, "give the variable of the `for` another name"))
    captures = _captured(scope, (loop.body, loop.result), without=(loop.variable,))
    params = {loop.variable: item} | {captured: value.type for captured, value in captures.items()}
    inner = _inner(scope, params, prefix=f"{name}.", body=loop.body)
    inner.taken[loop.variable] = loop.span
    bind_statements(context, inner, loop.body)
    inner.gone |= local_names(loop.body)
    result = bind_expr(context, inner, loop.result)
    made = Map(
        type=ListOf(result.type) if not isinstance(over.type, Optional) else optional(ListOf(result.type)),
        rows=scope.rows,
        step=scope.prefix + name,
        over=over,
        captures=tuple(captures.values()),
        body=Body(parameters=_parameters(inner), results=tuple(_results(inner, {"yield": result}).items())),
        span=loop.span,
    )
    if inner.calls:
        scope.calls.append(made)
    scope.gone |= local_names((Step(name=name, value=loop),))
    return made


def _bind_if(context: Context, scope: Scope, branch: If) -> None:
    if len(branch.arms) > MAX_ARMS:
        context.error(BindError(f"an `if` has at most {MAX_ARMS} conditions, found {len(branch.arms)}", branch.span))
        branch = replace(branch, arms=branch.arms[:1])
    names = dict(assigned_names((branch,)))
    for name, span in names.items():
        scope.claim(context, name, span)
    values = _bind_arms(context, scope, branch, tuple(names))
    for name, span in names.items():
        scope.put(name, values.get(name, null()), span)
    scope.steps.update(names)


def _bind_arms(context: Context, scope: Scope, branch: If, names: tuple[str, ...]) -> dict[str, Value]:
    """Binds the first arm against the rest; a chain of `else if` nests."""
    (condition, then), *rest = branch.arms
    otherwise: tuple[Statement, ...] = branch.otherwise
    if rest:
        otherwise = (If(arms=tuple(rest), otherwise=branch.otherwise, span=branch.span),)
    test = bind_expr(context, scope, condition)
    carried = {name for name in names if name in scope.carried}
    captures = _captured(scope, (then, otherwise))
    captures |= {name: scope.names[name] for name in sorted(carried) if not isinstance(scope.names[name], Const)}
    params = {name: value.type for name, value in captures.items()}
    arms = [_bind_arm(context, scope, body, params, names) for body in (then, otherwise)]
    results = [_results(arm, {name: arm.names.get(name) or null_of() for name in names}) for arm in arms]
    given = tuple(dict.fromkeys(name for result in results for name in result))
    results = [{name: result.get(name) or null_of() for name in given} for result in results]
    then_body, otherwise_body = (
        Body(parameters=_parameters(arm), results=tuple(result.items()))
        for arm, result in zip(arms, results, strict=True)
    )
    made = Choose(
        rows=scope.rows,
        condition=test,
        captures=tuple(captures.values()),
        then=then_body,
        otherwise=otherwise_body,
        span=branch.span,
    )
    kinds = {name: join(results[0][name].type, results[1][name].type) for name in given}
    values = {name: Project(source=made, field=name, type=kinds[name], span=branch.span) for name in given}
    if any(arm.calls for arm in arms):
        scope.calls.append(next(iter(values.values())))
    return {name: values[name] for name in names}


def _bind_arm(
    context: Context, scope: Scope, body: tuple[Statement, ...], params: dict[str, Type], names: tuple[str, ...]
) -> Scope:
    inner = _inner(scope, params, body=body)
    inner.carried = scope.carried
    for name in names:
        if name not in inner.carried:
            inner.taken.pop(name, None)
            inner.names.pop(name, None)
    bind_statements(context, inner, body)
    scope.gone |= {name: why for name, why in inner.gone.items() if name not in scope.names}
    return inner


def null_of() -> Const:
    """What a name is where its branch did not run."""
    return Const(type=NULL, json="null")


def _bind_repeat(context: Context, scope: Scope, loop: RepeatSyntax) -> None:
    times = constant_value(context, scope, loop.times, "the number of rounds")
    if times is not None and (not isinstance(times, int) or isinstance(times, bool) or not 1 <= times <= MAX_ROUNDS):
        message = f"`repeat` takes 1 to {MAX_ROUNDS} rounds, found {canonical_text(times)}"
        context.error(TypeMismatch(message, loop.times.span or loop.span))
        times = 1
    names = dict(assigned_names(loop.body))
    carried = {name: scope.names[name] for name in names if name in scope.names and scope.is_step(name)}
    captures = _captured(scope, (loop.body, loop.until), without=carried)
    kinds = {name: value.type for name, value in carried.items()}
    while True:
        inner = _bind_round(context, scope, loop, kinds, captures)
        wider = {name: join(kind, inner.names[name].type) for name, kind in kinds.items()}
        if wider == kinds:
            break
        # A value of a wider type comes round: the body has to be right for that type too. Types only grow, and not
        # for ever: what has nothing in common joins as json.
        kinds = wider
    results = {name: inner.names[name] for name in names if name in inner.names}
    if loop.until is not None:
        results[Repeat.UNTIL] = bind_expr(context, inner, loop.until)
    results = _results(inner, results)
    made = Repeat(
        rows=scope.rows,
        times=times or 1,
        carried=tuple(carried.items()),
        captures=tuple(captures.values()),
        body=Body(parameters=_parameters(inner), results=tuple(results.items())),
        span=loop.span,
    )
    values = {
        name: Project(source=made, field=name, type=value.type, span=loop.span)
        for name, value in results.items()
        if name != Repeat.UNTIL
    }
    if inner.calls:
        scope.calls.append(next(iter(values.values())))
    for name, span in names.items():
        scope.put(name, values.get(name, null()), span)
    scope.steps.update(names)
    scope.gone |= {name: why for name, why in inner.gone.items() if name not in scope.names}


def _bind_round(
    context: Context, scope: Scope, loop: RepeatSyntax, kinds: dict[str, Type], captures: dict[str, Value]
) -> Scope:
    params = kinds | {name: value.type for name, value in captures.items()}
    inner = _inner(scope, params, body=loop.body)
    inner.carried = frozenset(kinds)
    inner.rounds = scope.rounds | {name for name, _ in assigned_names(loop.body) if name not in kinds}
    bind_statements(context, inner, loop.body)
    return inner
