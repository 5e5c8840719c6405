"""Python's types as the types of a workflow, and values of those types to and from JSON.

str, int, float and bool are themselves; `list[T]`, `Sequence[T]`, `tuple[T, ...]` are lists; `list[dict]` is a table;
dict, Any and object are json; `Literal["a", "b"]` and enums of texts are choices; `T | None` is `T?`; dataclasses,
TypedDicts, NamedTuples, pydantic models and `{"name": type}` are records; another union is what all of it fits into.
"""

from __future__ import annotations

import collections.abc
import types
import typing
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache, reduce
from typing import Any

from helix.dsl.markers import refuse_markers
from helix.dsl.places import KnownNames, function_span, names_here, problem
from helix.span import Span
from helix.types import (
    BOOL,
    FLOAT,
    INT,
    JSON,
    TABLE,
    TEXT,
    Choice,
    ListOf,
    Record,
    Type,
    join,
    optional,
)

_SCALARS: dict[Any, Type] = {str: TEXT, int: INT, float: FLOAT, bool: BOOL, Any: JSON, object: JSON}
_LISTS = (
    list,
    tuple,
    collections.abc.Sequence,
    collections.abc.MutableSequence,
    collections.abc.Iterable,
    collections.abc.Collection,
)
_RECORDS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_HELP = (
    "types are str, int, float, bool, list[...], dict, Literal[...], enums of texts, dataclasses, TypedDicts, pydantic "
    "models, and any of these `| None`"
)


def to_type(annotation: Any, what: str, span: Span | None = None, names: KnownNames | None = None) -> Type:
    """The type of a workflow for one of Python. `what` names the place for messages; raises BindError for others.

    `names` are known where the annotation stands (left out: where the caller is): local types refer to one another.
    """
    return _Reader(what, span, names).read(annotation, ())


def hints_of(function: Callable[..., Any], names: KnownNames) -> dict[str, Any]:
    """The annotations of a function; those written as texts may use the names of the place that it is marked at."""
    known: dict[str, Any] = dict(names.locals) if names.globals is function.__globals__ else {}
    closure = getattr(function, "__closure__", None) or ()
    for name, cell in zip(function.__code__.co_freevars, closure, strict=False):
        try:
            known[name] = cell.cell_contents
        except ValueError:
            # A name that the function around has not set yet.
            continue
    try:
        return typing.get_type_hints(function, localns=known, include_extras=True)
    except NameError as error:
        message = f"an annotation of `{function.__name__}` uses `{error.name}`, which is not known there"
        raise problem(message, "define the type before the function", function_span(function)) from None


