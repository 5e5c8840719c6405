"""How long replies of earlier runs were, as a histogram for each prompt template, model and way of sampling.

Lengths up to 64 tokens are counted one by one, longer ones in classes of at most 3 %. Replies that a limit cut off are
counted apart, failures not at all.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from helix.errors import StoreError
from helix.executor.store.database import BROKEN, FILE, check_file, connected

# The most lengths that are given: a larger number is scaled down.
MOST = 1000
_EXACT = 64


def length_class(tokens: int) -> int:
    """The length that stands for a class of lengths: its upper end."""
    if tokens <= _EXACT:
        return tokens
    step = 1 << (tokens.bit_length() - 6)
    return -(-tokens // step) * step


class LengthProfiles:
    """The lengths in a store. A store that cannot be read holds none."""

    def __init__(self, folder: Path) -> None:
        self._database: sqlite3.Connection | None = None
        path = folder / FILE
        try:
            check_file(path)
            self._database = connected(path)
            self._database.execute("PRAGMA query_only = ON")
        except (OSError, StoreError, *BROKEN):
            self.close()

    @property
    def database(self) -> sqlite3.Connection | None:
        """The store, open for reading; None where it cannot be read."""
        return self._database

    @staticmethod
    def there(folder: Path) -> bool:
        """Whether there is a store to look into."""
        return (folder / FILE).is_file()

    def lengths(self, signature: str, model: str, sampling: str) -> list[tuple[int, bool]]:
        """The lengths in tokens, each with whether a limit cut the reply off; at most about MOST."""
        if self._database is None:
            return []
        try:
            rows = self._database.execute(
                "SELECT tokens, cut, count FROM lengths WHERE signature = ? AND model = ? AND sampling = ? "
                "ORDER BY tokens, cut",
                (signature, model, sampling),
            ).fetchall()
        except BROKEN:
            return []
        total = sum(count for _, _, count in rows)
        scale = min(1.0, MOST / total) if total else 1.0
        found: list[tuple[int, bool]] = []
        passed = 0
        for tokens, cut, count in rows:
            before, passed = round(passed * scale), passed + count
            found += [(tokens, bool(cut))] * (round(passed * scale) - before)
        return found

    def close(self) -> None:
        """Closes the store."""
        if self._database is not None:
            self._database.close()
            self._database = None
