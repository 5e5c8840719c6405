"""API-Bank dialogues: a folder of JSON lines, one file each, with the roles User, AI and API."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from helix.errors import InputError
from helix.traces.canonical import canonical_args
from helix.traces.events import Event
from helix.traces.importers.shared import Conversation, read_json_lines, status_of


def import_apibank(path: str | os.PathLike[str]) -> list[Event]:
    """The events of all dialogues under a folder, or of one file, in the order of their paths.

    The group is the file's name, the session its path below the folder. What the AI says is SAY; a call of an API is a
    decision of its own. Raises InputError.
    """
    top = Path(path)
    files = [top] if top.is_file() else sorted(top.rglob("*.jsonl"), key=lambda each: each.relative_to(top).parts)
    if not files:
        raise InputError("there is no file with the suffix .jsonl under this folder", path=os.fspath(path))
    events: list[Event] = []
    for file in files:
        name = file.name if top.is_file() else file.relative_to(top).as_posix()
        events += _dialogue(file, name)
    return events


def _dialogue(file: Path, name: str) -> list[Event]:
    talk = Conversation(name, file.name)
    for number, line in read_json_lines(file):

        def odd(message: str, number: int = number) -> InputError:
            return InputError(message, path=os.fspath(file), line=number)

        role = line.get("role")
        if role in ("User", "AI"):
            text = line.get("text")
            if not isinstance(text, str):
                raise odd(f"a line of {role} has `text`")
            if role == "User":
                talk.user(text)
            else:
                talk.decide(text, [])
        elif role == "API":
            tool, args, result = line.get("api_name"), line.get("param_dict"), line.get("result")
            if not isinstance(tool, str) or not isinstance(args, Mapping) or not isinstance(result, Mapping):
                raise odd("a line of API has `api_name`, `param_dict` and `result`")
            (place,) = talk.decide(None, [(tool, canonical_args(args))])
            output = result.get("output")
            talk.result(place, output, "error" if result.get("exception") else status_of(output))
        else:
            raise odd(f"the role is User, AI or API, found {role!r}")
    return list(talk.end())
