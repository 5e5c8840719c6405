"""Python functions as tools and in expressions: found beside the workflow, loaded once, run off the loop."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from helix.canonical import canonical_text
from helix.errors import OptionError, ToolError, name_help
from helix.logical import Tool
from helix.types import Type, mismatch

_loaded: dict[Path, ModuleType] = {}


def load_function(target: str, folders: Iterable[Path]) -> Callable[..., Any]:
    """The function that `module:name` names, from a module file in one of the folders and nowhere else.

    Raises OptionError where there is no such file or function, or where the module fails to load.
    """
    module_name, _, attribute = target.partition(":")
    searched = list(folders)
    path = next((found for folder in searched if (found := _module_file(folder, module_name)) is not None), None)
    if path is None:
        where = ", ".join(str(folder) for folder in searched) or "no folder"
        known = sorted(each.stem for folder in searched for each in folder.glob("*.py"))
        help = name_help(module_name, known, "modules there")
        raise OptionError(f"python module `{module_name}` was not found in {where}; {help}")
    module = _module(path, module_name)
    function: Any = module
    for part in attribute.split("."):
        function = getattr(function, part, None)
    if not callable(function):
        known = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        help = name_help(attribute, known, "functions there")
        raise OptionError(f"`{path.name}` has no function `{attribute}`; {help}")
    # A function decorated as a tool in Python keeps the plain function underneath.
    plain: Callable[..., Any] = inspect.unwrap(function)
    return plain


def _module_file(folder: Path, name: str) -> Path | None:
    base = folder.joinpath(*name.split("."))
    for candidate in (base.with_suffix(".py"), base / "__init__.py"):
        if candidate.is_file() and candidate.resolve().is_relative_to(folder.resolve()):
            return candidate.resolve()
    return None


def load_module(path: Path) -> ModuleType:
    """The module in a Python file, loaded once. Raises OptionError where it fails to load."""
    return _module(path.resolve(), path.stem)


def _module(path: Path, name: str) -> ModuleType:
    if path in _loaded:
        return _loaded[path]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise OptionError(f"{path} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    # Modules beside it can be imported while it loads, and only then.
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        message = f"python module `{name}` failed to load: {type(error).__name__}: {error}"
        raise OptionError(f"{message} ({Path(place.filename).name}:{place.lineno})") from error
    finally:
        sys.path.remove(str(path.parent))
    _loaded[path] = module
    return module


def python_tool(tool: Tool, function: Callable[..., Any]) -> Callable[[list[Any]], Awaitable[str]]:
    """Runs a Python function: a coroutine function on the loop, any other in a thread."""
    names = [param.name for param in tool.params]

    async def run(args: list[Any]) -> str:
        given = dict(zip(names, args, strict=True))
        try:
            if inspect.iscoroutinefunction(function):
                value = await function(**given)
            else:
                value = await asyncio.to_thread(function, **given)
        except Exception as error:
            message = f"{tool.name} raised {type(error).__name__}: {error}"
            raise ToolError(message, traceback=_trace(error)) from None
        return result_text(value, tool.returns, tool.name)

    return run


def _trace(error: Exception) -> str:
    """The traceback from the tool's own frames on."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [
        frame
        for frame in frames
        if not frame.filename.endswith(("/asyncio/threads.py", "/concurrent/futures/thread.py"))
    ]
    lines = traceback.format_list(own[1:] or own) + traceback.format_exception_only(type(error), error)
    return "".join(lines)


def result_text(value: Any, kind: Type, name: str) -> str:
    """A tool's result as JSON: tuples are lists, dataclasses and pydantic models records. Raises ToolError."""
    plain = _plain(value)
    bad = mismatch(plain, kind)
    if bad is not None:
        raise ToolError(f"{name} gave a result that does not fit at `{bad[0] or '/'}`: {bad[1]}")
    try:
        return canonical_text(plain)
    except (TypeError, ValueError) as error:
        raise ToolError(f"{name} gave a result that is not JSON: {error}") from None


def _plain(value: Any) -> Any:
    import dataclasses

    if hasattr(value, "model_dump"):
        return _plain(value.model_dump(mode="json"))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
