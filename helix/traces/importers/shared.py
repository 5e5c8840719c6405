"""What the importers share: reading JSON with the place of a fault, and what an error looks like."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from helix.errors import InputError
from helix.traces.events import LlmEvent, Status, ToolEvent
from helix.traces.files import parse_json


def read_json(path: str | os.PathLike[str]) -> Any:
    """The JSON value that a file holds."""
    shown = os.fspath(path)
    try:
        return parse_json(Path(path).read_bytes().removeprefix(b"\xef\xbb\xbf"))
    except OSError as error:
        raise InputError(f"the file cannot be read: {error.strerror}", path=shown) from None
    except ValueError as error:
        raise InputError(str(error), path=shown) from None


def read_json_lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file of JSON lines, with their line numbers."""
    shown = os.fspath(path)
    try:
        data = Path(path).read_bytes().removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise InputError(f"the file cannot be read: {error.strerror}", path=shown) from None
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            value = parse_json(line)
        except ValueError as error:
            raise InputError(str(error), path=shown, line=number) from None
        if not isinstance(value, dict):
            raise InputError("each line is a JSON object", path=shown, line=number)
        yield number, value


def status_of(result: Any) -> Status:
    """An error is a text that begins with "error" in any case, or an object whose `error` is true in Python's sense."""
    if isinstance(result, str):
        return "error" if result[:5].lower() == "error" else "ok"
    return "error" if isinstance(result, dict) and result.get("error") else "ok"


class Conversation:
    """Builds the events of one session."""

    def __init__(self, session: str, group: str) -> None:
        self.session, self.group = session, group
        self.events: list[LlmEvent | ToolEvent] = []
        self._user: list[str] = []
        self._step = 0

    def user(self, text: str) -> None:
        """The user said something."""
        self._user.append(text)

    def decide(self, text: str | None, calls: list[tuple[str, dict[str, Any]]]) -> list[int]:
        """The model spoke, and asked for calls; gives their places in `events`, where results are set later."""
        step, self._step = self._step, self._step + 1
        ids = tuple(f"{step}.{number}" for number in range(len(calls)))
        names: dict[str, Any] = {"session": self.session, "group": self.group}
        user, self._user = tuple(self._user), []
        self.events.append(LlmEvent(**names, id=str(step), step=step, user=user, text=text, calls=ids))
        places: list[int] = []
        for id, (tool, args) in zip(ids, calls, strict=True):
            places.append(len(self.events))
            # Nothing is known of a call until its result is there.
            self.events.append(ToolEvent(**names, id=id, step=step, tool=tool, args=args, status="cancelled"))
        return places

    def end(self) -> list[LlmEvent | ToolEvent]:
        """All events. Texts of the user that nobody answered come last, with a decision that was never taken; so does a
        session in which nothing happened have one event."""
        if self._user or not self.events:
            self.decide(None, [])
            event = self.events[-1]
            self.events[-1] = replace(event, status="cancelled")
        return self.events

    def result(self, place: int, value: Any, status: Status | None = None) -> None:
        """A call has given this."""
        event = self.events[place]
        assert isinstance(event, ToolEvent)
        self.events[place] = replace(event, result=value, status=status or status_of(value))
