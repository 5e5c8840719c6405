"""Trajectories of OpenAI chat messages, as tau-bench writes them: an array of {task_id, trial, traj}."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from helix.errors import InputError
from helix.traces.canonical import canonical_args
from helix.traces.events import Event
from helix.traces.files import parse_json
from helix.traces.importers.shared import Conversation, read_json


def import_openai(path: str | os.PathLike[str]) -> list[Event]:
    """The events of all trajectories. The group is the task, the session the task with its trial.

    System messages are skipped. `arguments` are JSON in a text; ids of calls repeat, so that a result belongs to the
    latest call of its id; a result that is no JSON is a text. Raises InputError.
    """
    shown = os.fspath(path)
    held = read_json(path)
    if not isinstance(held, list):
        raise InputError("an array of trajectories is expected, each with `task_id`, `trial` and `traj`", path=shown)
    events: list[Event] = []
    seen: set[str] = set()
    for number, each in enumerate(held):
        where = f"trajectory {number}"
        if not isinstance(each, dict) or not isinstance(each.get("traj"), list):
            raise InputError(f"{where} is no object with `traj`, a list of messages", path=shown)
        task = str(each.get("task_id", number))
        session = f"{task}/{each.get('trial', 0)}"
        if session in seen:
            raise InputError(f"{where}: task {task} has two trials {each.get('trial', 0)}", path=shown)
        seen.add(session)
        talk = Conversation(session, task)
        try:
            _messages(each["traj"], talk)
        except _Odd as odd:
            raise InputError(f"{where}, message {odd.place}: {odd}", path=shown) from None
        events += talk.end()
    return events


class _Odd(Exception):
    """A message that cannot be read."""

    place = 0


def _messages(messages: list[Any], talk: Conversation) -> None:
    latest: dict[str, int] = {}
    for place, message in enumerate(messages):
        try:
            _message(message, talk, latest)
        except _Odd as odd:
            odd.place = place
            raise


def _message(message: Any, talk: Conversation, latest: dict[str, int]) -> None:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise _Odd("a message is an object with `role`")
    role = message["role"]
    if role in ("system", "developer"):
        return
    if role == "user":
        talk.user(_text(message.get("content")) or "")
    elif role == "assistant":
        asked = message.get("tool_calls") or []
        if not isinstance(asked, list):
            raise _Odd("`tool_calls` is a list")
        calls = [_call(each) for each in asked]
        places = talk.decide(_text(message.get("content")), [(tool, args) for _, tool, args in calls])
        latest.update({id: place for (id, _, _), place in zip(calls, places, strict=True)})
    elif role == "tool":
        id = message.get("tool_call_id")
        if not isinstance(id, str) or id not in latest:
            raise _Odd(f"a result for the call `{id}`, which no message before it made")
        talk.result(latest[id], _result(_text(message.get("content")) or ""))
    else:
        raise _Odd(f"the role is user, assistant, tool or system, found `{role[:40]}`")


def _call(held: Any) -> tuple[str, str, dict[str, Any]]:
    function = held.get("function") if isinstance(held, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise _Odd("a call has `function` with `name` and `arguments`")
    text = function.get("arguments") or "{}"
    try:
        args = parse_json(text) if isinstance(text, str) else text
    except ValueError as error:
        raise _Odd(f"the arguments of `{function['name']}` are not JSON ({error})") from None
    if not isinstance(args, Mapping):
        raise _Odd(f"the arguments of `{function['name']}` are an object")
    return str(held.get("id", "")), function["name"], canonical_args(args)


def _text(content: Any) -> str | None:
    """The text of a message, whose content may be in parts."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return "\n".join(part for part in parts if isinstance(part, str))
    if content is not None and not isinstance(content, str):
        raise _Odd("`content` is a text, a list of parts or null")
    return content


def _result(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError:
        return text
