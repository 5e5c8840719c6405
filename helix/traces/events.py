"""The events of a trace, and sessions: the events of one conversation or one row in the order of their decisions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

# The version of the format that this Helix writes, and the only one that it reads.
FORMAT = 1

Status: TypeAlias = Literal["ok", "error", "cancelled"]
EffectClass: TypeAlias = Literal["pure", "read", "idempotent-write", "write", "destructive", "unknown"]
# From the most harmless to what is not known at all.
EFFECTS: tuple[EffectClass, ...] = ("pure", "read", "idempotent-write", "write", "destructive", "unknown")
STATUSES: tuple[Status, ...] = ("ok", "error", "cancelled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What a call does to the world: its class, the state domains that it reads and writes, and the epoch that each of
    the domains it reads was in when it began."""

    cls: EffectClass = "unknown"
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    epochs: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmEvent:
    """A decision of a model. `user` are the texts that came since the last one, `calls` the ids of the tool events that
    it led to; none is SAY, a turn without a call. Where the status is not ok nothing was decided: the model failed, or
    the recording ends with a text of the user. Times are seconds from the start of the run, or None."""

    session: str
    id: str
    step: int
    group: str = ""
    user: tuple[str, ...] = ()
    text: str | None = None
    calls: tuple[str, ...] = ()
    status: Status = "ok"
    start: float | None = None
    end: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEvent:
    """One call of a tool. `step` is that of the decision that issued it; `args` are canonical."""

    session: str
    id: str
    step: int
    tool: str
    args: Mapping[str, Any]
    group: str = ""
    result: Any = None
    status: Status = "ok"
    start: float | None = None
    end: float | None = None
    effects: Effects = Effects()


Event: TypeAlias = LlmEvent | ToolEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The events of one session in the order of what happened: each decision, then its calls as it listed them.

    Sessions of one `group` are tries of one task: they belong to the same side of any split.
    """

    id: str
    group: str
    events: tuple[Event, ...]

    @property
    def decisions(self) -> int:
        """How often a model decided."""
        return sum(isinstance(event, LlmEvent) and event.status == "ok" for event in self.events)

    @property
    def calls(self) -> tuple[ToolEvent, ...]:
        """The calls of tools."""
        return tuple(event for event in self.events if isinstance(event, ToolEvent))


def sessions_of(events: Iterable[Event]) -> list[Session]:
    """The sessions of a trace, in the order of their first events."""
    found: dict[str, list[Event]] = {}
    for event in events:
        found.setdefault(event.session, []).append(event)
    return [_session(name, held) for name, held in found.items()]


def _session(name: str, events: list[Event]) -> Session:
    """Events of one session are written as they end; here each stands where it was decided."""
    listed: dict[str, int] = {}
    for event in events:
        if isinstance(event, LlmEvent):
            listed.update({call: place for place, call in enumerate(event.calls)})
    last = len(listed)

    def place(numbered: tuple[int, Event]) -> tuple[int, int, int, int]:
        number, event = numbered
        if isinstance(event, LlmEvent):
            return event.step, 0, 0, number
        return event.step, 1, listed.get(event.id, last), number

    ordered = tuple(event for _, event in sorted(enumerate(events), key=place))
    group = next((event.group for event in ordered if event.group), name)
    return Session(id=name, group=group, events=ordered)
