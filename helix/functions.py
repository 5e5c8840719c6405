"""The built-in functions of expressions; in a prompt they are filters (`{{ views | join(", ") }}`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from helix.canonical import canonical_text
from helix.errors import ExecutionError
from helix.types import FLOAT, INT, JSON, TEXT, ListOf, Optional, Type, found, is_textual, join, required


class ExpressionError(ExecutionError):
    """An expression that has no value for this row: a wrong type, an index out of range, a division by zero."""

    kind = "expression"


class MissingValue(ExpressionError):
    """A field or item that is not there; `default(...)` takes its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A built-in: parameter names (those from `required` on may be left out), result type, and the function itself."""

    name: str
    parameters: tuple[str, ...]
    required: int
    result: Callable[[tuple[Type, ...]], Type]
    run: Callable[..., Any]


def to_text(value: Any) -> str:
    """A value as a prompt shows it: null is empty, a text is itself, all else is canonical JSON."""
    if value.__class__ is str:
        return value
    if value is None:
        return ""
    try:
        return canonical_text(value)
    except RecursionError:
        raise ExpressionError("the value is nested too deeply to be written as text") from None


def _text(value: Any, name: str) -> str:
    if value.__class__ is not str:
        raise ExpressionError(f"{name} needs a text, found {found(value)}")
    return value


def _list(value: Any, name: str) -> list[Any]:
    if value.__class__ is not list:
        raise ExpressionError(f"{name} needs a list, found {found(value)}")
    return value


def _number(value: Any, name: str) -> int | float:
    if value.__class__ is not int and value.__class__ is not float:
        raise ExpressionError(f"{name} needs a number, found {found(value)}")
    return value


def _int(value: Any, name: str) -> int:
    if value.__class__ is not int:
        raise ExpressionError(f"{name} needs an int, found {found(value)}")
    return value


def _len(value: Any) -> int:
    if value is None:
        return 0
    if not isinstance(value, str | list | dict):
        raise ExpressionError(f"len needs a text, list or record, found {found(value)}")
    return len(value)


def _join(value: Any, separator: Any = "") -> str:
    return _text(separator, "join").join(to_text(item) for item in _list(value, "join"))


def _split(value: Any, separator: Any = None) -> list[str]:
    text = _text(value, "split")
    if separator == "":
        raise ExpressionError("split needs a separator that is not empty")
    return text.split(None if separator is None else _text(separator, "split"))


def _default(value: Any, fallback: Any = "", boolean: Any = False) -> Any:
    return fallback if value is None or (boolean and not value) else value


def _end(value: Any, index: int, name: str) -> Any:
    items = value if isinstance(value, str) else _list([] if value is None else value, name)
    if not items:
        raise MissingValue(f"{name} needs a list or text that is not empty")
    return items[index]


def _take(value: Any, count: Any) -> Any:
    return (value if isinstance(value, str) else _list(value, "take"))[: max(0, _int(count, "take"))]


def _replace(value: Any, old: Any, new: Any) -> str:
    if _text(old, "replace") == "":
        raise ExpressionError("replace needs a text to look for that is not empty")
    return _text(value, "replace").replace(old, _text(new, "replace"))


def _round(value: Any, digits: Any = 0) -> int | float:
    if not -400 <= _int(digits, "round") <= 400:
        raise ExpressionError(f"round takes -400 to 400 digits, found {digits}")
    rounded = round(_number(value, "round"), digits)
    return int(rounded) if digits == 0 else rounded


def _to_int(value: Any) -> int:
    try:
        if isinstance(value, str | int | float):
            return int(value)
    except (ValueError, OverflowError):
        pass
    raise ExpressionError(f"int needs a number or a text that is one, found {found(value)}")


def _to_float(value: Any) -> float:
    try:
        if isinstance(value, str | int | float):
            number = float(value)
            if number - number == 0:
                return number
    except (ValueError, OverflowError):
        pass
    raise ExpressionError(f"float needs a number or a text that is one, found {found(value)}")


def _sum(value: Any) -> int | float:
    try:
        total = sum(_number(item, "sum") for item in _list(value, "sum"))
    except OverflowError:
        total = float("inf")
    if total - total != 0:
        raise ExpressionError("the sum is not a finite number")
    return total


def _ordered(value: Any, name: str) -> list[Any]:
    items = _list(value, name)
    numbers = all(item.__class__ in (int, float) for item in items)
    if not numbers and not all(item.__class__ is str for item in items):
        raise ExpressionError(f"{name} needs a list of numbers or a list of texts")
    return items


def _extreme(pick: Callable[[list[Any]], Any], name: str) -> Callable[[Any], Any]:
    def run(value: Any) -> Any:
        items = _ordered(value, name)
        if not items:
            raise MissingValue(f"{name} needs a list that is not empty")
        return pick(items)

    return run


def _unique(value: Any) -> list[Any]:
    seen: dict[str, Any] = {}
    for item in _list(value, "unique"):
        seen.setdefault(canonical_text(item), item)
    return list(seen.values())


def _range(start: Any, stop: Any = None) -> list[int]:
    low, high = (0, _int(start, "range")) if stop is None else (_int(start, "range"), _int(stop, "range"))
    if high - low > 100_000:
        raise ExpressionError(f"range gives at most 100000 numbers, found {high - low}")
    return list(range(low, high))


def _always(kind: Type) -> Callable[[tuple[Type, ...]], Type]:
    return lambda kinds: kind


def _same(kinds: tuple[Type, ...]) -> Type:
    return required(kinds[0])


def _item(kinds: tuple[Type, ...]) -> Type:
    kind = required(kinds[0])
    return kind.item if isinstance(kind, ListOf) else TEXT if is_textual(kind) else JSON


def _defaulted(kinds: tuple[Type, ...]) -> Type:
    value = kinds[0].inner if isinstance(kinds[0], Optional) else kinds[0]
    return join(value, kinds[1]) if len(kinds) > 1 else join(value, TEXT)


FUNCTIONS: dict[str, Function] = {
    function.name: function
    for function in (
        Function(name="abs", parameters=("number",), required=1, result=_same, run=lambda v: abs(_number(v, "abs"))),
        Function(
            name="default", parameters=("value", "fallback", "boolean"), required=1, result=_defaulted, run=_default
        ),
        Function(name="first", parameters=("list",), required=1, result=_item, run=lambda v: _end(v, 0, "first")),
        Function(name="float", parameters=("value",), required=1, result=_always(FLOAT), run=_to_float),
        Function(name="int", parameters=("value",), required=1, result=_always(INT), run=_to_int),
        Function(name="join", parameters=("list", "separator"), required=1, result=_always(TEXT), run=_join),
        Function(name="json", parameters=("value",), required=1, result=_always(TEXT), run=canonical_text),
        Function(name="last", parameters=("list",), required=1, result=_item, run=lambda v: _end(v, -1, "last")),
        Function(name="len", parameters=("value",), required=1, result=_always(INT), run=_len),
        Function(
            name="lower",
            parameters=("text",),
            required=1,
            result=_always(TEXT),
            run=lambda v: _text(v, "lower").lower(),
        ),
        Function(name="max", parameters=("list",), required=1, result=_item, run=_extreme(max, "max")),
        Function(name="min", parameters=("list",), required=1, result=_item, run=_extreme(min, "min")),
        Function(name="range", parameters=("start", "stop"), required=1, result=_always(ListOf(INT)), run=_range),
        Function(name="replace", parameters=("text", "old", "new"), required=3, result=_always(TEXT), run=_replace),
        Function(
            name="reverse", parameters=("list",), required=1, result=_same, run=lambda v: _list(v, "reverse")[::-1]
        ),
        Function(name="round", parameters=("number", "digits"), required=1, result=_same, run=_round),
        Function(
            name="sort", parameters=("list",), required=1, result=_same, run=lambda v: sorted(_ordered(v, "sort"))
        ),
        Function(name="split", parameters=("text", "separator"), required=1, result=_always(ListOf(TEXT)), run=_split),
        Function(name="sum", parameters=("list",), required=1, result=_item, run=_sum),
        Function(name="take", parameters=("list", "count"), required=2, result=_same, run=_take),
        Function(name="text", parameters=("value",), required=1, result=_always(TEXT), run=to_text),
        Function(
            name="trim", parameters=("text",), required=1, result=_always(TEXT), run=lambda v: _text(v, "trim").strip()
        ),
        Function(name="unique", parameters=("list",), required=1, result=_same, run=_unique),
        Function(
            name="upper",
            parameters=("text",),
            required=1,
            result=_always(TEXT),
            run=lambda v: _text(v, "upper").upper(),
        ),
    )
}

# Names under which Jinja2 users know some of these.
ALIASES = {"length": "len", "count": "len", "tojson": "json", "string": "text", "d": "default"}
