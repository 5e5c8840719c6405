"""The types of values: what a workflow declares, what a reply must be, what a column holds.

Values are JSON values: str, int, float, bool, None, list, dict. A type says which of them fit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

ScalarName = Literal["text", "int", "float", "bool", "json"]


class Type:
    """The base of all types; compared by value, shown as the language writes it by `str`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Scalar(Type):
    """text, int, float, bool, or json (any JSON value, null too)."""

    name: ScalarName

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class ListOf(Type):
    """A list of values of one type."""

    item: Type

    def __str__(self) -> str:
        return f"list[{self.item}]"


@dataclass(frozen=True, slots=True)
class Choice(Type):
    """One of a few texts."""

    labels: tuple[str, ...]

    def __str__(self) -> str:
        return f"choice[{', '.join(quote(label) for label in self.labels)}]"


@dataclass(frozen=True, slots=True)
class Record(Type):
    """Named fields in a fixed order. An optional field may be absent from a reply; it is then null."""

    fields: tuple[tuple[str, Type], ...]

    def __str__(self) -> str:
        shown = ", ".join(f"{name if is_word(name) else quote(name)}: {kind}" for name, kind in self.fields)
        return f"{{ {shown} }}" if shown else "{}"

    def field(self, name: str) -> Type | None:
        """The type of a field, or None where the record has no such field."""
        return next((kind for field, kind in self.fields if field == name), None)


@dataclass(frozen=True, slots=True)
class Table(Type):
    """A list of records whose fields are known only when it is there: what a SQL tool returns."""

    def __str__(self) -> str:
        return "table"


@dataclass(frozen=True, slots=True)
class Nothing(Type):
    """What has no value: the type of null without its null."""

    def __str__(self) -> str:
        return "nothing"


@dataclass(frozen=True, slots=True)
class Optional(Type):
    """A value that may be null."""

    inner: Type

    def __str__(self) -> str:
        return "null" if isinstance(self.inner, Nothing) else f"{self.inner}?"


TEXT = Scalar("text")
INT = Scalar("int")
FLOAT = Scalar("float")
BOOL = Scalar("bool")
JSON = Scalar("json")
TABLE = Table()
# The type of null itself. `json?` is another: any value.
NULL = Optional(Nothing())
SCALARS: dict[str, Type] = {"text": TEXT, "int": INT, "float": FLOAT, "bool": BOOL, "json": JSON, "table": TABLE}


# What a reader cannot see, or what changes the order of what stands beside it: a fixed list, so that the same text is
# written alike under every version of Unicode.
_ESCAPED = re.compile(
    '["\\\\\x00-\x1f\x7f-\xa0\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]'
)


def quote(text: str) -> str:
    """A text as the language writes it in double quotes."""
    return '"' + _ESCAPED.sub(_escape, text) + '"'


def _escape(found: re.Match[str]) -> str:
    known = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return known.get(found[0]) or f"\\u{{{ord(found[0]):x}}}"


def is_word(text: str) -> bool:
    """Whether a text can stand as a name, with no quotes around it."""
    return text.isidentifier()


def optional(kind: Type) -> Type:
    """The type that also allows null; json and optional types already do."""
    return kind if isinstance(kind, Optional) or kind == JSON else Optional(kind)


def required(kind: Type) -> Type:
    """The type without its null; of null itself any type, since there is nothing that might not fit."""
    if kind == NULL:
        return JSON
    return kind.inner if isinstance(kind, Optional) else kind


def join(left: Type, right: Type) -> Type:
    """The narrowest type that both fit into: used where branches assign one name."""
    if left == right:
        return left
    if NULL in (left, right):
        return optional(right if left == NULL else left)
    if isinstance(left, Nothing) or isinstance(right, Nothing):
        return right if isinstance(left, Nothing) else left
    if isinstance(left, Optional) or isinstance(right, Optional):
        return optional(join(required(left), required(right)))
    names = {str(left), str(right)}
    if names <= {"int", "float"}:
        return FLOAT
    if is_textual(left) and is_textual(right):
        return TEXT
    if isinstance(left, ListOf) and isinstance(right, ListOf):
        return ListOf(join(left.item, right.item))
    return JSON


def is_textual(kind: Type) -> bool:
    """Whether values of the type are texts."""
    return kind == TEXT or isinstance(kind, Choice)


def fits(source: Type, target: Type) -> bool:
    """Whether a value of one type can be used where another is needed (json fits by a check at run time)."""
    if source == target or JSON in (source, target) or isinstance(source, Nothing):
        return True
    if isinstance(target, Optional):
        return fits(required(source), target.inner)
    if isinstance(source, Optional):
        return fits(source.inner, target)
    if isinstance(source, Choice):
        return target == TEXT or (isinstance(target, Choice) and set(source.labels) <= set(target.labels))
    if isinstance(target, Choice):
        return source == TEXT
    if source == INT and target == FLOAT:
        return True
    if isinstance(source, Table):
        return isinstance(target, ListOf) and fits(JSON, target.item)
    if isinstance(source, ListOf):
        return isinstance(target, Table) or (isinstance(target, ListOf) and fits(source.item, target.item))
    if isinstance(source, Record) and isinstance(target, Record):
        return all(
            isinstance(kind, Optional) if source.field(name) is None else fits(source.field(name) or JSON, kind)
            for name, kind in target.fields
        )
    return False


