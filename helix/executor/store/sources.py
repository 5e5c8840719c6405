"""What a tool's results hang on besides its arguments: the source of a Python function, the content of a database."""

from __future__ import annotations

import inspect
import os
import types
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from helix.canonical import canonical_text

# A larger database is not read through to say which one it is: its results are not stored.
MOST_DATABASE_BYTES = 256 * 1024 * 1024
_BLOCK = 1 << 20


class Unknown(Exception):
    """Something whose content cannot be told, so that nothing may be stored under it."""


def function_version(function: Callable[..., Any]) -> str | None:
    """A digest of a Python function: its source, defaults and closure, and all of its module that it uses.

    Functions and classes of its own module count with their source, constants with their value, other modules by name
    alone. None where something it uses has no content that could be told, such as an open connection: then a declared
    version has to stand for it.
    """
    try:
        parts: dict[str, Any] = {}
        _describe(function, getattr(inspect.unwrap(function), "__module__", None), parts, {})
        return sha256(canonical_text(parts).encode("utf-8", "surrogatepass")).hexdigest()
    except (Unknown, OSError, TypeError, ValueError, RecursionError):
        return None


def _describe(value: Any, module: str | None, parts: dict[str, Any], seen: dict[int, str]) -> Any:
    """A value as JSON; functions and classes of the module are put into `parts` by name, once."""
    if value is None or isinstance(value, bool | int | float | str):
        return [type(value).__name__, value if isinstance(value, str) else repr(value)]
    if isinstance(value, bytes):
        return ["bytes", value.hex()]
    if isinstance(value, tuple | list):
        return [type(value).__name__, *(_describe(item, module, parts, seen) for item in value)]
    if isinstance(value, set | frozenset):
        return [type(value).__name__, *sorted(canonical_text(_describe(item, module, parts, seen)) for item in value)]
    if isinstance(value, dict):
        pairs = [
            [_describe(key, module, parts, seen), _describe(item, module, parts, seen)] for key, item in value.items()
        ]
        return ["dict", *sorted(pairs, key=canonical_text)]
    if isinstance(value, types.ModuleType):
        return ["module", value.__name__]
    if isinstance(value, partial):
        inner = [_describe(part, module, parts, seen) for part in (value.func, value.args, value.keywords)]
        return ["partial", *inner]
    if isinstance(value, types.BuiltinFunctionType | types.MethodDescriptorType):
        return ["built-in", value.__qualname__]
    if isinstance(value, types.MethodType):
        raise Unknown
    if isinstance(value, types.FunctionType):
        return _function(value, module, parts, seen)
    if isinstance(value, type):
        return _class(value, module, parts, seen)
    if type(value).__module__ == "re" and hasattr(value, "pattern"):
        return ["pattern", _describe(value.pattern, module, parts, seen), value.flags]
    raise Unknown


def _function(value: types.FunctionType, module: str | None, parts: dict[str, Any], seen: dict[int, str]) -> Any:
    if value.__module__ != module:
        return ["function", f"{value.__module__}.{value.__qualname__}"]
    if id(value) in seen:
        return ["function", seen[id(value)]]
    name = seen[id(value)] = f"{len(seen)} {value.__qualname__}"
    inner = inspect.unwrap(value)
    closure = inspect.getclosurevars(inner) if isinstance(inner, types.FunctionType) else None
    found: dict[str, Any] = {"source": inspect.getsource(inner)}
    parts[name] = found
    defaults = [value.__defaults__, value.__kwdefaults__]
    found["defaults"] = [_describe(default, module, parts, seen) for default in defaults]
    if closure is not None:
        used = {**closure.nonlocals, **_globals(inner)}
        found["uses"] = {key: _describe(used[key], module, parts, seen) for key in sorted(used)}
    return ["function", name]


def _globals(function: types.FunctionType) -> dict[str, Any]:
    """The globals that a function or a function inside it reads."""
    names: set[str] = set()
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return {name: function.__globals__[name] for name in names if name in function.__globals__}


def _class(value: type, module: str | None, parts: dict[str, Any], seen: dict[int, str]) -> Any:
    if value.__module__ != module:
        return ["class", f"{value.__module__}.{value.__qualname__}"]
    if id(value) in seen:
        return ["class", seen[id(value)]]
    name = seen[id(value)] = f"{len(seen)} {value.__qualname__}"
    found: dict[str, Any] = {"source": inspect.getsource(value)}
    parts[name] = found
    found["bases"] = [_describe(base, module, parts, seen) for base in value.__bases__]
    methods = {key: part for key, part in sorted(vars(value).items()) if isinstance(part, types.FunctionType)}
    found["methods"] = {
        key: _describe(part, module, parts, seen) for key, part in methods.items() if part.__module__ == module
    }
    return ["class", name]


class Database:
    """A SQLite file as results over it know it: by its content, wherever it lies.

    `version` is a digest of the file and of what its write-ahead log holds; `content` says whether it is of the whole
    content or, for a large file, of its size and time alone, which holds on this machine only.
    """

    def __init__(self, path: Path) -> None:
        self._files = [path, path.with_name(path.name + "-wal")]
        self._state = self._stat()
        sizes = [size for size, _ in self._state]
        self.content = sum(sizes) <= MOST_DATABASE_BYTES
        hasher = sha256()
        for file, (size, time) in zip(self._files, self._state, strict=True):
            hasher.update(f"{size} {0 if self.content else time}\n".encode())
            if self.content and size:
                _read(file, hasher)
        self.version = hasher.hexdigest()

    def unchanged(self) -> bool:
        """Whether the files are still as they were when the version was made."""
        return self._stat() == self._state

    def _stat(self) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for file in self._files:
            try:
                state = os.stat(file)
                found.append((state.st_size, state.st_mtime_ns))
            except OSError:
                found.append((0, 0))
        return found


def _read(path: Path, hasher: Any) -> None:
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                hasher.update(block)
    except OSError:
        hasher.update(b"unreadable")
