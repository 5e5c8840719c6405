"""Agents: steps in which a model calls tools, turn after turn, until it answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from typing import Literal as OneOf

from helix.dsl.annotations import is_structured
from helix.dsl.places import here, problem
from helix.dsl.prompts import Model, llm
from helix.dsl.tools import Tool
from helix.dsl.trace import Trace, current
from helix.dsl.values import Value, kind_of
from helix.expr import Expr, ListExpr, Name
from helix.syntax import Agent, Option


def agent(
    user: Any = None,
    *,
    tools: Iterable[Any],
    model: Model = llm,
    system: Any = None,
    history: Any = None,
    assistant: Any = None,
    messages: Iterable[Any] | None = None,
    returns: Any = None,
    max_turns: int | None = None,
    max_total_tokens: int | None = None,
    max_time: str | float | None = None,
    at_limit: OneOf["answer", "fail"] | None = None,
    tool_calls: OneOf["auto", "native", "schema"] | None = None,
    trace: bool = False,
    when: Any = None,
    name: str | None = None,
    **options: Any,
) -> Value:
    """Makes an agent: a model that may call `tools` (`@hx.tool` functions and `hx.sql_tool`s) before it answers.

    Messages, `returns`, `when`, `name` and options are those of a call of a model. `max_turns` bounds the calls of the
    model (8 if left out), `max_total_tokens` the tokens of its prompts and replies, `max_time` its time (`"2m"`, or
    seconds); at such a limit it may only answer, or fails (`at_limit="fail"`). `tool_calls` says how it asks for calls,
    where the engine's own way is not to be used. With `trace` its value is a record of `answer` and `trace`.
    """
    made = current("an agent")
    prompt = model.prompt(made, user, system=system, history=history, assistant=assistant, messages=messages)
    found = model.syntax(made, prompt, returns, options)
    words = {"at_limit": at_limit, "tool_calls": tool_calls}
    limits: dict[str, Any] = {
        "max_turns": max_turns,
        "max_total_tokens": max_total_tokens,
        "max_time": f"{max_time:g}s" if isinstance(max_time, int | float) else max_time,
    }
    written = [_limit(made, limit, value) for limit, value in limits.items() if value is not None]
    written += [Option(name=word, value=Name(name=value)) for word, value in words.items() if value is not None]
    written += [Option(name="trace", value=Name(name="on"))] if trace else []
    syntax = Agent(
        model=found.model,
        options=found.options,
        returns=found.returns,
        parts=found.parts,
        tools=ListExpr(items=tuple(_tool(made, tool) for tool in _listed(tools)), span=here()),
        limits=tuple(replace(option, span=here()) for option in written),
        span=here(),
    )
    python = None if trace or returns is None or not is_structured(returns) else returns
    return model.step(made, syntax, python=python, when=when, name=name)


def _listed(tools: Any) -> list[Any]:
    if not isinstance(tools, list | tuple):
        raise problem(f"`tools` is a list of tools, found {kind_of(tools)}", "write `tools=[orders]`")
    return list(tools)


def _tool(trace: Trace, tool: Any) -> Expr:
    if not isinstance(tool, Tool):
        raise problem(f"`tools` is a list of tools, found {kind_of(tool)}", "mark the function `@hx.tool(effects=...)`")
    return Name(name=tool.declared(trace), span=here())


def _limit(trace: Trace, name: str, value: Any) -> Option:
    return Option(name=name, value=trace.lift(value))
