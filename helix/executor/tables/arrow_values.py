"""Arrow columns as JSON values.

Integers, booleans and texts are taken as they are, dictionary-encoded ones decoded. NaN counts as missing, so it is
null; an infinity is refused. A decimal of scale 0 becomes an int, any other the nearest double. Dates, times and
timestamps become ISO 8601 text (with the offset where the type has a time zone), lists of any kind become lists,
structs records, maps with text keys records. Binary columns and durations have no JSON form and are refused.

A text column that Helix wrote for a json or table column says so in its metadata; its JSON is read again.
"""

from __future__ import annotations

import datetime
import zoneinfo
from collections.abc import Callable
from typing import Any

from helix.executor.tables.json_values import decimal_number, finite
from helix.executor.tables.rows import Unfit
from helix.executor.tables.strict_json import loads
from helix.types import JSON, TABLE, Optional, Record

TYPE_KEY = b"helix.type"
# The types whose values are kept as JSON text.
_KEPT_AS_JSON = (JSON, TABLE, Record(()))
JSON_TEXT = frozenset(str(form).encode() for kind in _KEPT_AS_JSON for form in (kind, Optional(kind)))

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_EPOCH = datetime.datetime(1970, 1, 1)

Convert = Callable[[Any], list[Any]]


def column_values(array: Any, field: Any) -> list[Any]:
    """The JSON values of an Arrow array under its field; `Unfit` for each that has none."""
    import pyarrow as pa

    convert = _converter(field)
    try:
        return convert(array)
    except (ValueError, OverflowError, RecursionError, pa.ArrowException):
        # Some value does not convert: find out which.
        return [_one(array.slice(place, 1), convert) for place in range(len(array))]


def _one(array: Any, convert: Convert) -> Any:
    import pyarrow as pa

    if array.null_count:
        return None
    try:
        return convert(array)[0]
    except UnicodeDecodeError:
        return Unfit("the text is not UTF-8")
    except OverflowError:
        return Unfit("the time is outside the years 1 to 9999")
    except RecursionError:
        return Unfit("the value is nested too deeply")
    except (ValueError, pa.ArrowException) as error:
        return Unfit(str(error))


def _converter(field: Any) -> Convert:
    """The conversion of the arrays of a field."""
    import pyarrow.types as is_

    kind = field.type
    if is_.is_string(kind) or is_.is_large_string(kind) or is_.is_string_view(kind):
        return _json_texts if (field.metadata or {}).get(TYPE_KEY) in JSON_TEXT else _plain
    if is_.is_integer(kind) or is_.is_boolean(kind) or is_.is_null(kind):
        return _plain
    if is_.is_floating(kind):
        return lambda array: [None if value is None else finite(value) for value in array.to_pylist()]
    if is_.is_decimal(kind):
        return lambda array: [None if value is None else decimal_number(value) for value in array.to_pylist()]
    if is_.is_date(kind):
        return lambda array: [None if value is None else value.isoformat() for value in array.to_pylist()]
    if is_.is_time(kind):
        return lambda array: [_time_text(value, kind.unit) for value in _integers(array, kind.bit_width)]
    if is_.is_timestamp(kind):
        zone = _zone(kind.tz)
        return lambda array: [_timestamp_text(value, kind.unit, zone) for value in _integers(array, 64)]
    if is_.is_dictionary(kind):
        values = _converter(field.with_type(kind.value_type))
        return lambda array: values(array.dictionary_decode())
    return _nested(field)


def _nested(field: Any) -> Convert:
    import pyarrow as pa
    import pyarrow.types as is_

    kind = field.type
    if is_.is_map(kind):
        return _maps(_converter(kind.key_field), _converter(kind.item_field), kind)
    if is_.is_list(kind) or is_.is_large_list(kind):
        return _lists(_converter(kind.value_field))
    if is_.is_list_view(kind) or is_.is_large_list_view(kind):
        return _list_views(_converter(kind.value_field))
    if is_.is_fixed_size_list(kind):
        lists = _lists(_converter(kind.value_field))
        return lambda array: lists(array.cast(pa.large_list(kind.value_field)))
    if is_.is_struct(kind):
        return _structs([kind.field(place) for place in range(kind.num_fields)])
    if is_.is_run_end_encoded(kind):
        import pyarrow.compute

        values = _converter(field.with_type(kind.value_type))
        return lambda array: values(pyarrow.compute.run_end_decode(array))
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == "arrow.uuid":
            return lambda array: [None if value is None else str(value) for value in array.to_pylist()]
        if kind.extension_name == "arrow.bool8":
            return _plain
        if kind.extension_name == "arrow.json":
            return lambda array: _json_texts(array.storage)
        storage = _converter(field.with_type(kind.storage_type))
        return lambda array: storage(array.storage)
    return _refuse(kind)


