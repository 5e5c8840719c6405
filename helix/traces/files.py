"""Traces as files: JSON lines, one event each, every field checked when it is read.

A line that does not fit raises InputError with the file and the line; nothing of a file is used where one line is
wrong.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from helix.errors import InputError, name_help
from helix.traces.events import EFFECTS, FORMAT, STATUSES, Effects, Event, LlmEvent, ToolEvent

# A longer line is no event of ours, and reading it would fill the memory.
MOST_LINE = 64 * 1024 * 1024
# Deeper values are refused: what walks them later would run out of stack.
MOST_DEPTH = 100

_SHARED = ("v", "session", "group", "id", "step", "kind", "status", "start", "end")
_FIELDS = {
    "llm": (*_SHARED, "user", "text", "calls"),
    "tool": (*_SHARED, "tool", "args", "result", "effects"),
}
_NEEDED = {"llm": ("session", "id", "step"), "tool": ("session", "id", "step", "tool", "args")}


class _Wrong(Exception):
    """What is wrong with an event, without its place."""


def write_events(path: str | os.PathLike[str], events: Iterable[Event]) -> int:
    """Writes events to a file that replaces the one at `path` when it is whole; gives how many. Raises InputError."""
    target = Path(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    number = 0
    try:
        with beside.open("w", encoding="utf-8", newline="") as file:
            for event in events:
                file.write(event_line(event))
                number += 1
        beside.replace(target)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise InputError(f"{target} cannot be written: {error.strerror}") from None
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    return number


def event_line(event: Event) -> str:
    """An event as the line of a file, ended by a line feed. Raises ValueError for what JSON cannot hold."""
    # Escaped, so that a lone surrogate in a tool's text can be written as well.
    return json.dumps(event_json(event), ensure_ascii=True, allow_nan=False, separators=(",", ":")) + "\n"


def event_json(event: Event) -> dict[str, Any]:
    """An event as JSON holds it."""
    shared: dict[str, Any] = {
        "v": FORMAT,
        "session": event.session,
        "group": event.group,
        "id": event.id,
        "step": event.step,
        "kind": "llm" if isinstance(event, LlmEvent) else "tool",
    }
    times = {"status": event.status, "start": event.start, "end": event.end}
    if isinstance(event, LlmEvent):
        return {**shared, "user": list(event.user), "text": event.text, "calls": list(event.calls), **times}
    effects = event.effects
    return {
        **shared,
        "tool": event.tool,
        "args": dict(event.args),
        "result": event.result,
        **times,
        "effects": {
            "class": effects.cls,
            "reads": list(effects.reads),
            "writes": list(effects.writes),
            "epochs": dict(sorted(effects.epochs.items())),
        },
    }


def read_events(path: str | os.PathLike[str]) -> list[Event]:
    """The events of a file. Raises InputError that names the line for what is no event of this format."""
    shown = os.fspath(path)
    try:
        with open(path, "rb") as file:
            return list(events_in(file, shown))
    except OSError as error:
        raise InputError(f"the trace cannot be read: {error.strerror}", path=shown) from None


def events_in(file: IO[bytes], shown: str) -> Iterator[Event]:
    """The events of an open file; `shown` is its name in messages."""
    seen: dict[tuple[str, str], int] = {}
    for number, line in _lines(file, shown):
        try:
            event = _event(_parsed(line))
        except _Wrong as wrong:
            raise InputError(str(wrong), path=shown, line=number) from None
        before = seen.setdefault((event.session, event.id), number)
        if before != number:
            message = f"session `{event.session}` has two events with id `{event.id}`; the first is in line {before}"
            raise InputError(message, path=shown, line=number)
        yield event


def _lines(file: IO[bytes], shown: str) -> Iterator[tuple[int, bytes]]:
    number = 0
    while True:
        line = file.readline(MOST_LINE + 1)
        if not line:
            return
        number += 1
        if len(line) > MOST_LINE:
            message = f"the line is longer than {MOST_LINE // 1024 // 1024} MiB, which no event may be"
            raise InputError(message, path=shown, line=number)
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if line.strip():
            yield number, line


def parse_json(text: bytes | str) -> Any:
    """JSON without NaN, infinities, repeated names and bottomless nesting. Raises ValueError."""

    def refuse(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        held = dict(pairs)
        if len(held) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for place, name in enumerate(names) if name in names[:place])
            raise ValueError(f"`{twice[:80]}` stands twice in one object")
        return held

    try:
        decoded = text.decode("utf-8") if isinstance(text, bytes) else text
        value = json.loads(decoded, parse_constant=refuse, object_pairs_hook=unique)
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start + 1}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise ValueError(f"nested deeper than {MOST_DEPTH} levels") from None
    if _deeper(value, MOST_DEPTH):
        raise ValueError(f"nested deeper than {MOST_DEPTH} levels")
    return value


def _deeper(value: Any, most: int) -> bool:
    level = [value]
    for _ in range(most + 1):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return False
        if any(isinstance(each, float) and not math.isfinite(each) for each in level):
            raise ValueError("a number is too large")
    return True


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        value = parse_json(line)
    except ValueError as error:
        raise _Wrong(f"the line is {error}" if str(error).startswith("n") else str(error)) from None
    if not isinstance(value, dict):
        raise _Wrong(f"an event is a JSON object, found {_shown(value)}")
    return value


def _event(held: dict[str, Any]) -> Event:
    if "v" not in held:
        raise _Wrong("an event has `v`, the version of the format; this line has none")
    if held["v"] != FORMAT or isinstance(held["v"], bool):
        raise _Wrong(f"version {_shown(held['v'])} of the trace format is not known; this Helix reads version {FORMAT}")
    kind = _one_of(held, "kind", tuple(_FIELDS))
    for name in _NEEDED[kind]:
        if name not in held:
            raise _Wrong(f"an event of kind `{kind}` has `{name}`; this line has none")
    for name in held:
        if name not in _FIELDS[kind]:
            raise _Wrong(f"an event of kind `{kind}` has no field `{name}`; {name_help(name, _FIELDS[kind], 'fields')}")
    shared: dict[str, Any] = {
        "session": _text(held, "session"),
        "group": _text(held, "group", ""),
        "id": _text(held, "id"),
        "step": _count(held["step"], "step"),
        "status": _one_of(held, "status", STATUSES, "ok"),
        "start": _time(held, "start"),
        "end": _time(held, "end"),
    }
    if not shared["session"] or not shared["id"]:
        raise _Wrong("`session` and `id` are names, found an empty one")
    if shared["start"] is not None and shared["end"] is not None and shared["end"] < shared["start"]:
        raise _Wrong(f"`end` ({shared['end']:g}) is before `start` ({shared['start']:g})")
    if kind == "llm":
        text = held.get("text")
        if text is not None and not isinstance(text, str):
            raise _Wrong(f"`text` is a text or null, found {_shown(text)}")
        return LlmEvent(**shared, user=_texts(held, "user"), text=text, calls=_texts(held, "calls"))
    args = held["args"]
    if not isinstance(args, dict):
        raise _Wrong(f"`args` is a JSON object, found {_shown(args)}")
    tool = _text(held, "tool")
    if not tool:
        raise _Wrong("`tool` is a name, found an empty one")
    return ToolEvent(**shared, tool=tool, args=args, result=held.get("result"), effects=_effects(held.get("effects")))


def _effects(held: Any) -> Effects:
    if held is None:
        return Effects()
    if not isinstance(held, dict):
        raise _Wrong(f"`effects` is a JSON object, found {_shown(held)}")
    names = ("class", "reads", "writes", "epochs")
    for name in held:
        if name not in names:
            raise _Wrong(f"`effects` has no field `{name}`; {name_help(name, names, 'fields')}")
    epochs = held.get("epochs", {})
    if not isinstance(epochs, dict):
        raise _Wrong(f"`epochs` is a JSON object of counts, found {_shown(epochs)}")
    return Effects(
        cls=_one_of(held, "class", EFFECTS, "unknown"),
        reads=_texts(held, "reads"),
        writes=_texts(held, "writes"),
        epochs={name: _count(value, f"epochs.{name}") for name, value in epochs.items()},
    )


def _one_of(held: Mapping[str, Any], name: str, known: tuple[Any, ...], default: Any = None) -> Any:
    value = held.get(name, default)
    if not isinstance(value, str) or value not in known:
        choices = ", ".join(f"`{each}`" for each in known)
        raise _Wrong(f"`{name}` is one of {choices}, found {_shown(value)}")
    return value


def _text(held: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = held.get(name, default)
    if not isinstance(value, str):
        raise _Wrong(f"`{name}` is a text, found {_shown(value)}")
    return value


def _texts(held: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = held.get(name, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise _Wrong(f"`{name}` is a list of texts, found {_shown(value)}")
    return tuple(value)


def _count(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise _Wrong(f"`{name}` is a whole number from 0 on, found {_shown(value)}")
    return value


def _time(held: Mapping[str, Any], name: str) -> float | None:
    value = held.get(name)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < float("inf"):
        raise _Wrong(f"`{name}` is seconds from the start, or null, found {_shown(value)}")
    return float(value)


def _shown(value: Any) -> str:
    """A value in a message: short, on one line."""
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 60 else text[:57] + "..."
