"""Who looks on while a simulation goes: told of every request that is admitted and of every pass that has ended.

A watcher changes nothing, and the event log does not know of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from helix.executor.engines.sim.call import SimCall
    from helix.executor.engines.sim.worker import Worker


class Watcher(Protocol):
    """Hears of a simulation. Times are in nanoseconds since its start."""

    def admitted(self, worker: Worker, call: SimCall, now: int) -> None:
        """A request is admitted for the first time; `call.cached` says what of its prompt was found."""

    def passed(self, worker: Worker, began: int, now: int, *, prefill: bool) -> None:
        """A pass has ended, or several passes of decoding that were taken together; requests that it ended are still
        there.
        """
