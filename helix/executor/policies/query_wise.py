"""Row by row: some rows at once, each to its end before the next one begins (arXiv 2603.16104, published with one)."""

from __future__ import annotations

from helix.executor.policies.base import CallQueue, EnginePlace, PolicyBase
from helix.executor.policies.ordered import OrderedQueue


class QueryWise(PolicyBase):
    """So many rows at once, each with all of its calls that are ready."""

    def __init__(self, rows: int = 1) -> None:
        self._rows = rows

    @property
    def name(self) -> str:
        return f"query-wise:{self._rows}"

    def rows(self, window: int) -> int:
        return self._rows

    def queue(self, place: EnginePlace) -> CallQueue:
        return OrderedQueue(gates=False)

    def describe(self) -> str:
        return f"{self._rows} {'row' if self._rows == 1 else 'rows'} at once, each to its end"
