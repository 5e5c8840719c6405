"""Agents: a model with tools, its limits and its prompt."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from helix import agents
from helix.canonical import constant_text
from helix.durations import duration
from helix.errors import BindError, name_help
from helix.expr import Literal, Name
from helix.grammar.bind_calls import model_options, prompt_part
from helix.grammar.declare import MODEL_OPTIONS, STEP_OPTIONS, OptionKind, model_of, option_values
from helix.grammar.scope import Context, Scope
from helix.logical import Agent, Const, PromptPart, Tool, Value
from helix.syntax import Agent as AgentSyntax
from helix.syntax import Option
from helix.types import TEXT, Type, optional

_WORDS = {"at_limit": ("answer", "fail"), "tool_calls": ("auto", "native", "schema")}


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


LIMITS = {
    "max_turns": OptionKind(
        expects=f"an int from 1 to {agents.MOST_TURNS}", accepts=lambda v: _is_count(v) and v <= agents.MOST_TURNS
    ),
    "max_total_tokens": OptionKind(expects="an int of at least 1", accepts=_is_count),
    "max_time": OptionKind(expects="a duration such as 2m", accepts=lambda v: bool(duration(v))),
    "at_limit": OptionKind(expects="answer or fail", accepts=lambda v: v in _WORDS["at_limit"]),
    "tool_calls": OptionKind(expects="auto, native or schema", accepts=lambda v: v in _WORDS["tool_calls"]),
    "trace": OptionKind(expects="on or off", accepts=lambda v: isinstance(v, bool)),
}
# Samples of an agent are a `for` around it; a prompt that grows cannot be cut without changing what was said.
_NOT_OPTIONS = {
    "sample": ("an agent takes no samples", "write a `for` around it"),
    "on_overflow": ("the prompt of an agent is never cut", "cut the input before: `take(text, 4000)`"),
}
_OPTIONS = {name: kind for name, kind in STEP_OPTIONS.items() if name not in _NOT_OPTIONS}


def bind_agent(context: Context, scope: Scope, agent: AgentSyntax, label: str) -> Value:
    """An agent; `label` is the whole name of the step."""
    declared = model_options(context, agent)
    values = option_values(context, scope, declared, MODEL_OPTIONS, MODEL_OPTIONS)
    values |= option_values(context, scope, _own_options(context, agent), _OPTIONS, _OPTIONS)
    worded = tuple(_worded(scope, each) for each in agent.limits)
    limits = option_values(context, scope, worded, LIMITS, LIMITS)
    tools = _tools(context, agent, label)
    returns = agent.returns or TEXT
    prompt = tuple(prompt_part(context, scope, part) for part in agent.parts)
    if not prompt:
        context.error(BindError(f"`{label}` has no message", agent.span, 'write `user "..."`'))
    timeout, max_time = values.get("timeout"), limits.get("max_time")
    null_for_errors = values.get("on_error", "fail") in ("null", None)
    trace = limits.get("trace", False)
    kind = agents.value_type(returns, trace=trace)
    made = Agent(
        type=optional(kind) if null_for_errors else kind,
        rows=scope.rows,
        step=label,
        model=model_of(values),
        prompt=with_protocol(prompt, tools, returns),
        returns=returns,
        cache=values.get("cache", True),
        attempts=values.get("attempts"),
        timeout=None if timeout is None else duration(timeout),
        reask=values.get("reask", 1),
        coerce=values.get("coerce", False),
        on_error="null" if null_for_errors else "fail",
        tools=tools,
        max_turns=limits.get("max_turns", agents.MAX_TURNS),
        max_total_tokens=limits.get("max_total_tokens"),
        max_time=None if max_time is None else duration(max_time),
        at_limit=limits.get("at_limit", "answer"),
        tool_calls=limits.get("tool_calls", "auto"),
        trace=trace,
        span=agent.span,
    )
    scope.calls.append(made)
    return made


def with_protocol(prompt: tuple[PromptPart, ...], tools: tuple[Tool, ...], returns: Type) -> tuple[PromptPart, ...]:
    """A prompt that begins with what the model has to know of its tools, in one system message with the author's."""
    told = Const(type=TEXT, json=constant_text(agents.protocol(tools, returns)))
    if prompt and prompt[0].role == "system":
        first = replace(prompt[0], content=(told, *prompt[0].content))
        return (first, *prompt[1:])
    return (PromptPart(role="system", content=(told,)), *prompt)


def _own_options(context: Context, agent: AgentSyntax) -> tuple[Option, ...]:
    """The options that an agent takes; those of `llm` steps only, and limits in the wrong place, are mistakes."""
    kept: list[Option] = []
    for option in agent.options:
        if option.name in _NOT_OPTIONS:
            message, help = _NOT_OPTIONS[option.name]
            context.error(BindError(message, option.span, help))
        elif option.name in LIMITS:
            message = f"`{option.name}` stands among the messages of an agent"
            context.error(BindError(message, option.span, f"write `agent {{ tools [...] {option.name} ... }}`"))
        else:
            kept.append(option)
    return tuple(kept)


def _worded(scope: Scope, option: Option) -> Option:
    """The option with a word as a text, where it takes words and that one is no constant."""
    if isinstance(option.value, Name) and option.name in _WORDS and option.value.name not in scope.names:
        return replace(option, value=Literal(value=option.value.name, span=option.value.span))
    return option


def _tools(context: Context, agent: AgentSyntax, label: str) -> tuple[Tool, ...]:
    found: dict[str, Tool] = {}
    for item in agent.tools.items:
        name = item.name if isinstance(item, Name) else ""
        if name in found:
            context.error(BindError(f"`{name}` stands twice among the tools of `{label}`", item.span))
        elif name in context.tools:
            context.used.add(name)
            found[name] = context.tools[name]
        else:
            message = f"unknown tool `{name}`" if name else "`tools` takes names of tools"
            context.error(BindError(message, item.span, name_help(name, context.tools, "tools")))
    if not agent.tools.items:
        help = "write `tools [name, ...]`, or `llm` for a step without any"
        context.error(BindError(f"`{label}` has no tools", agent.span, help))
    return tuple(found.values())
