"""Records a run as a trace, while it goes on.

    recorder = TraceRecorder("run.trace.jsonl")
    row = recorder.session("0")
    turn = row.decided(user=["Where is order 7?"], calls=1, start=0.0, end=row.now())
    row.called("orders", {"order": 7}, result=[...], id=turn.calls[0], step=turn.step, start=..., end=...)
    recorder.close()

Times are seconds since the recorder was made (`now`). Used from one event loop; calls of other threads are to be handed
to it. Launches of speculation do not belong here: a trace holds what was asked for.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import IO, Any, NamedTuple

from helix.errors import InputError
from helix.traces.canonical import canonical_args, hide_secrets
from helix.traces.events import Effects, Event, LlmEvent, Status, ToolEvent
from helix.traces.files import event_line

# Longer results are cut in a trace: what follows from them is not learned, but the file stays small enough to be read.
MOST_RESULT = 1_000_000


class Turn(NamedTuple):
    """A decision that was recorded: its number, and the ids that its calls have."""

    step: int
    calls: tuple[str, ...]


class TraceRecorder:
    """Writes events to a file as they come, or keeps them in `events` where no file is named.

    The file is written beside its place and moved there by `close`. `secret_key` is the key of the hashes that stand
    for secret arguments: those of two runs can be compared where both were given one key.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        schemas: Mapping[str, Mapping[str, Any]] | None = None,
        secret_args: Mapping[str, Collection[str]] | None = None,
        secret_key: bytes | None = None,
    ) -> None:
        self.events: list[Event] = []
        self.written = 0
        self.schemas = dict(schemas or {})
        self.secret_args = {tool: frozenset(names) for tool, names in (secret_args or {}).items()}
        self._key = secret_key or secrets.token_bytes(32)
        self._began = monotonic()
        self._sessions: dict[str, SessionRecorder] = {}
        self._path = None if path is None else Path(path)
        self._beside: Path | None = None
        self._file: IO[str] | None = None
        self._broken: OSError | None = None
        if self._path is not None:
            self._beside = self._path.with_name(f".{self._path.name}.{os.getpid()}.tmp")
            try:
                self._file = self._beside.open("w", encoding="utf-8", newline="")
            except OSError as error:
                raise InputError(f"the trace {self._path} cannot be written: {error.strerror}") from None

    def now(self) -> float:
        """Seconds since the recorder was made."""
        return monotonic() - self._began

    def at(self, moment: float) -> float:
        """The time of an event for a moment of `time.monotonic()`."""
        return max(0.0, moment - self._began)

    def session(self, name: str, group: str = "") -> SessionRecorder:
        """The recorder of one session: of a row, or of one agent in a row. The same name gives the same one again."""
        found = self._sessions.get(name)
        if found is None:
            found = self._sessions[name] = SessionRecorder(self, name, group)
        return found

    def close(self) -> None:
        """Puts the file in its place; safe to call twice. Raises InputError where that cannot be done."""
        if self._file is None:
            return
        assert self._path is not None
        assert self._beside is not None
        file, self._file = self._file, None
        try:
            file.close()
            if self._broken is not None:
                raise self._broken
            self._beside.replace(self._path)
        except OSError as error:
            self._beside.unlink(missing_ok=True)
            raise InputError(f"the trace {self._path} cannot be written: {error.strerror}") from None

    def discard(self) -> None:
        """Forgets the file: the run did nothing."""
        if self._file is not None:
            assert self._beside is not None
            self._file.close()
            self._file = None
            self._beside.unlink(missing_ok=True)

    def forget(self, name: str) -> None:
        """Hears that a session is over: nothing of it is held any more."""
        self._sessions.pop(name, None)

    def add(self, event: Event) -> None:
        """Records an event that was made elsewhere."""
        self.written += 1
        if self._path is None:
            self.events.append(event)
        elif self._file is not None and self._broken is None:
            try:
                self._file.write(event_line(event))
            except OSError as error:
                # A run goes on without its trace; `close` tells.
                self._broken = error

    def shown_args(self, tool: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """The canonical arguments of a call, with hashes for those that are secret."""
        held = canonical_args({name: shown_result(value) for name, value in args.items()}, self.schemas.get(tool))
        names = self.secret_args.get(tool)
        return hide_secrets(held, sorted(names), self._key) if names else held


class SessionRecorder:
    """Records the events of one session."""

    def __init__(self, recorder: TraceRecorder, name: str, group: str) -> None:
        self.name = name
        self._recorder = recorder
        self._group = group
        self._decided = 0
        self._alone = 0

    def now(self) -> float:
        """Seconds since the start of the run."""
        return self._recorder.now()

    def decided(
        self,
        *,
        user: Sequence[str] = (),
        text: str | None = None,
        calls: int | Sequence[str] = 0,
        step: int | None = None,
        status: Status = "ok",
        start: float | None = None,
        end: float | None = None,
    ) -> Turn:
        """Records a decision of the model; gives its number and the ids of its calls.

        `calls` is how many it asks for (0: it only spoke), or the ids that they have. Without `step` decisions are
        numbered as they come.
        """
        step = self._decided if step is None else step
        self._decided = max(self._decided, step + 1)
        ids = tuple(f"{step}.{number}" for number in range(calls)) if isinstance(calls, int) else tuple(calls)
        self._recorder.add(
            LlmEvent(
                session=self.name,
                group=self._group,
                id=str(step),
                step=step,
                user=tuple(user),
                text=text,
                calls=ids,
                status=status,
                start=start,
                end=end,
            )
        )
        return Turn(step, ids)

    def called(
        self,
        tool: str,
        args: Mapping[str, Any],
        *,
        result: Any = None,
        status: Status = "ok",
        id: str | None = None,
        step: int | None = None,
        start: float | None = None,
        end: float | None = None,
        effects: Effects | None = None,
    ) -> ToolEvent:
        """Records a call that has ended. One that the plan made, and no model, needs neither `id` nor `step`."""
        if id is None:
            id = f"plan.{self._alone}"
            self._alone += 1
        event = ToolEvent(
            session=self.name,
            group=self._group,
            id=id,
            step=max(0, self._decided - 1) if step is None else step,
            tool=tool,
            args=self._recorder.shown_args(tool, args),
            result=shown_result(result),
            status=status,
            start=start,
            end=end,
            effects=effects or Effects(),
        )
        self._recorder.add(event)
        return event


def shown_result(value: Any) -> Any:
    """A result as a trace holds it: JSON as it is, what is too long or no JSON as the beginning of its text."""
    from helix.canonical import to_json_text

    try:
        size = len(to_json_text(value))
    except (TypeError, ValueError, RecursionError):
        return str(value)[:MOST_RESULT]
    if size <= MOST_RESULT:
        return value
    return value[:MOST_RESULT] if isinstance(value, str) else to_json_text(value)[:MOST_RESULT]
