"""Steps that call: an llm step with its options and prompt, a tool step with its arguments."""

from __future__ import annotations

from dataclasses import replace

from helix.durations import duration
from helix.errors import BindError, TypeMismatch, name_help
from helix.expr import Call, Expr, Literal, Name
from helix.grammar.bind_expr import bind_expr, bind_template
from helix.grammar.declare import MODEL_OPTIONS, STEP_OPTIONS, model_of, option_values
from helix.grammar.scope import Context, Scope, constant
from helix.logical import Generate, Invoke, PromptPart, Render, Truncate, Value, list_of
from helix.schema import NO_DEFAULT, Column, is_required
from helix.syntax import Agent, HistoryPart, Llm, MessagePart, Option
from helix.syntax import PromptPart as PromptSyntax
from helix.types import JSON, TEXT, ListOf, Record, Table, fits, optional, required


def bind_llm(context: Context, scope: Scope, llm: Llm, label: str) -> Value:
    """A call of a language model; `label` is the whole name of the step."""
    declared = model_options(context, llm)
    known = (*STEP_OPTIONS, "on_overflow")
    model_values = option_values(context, scope, declared, MODEL_OPTIONS, MODEL_OPTIONS)
    values = model_values | option_values(context, scope, llm.options, STEP_OPTIONS, known)
    prompt = tuple(prompt_part(context, scope, part) for part in llm.parts)
    if not prompt:
        context.error(BindError(f"`{label}` has no message", llm.span, 'write `user "..."`'))
    returns = llm.returns or TEXT
    sample = values.get("sample", 1)
    if sample > 1 and values.get("temperature", 0) == 0 and "seed" not in values:
        context.warn(f"`{label}` samples {sample} times at temperature 0: the replies will be alike", llm.span)
    timeout = values.get("timeout")
    null_for_errors = values.get("on_error", "fail") in ("null", None)
    made = Generate(
        type=optional(list_of(returns, sample)) if null_for_errors else list_of(returns, sample),
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
        on_error="null" if null_for_errors else "fail",
        on_overflow=_overflow(context, scope, llm, prompt),
        span=llm.span,
    )
    scope.calls.append(made)
    return made


def model_options(context: Context, llm: Llm) -> tuple[Option, ...]:
    """The options of the model that a step names, or of the only one."""
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
        word = "agent" if isinstance(llm, Agent) else "llm"
        context.error(BindError(message, llm.span, f"write `{word} {next(iter(context.models))} {{ ... }}`"))
        return ()
    context.used.update(context.models)
    return next(iter(context.models.values()), ())


def prompt_part(context: Context, scope: Scope, part: PromptSyntax) -> PromptPart:
    """One message of a prompt, or the messages of a list."""
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
    if subject.name not in scope.names:
        return None
    shown = [arg for part in prompt for content in part.content if isinstance(content, Render) for arg in content.args]
    if value not in shown:
        message = f"the prompt does not show `{subject.name}`, so cutting it cannot help"
        context.error(BindError(message, option.span))
    return Truncate(name=subject.name, value=value, keep="tail" if word == "tail" else "head")


def bind_tool(context: Context, scope: Scope, call: Call, label: str) -> Value:
    """A call of a tool; `label` is the whole name of the step."""
    tool = context.tools[call.function]
    context.used.add(tool.name)
    args = call_arguments(context, scope, call, tool.params, f"tool `{tool.name}`")
    made = Invoke(type=tool.returns, rows=scope.rows, step=label, tool=tool, args=args, span=call.span)
    scope.calls.append(made)
    return made


def call_arguments(
    context: Context, scope: Scope, call: Call, params: tuple[Column, ...], what: str
) -> tuple[Value, ...]:
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
            default = constant(None if param.default is NO_DEFAULT else param.default, call.span)
            args.append(replace(default, type=param.type))
    return tuple(args)
