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
from helix.executor.tools.threads import Threads
from helix.logical import Tool
from helix.replies import completed
from helix.types import Type, mismatch

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
                value, error = await self._threads.run(lambda: _called(self._function, given))
                if inspect.isawaitable(value):
                    value, error = await _caught(value)
        except asyncio.CancelledError as cancelled:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # The function's own tasks were cancelled, not this call.
            value, error = None, cancelled
        if error is not None:
            raise ToolError(f"{name} raised {_words(error)}", traceback=_trace(error)) from None
        return result_text(value, self._tool.returns, name)

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
    """A result or what was raised, handed over as a value: StopIteration cannot pass through a coroutine."""
    try:
        return function(**given), None
    except (Exception, SystemExit) as error:
        return None, error


async def _caught(work: Any) -> tuple[Any, BaseException | None]:
    try:
        return await work, None
    except (Exception, SystemExit) as error:
        return None, error


def _words(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _trace(error: BaseException) -> str:
    """The traceback from the tool's own frames on."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.replace("\\", "/").endswith(_OURS)]
    lines = traceback.format_list(own) + traceback.format_exception_only(type(error), error)
    return "".join(lines)


def result_text(value: Any, kind: Type, name: str) -> str:
    """A tool's result as JSON: tuples are lists, dataclasses and pydantic models records. Raises ToolError."""
    try:
        plain = completed(plain_json(value), kind)
        bad = mismatch(plain, kind)
        if bad is not None:
            raise ToolError(f"{name} gave a result that does not fit at `{bad[0] or '/'}`: {bad[1]}")
        return to_json_text(plain)
    except RecursionError:
        raise ToolError(f"{name} gave a result that is not JSON: nested too deeply, or in itself") from None
    except (TypeError, ValueError) as error:
        raise ToolError(f"{name} gave a result that is not JSON: {error}") from None


def plain_json(value: Any) -> Any:
    """Lists, dicts and scalars of what a function gave."""
    import dataclasses

    if value is None or value.__class__ in (str, int, float, bool):
        return value
    if hasattr(value, "model_dump"):
        return plain_json(value.model_dump(mode="json"))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(item) for item in value]
    # What is a str, int or float by inheritance, such as an enum, becomes one in fact.
    for kind in (str, int, float):
        if isinstance(value, kind) and not isinstance(value, bool):
            return kind.__str__(value) if kind is str else kind(value)
    return value