class _Reader:
    def __init__(self, what: str, span: Span | None, names: KnownNames | None) -> None:
        self._what = what
        self._span = span
        self._names = names

    def read(self, kind: Any, inside: tuple[Any, ...]) -> Type:
        """The type; `inside` holds the records around it, so that one which holds itself is found."""
        if isinstance(kind, Type):
            return kind
        if isinstance(kind, dict):
            return self._record(kind.items(), inside)
        if isinstance(kind, str):
            raise problem(
                f"{self._what}: the type is written as the text {kind!r}", "write the type itself", self._span
            )
        if isinstance(kind, typing.NewType):
            return self.read(kind.__supertype__, inside)
        if type(kind).__name__ == "TypeAliasType":
            return self.read(kind.__value__, inside)
        try:
            if kind in _SCALARS:
                return _SCALARS[kind]
        except TypeError:
            return self._unknown(kind)
        origin, args = typing.get_origin(kind), typing.get_args(kind)
        if origin is not None and args:
            return self._generic(kind, origin, args, inside)
        # `typing.List` is `list` by another name.
        kind = origin or kind
        if kind in _LISTS:
            return ListOf(JSON)
        if kind in _RECORDS:
            return JSON
        if isinstance(kind, type):
            return self._class(kind, inside)
        return self._unknown(kind)

    def _generic(self, kind: Any, origin: Any, args: tuple[Any, ...], inside: tuple[Any, ...]) -> Type:
        if origin in (typing.Annotated, typing.Required, typing.ReadOnly if hasattr(typing, "ReadOnly") else None):
            return self.read(args[0], inside)
        if origin is typing.NotRequired:
            return optional(self.read(args[0], inside))
        if origin in (typing.Union, types.UnionType):
            read = [self.read(arg, inside) for arg in args if arg is not type(None)]
            whole = reduce(join, read)
            return optional(whole) if type(None) in args else whole
        if origin is typing.Literal:
            return self._choice(args)
        if origin is tuple and not (len(args) == 2 and args[1] is Ellipsis):
            items = [self.read(arg, inside) for arg in args]
            return ListOf(reduce(join, items)) if items else ListOf(JSON)
        if origin in _LISTS:
            return self._list(args[0], inside)
        if origin in _RECORDS:
            return JSON
        if isinstance(origin, type) and _is_record(origin):
            return self._class(origin, inside)
        return self._unknown(kind)

    def _list(self, item: Any, inside: tuple[Any, ...]) -> Type:
        if item in _RECORDS or typing.get_origin(item) in _RECORDS:
            return TABLE
        return ListOf(self.read(item, inside))

    def _choice(self, labels: tuple[Any, ...]) -> Type:
        plain = [label.value if isinstance(label, Enum) else label for label in labels]
        texts = tuple(dict.fromkeys(label for label in plain if label is not None))
        if not texts or not all(isinstance(label, str) and label.strip() for label in texts):
            shown = ", ".join(repr(label) for label in plain)
            raise problem(f"{self._what}: the labels of a choice are texts, found {shown}", None, self._span)
        for label in texts:
            refuse_markers(label, "a label of a choice", "labels are the same for all rows")
        return optional(Choice(texts)) if None in plain else Choice(texts)

    def _class(self, kind: Any, inside: tuple[Any, ...]) -> Type:
        if kind in inside:
            help = "use `dict` where the records may nest without end"
            raise problem(f"{self._what}: `{kind.__name__}` holds itself", help, self._span)
        if issubclass(kind, Enum):
            return self._choice(tuple(kind))
        if not _is_record(kind):
            return self._unknown(kind)
        deeper = (*inside, kind)
        if hasattr(kind, "model_fields"):
            named = [(field.alias or name, field.annotation) for name, field in kind.model_fields.items()]
            if [name for name, _ in named] == ["root"]:
                return self.read(named[0][1], deeper)
            return self._record(named, deeper)
        hints = self._hints(kind)
        if is_dataclass(kind):
            return self._record([(each.name, hints[each.name]) for each in fields(kind)], deeper)
        absent: frozenset[str] = getattr(kind, "__optional_keys__", frozenset())
        return self._record(hints.items(), deeper, absent)

    def _hints(self, kind: type) -> dict[str, Any]:
        try:
            return typing.get_type_hints(kind, include_extras=True)
        except NameError:
            # A class inside a function may name others there.
            names = self._names or names_here()
        try:
            return typing.get_type_hints(kind, localns=names.all(), include_extras=True)
        except NameError as error:
            message = f"{self._what}: a field of `{kind.__name__}` uses `{error.name}`, which is not known there"
            raise problem(message, "define the type at the top of the file", self._span) from None

    def _record(self, named: Any, inside: tuple[Any, ...], absent: frozenset[str] = frozenset()) -> Type:
        read: dict[str, Type] = {}
        for name, kind in named:
            if not isinstance(name, str):
                raise problem(f"{self._what}: a field is named by a text, found {name!r}", None, self._span)
            refuse_markers(name, "the name of a field", "records have the same fields in all rows")
            found = self.read(kind, inside)
            read[name] = optional(found) if name in absent else found
        return Record(tuple(read.items()))

    def _unknown(self, kind: Any) -> Type:
        shown = kind.__name__ if isinstance(kind, type) else str(kind)
        raise problem(f"{self._what}: `{shown}` is not a type of a workflow", _HELP, self._span)


def _is_record(kind: type) -> bool:
    return (
        is_dataclass(kind)
        or typing.is_typeddict(kind)
        or (hasattr(kind, "model_fields") and hasattr(kind, "model_json_schema"))
        or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
    )


def is_structured(annotation: Any) -> bool:
    """Whether values of the type are objects of Python where JSON has records, texts or lists."""
    if isinstance(annotation, type) and not typing.get_origin(annotation):
        return issubclass(annotation, Enum | tuple) or (_is_record(annotation) and not typing.is_typeddict(annotation))
    if type(annotation).__name__ == "TypeAliasType":
        return is_structured(annotation.__value__)
    origin = typing.get_origin(annotation)
    return origin is tuple or any(is_structured(arg) for arg in typing.get_args(annotation) if arg is not Ellipsis)


def from_json(value: Any, annotation: Any) -> Any:
    """A JSON value as an object of a Python type: a dataclass, a pydantic model, an enum, or a list of such.

    Raises ValueError (pydantic's ValidationError) where the value does not fit.
    """
    try:
        adapter = _adapter(annotation)
    except TypeError:
        # Annotated[...] may hold what cannot be a key of the cache.
        adapter = _adapter.__wrapped__(annotation)
    return adapter.validate_python(value)


@lru_cache(maxsize=256)
def _adapter(annotation: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(annotation)


def to_json(value: Any) -> Any:
    """An object of a Python type as a JSON value; what has no JSON form stays as it is."""
    if isinstance(value, Enum):
        return to_json(value.value)
    if isinstance(value, dict):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: to_json(item) for name, item in zip(value._fields, value, strict=True)}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: to_json(getattr(value, each.name)) for each in fields(value)}
    if hasattr(type(value), "model_fields"):
        return value.model_dump(mode="json", by_alias=True)
    return value