def json_schema(kind: Type) -> dict[str, Any]:
    """The JSON Schema of a type, as constrained decoding takes it: closed records, fields in their order."""
    match kind:
        case Scalar("text"):
            return {"type": "string"}
        case Scalar("int"):
            return {"type": "integer"}
        case Scalar("float"):
            return {"type": "number"}
        case Scalar("bool"):
            return {"type": "boolean"}
        case Choice(labels):
            return {"type": "string", "enum": list(labels)}
        case ListOf(item):
            return {"type": "array", "items": json_schema(item)}
        case Table():
            return {"type": "array", "items": {"type": "object"}}
        case Optional(inner):
            return {"anyOf": [json_schema(inner), {"type": "null"}]}
        case Record(fields):
            return {
                "type": "object",
                "properties": {name: json_schema(field) for name, field in fields},
                "required": [name for name, _ in fields],
                "additionalProperties": False,
            }
        case _:
            return {}


def mismatch(value: Any, kind: Type, pointer: str = "") -> tuple[str, str] | None:
    """The first place where a JSON value does not fit a type: a JSON pointer (RFC 6901) and what was found, or None."""
    match kind:
        case Scalar("json"):
            return None
        case Optional(inner):
            return None if value is None else mismatch(value, inner, pointer)
        case Choice(labels):
            return (
                None
                if isinstance(value, str) and value in labels
                else (pointer, f"expected {kind}, found {found(value)}")
            )
        case ListOf(item):
            if not isinstance(value, list):
                return pointer, f"expected {kind}, found {found(value)}"
            return next((bad for i, v in enumerate(value) if (bad := mismatch(v, item, f"{pointer}/{i}"))), None)
        case Table():
            if not isinstance(value, list):
                return pointer, f"expected table, found {found(value)}"
            bad_row = next((i for i, v in enumerate(value) if not isinstance(v, dict)), None)
            return (
                None
                if bad_row is None
                else (f"{pointer}/{bad_row}", f"expected a record, found {found(value[bad_row])}")
            )
        case Record(fields):
            return _record_mismatch(value, kind, fields, pointer)
        case Scalar(name):
            return None if _is_scalar(value, name) else (pointer, f"expected {name}, found {found(value)}")
    return pointer, f"expected {kind}, found {found(value)}"


def _record_mismatch(
    value: Any, kind: Type, fields: tuple[tuple[str, Type], ...], pointer: str
) -> tuple[str, str] | None:
    if not isinstance(value, dict):
        return pointer, f"expected {kind}, found {found(value)}"
    for name, field in fields:
        place = f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"
        if name not in value:
            if isinstance(field, Optional) or field == JSON:
                continue
            return place, f"field `{name}` is missing"
        if bad := mismatch(value[name], field, place):
            return bad
    return None


def _is_scalar(value: Any, name: str) -> bool:
    match name:
        case "text":
            return isinstance(value, str)
        case "bool":
            return isinstance(value, bool)
        case "int":
            return isinstance(value, int) and not isinstance(value, bool)
        case _:
            return isinstance(value, int | float) and not isinstance(value, bool)


def found(value: Any) -> str:
    """What a value is, in the words of the language, with a short look at it."""
    import json

    names = {str: "text", bool: "bool", int: "int", float: "float", list: "list", dict: "record"}
    if value is None:
        return "null"
    try:
        shown = json.dumps(value, ensure_ascii=False, default=str)
    except RecursionError:
        shown = "nested too deeply to be shown"
    return f"{names.get(type(value), type(value).__name__)} {shown if len(shown) <= 40 else shown[:37] + '...'}"


def type_of(value: Any) -> Type:
    """The type of a constant."""
    match value:
        case None:
            return NULL
        case bool():
            return BOOL
        case int():
            return INT
        case float():
            return FLOAT
        case str():
            return TEXT
        case list():
            items = [type_of(item) for item in value]
            kind = items[0] if items else JSON
            for item in items[1:]:
                kind = join(kind, item)
            return ListOf(kind)
        case dict():
            return Record(tuple((name, type_of(item)) for name, item in value.items()))
    return JSON


def parse_cell(text: str, kind: Type) -> Any:
    """The value of a cell of a text format (CSV, `--set`) under a declared type.

    An empty cell of an optional type is null. Raises ValueError with what was expected where the cell does not fit.
    """
    import json

    if isinstance(kind, Optional):
        return None if text == "" else parse_cell(text, kind.inner)
    if is_textual(kind):
        value: Any = text
    elif kind == BOOL:
        value = {"true": True, "false": False, "1": True, "0": False}.get(text.strip().lower(), text)
    elif kind in (INT, FLOAT):
        try:
            value = int(text) if kind == INT else float(text)
        except ValueError:
            value = text
        if isinstance(value, float) and value - value != 0:
            value = text
    else:
        try:
            value = json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            value = text
    if bad := mismatch(value, kind):
        raise ValueError(bad[1])
    return value


def _no_constant(name: str) -> None:
    """Refuses `NaN` and `Infinity`, which are no JSON."""
    raise ValueError(f"{name} is not JSON")
