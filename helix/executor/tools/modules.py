"""Python modules beside a workflow: found in its folder and nowhere else, loaded once unless they are changed."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import linecache
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from importlib.util import decode_source
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from helix.errors import OptionError, SourceError, SourceErrors, name_help

# By path: the text that a module was made of, and the module.
_loaded: dict[Path, tuple[bytes, ModuleType]] = {}


def load_function(target: str, folders: Iterable[Path]) -> Callable[..., Any]:
    """The function that `module:name` names, from a module file in one of the folders and nowhere else.

    Raises OptionError where there is no such file or function, or where the module fails to load.
    """
    path, module_name, attribute = _found(target, folders)
    module = _module(path, module_name)
    function: Any = module
    for part in attribute.split("."):
        function = getattr(function, part, None)
    if not callable(function):
        known = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        raise _no_function(path, attribute, known)
    # A function decorated as a tool in Python keeps one over JSON values for runs.
    plain: Callable[..., Any] = getattr(function, "json_function", None) or inspect.unwrap(function)
    return plain


def look_up_function(target: str, folders: Iterable[Path]) -> None:
    """Looks whether a module file in one of the folders has the function that `module:name` names, by its text alone.

    Nothing is run. Raises OptionError as `load_function` does, where the text tells that it would.
    """
    path, name, attribute = _found(target, folders)
    try:
        statements = ast.parse(path.read_bytes(), str(path)).body
    except OSError as error:
        raise OptionError(f"{path} cannot be read: {error.strerror or error}") from None
    except (SyntaxError, ValueError) as error:
        message = f"python module `{name}` failed to load: {type(error).__name__}: {_message(error)}"
        raise OptionError(f"{message} ({_place(error, path)})") from None
    known = _set_names(statements)
    if known is not None and attribute.split(".")[0] not in known:
        raise _no_function(path, attribute, [name for name in known if not name.startswith("_")])


def _set_names(statements: Sequence[ast.stmt]) -> list[str] | None:
    """The names that a module sets, in order; None where only running it would tell."""
    found: dict[str, None] = {}
    stack: list[ast.AST] = list(reversed(statements))
    while stack:
        match stack.pop():
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.setdefault(name)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                for each in names:
                    found.setdefault(each.asname or each.name.partition(".")[0])
            case ast.Name(id=name, ctx=ast.Store()):
                found.setdefault(name)
            case ast.Call(func=ast.Name(id="globals" | "exec" | "setattr")):
                return None
            case ast.AST() as other:
                stack.extend(reversed(list(ast.iter_child_nodes(other))))
    return None if "*" in found or "__getattr__" in found else list(found)


def _found(target: str, folders: Iterable[Path]) -> tuple[Path, str, str]:
    """The file of the module that `module:name` names, and both names."""
    name, _, attribute = target.partition(":")
    searched = list(folders)
    path = next((found for folder in searched if (found := _module_file(folder, name)) is not None), None)
    if path is None:
        where = ", ".join(str(folder) for folder in searched) or "no folder"
        known = sorted(each.stem for folder in searched for each in folder.glob("*.py"))
        raise OptionError(f"python module `{name}` was not found in {where}; {name_help(name, known, 'modules')}")
    return path, name, attribute


def _no_function(path: Path, attribute: str, known: Iterable[str]) -> OptionError:
    return OptionError(f"`{path.name}` has no function `{attribute}`; {name_help(attribute, known, 'functions there')}")


def load_module(path: Path) -> ModuleType:
    """The module in a Python file, loaded again only where its text has changed. Raises OptionError where it fails."""
    return _module(path.resolve(), path.stem)


def _module_file(folder: Path, name: str) -> Path | None:
    base = folder.joinpath(*name.split("."))
    for candidate in (base.with_suffix(".py"), base / "__init__.py"):
        if candidate.is_file() and candidate.resolve().is_relative_to(folder.resolve()):
            return candidate.resolve()
    return None


def _module(path: Path, name: str) -> ModuleType:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise OptionError(f"{path} cannot be read: {error.strerror or error}") from None
    if path in _loaded and _loaded[path][0] == text:
        return _loaded[path][1]
    spec = importlib.util.spec_from_loader(name, _Loader(name, str(path), text), origin=str(path))
    assert spec is not None
    spec.has_location = True
    module = importlib.util.module_from_spec(spec)
    try:
        with _importable(module, path.parent):
            assert spec.loader is not None
            spec.loader.exec_module(module)
    except (SourceError, SourceErrors):
        # A mistake in a workflow that the module describes has a place of its own.
        raise
    except (Exception, SystemExit) as error:
        message = f"python module `{name}` failed to load: {type(error).__name__}: {_message(error)}"
        raise OptionError(f"{message} ({_place(error, path)})") from error
    _loaded[path] = text, module
    return module


def _message(error: BaseException) -> str:
    return error.msg if isinstance(error, SyntaxError) else str(error)


def _place(error: BaseException, path: Path) -> str:
    """The line of the module, or of one beside it, at which it failed to load."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno or 1}"
    frames = [each for each in traceback.extract_tb(error.__traceback__) if Path(each.filename).parent == path.parent]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else path.name


class _Loader(SourceFileLoader):
    """Runs the text that was read: neither compiled files, which hold an older one where size and second are equal, nor
    another read of the file. The functions' source, by which results are known, is of that text too.
    """

    def __init__(self, name: str, path: str, text: bytes) -> None:
        super().__init__(name, path)
        self._text = text

    def get_code(self, fullname: str) -> CodeType:
        """The code of the text."""
        lines = decode_source(self._text).splitlines(keepends=True)
        # Without a time, so that it is not held against the file.
        linecache.cache[self.path] = len(self._text), None, lines, self.path
        code: CodeType = self.source_to_code(self._text, self.path)
        return code


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
