"""BFCL multi-turn keys: questions and the calls that answer each turn, as Python call expressions."""

from __future__ import annotations

import ast
import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

from helix.errors import InputError
from helix.traces.canonical import canonical_args
from helix.traces.events import Event
from helix.traces.importers.shared import Conversation, read_json, read_json_lines

# A call of a key is short; a long text would be slow to parse.
MOST_CALL = 20_000


def import_bfcl(
    questions: str | os.PathLike[str],
    answers: str | os.PathLike[str],
    results: str | os.PathLike[str] | None = None,
) -> list[Event]:
    """The events of all conversations; `question` and `ground_truth` are joined by `id`, which is also the group.

    A call is read as a literal, never run. A positional argument gets its name from the calls of the same function
    with names. Each call is a decision of its own, and each turn ends with SAY. `results` is a file of sessions with
    the result of each call; without it results are null. Raises InputError.
    """
    asked = [(number, line) for number, line in read_json_lines(questions)]
    key: dict[str, list[list[str]]] = {}
    for number, line in read_json_lines(answers):
        if not isinstance(line.get("id"), str) or not _turns_of_calls(line.get("ground_truth")):
            message = "an answer has `id` and `ground_truth`, a list of call strings for each turn"
            raise InputError(message, path=os.fspath(answers), line=number)
        key[line["id"]] = line["ground_truth"]
    parsed = _parsed(key, os.fspath(answers))
    known = None if results is None else _results(results)
    events: list[Event] = []
    for number, line in asked:
        name = line.get("id")
        turns = _turns(line.get("question"))
        if not isinstance(name, str) or turns is None:
            message = "a question has `id` and `question`, a list of messages for each turn"
            raise InputError(message, path=os.fspath(questions), line=number)
        if name not in parsed:
            raise InputError(f"there is no answer with id `{name}`", path=os.fspath(questions), line=number)
        if len(turns) != len(parsed[name]):
            message = f"`{name}` has {len(turns)} turns and answers for {len(parsed[name])}"
            raise InputError(message, path=os.fspath(questions), line=number)
        events += _session(name, turns, parsed[name], known, os.fspath(results or ""))
    return events


_Call = tuple[str, dict[str, Any]]


def _session(
    name: str, turns: list[list[str]], calls: list[list[_Call]], known: dict[str, list[Any]] | None, shown: str
) -> list[Event]:
    talk = Conversation(name, name)
    left = None if known is None else iter(known.get(name, []))
    for texts, wanted in zip(turns, calls, strict=True):
        for text in texts:
            talk.user(text)
        for tool, args in wanted:
            (place,) = talk.decide(None, [(tool, args)])
            if left is None:
                talk.result(place, None)
                continue
            found = next(left, None)
            if found is None or found[0] != tool:
                raise InputError(f"the results of `{name}` are not those of its calls: `{tool}` has none", path=shown)
            # A simulated API may have changed its arguments: those of the key are what was asked for.
            talk.result(place, found[1])
        talk.decide(None, [])
    return list(talk.end())


def _parsed(key: dict[str, list[list[str]]], shown: str) -> dict[str, list[list[_Call]]]:
    """All calls, with names for what they give by position."""
    trees = {name: [[_call(text, name, shown) for text in turn] for turn in turns] for name, turns in key.items()}
    orders: dict[str, Counter[tuple[str, ...]]] = {}
    for turns in trees.values():
        for turn in turns:
            for tool, positional, named in turn:
                if not positional and named:
                    orders.setdefault(tool, Counter())[tuple(named)] += 1
    bound: dict[str, list[list[_Call]]] = {}
    for name, turns in trees.items():
        bound[name] = []
        for turn in turns:
            calls = []
            for tool, positional, named in turn:
                free = _order(tool, len(positional), set(named), orders)
                if free is None:
                    message = f"`{name}` calls `{tool}` by position, and no call of it names its arguments"
                    raise InputError(message, path=shown)
                calls.append((tool, canonical_args({**dict(zip(free, positional, strict=False)), **named})))
            bound[name].append(calls)
    return bound


def _order(
    tool: str, count: int, named: set[str], orders: dict[str, Counter[tuple[str, ...]]]
) -> tuple[str, ...] | None:
    """The names of the first `count` arguments of a function, by its most frequent call that names enough of them."""
    if not count:
        return ()
    fitting = [
        (-seen, order)
        for order, seen in orders.get(tool, Counter()).items()
        if len(order) >= count and not named & set(order[:count])
    ]
    return min(fitting)[1][:count] if fitting else None


def _call(text: str, name: str, shown: str) -> tuple[str, list[Any], dict[str, Any]]:
    """A call expression with literals for arguments. Nothing of it is run."""

    def odd(why: str) -> InputError:
        return InputError(f"`{name}`: `{text.strip()[:80]}` {why}", path=shown)

    if len(text) > MOST_CALL:
        raise odd(f"is longer than {MOST_CALL} characters")
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise odd("is no call expression") from None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise odd("is no call of a function by its name")
    named: dict[str, Any] = {}
    try:
        positional = [_plain(ast.literal_eval(each)) for each in node.args]
        for each in node.keywords:
            if each.arg is None or each.arg in named:
                raise odd("gives an argument twice, or as `**`")
            named[each.arg] = _plain(ast.literal_eval(each.value))
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise odd("has an argument that is no literal") from None
    return node.func.id, positional, named


def _plain(value: Any) -> Any:
    """A literal as JSON holds it. Raises ValueError for bytes, sets, complex numbers and what is not finite."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        if not all(isinstance(name, str) for name in value):
            raise ValueError("a key that is no text")
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        raise ValueError("a number that JSON has not")
    if value is None or isinstance(value, str | int | float):
        return value
    raise ValueError("no JSON")


def _turns_of_calls(held: Any) -> bool:
    return isinstance(held, list) and all(
        isinstance(turn, list) and all(isinstance(call, str) for call in turn) for turn in held
    )


def _turns(held: Any) -> list[list[str]] | None:
    """The user's texts of each turn, or None for what is no list of messages."""
    if not isinstance(held, list):
        return None
    turns: list[list[str]] = []
    for turn in held:
        if not isinstance(turn, list) or not all(
            isinstance(each, Mapping) and isinstance(each.get("content"), str) for each in turn
        ):
            return None
        turns.append([each["content"] for each in turn if each.get("role") == "user"])
    return turns


def _results(path: str | os.PathLike[str]) -> dict[str, list[Any]]:
    """The calls of each session with what they gave."""
    held = read_json(path)
    found: dict[str, list[Any]] = {}
    for each in held if isinstance(held, list) else [None]:
        if (
            not isinstance(each, dict)
            or not isinstance(each.get("id"), str)
            or not isinstance(each.get("events"), list)
        ):
            raise InputError("results are an array of sessions, each with `id` and `events`", path=os.fspath(path))
        calls = [event for event in each["events"] if isinstance(event, dict) and event.get("k") == "call"]
        found[each["id"]] = [(event.get("tool"), event.get("result")) for event in calls]
    return found
