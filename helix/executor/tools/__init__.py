"""Tools: what a step may call besides a model. Those that share nothing are opened here, all others by `opener`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from helix.executor.tools.threads import Threads
from helix.logical import Tool

__all__ = ["RunTool", "Threads", "open_tool"]


class RunTool(Protocol):
    """A tool ready to be called: arguments in the order of its parameters, the result as JSON text."""

    async def __call__(self, args: list[Any]) -> str:
        """Raises ToolError where the tool raised or gave what does not fit."""

    def close(self) -> None:
        """Gives back what it holds."""


def open_tool(
    tool: Tool, callables: Mapping[str, Callable[..., Any]], folder: Path | None, threads: Threads
) -> RunTool:
    """Makes a Python tool or one over SQLite ready.

    `callables` holds functions loaded already or given from Python; `folder` is where a relative database lies; what
    blocks runs on `threads`. Raises OptionError where the tool cannot be opened.
    """
    if tool.origin == "python":
        from helix.executor.tools.python import PythonTool

        return PythonTool(tool, callables[tool.name], threads)
    if tool.batch is not None:
        from helix.executor.tools.sql_batch import SqlLookups

        return SqlLookups(tool, folder, threads)
    from helix.executor.tools.sql import SqlTool

    return SqlTool(tool, folder, threads)
