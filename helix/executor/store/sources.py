"""What a tool's results hang on besides its arguments: the source of a Python function, the content of a database."""

from __future__ import annotations

import ast
import inspect
import os
import types
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from helix.canonical import canonical_text

# A larger database is not read through to say which one it is: its results are not stored.
MOST_DATABASE_BYTES = 256 * 1024 * 1024
_BLOCK = 1 << 20
# The files beside a function's own as this process first saw them: it goes on with what it imported then, so that the
# version of one that was edited since is not known.
_FIRST: dict[Path, str] = {}


class Unknown(Exception):
    """Something whose content cannot be told, so that nothing may be stored under it."""


def function_version(function: Callable[..., Any]) -> str | None:
    """A digest of a Python function: its source, defaults and closure, and all that it uses.

    Functions and classes of its own module count with their source, constants with their value, files beside its own or
    in folders below that it imports with their content, all else by name alone. None where something it uses has no
    content that could be told, such as an open connection: then a declared version has to stand for it.
    """
    try:
        described = _Described(inspect.unwrap(function))
        described.value(function)
        files = {} if described.own is None else _imported(described.own)
        return sha256(canonical_text([described.parts, files]).encode("utf-8", "surrogatepass")).hexdigest()
    except (Unknown, OSError, TypeError, ValueError, SyntaxError, RecursionError):
        return None


class _Described:
    """A function and what it uses as JSON: `parts` of its own module by name. `own` is the file of the module."""

    def __init__(self, function: Any) -> None:
        self.parts: dict[str, Any] = {}
        self._module = getattr(function, "__module__", None)
        file = getattr(function, "__globals__", {}).get("__file__")
        self.own = Path(file).resolve() if isinstance(file, str) and Path(file).is_file() else None
        self._seen: dict[int, str] = {}

    def value(self, value: Any) -> Any:
        """A value as JSON. Raises Unknown."""
        if value is None or isinstance(value, bool | int | float | str):
            return [type(value).__name__, value if isinstance(value, str) else repr(value)]
        if isinstance(value, bytes):
            return ["bytes", value.hex()]
        if isinstance(value, tuple | list):
            return [type(value).__name__, *map(self.value, value)]
        if isinstance(value, set | frozenset):
            return [type(value).__name__, *sorted(canonical_text(self.value(item)) for item in value)]
        if isinstance(value, dict):
            pairs = [[self.value(key), self.value(item)] for key, item in value.items()]
            return ["dict", *sorted(pairs, key=canonical_text)]
        if isinstance(value, types.ModuleType):
            return ["module", value.__name__]
        if isinstance(value, partial):
            return ["partial", *map(self.value, (value.func, value.args, value.keywords))]
        if isinstance(value, types.BuiltinFunctionType | types.MethodDescriptorType | types.WrapperDescriptorType):
            return ["built-in", value.__qualname__]
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, type):
            return self._class(value)
        if type(value).__module__ == "re" and hasattr(value, "pattern"):
            return ["pattern", self.value(value.pattern), value.flags]
        raise Unknown

    def _function(self, value: types.FunctionType) -> Any:
        if value.__module__ != self._module:
            return ["function", f"{value.__module__}.{value.__qualname__}"]
        if id(value) in self._seen:
            return ["function", self._seen[id(value)]]
        name = self._seen[id(value)] = f"{len(self._seen)} {value.__qualname__}"
        inner = inspect.unwrap(value)
        found = self.parts[name] = {"source": inspect.getsource(inner)}
        found["defaults"] = [self.value(default) for default in (value.__defaults__, value.__kwdefaults__)]
        if isinstance(inner, types.FunctionType):
            used = {**inspect.getclosurevars(inner).nonlocals, **_globals(inner)}
            found["uses"] = {key: self.value(used[key]) for key in sorted(used)}
        return ["function", name]

    def _class(self, value: type) -> Any:
        if value.__module__ != self._module:
            return ["class", f"{value.__module__}.{value.__qualname__}"]
        if id(value) in self._seen:
            return ["class", self._seen[id(value)]]
        name = self._seen[id(value)] = f"{len(self._seen)} {value.__qualname__}"
        found = self.parts[name] = {"source": self._source(value)}
        found["bases"] = [self.value(base) for base in value.__bases__]
        # What a decorator wrote, such as the methods of a dataclass, follows from the source.
        file = None if self.own is None else str(self.own)
        found["methods"] = {
            key: self.value(part)
            for key, part in sorted(vars(value).items())
            if isinstance(part, types.FunctionType) and part.__code__.co_filename == file
        }
        return ["class", name]

    def _source(self, value: type) -> str:
        """The source of a class, also of one that its module's name does not lead to."""
        try:
            return inspect.getsource(value)
        except (OSError, TypeError):
            if self.own is None:
                raise
        body: list[ast.stmt] = ast.parse(self.own.read_bytes()).body
        for name in value.__qualname__.split("."):
            found = next((node for node in body if isinstance(node, ast.ClassDef) and node.name == name), None)
            if found is None:
                raise Unknown
            body = found.body
        return ast.unparse(found) if found is not None else ""


def _imported(own: Path) -> dict[str, str]:
    """The files that a file imports from its own folder or from below, those that they import in turn, by digests.

    Raises Unknown where one of them has changed since this process imported it.
    """
    found: dict[str, str] = {}
    waiting = [own]
    while waiting:
        file = waiting.pop()
        text = file.read_bytes()
        shown = file.relative_to(own.parent).as_posix()
        if file != own:
            found[shown] = sha256(text).hexdigest()
            if _FIRST.setdefault(file, found[shown]) != found[shown]:
                raise Unknown
        for name in _imports(text, file, own.parent):
            base = own.parent.joinpath(*name.split("."))
            for path in (base.with_suffix(".py"), base / "__init__.py"):
                if path.is_file() and path != own and path.relative_to(own.parent).as_posix() not in found:
                    found[path.relative_to(own.parent).as_posix()] = ""
                    waiting.append(path)
    return found


def _imports(text: bytes, file: Path, root: Path) -> Iterator[str]:
    """The modules that a file imports, anywhere in it, as names below a folder; packages on the way among them."""
    package = file.parent.relative_to(root).parts
    for node in ast.walk(ast.parse(text)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            upwards = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join((*upwards, *((node.module,) if node.module else ())))
            names = [base, *(f"{base}.{alias.name}" if base else alias.name for alias in node.names)]
        for name in names:
            parts = [part for part in name.split(".") if part]
            yield from (".".join(parts[:length]) for length in range(1, len(parts) + 1))


def _globals(function: types.FunctionType) -> dict[str, Any]:
    """The globals that a function or a function inside it reads."""
    names: set[str] = set()
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return {name: function.__globals__[name] for name in names if name in function.__globals__}


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
