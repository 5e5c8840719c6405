"""A model's reply to a value of the declared type (contract 16): parsed strictly, nothing guessed."""

from __future__ import annotations

import json
import re
from typing import Any

from helix.errors import OutputError
from helix.executor.engines.base import FinishReason
from helix.types import BOOL, FLOAT, INT, JSON, TEXT, Choice, ListOf, Optional, Record, Type, mismatch

_FENCE = re.compile(r"```[\w-]*[ \t]*\r?\n(.*?)```", re.DOTALL)
_NAMES = {"int": "an int", "float": "a number", "bool": "true or false", "json": "JSON"}
_OPENING = re.compile(r"[\[{]")


def parse_reply(text: str, kind: Type, finish: FinishReason = "stop", *, coerce: bool = False) -> Any:
    """The value in a reply. Raises OutputError with kind `schema`, `truncated` or `empty`, and the raw text.

    A text is taken as it is. For other types: a choice is its bare label or its JSON string; JSON may stand in a fenced
    block or among prose. `coerce` also turns texts into numbers and bools, and numbers into texts.
    """
    if kind == TEXT:
        return text
    stripped = text.strip()
    if not stripped:
        if isinstance(kind, Optional) and kind.inner == TEXT:
            return None
        raise OutputError(f"the reply is empty; expected {kind}", text=text, kind="empty")
    if isinstance(kind, Optional) and kind.inner == TEXT:
        return None if stripped == "null" else text
    if (label := _label(stripped, kind)) is not None:
        return label
    try:
        value = _json(stripped)
    except ValueError as error:
        if finish == "length":
            raise _truncated(text, kind) from None
        raise OutputError(f"the reply is not {_article(kind)}: {error}", text=text) from None
    if coerce:
        value = _coerced(value, kind)
    value = _completed(value, kind)
    bad = mismatch(value, kind)
    if bad is not None:
        if finish == "length":
            raise _truncated(text, kind)
        raise OutputError(f"the reply does not fit at `{bad[0] or '/'}`: {bad[1]}", text=text)
    return value


def correction(error: OutputError, kind: Type) -> str:
    """What to tell the model in a re-ask, at the tail of the prompt so that the prefix stays cached."""
    return f"That reply cannot be used: {error.message}. Reply again with {_article(kind)} only, and nothing else."


def _article(kind: Type) -> str:
    inner = kind.inner if isinstance(kind, Optional) else kind
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
    """The label that a reply is, where a choice is wanted: bare, or as a JSON string."""
    inner = kind.inner if isinstance(kind, Optional) else kind
    if not isinstance(inner, Choice):
        return None
    if text in inner.labels:
        return text
    fenced = _FENCE.fullmatch(text)
    return fenced[1].strip() if fenced and fenced[1].strip() in inner.labels else None


def _json(text: str) -> Any:
    """The one JSON value in a text: the whole, a fenced block, or the first that stands among prose."""
    try:
        return _loads(text)
    except ValueError as error:
        problem = error
    fenced = _FENCE.search(text)
    if fenced:
        return _loads(fenced[1].strip())
    opening = _OPENING.search(text)
    if opening is None:
        raise problem
    value, _ = _DECODER.raw_decode(text, opening.start())
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _loads(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _completed(value: Any, kind: Type) -> Any:
    """The value with null for optional fields that a reply left out, fields in the declared order."""
    match kind:
        case Optional(inner):
            return None if value is None else _completed(value, inner)
        case ListOf(item) if isinstance(value, list):
            return [_completed(each, item) for each in value]
        case Record(fields) if isinstance(value, dict):
            known = {name for name, _ in fields}
            if not known >= value.keys():
                value = {name: item for name, item in value.items() if name in known}
            return {
                name: _completed(value[name], field) if name in value else None
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
    if kind == TEXT and isinstance(value, bool | int | float):
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
