"""How long replies of earlier runs were, as a histogram for each prompt template, model and way of sampling.

Lengths up to 64 tokens are counted one by one, longer ones in classes of at most 3 %. Replies that a limit cut off are
counted apart, failures not at all.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

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
        rows = self._asked(
            "SELECT tokens, cut, count FROM lengths WHERE signature = ? AND model = ? AND sampling = ? "
            "ORDER BY tokens, cut",
            (signature, model, sampling),
        )
        return _listed([(tokens, cut, count) for tokens, cut, count in rows])

    def anywhere(self, signature: str, name: str | None, sampling: str) -> list[tuple[int, bool]]:
        """As `lengths`, of the model that is called so at any engine but a simulated one."""
        rows = self._asked(
            "SELECT tokens, cut, sum(count), model FROM lengths WHERE signature = ? AND sampling = ? "
            "GROUP BY tokens, cut, model ORDER BY tokens, cut, model",
            (signature, sampling),
        )
        made = [row for row in rows if not _simulated(row[3]) and _name_in(row[3]) == name]
        return _listed([(tokens, cut, count) for tokens, cut, count, _ in made])

    def _asked(self, query: str, values: tuple[str, ...]) -> list[Any]:
        if self._database is None:
            return []
        try:
            return self._database.execute(query, values).fetchall()
        except BROKEN:
            return []

    def close(self) -> None:
        """Closes the store."""
        if self._database is not None:
            self._database.close()
            self._database = None


def _listed(rows: list[tuple[int, int, int]]) -> list[tuple[int, bool]]:
    """Lengths that were counted, one by one; where they are more than MOST, a part of each."""
    total = sum(count for _, _, count in rows)
    scale = min(1.0, MOST / total) if total else 1.0
    found: list[tuple[int, bool]] = []
    passed = 0
    for tokens, cut, count in rows:
        before, passed = round(passed * scale), passed + count
        found += [(tokens, bool(cut))] * (round(passed * scale) - before)
    return found


def _name_in(model: str) -> str | None:
    """The model's own name in what lengths are counted under: an engine and a name, as JSON."""
    try:
        _, name = json.loads(model)
    except (ValueError, TypeError):
        return None
    return name if isinstance(name, str) else None


def _simulated(model: str) -> bool:
    """Whether lengths are of replies that nobody wrote."""
    return model.startswith('["sim:')
