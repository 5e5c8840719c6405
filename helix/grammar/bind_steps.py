"""Steps to operators: llm and tool calls, sub-workflows, branches, loops over lists and bounded loops."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from helix.canonical import canonical_text
from helix.errors import BindError, TypeMismatch, name_help
from helix.expr import Call, Expr, Literal, Name, RecordExpr
from helix.grammar.bind_expr import bind_expr, bind_template, constant_value
from helix.grammar.declare import MODEL_OPTIONS, STEP_OPTIONS, columns, declare, duration, model_of, option_values
from helix.grammar.scope import (
    Context,
    Scope,
    assigned_names,
    constant,
    later_steps,
    local_names,
    null,
    used_names,
)
from helix.logical import (
    Body,
    Choose,
    Const,
    Generate,
    Invoke,
    Map,
    Parameters,
    Project,
    PromptPart,
    Render,
    Repeat,
    Truncate,
    Value,
    list_of,
)
from helix.schema import NO_DEFAULT, is_required
from helix.syntax import (
    For,
    HistoryPart,
    If,
    Keep,
    Limit,
    Llm,
    MessagePart,
    Output,
    Sort,
    Spread,
    Statement,
    Step,
    Workflow,
)
from helix.syntax import GroupBy as GroupBySyntax
from helix.syntax import Repeat as RepeatSyntax
from helix.types import JSON, TEXT, ListOf, Optional, Record, Table, Type, fits, join, optional, required

MAX_ROUNDS = 1000


def bind_statements(context: Context, scope: Scope, statements: Iterable[Statement]) -> None:
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
                message = f"`{word}` works on the whole table and cannot stand inside a block"
                context.error(BindError(message, statement.span, "move it to the outermost level"))
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
    scope.current = ""


def _step_value(context: Context, scope: Scope, step: Step) -> Value:
    label = scope.prefix + step.name
    match step.value:
        case Llm() as llm:
            return _bind_llm(context, scope, llm, label)
        case For() as loop:
            return _bind_for(context, scope, loop, step.name)
        case Call(function=name) as call if name in context.tools:
            return _bind_tool(context, scope, call, label)
        case Call(function=name) as call if name in context.uses:
            return _bind_use(context, scope, call, label)
        case Expr() as expr:
            return bind_expr(context, scope, expr)


# --- calls --------------------------------------------------------------------------------------------------------


def _bind_llm(context: Context, scope: Scope, llm: Llm, label: str) -> Value:
    declared = _model_options(context, llm)
    known = (*STEP_OPTIONS, "on_overflow")
    model_values = option_values(context, scope, declared, MODEL_OPTIONS, MODEL_OPTIONS)
    values = model_values | option_values(context, scope, llm.options, STEP_OPTIONS, known)
    prompt = tuple(_prompt_part(context, scope, part) for part in llm.parts)
    if not prompt:
        context.error(BindError(f"`{label}` has no message", llm.span, 'write `user "..."`'))
    returns = llm.returns or TEXT
    sample = values.get("sample", 1)
    if sample > 1 and values.get("temperature", 0) == 0 and "seed" not in values:
        context.warn(f"`{label}` samples {sample} times at temperature 0: the replies will be alike", llm.span)
    timeout = values.get("timeout")
    return Generate(
        type=list_of(returns, sample) if values.get("on_error") != "null" else optional(list_of(returns, sample)),
        rows=scope.rows,
        step=label,
        model=model_of(values),
        prompt=prompt,
        returns=returns,
        sample=sample,
        cache=values.get("cache", True),
        attempts=values.get("attempts"),
        timeout=None if timeout is None else duration(timeout),
        reask=values.get("reask", 1),
        coerce=values.get("coerce", False),
        on_error=values.get("on_error", "fail"),
        on_overflow=_overflow(context, scope, llm, prompt),
        span=llm.span,
    )


def _model_options(context: Context, llm: Llm) -> tuple[Any, ...]:
    if llm.model is not None:
        if llm.model not in context.models:
            help = name_help(llm.model, context.models, "models")
            context.error(BindError(f"unknown model `{llm.model}`", llm.span, help))
            return ()
        context.used.add(llm.model)
        return context.models[llm.model]
    if len(context.models) > 1:
        models = ", ".join(context.models)
        message = f"which model? the workflow declares {models}"
        context.error(BindError(message, llm.span, f"write `llm {next(iter(context.models))} {{ ... }}`"))
        return ()
    context.used.update(context.models)
    return next(iter(context.models.values()), ())


def _prompt_part(context: Context, scope: Scope, part: Any) -> PromptPart:
    if isinstance(part, MessagePart):
        return PromptPart(role=part.role, content=(bind_template(context, scope, part.content),))
    if isinstance(part, HistoryPart):
        value = bind_expr(context, scope, part.value)
        kind = required(value.type)
        item = kind.item if isinstance(kind, ListOf) else JSON
        record = not isinstance(item, Record) or (item.field("role") is not None and item.field("content") is not None)
        if not fits(kind, Table()) or not record:
            message = f"`history` takes a list of {{role, content}}, found {value.type}"
            context.error(TypeMismatch(message, part.span))
        return PromptPart(role="history", content=(value,))
    contents = tuple(bind_template(context, scope, each) for each in part.parts)
    return PromptPart(role=part.role, content=contents, unordered=True)


def _overflow(context: Context, scope: Scope, llm: Llm, prompt: tuple[PromptPart, ...]) -> Truncate | None:
    option = next((each for each in llm.options if each.name == "on_overflow"), None)
    if option is None:
        return None
    call = option.value
    if not isinstance(call, Call) or call.function != "truncate" or len(call.args) != 1:
        context.error(BindError("`on_overflow` takes `truncate(name, keep: head)`", option.span))
        return None
    subject, named = call.args[0], dict(call.named)
    keep = named.get("keep", Name(name="head"))
    word = keep.name if isinstance(keep, Name) else keep.value if isinstance(keep, Literal) else None
    if not isinstance(subject, Name) or set(named) - {"keep"} or word not in ("head", "tail"):
        context.error(BindError("`on_overflow` takes `truncate(name, keep: head)` or `keep: tail`", option.span))
        return None
    value = scope.lookup(context, subject.name, subject.span)
    shown = [arg for part in prompt for content in part.content if isinstance(content, Render) for arg in content.args]
    if value not in shown:
        message = f"the prompt does not show `{subject.name}`, so cutting it cannot help"
        context.error(BindError(message, option.span))
    return Truncate(name=subject.name, value=value, keep="tail" if word == "tail" else "head")


def _bind_tool(context: Context, scope: Scope, call: Call, label: str) -> Value:
    tool = context.tools[call.function]
    context.used.add(tool.name)
    args = _call_arguments(context, scope, call, tool.params, f"tool `{tool.name}`")
    return Invoke(type=tool.returns, rows=scope.rows, step=label, tool=tool, args=args, span=call.span)


def _call_arguments(context: Context, scope: Scope, call: Call, params: Any, what: str) -> tuple[Value, ...]:
    """One value for each parameter of a tool or sub-workflow: given by position, by name, or by default."""
    names = [param.name for param in params]
    given: dict[str, Expr] = dict(zip(names, call.args, strict=False))
    if len(call.args) > len(names):
        takes = f"{what} takes {len(names)} argument{'' if len(names) == 1 else 's'}"
        context.error(BindError(f"{takes} ({', '.join(names)}), found {len(call.args)}", call.span))
    for name, value in call.named:
        if name not in names:
            context.error(
                BindError(f"{what} has no parameter `{name}`", call.span, name_help(name, names, "parameters"))
            )
        elif name in given:
            context.error(BindError(f"{what} is given `{name}` twice", call.span))
        given[name] = value
    args: list[Value] = []
    for param in params:
        if param.name in given:
            value_node = bind_expr(context, scope, given[param.name])
            if not fits(value_node.type, param.type):
                message = f"{what} takes {param.type} as `{param.name}`, found {value_node.type}"
                context.error(TypeMismatch(message, given[param.name].span or call.span))
            args.append(value_node)
        else:
            if is_required(param):
                context.error(BindError(f"{what} needs `{param.name}`", call.span))
            args.append(constant(None if param.default is NO_DEFAULT else param.default, call.span))
    return tuple(args)


def _bind_use(context: Context, scope: Scope, call: Call, label: str) -> Value:
    """Binds a sub-workflow in place; its value is the record of its outputs."""
    workflow, inner = context.uses[call.function]
    context.used.add(call.function)
    inner_scope = Scope(rows=scope.rows, names={}, taken={}, prefix=f"{label}.")
    inner.constants, inner.models, inner.tools, inner.functions, inner.uses = {}, {}, {}, {}, {}
    params = columns(context, inner_scope, workflow.params, "input")
    args = _call_arguments(context, scope, call, params, f"`{call.function}`")
    for param, arg in zip(workflow.params, args, strict=True):
        inner_scope.define(inner, param.name, arg, param.span)
    declare(inner, inner_scope, workflow)
    for name, function in inner.functions.items():
        context.functions.setdefault(name, function)
    steps, outputs = split_output(context, workflow)
    inner_scope.later = later_steps(steps)
    bind_statements(inner, inner_scope, steps)
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


def _inner(scope: Scope, params: dict[str, Type], *, prefix: str = "", body: Iterable[Statement] = ()) -> Scope:
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
        later=later_steps(body),
        gone=dict(scope.gone),
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
        message = f"`{loop.variable}` is already set"
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
        body=Body(parameters=_parameters(inner), results=(("yield", result),)),
        span=loop.span,
    )
    scope.gone |= local_names((Step(name=name, value=loop),))
    return made


def _bind_if(context: Context, scope: Scope, branch: If) -> None:
    names = dict(assigned_names((branch,)))
    for name, span in names.items():
        if name in scope.taken and name not in scope.carried:
            place = scope.taken[name]
            where = f" on line {place.line}" if place is not None else ""
            context.error(BindError(f"`{name}` is already set{where}", span, "give this step another name"))
    values = _bind_arms(context, scope, branch, tuple(names))
    for name, span in names.items():
        scope.names[name] = values.get(name, null())
        scope.taken[name] = span
        scope.gone.pop(name, None)
        scope.later.pop(name, None)


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
    results = [{name: arm.names.get(name) or null_of() for name in names} for arm in arms]
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
    kinds = {name: join(results[0][name].type, results[1][name].type) for name in names}
    return {name: Project(source=made, field=name, type=kinds[name], span=branch.span) for name in names}


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
    return Const(type=Optional(JSON), json="null")


def _bind_repeat(context: Context, scope: Scope, loop: RepeatSyntax) -> None:
    times = constant_value(context, scope, loop.times, "the number of rounds")
    if times is not None and (not isinstance(times, int) or isinstance(times, bool) or not 1 <= times <= MAX_ROUNDS):
        message = f"`repeat` takes 1 to {MAX_ROUNDS} rounds, found {canonical_text(times)}"
        context.error(TypeMismatch(message, loop.times.span or loop.span))
        times = 1
    names = dict(assigned_names(loop.body))
    carried = {name: scope.names[name] for name in names if name in scope.names and _is_step(context, scope, name)}
    captures = _captured(scope, (loop.body, loop.until), without=carried)
    kinds = {name: value.type for name, value in carried.items()}
    inner = _bind_round(context, scope, loop, kinds, captures)
    wider = {name: join(kind, inner.names[name].type) for name, kind in kinds.items()}
    if any(not fits(inner.names[name].type, kind) or wider[name] != kind for name, kind in kinds.items()):
        # A value of a wider type comes round: the body has to be right for that type too.
        kinds = wider
        inner = _bind_round(context, scope, loop, kinds, captures)
    results = [(name, inner.names[name]) for name in names if name in inner.names]
    if loop.until is not None:
        results.append((Repeat.UNTIL, bind_expr(context, inner, loop.until)))
    made = Repeat(
        rows=scope.rows,
        times=times or 1,
        carried=tuple(carried.items()),
        captures=tuple(captures.values()),
        body=Body(parameters=_parameters(inner), results=tuple(results)),
        span=loop.span,
    )
    for name, value in results:
        if name != Repeat.UNTIL:
            scope.names[name] = Project(source=made, field=name, type=value.type, span=loop.span)
            scope.taken[name] = names[name]
            scope.later.pop(name, None)
    scope.gone |= {name: why for name, why in inner.gone.items() if name not in scope.names}


def _is_step(context: Context, scope: Scope, name: str) -> bool:
    """Whether a name may be carried round: a step, not an input or a constant."""
    value = scope.names[name]
    is_input = isinstance(value, Project) and value.field == name and hasattr(value.source, "columns")
    return name not in context.constants and (name in scope.carried or not is_input)


def _bind_round(
    context: Context, scope: Scope, loop: RepeatSyntax, kinds: dict[str, Type], captures: dict[str, Value]
) -> Scope:
    params = kinds | {name: value.type for name, value in captures.items()}
    inner = _inner(scope, params, body=loop.body)
    inner.carried = frozenset(kinds)
    for name, _ in assigned_names(loop.body):
        if name not in scope.names:
            inner.taken.pop(name, None)
    bind_statements(context, inner, loop.body)
    return inner
