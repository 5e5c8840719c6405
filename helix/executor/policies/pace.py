"""When calls that could go are sent: together, since each pass of prefill holds up all that decode meanwhile.

A pass of prefill costs an engine some milliseconds beside its tokens. Calls that are sent one by one, as others end,
take a pass each; held for one another they share one, but wait. The gate opens once those that are held have waited,
all together, as long as the pass holds up those that run: where a fixed cost and one that grows with waiting are equal,
their sum is least (the economic order quantity of Harris, 1913).
"""

from __future__ import annotations

# Seconds that a pass of prefill takes beside its tokens, where the engine does not tell.
PASS_SECONDS = 0.005


class Pace:
    """The gate of one rank. Times are in seconds of the loop's clock."""

    __slots__ = ("_ended", "_full", "_held", "_since", "_waited", "cost", "open")

    def __init__(self, cost: float = PASS_SECONDS) -> None:
        self.cost = cost
        self.open = True
        self._full = False
        # Calls that ended since the gate was closed: where the rank was full, no more than that can go.
        self._ended = 0
        self._held = 0
        self._waited = 0.0
        self._since = 0.0

    def close(self, now: float, *, full: bool) -> None:
        """All that could go has gone. `full`: others wait for which there is no room."""
        self.open = False
        self._full = full
        self._ended = self._held = 0
        self._waited = 0.0
        self._since = now

    def ended(self, count: int = 1) -> None:
        """Calls have ended, and there is room for as many; or so many have what they waited for."""
        self._ended += count

    def left(self, now: float, waiting: int, running: int) -> float | None:
        """The seconds until the gate opens, with so many calls that wait and run; None where nothing is held."""
        self._waited += self._held * (now - self._since)
        self._since = now
        self._held = min(waiting, self._ended) if self._full else waiting
        if self.open or not running:
            return 0.0
        if not self._held:
            return None
        return max(0.0, self.cost * running - self._waited) / self._held
