"""The Python front end: workflows as functions, which are called once with symbolic values to see their steps.

It makes the same syntax tree as the parser makes of the text form.
"""

from helix.dsl.agents import agent
from helix.dsl.blocks import choose, map, repeat
from helix.dsl.operators import (
    and_,
    default,
    first,
    fn,
    in_,
    join,
    last,
    length,
    lower,
    not_,
    not_in,
    or_,
    replace,
    split,
    take,
    trim,
    unique,
    upper,
)
from helix.dsl.program import Workflow, workflow
from helix.dsl.prompts import Model, assistant, history, llm, model, system, truncate, unordered, user
from helix.dsl.tables import Output, desc, group_by, keep, let, limit, output, sort, spread, step
from helix.dsl.tools import Function, Tool, function, http_tool, mcp_tool, sql_tool, tool
from helix.dsl.values import Names, Value

__all__ = [
    "Function",
    "Model",
    "Names",
    "Output",
    "Tool",
    "Value",
    "Workflow",
    "agent",
    "and_",
    "assistant",
    "choose",
    "default",
    "desc",
    "first",
    "fn",
    "function",
    "group_by",
    "history",
    "http_tool",
    "in_",
    "join",
    "keep",
    "last",
    "length",
    "let",
    "limit",
    "llm",
    "lower",
    "map",
    "mcp_tool",
    "model",
    "not_",
    "not_in",
    "or_",
    "output",
    "repeat",
    "replace",
    "sort",
    "split",
    "spread",
    "sql_tool",
    "step",
    "system",
    "take",
    "tool",
    "trim",
    "truncate",
    "unique",
    "unordered",
    "upper",
    "user",
    "workflow",
]
