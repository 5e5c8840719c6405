"""A model's reply to a value of the declared type (contract 16): parsed strictly, nothing guessed."""

from __future__ import annotations

import json
import re
from typing import Any

from helix.errors import OutputError
from helix.types import (
    BOOL,
    FLOAT,
    INT,
    JSON,
    TEXT,
    Choice,
    ListOf,
    Optional,
    Record,
    Table,
    Type,
    is_textual,
    mismatch,
    required,
)

_FENCE = re.compile(r"```[\w-]*[ \t]*\r?\n(.*?)```", re.DOTALL)
_NAMES = {"int": "an int", "float": "a number", "bool": "true or false", "json": "JSON"}
_OPENING = re.compile(r"[\[{]")
# Where JSON is looked for among prose: a reply that is all brackets must not take for ever.
_MOST_OPENINGS = 200


def parse_reply(text: str, kind: Type, finish: str = "stop", *, coerce: bool = False) -> Any:
    """The value in a reply. Raises OutputError with kind `schema`, `truncated` or `empty`, and the raw text.

    A text is taken as it is. For other types: a choice is its bare label or its JSON string; JSON may stand in a fenced
    block or among prose. `coerce` also turns texts into numbers and bools, and numbers into texts. `finish` is why the
    reply ended, in the words of engines: one that ended by `length` was cut off.
    """
    if kind == TEXT:
        return text
    stripped = text.strip()
    cut = finish == "length"
    if isinstance(kind, Optional) and kind.inner == TEXT:
        return text if stripped not in ("", "null") else None
    if not stripped:
        if cut:
            raise _truncated(text, kind)
        raise OutputError(f"the reply is empty; expected {kind}", text=text, kind="empty")
    if (label := _label(text, kind)) is not None:
        if cut and _begins_another(label, kind):
            raise _truncated(text, kind)
        return label
    try:
        value = _json(stripped, _container(kind))
    except ValueError as error:
        if cut:
            raise _truncated(text, kind) from None
        value = _coerced(stripped, kind) if coerce else None
        if value is None or mismatch(value, kind) is not None:
            # Where a label is wanted, what JSON makes of the reply tells nobody anything.
            why = "" if isinstance(required(kind), Choice) else f": {error}"
            raise OutputError(f"the reply is not {_article(kind)}{why}", text=text) from None
        return value
    if cut and value.__class__ in (int, float):
        # A number that was cut off is another number.
        raise _truncated(text, kind)
    if coerce:
        value = _coerced(value, kind)
    value = completed(value, kind)
    bad = mismatch(value, kind)
    if bad is not None:
        if cut:
            raise _truncated(text, kind)
        raise OutputError(f"the reply does not fit at `{bad[0] or '/'}`: {bad[1]}", text=text)
    return value


def correction(error: OutputError, kind: Type) -> str:
    """What to tell the model in a re-ask, at the tail of the prompt so that the prefix stays cached."""
    return f"That reply cannot be used: {error.message}. Reply again with {_article(kind)} only, and nothing else."


def _article(kind: Type) -> str:
    inner = required(kind)
    match inner:
        case Choice(labels):
            return "one of the labels " + ", ".join(json.dumps(label, ensure_ascii=False) for label in labels)
        case Record() | ListOf():
            return f"JSON of the type {kind}"
        case _:
            return _NAMES.get(str(inner), f"JSON of the type {kind}")


def _truncated(text: str, kind: Type) -> OutputError:
    message = f"the reply was cut off before it was {_article(kind)}; raise max_tokens"
    return OutputError(message, text=text, kind="truncated")


def _label(text: str, kind: Type) -> str | None:
    """The label that a reply is, where a choice is wanted: bare, also in a fenced block."""
    choice = required(kind)
    if not isinstance(choice, Choice):
        return None
    fenced = _FENCE.fullmatch(text.strip())
    for candidate in (text, text.strip(), fenced[1].strip() if fenced else text):
        if candidate in choice.labels:
            return candidate
    return None


def _begins_another(label: str, kind: Type) -> bool:
    choice = required(kind)
    labels = choice.labels if isinstance(choice, Choice) else ()
    return any(other.startswith(label) and other != label for other in labels)


def _container(kind: Type) -> type | None:
    """What JSON of a type is as a Python object, where that is a list or dict."""
    kind = required(kind)
    if isinstance(kind, Record):
        return dict
    return list if isinstance(kind, ListOf | Table) else None


def _json(text: str, wanted: type | None) -> Any:
    """The one JSON value in a text: the whole, a fenced block, or the first list or record that stands among prose.

    `wanted` tells which of the two is looked for among prose. Raises ValueError.
    """
    try:
        return _loads(text)
    except ValueError as error:
        problem = error
    for fenced in _FENCE.finditer(text):
        try:
            return _loads(fenced[1].strip())
        except ValueError as error:
            problem = error
    end = 0
    for number, opening in enumerate(_OPENING.finditer(text)):
        if number == _MOST_OPENINGS:
            break
        start = opening.start()
        if start < end or wanted not in (None, list if text[start] == "[" else dict):
            continue
        try:
            value, end = _DECODER.raw_decode(text, start)
        except RecursionError:
            raise ValueError("nested too deeply") from None
        except ValueError:
            continue
        return value
    raise problem


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number - number != 0:
        raise ValueError(f"{text} is too large for a number")
    return number


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)


def _loads(text: str) -> Any:
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def completed(value: Any, kind: Type) -> Any:
    """The value with null for optional fields that were left out, fields in the declared order, others dropped."""
    match kind:
        case Optional(inner):
            return None if value is None else completed(value, inner)
        case ListOf(item) if isinstance(value, list):
            return [completed(each, item) for each in value]
        case Record(fields) if isinstance(value, dict):
            known = {name for name, _ in fields}
            if not known >= value.keys():
                value = {name: item for name, item in value.items() if name in known}
            return {
                name: completed(value[name], field) if name in value else None
                for name, field in fields
                if name in value or isinstance(field, Optional) or field == JSON
            }
    return value


def _coerced(value: Any, kind: Type) -> Any:
    """The value with scalars of a near type turned into the declared one; what does not fit stays as it is."""
    match kind:
        case Optional(inner):
            return None if value in (None, "", "null") else _coerced(value, inner)
        case ListOf(item):
            return [_coerced(each, item) for each in value] if isinstance(value, list) else value
        case Record(fields) if isinstance(value, dict):
            return value | {name: _coerced(value[name], field) for name, field in fields if name in value}
    return _coerced_scalar(value, kind)


def _coerced_scalar(value: Any, kind: Type) -> Any:
    if is_textual(kind) and isinstance(value, bool | int | float):
        return json.dumps(value)
    if kind == BOOL and isinstance(value, str):
        return {"true": True, "yes": True, "false": False, "no": False}.get(value.strip().lower(), value)
    if kind in (INT, FLOAT) and isinstance(value, str):
        try:
            number = float(value.strip().replace(",", "")) if kind == FLOAT else int(value.strip().replace(",", ""))
        except ValueError:
            return value
        return number if number - number == 0 else value
    if kind == INT and isinstance(value, float) and value == int(value):
        return int(value)
    return value
