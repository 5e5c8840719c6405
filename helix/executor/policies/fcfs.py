"""First come, first served, and what differs from it only in how much is let in: SGLang's own order uncapped, and a
static cap.

Uncapped, every call that is ready is sent, and the server orders what waits there: SGLang with `--schedule-policy lpm`
takes the longest match first (arXiv 2312.07104), and falls back to first come, first served above 128 waiting. A static
cap works on so many rows at once; swept by hand, its best number is what admission control is measured by (CONCUR,
arXiv 2601.22705).
"""

from __future__ import annotations

from helix.executor.engines.base import Capabilities
from helix.executor.policies.base import BLOCK, CallQueue, EnginePlace, PolicyBase
from helix.executor.policies.ordered import OrderedQueue


class _AsReady(PolicyBase):
    def queue(self, place: EnginePlace) -> CallQueue:
        return OrderedQueue(lambda call: 0, gates=False)


class Fcfs(_AsReady):
    """Calls go in the order in which they are ready."""

    name = "fcfs"

    def describe(self) -> str:
        return "calls go in the order in which they are ready"


class Uncapped(_AsReady):
    """All that is ready goes to the engine, which orders it."""

    name = "lpm"

    def rows(self, window: int) -> int:
        return max(window, BLOCK)

    def slots(self, capabilities: Capabilities, usual: int) -> int:
        return max(usual, BLOCK)

    def describe(self) -> str:
        return f"all that is ready goes to the engine (of {BLOCK:,} calls), which orders it"


class StaticCap(_AsReady):
    """So many rows at once, calls in the order in which they are ready."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    @property
    def name(self) -> str:
        return f"cap:{self._rows}"

    def rows(self, window: int) -> int:
        return self._rows

    def slots(self, capabilities: Capabilities, usual: int) -> int:
        return max(usual, min(self._rows, BLOCK))

    def describe(self) -> str:
        return (
            f"{self._rows} {'row' if self._rows == 1 else 'rows'} at once, calls in the order in which they are ready"
        )
