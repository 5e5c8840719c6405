"""Traces: what happened in a run, event by event, as JSON lines.

An event is an `LlmEvent` (a decision: texts of the user since the last one, what the model said, the calls that it
asked for) or a `ToolEvent` (one call with its arguments, its result, its times, its effects). `read_events` and
`write_events` move them from and to files, `sessions_of` puts them in the order in which things happened,
`TraceRecorder` records them in a run, and `helix.traces.importers` reads the trajectories of others.
"""

from __future__ import annotations

from helix.traces.canonical import canonical_args, same_args, schema_hash
from helix.traces.events import (
    EFFECTS,
    FORMAT,
    Effects,
    Event,
    LlmEvent,
    Session,
    ToolEvent,
    sessions_of,
)
from helix.traces.files import read_events, write_events
from helix.traces.recorder import TraceRecorder

__all__ = [
    "EFFECTS",
    "FORMAT",
    "Effects",
    "Event",
    "LlmEvent",
    "Session",
    "ToolEvent",
    "TraceRecorder",
    "canonical_args",
    "read_events",
    "same_args",
    "schema_hash",
    "sessions_of",
    "write_events",
]