def _refuse(kind: Any) -> Convert:
    import pyarrow.types as is_

    binary = is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_fixed_size_binary(kind)
    advice = "; cast the column to text" if binary or is_.is_binary_view(kind) else ""

    def refuse(array: Any) -> list[Any]:
        if array.null_count == len(array):
            return [None] * len(array)
        raise ValueError(f"a value of the Arrow type {kind} has no JSON form{advice}")

    return refuse


def _plain(array: Any) -> list[Any]:
    values: list[Any] = array.to_pylist()
    return values


def _json_texts(array: Any) -> list[Any]:
    return [None if text is None else loads(text) for text in array.to_pylist()]


def _lists(convert: Convert) -> Convert:
    def lists(array: Any) -> list[Any]:
        # The child array takes no notice of a slice of its parent, so only the part that is used is converted.
        offsets = array.offsets.to_pylist()
        start = offsets[0]
        items = convert(array.values.slice(start, offsets[-1] - start))
        valid = array.is_valid().to_pylist()
        return [
            items[begin - start : end - start] if there else None
            for begin, end, there in zip(offsets[:-1], offsets[1:], valid, strict=True)
        ]

    return lists


def _list_views(convert: Convert) -> Convert:
    def lists(array: Any) -> list[Any]:
        # Lists of a view may overlap and come in any order, so each is converted by itself.
        places = zip(array.offsets.to_pylist(), array.sizes.to_pylist(), array.is_valid().to_pylist(), strict=True)
        return [convert(array.values.slice(begin, size)) if there else None for begin, size, there in places]

    return lists


def _structs(fields: list[Any]) -> Convert:
    names = [field.name for field in fields]
    converters = [_converter(field) for field in fields]

    def structs(array: Any) -> list[Any]:
        valid = array.is_valid().to_pylist()
        # `flatten` hands the nulls of the struct down to its children, `field` would show what is hidden under them.
        children = [convert(child) for convert, child in zip(converters, array.flatten(), strict=True)]
        rows = zip(*children, strict=True) if children else (() for _ in valid)
        return [dict(zip(names, row, strict=True)) if there else None for row, there in zip(rows, valid, strict=True)]

    return structs


def _maps(keys: Convert, items: Convert, kind: Any) -> Convert:
    def maps(array: Any) -> list[Any]:
        offsets = array.offsets.to_pylist()
        valid = array.is_valid().to_pylist()
        result: list[Any] = []
        for begin, end, there in zip(offsets[:-1], offsets[1:], valid, strict=True):
            names = keys(array.keys.slice(begin, end - begin)) if there else []
            if not all(isinstance(name, str) for name in names):
                raise ValueError(f"a value of the Arrow type {kind} has no JSON form; its keys are not text")
            if len(set(names)) != len(names):
                raise ValueError("the map has the same key twice")
            entry = zip(names, items(array.items.slice(begin, end - begin)), strict=True) if there else ()
            result.append(dict(entry) if there else None)
        return result

    return maps


def _integers(array: Any, bits: int) -> list[int | None]:
    import pyarrow as pa

    values: list[int | None] = array.cast(pa.int32() if bits == 32 else pa.int64()).to_pylist()
    return values


def _zone(name: str | None) -> datetime.tzinfo | None:
    """The time zone of an Arrow type: an offset such as +07:00, or a name; UTC for a name that is not known here."""
    if name is None:
        return None
    try:
        return datetime.datetime.strptime(name, "%z").tzinfo
    except ValueError:
        pass
    try:
        return zoneinfo.ZoneInfo(name)
    except (ValueError, KeyError, OSError):
        return datetime.UTC


def _fraction(part: int, unit: str) -> str:
    """The decimals of a second as ISO text has them: none, six digits, or nine."""
    nanoseconds = part * (1_000_000_000 // _PER_SECOND[unit])
    if not nanoseconds:
        return ""
    return f".{nanoseconds:09d}" if nanoseconds % 1000 else f".{nanoseconds // 1000:06d}"


def _time_text(value: int | None, unit: str) -> str | None:
    if value is None:
        return None
    seconds, part = divmod(value, _PER_SECOND[unit])
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{_fraction(part, unit)}"


def _timestamp_text(value: int | None, unit: str, zone: datetime.tzinfo | None) -> str | None:
    if value is None:
        return None
    seconds, part = divmod(value, _PER_SECOND[unit])
    moment = _EPOCH + datetime.timedelta(seconds=seconds)
    offset = ""
    if zone is not None:
        local = moment.replace(tzinfo=datetime.UTC).astimezone(zone)
        moment, offset = local.replace(tzinfo=None), local.isoformat()[19:]
    return moment.isoformat() + _fraction(part, unit) + offset
