"""A link between two memories: what is sent goes one after another."""

from __future__ import annotations


class Channel:
    """First in, first out; a transfer takes the latency and its bytes by the bandwidth.

    `latency_us` is in microseconds, `gbs` in gigabytes a second, which are bytes a nanosecond. Times are nanoseconds.
    """

    __slots__ = ("_bandwidth", "_latency", "free_at", "sent")

    def __init__(self, latency_us: float, gbs: float) -> None:
        self._latency = round(latency_us * 1000)
        self._bandwidth = gbs
        self.free_at = 0
        self.sent = 0

    def send(self, now: int, size: int) -> int:
        """When a transfer of so many bytes, asked for now, is done."""
        self.free_at = max(now, self.free_at) + self._latency + max(1, round(size / self._bandwidth))
        self.sent += size
        return self.free_at
