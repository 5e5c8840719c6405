"""What happened in a simulation: a digest of all events, the events themselves where they are wanted, and sums."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256


class EventLog:
    """Events as lines `time rank kind numbers...`, times in nanoseconds. Equal runs have equal digests."""

    def __init__(self, *, keep: bool = False) -> None:
        self._hash = sha256()
        self.count = 0
        self.events: list[str] | None = [] if keep else None

    def add(self, time: int, rank: int, kind: str, *numbers: int) -> None:
        """One event."""
        line = f"{time} {rank} {kind} {' '.join(map(str, numbers))}"
        self._hash.update(line.encode())
        self._hash.update(b"\n")
        self.count += 1
        if self.events is not None:
            self.events.append(line)

    @property
    def digest(self) -> str:
        """The SHA-256 of all events so far."""
        return self._hash.hexdigest()


@dataclass(slots=True, kw_only=True)
class Figures:
    """What a worker did. `prefilled` are tokens that passes of prefill computed, those of retracted requests again;
    `asked` and `cached` are of the prompts of requests that ended, when they were first admitted. `busy` is in
    nanoseconds. `outside` are passes of sizes that the cost model was not fitted to. `loaded` and `written` are tokens
    that went from the host tier to the GPU and from there, `moved` those of prompts that went to a rank that decodes.
    """

    ended: int = 0
    asked: int = 0
    cached: int = 0
    prefilled: int = 0
    generated: int = 0
    prefill_passes: int = 0
    decode_passes: int = 0
    retractions: int = 0
    busy: int = 0
    outside: int = 0
    loaded: int = 0
    written: int = 0
    moved: int = 0

    def add(self, other: Figures) -> None:
        """Adds another worker's."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
