"""How much may be launched: in a session, at once, for one rate group, for money."""

from __future__ import annotations

from helix.executor.speculation.settings import SpeculationSettings
from helix.services import Tool

_MOST_SESSIONS = 16_384


def rate_group(tool: Tool) -> str:
    """What a tool's calls are counted under: its rate group, else itself."""
    return f"group {tool.rate_group}" if tool.rate_group else f"tool {tool.name}"


class Budgets:
    """The launches of a run, counted. `refusal` says why no further one may be made; None where it may."""

    def __init__(self, settings: SpeculationSettings) -> None:
        self._settings = settings
        self._sessions: dict[str, int] = {}
        self._groups: dict[str, int] = {}
        self.in_flight = 0
        self.fees = 0.0

    def refusal(self, session: str, tool: Tool) -> str | None:
        """Why a call of a tool may not be launched for a session."""
        settings = self._settings
        if self._sessions.get(session, 0) >= settings.per_session:
            return "session"
        if self.in_flight >= settings.in_flight:
            return "in flight"
        if tool.rate_group and self._groups.get(rate_group(tool), 0) >= settings.per_rate_group:
            return "rate group"
        if settings.fees is not None and self.fees + (tool.fee or 0.0) > settings.fees:
            return "money"
        return None

    def launched(self, session: str, tool: Tool) -> None:
        """A call has begun. What it costs is charged in full, whatever becomes of it."""
        self._sessions[session] = self._sessions.get(session, 0) + 1
        if len(self._sessions) > _MOST_SESSIONS:
            # Rows with branches are sessions whose end nobody tells.
            del self._sessions[next(iter(self._sessions))]
        group = rate_group(tool)
        self._groups[group] = self._groups.get(group, 0) + 1
        self.in_flight += 1
        self.fees += tool.fee or 0.0

    def ended(self, tool: Tool) -> None:
        """A call has ended, or was cancelled."""
        self._groups[rate_group(tool)] -= 1
        self.in_flight -= 1

    def forget(self, session: str) -> None:
        """A session is over."""
        self._sessions.pop(session, None)
