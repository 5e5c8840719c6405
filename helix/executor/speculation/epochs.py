"""State epochs: whether what a guess has read may have changed since.

Each state domain counts the beginnings and ends of real calls that write it. A guess is good for a call only where the
counts of all that it reads are the same at both: then no write began, ended or went on in between.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from helix.tools.effects import Domains, overlap

Stamp = tuple[int, ...]


class Epochs:
    """The epochs of a run. A domain `a` holds all domains `a.b`; None stands for all domains.

    `declared` are the domains that tools say they read. Where some read tables of which nobody has said to what domain
    they belong (`strict`), a call that writes a domain of which no reader is known writes all there is: its author may
    have meant the same thing by another name.
    """

    def __init__(self, declared: Iterable[str] = (), *, strict: bool = True) -> None:
        self._strict = strict
        self._counts: dict[str, int] = {}
        self._all = 0
        self._read: set[str] = set(declared)
        self._broken: list[Domains] = []
        self._never = count(1)

    def of(self, reads: Domains) -> Stamp:
        """The epoch of what a call reads; `()` where it reads no state. Of a broken domain it is never the same."""
        if reads == ():
            return ()
        if any(overlap(reads, domains) for domains in self._broken):
            return (-1, next(self._never))
        if reads is None:
            return (self._all, sum(self._counts.values()))
        self._read.update(reads)
        counts = [sum(n for other, n in self._counts.items() if overlap((name,), (other,))) for name in sorted(reads)]
        return (self._all, *counts)

    def bump(self, writes: Domains) -> None:
        """A call that writes has begun, or has ended."""
        if writes is None or not self._known(writes):
            self._all += 1
            return
        for name in writes:
            self._counts[name] = self._counts.get(name, 0) + 1

    def broke(self, writes: Domains) -> None:
        """A call that writes was given up and may still be at work: what it writes is never known again."""
        self._broken.append(writes if writes is not None and self._known(writes) else None)

    def _known(self, writes: tuple[str, ...]) -> bool:
        return not self._strict or all(overlap((name,), tuple(self._read)) for name in writes)
