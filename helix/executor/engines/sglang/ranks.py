"""The workers behind an address, and which takes the next call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from helix.errors import EngineError
from helix.executor.engines.openai_errors import Place

AWAY_SECONDS = 5.0  # how long a server that did not answer is passed over where another one can be asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One rank: a server, or one of its data-parallel workers (`routed`: which)."""

    number: int
    place: Place
    routed: int | None = None


class Ranks:
    """All workers. `running` are the calls that each has from this engine."""

    def __init__(self, places: list[Place], sizes: list[int]) -> None:
        routes = [
            (place, number if size > 1 else None)
            for place, size in zip(places, sizes, strict=True)
            for number in range(size)
        ]
        self._workers = [
            Worker(number=number, place=place, routed=routed) for number, (place, routed) in enumerate(routes)
        ]
        self.running = [0] * len(self._workers)
        self._away: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._workers)

    def first_of(self, place: Place) -> int:
        """The number of a server's first worker."""
        return next(worker.number for worker in self._workers if worker.place.address == place.address)

    def pick(self, rank: int | None, now: float) -> Worker:
        """The worker with this number; without one, or where its server did not answer lately, the least busy of those
        whose servers do, the first among equals. Raises EngineError for a number that none has.
        """
        if rank is not None and not 0 <= rank < len(self._workers):
            raise EngineError(f"there is no rank {rank}; there are {len(self._workers)}, from 0")
        here = [worker for worker in self._workers if self._away.get(worker.place.address, now) <= now]
        if rank is not None and (not here or self._workers[rank] in here):
            return self._workers[rank]
        return min(here or self._workers, key=lambda worker: (self.running[worker.number], worker.number))

    @contextmanager
    def busy(self, worker: Worker) -> Iterator[None]:
        """Counts a call of the worker while it lasts."""
        self.running[worker.number] += 1
        try:
            yield
        finally:
            self.running[worker.number] -= 1

    def away(self, place: Place, now: float) -> None:
        """Takes note of a server that did not answer."""
        self._away[place.address] = now + AWAY_SECONDS

    def back(self, place: Place) -> None:
        """Takes note of a server that did."""
        self._away.pop(place.address, None)
