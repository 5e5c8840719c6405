"""Python modules beside a workflow: found in its folder and nowhere else, loaded once."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from helix.errors import OptionError, name_help

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
    # A function decorated as a tool in Python keeps one over JSON values for runs.
    plain: Callable[..., Any] = getattr(function, "json_function", None) or inspect.unwrap(function)
    return plain


def load_module(path: Path) -> ModuleType:
    """The module in a Python file, loaded once. Raises OptionError where it fails to load."""
    return _module(path.resolve(), path.stem)


def _module_file(folder: Path, name: str) -> Path | None:
    base = folder.joinpath(*name.split("."))
    for candidate in (base.with_suffix(".py"), base / "__init__.py"):
        if candidate.is_file() and candidate.resolve().is_relative_to(folder.resolve()):
            return candidate.resolve()
    return None


def _module(path: Path, name: str) -> ModuleType:
    if path in _loaded:
        return _loaded[path]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise OptionError(f"{path} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    try:
        with _importable(module, path.parent):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        message = f"python module `{name}` failed to load: {type(error).__name__}: {error}"
        raise OptionError(f"{message} ({Path(place.filename).name}:{place.lineno})") from error
    _loaded[path] = module
    return module


@contextmanager
def _importable(module: ModuleType, folder: Path) -> Iterator[None]:
    """Lets a module import those beside it, and its classes find it by name, while it loads and only then.

    A module that is called like an installed one must not take that one's place for others.
    """
    name = module.__name__
    known = sys.modules.get(name)
    sys.path.insert(0, str(folder))
    if known is None:
        sys.modules[name] = module
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        if known is None:
            sys.modules.pop(name, None)
