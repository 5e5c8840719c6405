"""The signature of a tool as JSON Schema, and what it says of itself: how a model is told what it may call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from helix.schema import NO_DEFAULT, is_required
from helix.services import Tool
from helix.types import Optional, json_schema


def parameters_schema(tool: Tool) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments: a closed object, its properties in the order of the parameters.

    A parameter that may be left out, since it has a default or may be null, is not among the required ones; its default
    stands beside its type.
    """
    properties: dict[str, Any] = {}
    for param in tool.params:
        schema = dict(json_schema(param.type))
        if param.default is not NO_DEFAULT:
            schema["default"] = param.default
        properties[param.name] = schema
    return {
        "type": "object",
        "properties": properties,
        "required": [param.name for param in tool.params if is_required(param)],
        "additionalProperties": False,
    }


def result_schema(tool: Tool) -> dict[str, Any]:
    """The JSON Schema of a tool's result; `{}` is any JSON value."""
    return json_schema(tool.returns)


def description(tool: Tool, function: Callable[..., Any] | None = None) -> str:
    """What a tool says of itself: its trait `description`, else the docstring of its function, else nothing."""
    if tool.description is not None:
        return tool.description
    return "" if function is None else (inspect.getdoc(inspect.unwrap(function)) or "").strip()


def function_definition(tool: Tool, function: Callable[..., Any] | None = None) -> dict[str, Any]:
    """A tool as a chat completions API is told of it: `{"name", "description", "parameters"}`.

    Raises nothing; the name is the tool's own in its workflow, without the path of a sub-workflow.
    """
    made: dict[str, Any] = {"name": tool.name.rpartition("#")[2]}
    if said := description(tool, function):
        made["description"] = said
    return {**made, "parameters": parameters_schema(tool)}


def arguments_in_order(tool: Tool, given: dict[str, Any]) -> list[Any]:
    """Arguments by name as `RunTool` takes them: in the order of the parameters, those left out at their default.

    Types are checked too. Raises ValueError with one sentence that says what is wrong and what was expected, for a
    model to read.
    """
    from helix.errors import name_help
    from helix.types import mismatch

    known = [param.name for param in tool.params]
    unknown = next((name for name in given if name not in known), None)
    if unknown is not None:
        raise ValueError(f"{_own(tool)} has no parameter `{unknown}`; {name_help(unknown, known, 'parameters')}")
    values: list[Any] = []
    for param in tool.params:
        value = given.get(param.name)
        # A null given to what takes none is left out as well.
        left_out = param.name not in given or (value is None and not isinstance(param.type, Optional))
        if left_out and param.default is not NO_DEFAULT:
            value = param.default
        elif param.name not in given and is_required(param):
            raise ValueError(f"{_own(tool)} needs `{param.name}`, a {param.type}")
        elif (bad := mismatch(value, param.type)) is not None:
            where = f" at `{bad[0]}`" if bad[0] else ""
            raise ValueError(f"`{param.name}` of {_own(tool)} does not fit{where}: {bad[1]}")
        values.append(value)
    return values


def _own(tool: Tool) -> str:
    return tool.name.rpartition("#")[2]
