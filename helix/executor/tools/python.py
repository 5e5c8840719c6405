"""Python functions as tools and in expressions: values in and out are JSON, and no row can change another's."""

from __future__ import annotations

import asyncio
import copy
import inspect
import traceback
from collections.abc import Callable
from typing import Any

from helix.canonical import to_json_text
from helix.errors import ToolError
from helix.executor.tools.results import error_words, plain_json, result_text
from helix.executor.tools.threads import Threads
from helix.logical import Tool

# As much of the text of an exception as a traceback shows.
_LONGEST = 4000
# Where a traceback begins to be the tool's own.
_OURS = ("/helix/executor/tools/threads.py", "/helix/executor/tools/python.py", "/asyncio/tasks.py")


class PythonTool:
    """Runs a Python function: a coroutine function on the loop, any other on a thread."""

    def __init__(self, tool: Tool, function: Callable[..., Any], threads: Threads) -> None:
        self._tool = tool
        self._function = function
        self._threads = threads
        self._names = [param.name for param in tool.params]

    async def __call__(self, args: list[Any]) -> str:
        """Runs the function. Raises ToolError with the traceback of what it raised."""
        given = {name: fresh(value) for name, value in zip(self._names, args, strict=True)}
        name = self._tool.name
        error: BaseException | None
        try:
            if inspect.iscoroutinefunction(self._function):
                value, error = await _caught(self._function(**given))
            else:
                value, error = await self._threads.run(lambda: self._done(given))
                if error is None and inspect.isawaitable(value):
                    value, error = await _caught(value)
                elif error is None:
                    return str(value)
        except asyncio.CancelledError as cancelled:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # The function's own tasks were cancelled, not this call.
            value, error = None, cancelled
        if error is not None:
            raise ToolError(f"{name} raised {error_words(error)}", traceback=_trace(error)) from None
        return result_text(value, self._tool.returns, name, self._tool.max_bytes)

    def _done(self, given: dict[str, Any]) -> tuple[Any, BaseException | None]:
        """On a thread: what the function gives as JSON, and its awaitable as it is. A large result holds up nobody."""
        value, error = _called(self._function, given)
        if error is None and not inspect.isawaitable(value):
            value = result_text(value, self._tool.returns, self._tool.name, self._tool.max_bytes)
        return value, error

    def close(self) -> None:
        """Nothing is held."""


def pure_function(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A declared function as expressions call it: it gets values of its own and must give JSON back."""

    def call(*args: Any) -> Any:
        value = function(*[fresh(arg) for arg in args])
        if inspect.isawaitable(value):
            if inspect.iscoroutine(value):
                value.close()
            raise TypeError("the function is async; declare it as a tool")
        plain = plain_json(value)
        # Refuses what is not JSON here, where the function can be named, rather than where the value is shown.
        to_json_text(plain)
        return plain

    call.__name__ = name
    return call


def fresh(value: Any) -> Any:
    """A value that can be changed without harm to others."""
    return copy.deepcopy(value) if isinstance(value, list | dict) else value


def _called(function: Callable[..., Any], given: dict[str, Any]) -> tuple[Any, BaseException | None]:
    """A result or what was raised, handed over as a value: StopIteration cannot pass through a coroutine.

    What is meant to end a program ends none from a thread: it is the tool's error like any other.
    """
    try:
        return function(**given), None
    except BaseException as error:
        return None, error


async def _caught(work: Any) -> tuple[Any, BaseException | None]:
    try:
        return await work, None
    except (Exception, SystemExit) as error:
        return None, error


def _trace(error: BaseException) -> str:
    """The traceback from the tool's own frames on."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.replace("\\", "/").endswith(_OURS)]
    last = traceback.format_exception_only(type(error), error)
    return "".join([*traceback.format_list(own), *(line[:_LONGEST] for line in last)])
