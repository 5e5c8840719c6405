"""Where in the user's Python a call stands: its span for messages, and the variable that its result is assigned to."""

from __future__ import annotations

import ast
import linecache
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from types import CodeType, FrameType
from typing import Any

from helix.errors import BindError
from helix.span import Source, Span

_PACKAGE = __name__.rpartition(".")[0]
_MAX_FILES = 64
_MAX_DECORATORS = 50
_DEF = re.compile(r"\s*(async\s+)?def\b")

# What a call's result becomes where that is not a name: the value of the function around it.
_RETURNED = "return"


def problem(message: str, help: str | None = None, span: Span | None = None) -> BindError:
    """A mistake in a workflow function; it points at the line of the user's that is running unless told where."""
    return BindError(message, span or here(), help)


def caller() -> FrameType | None:
    """The innermost running frame that is not of this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    return frame


@dataclass(frozen=True, slots=True)
class KnownNames:
    """The names that the user's code has at a place."""

    globals: Mapping[str, Any]
    locals: Mapping[str, Any]

    def all(self) -> dict[str, Any]:
        """All names, local ones first."""
        return {**self.globals, **self.locals}


def names_here() -> KnownNames:
    """The names where the user's code is running."""
    frame = caller()
    return KnownNames({}, {}) if frame is None else KnownNames(frame.f_globals, dict(frame.f_locals))


def here() -> Span | None:
    """The span of the expression of the user's that is running."""
    frame = caller()
    return None if frame is None else _frame_span(frame)


def function_span(function: Callable[..., Any]) -> Span | None:
    """The line on which a function's `def` stands; None for a lambda, which is best shown in the call around it."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType) or code.co_name == "<lambda>":
        return None
    source = Source(name=code.co_filename)
    # The code of a decorated function begins with its decorators.
    first = code.co_firstlineno
    begins = (line for line in range(first, first + _MAX_DECORATORS) if _DEF.match(source.line(line)))
    line = next(begins, first)
    text = source.line(line)
    start = len(text) - len(text.lstrip()) + 1
    return Span(source=source, line=line, column=start, end_line=line, end_column=max(len(text.rstrip()) + 1, start))


def assigned_name() -> str | None:
    """The variable that the running call's result is assigned to, read from the source; None where it is not plain.

    A helper that returns the call's result passes its own caller's variable on.
    """
    frame = caller()
    while frame is not None and not _is_ours(frame):
        positions = _positions(frame)
        if positions is None:
            return None
        _, end_line, _, end_column = positions
        target = _targets(frame).get((end_line, end_column))
        if target != _RETURNED:
            return target
        frame = frame.f_back
    return None


def _is_ours(frame: FrameType) -> bool:
    name = str(frame.f_globals.get("__name__", ""))
    return name == _PACKAGE or name.startswith(_PACKAGE + ".")


def _positions(frame: FrameType) -> tuple[int, int, int, int] | None:
    """First and last line, and the columns in UTF-8 bytes, of the instruction that a frame is at."""
    found = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), (None,) * 4)
    line, end_line, column, end_column = found
    if line is None or end_line is None or column is None or end_column is None:
        return None
    return line, end_line, column, end_column


def _frame_span(frame: FrameType) -> Span:
    source = Source(name=frame.f_code.co_filename)
    positions = _positions(frame)
    if positions is None:
        line = frame.f_lineno or 1
        return Span(source=source, line=line, column=1, end_line=line, end_column=1)
    line, end_line, column, end_column = positions
    return Span(
        source=source,
        line=line,
        column=_characters(source, line, column) + 1,
        end_line=end_line,
        end_column=_characters(source, end_line, end_column) + 1,
    )


def _characters(source: Source, line: int, column: int) -> int:
    text = source.line(line)
    return column if text.isascii() else len(text.encode("utf-8")[:column].decode("utf-8", errors="ignore"))


# --- the targets of calls, by the place where each call ends ------------------------------------------------------

Targets = dict[tuple[int, int], str]


@dataclass(frozen=True, slots=True)
class _Indexed:
    lines: list[str]
    targets: Targets


_files: dict[str, _Indexed] = {}


def _targets(frame: FrameType) -> Targets:
    name = frame.f_code.co_filename
    lines = linecache.getlines(name, frame.f_globals)
    known = _files.get(name)
    # linecache keeps one list for a file until it reads it again, so the same list means the same text.
    if known is None or known.lines is not lines:
        known = _Indexed(lines, _index("".join(lines)))
        if len(_files) >= _MAX_FILES:
            _files.clear()
        _files[name] = known
    return known.targets


def _index(text: str) -> Targets:
    """The target of each call of a file. A call ends with a parenthesis of its own, so its end tells it apart."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    targets: Targets = {}
    for node in ast.walk(tree):
        for value, target in _assignments(node):
            for call in _results(value):
                place = (call.end_lineno or 0, call.end_col_offset or 0)
                targets.setdefault(place, target)
    return targets


def _assignments(node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """The values that a piece of Python gives a name, each with the name."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name), *_], value=value):
            yield value, name
        case ast.Assign(targets=[ast.Tuple(elts=names) | ast.List(elts=names)], value=ast.Tuple(elts=values)):
            if len(names) == len(values) and not any(isinstance(each, ast.Starred) for each in (*names, *values)):
                yield from ((v, n.id) for n, v in zip(names, values, strict=True) if isinstance(n, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            yield value, name
        case ast.NamedExpr(target=ast.Name(id=name), value=value):
            yield value, name
        case ast.Return(value=ast.Call() | ast.IfExp() as value) | ast.Lambda(body=ast.Call() | ast.IfExp() as value):
            yield value, _RETURNED
        case ast.Dict(keys=keys, values=values):
            for key, value in zip(keys, values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield value, key.value
        case ast.Call(func=ast.Name(id="output" | "repeat") | ast.Attribute(attr="output" | "repeat"), keywords=given):
            yield from ((each.value, each.arg) for each in given if each.arg is not None)


def _results(value: ast.expr) -> Iterator[ast.Call]:
    """The calls whose result a value is, or is a list of."""
    match value:
        case ast.Call(func=ast.Attribute(value=inner, attr="when")):
            yield value
            yield from _results(inner)
        case ast.Call():
            yield value
        case ast.IfExp(body=body, orelse=orelse):
            yield from _results(body)
            yield from _results(orelse)
        case ast.ListComp(elt=inner) | ast.GeneratorExp(elt=inner) | ast.DictComp(value=inner):
            yield from _results(inner)
        case ast.List(elts=items):
            for item in items:
                yield from _results(item)
