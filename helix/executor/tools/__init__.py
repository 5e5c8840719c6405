"""Tools: what a step may call besides a model. Python functions and read-only SQL."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from helix.logical import Tool

RunTool = Callable[[list[Any]], Awaitable[str]]

__all__ = ["RunTool", "open_tool"]


def open_tool(tool: Tool, callables: Mapping[str, Callable[..., Any]], folder: Path | None) -> RunTool:
    """The function that runs a tool: arguments in the order of its parameters, the result as JSON text.

    `callables` holds functions loaded already or given from Python; `folder` is where a relative database lies. Raises
    OptionError where the tool cannot be opened. The function raises ToolError.
    """
    if tool.origin == "python":
        from helix.executor.tools.python import python_tool

        return python_tool(tool, callables[tool.name])
    from helix.executor.tools.sql import sql_tool

    return sql_tool(tool, folder)
