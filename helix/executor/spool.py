"""Rows held back until all are there, by a sort or a group: in memory while they are few, on disk beyond.

What is on disk lies in a private temporary database that SQLite removes by itself.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from typing import Any

from helix.canonical import canonical_text
from helix.executor.values import Failure

IN_MEMORY = 20_000
_BATCH = 1000

# The rank and the value of a key: what sorts first, and what sorts within.
_Place = tuple[int, Any]
_NULL: _Place = (9, 0)


class Spool:
    """Items under keys, given back in the order of the keys; items of equal keys in the order they came.

    A key is a tuple of scalars, one for each entry of `descending`. Null comes last whichever way a key runs.
    """

    def __init__(self, descending: tuple[bool, ...], in_memory: int = IN_MEMORY) -> None:
        self._descending = descending
        self._limit = in_memory
        self._items: list[tuple[tuple[_Place, ...], Any]] = []
        self._database: sqlite3.Connection | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, key: tuple[Any, ...], item: Any) -> None:
        """Holds an item. It is made of JSON values and failures."""
        self._items.append((tuple(_place(part) for part in key), item))
        self._count += 1
        if len(self._items) >= (self._limit if self._database is None else _BATCH):
            self._spill()

    def drain(self) -> Iterator[Any]:
        """All items in order; the spool is empty afterwards."""
        if self._database is None:
            items, self._items = self._items, []
            for position in reversed(range(len(self._descending))):
                known = [entry for entry in items if entry[0][position] != _NULL]
                unknown = [entry for entry in items if entry[0][position] == _NULL]
                known.sort(key=lambda entry, at=position: entry[0][at], reverse=self._descending[position])  # type: ignore[misc]
                items = known + unknown
            self._count = 0
            for _, item in items:
                yield item
            return
        self._spill()
        order: list[str] = []
        for number, descending in enumerate(self._descending):
            way = " DESC" if descending else ""
            order += [f"rank{number} = {_NULL[0]}", f"rank{number}{way}", f"value{number}{way}"]
        statement = f"SELECT item FROM spool ORDER BY {', '.join([*order, 'serial'])}"  # names of ours  # nosec B608
        for (text,) in self._database.execute(statement):
            yield _decoded(text)
        self.close()

    def _spill(self) -> None:
        if self._database is None:
            self._database = sqlite3.connect("", isolation_level=None)
            self._database.execute("PRAGMA journal_mode = OFF")
            self._database.execute("PRAGMA synchronous = OFF")
            columns = "".join(f", rank{number}, value{number}" for number in range(len(self._descending)))
            self._database.execute(f"CREATE TABLE spool (serial INTEGER PRIMARY KEY, item{columns})")
        marks = ", ?" * (1 + 2 * len(self._descending))
        rows = [(_encoded(item), *(part for place in places for part in place)) for places, item in self._items]
        self._database.execute("BEGIN")
        self._database.executemany(f"INSERT INTO spool VALUES (NULL{marks})", rows)  # question marks  # nosec B608
        self._database.execute("COMMIT")
        self._items.clear()

    def close(self) -> None:
        """Drops everything."""
        self._items.clear()
        self._count = 0
        if self._database is not None:
            self._database.close()
            self._database = None


def _place(value: Any) -> _Place:
    """Numbers before texts before bools before the rest, so that json values of several kinds have an order."""
    if value is None or value.__class__ is Failure:
        return _NULL
    if isinstance(value, bool):
        return (2, int(value))
    if isinstance(value, int | float):
        # SQLite holds no larger int; a double keeps the order but for neighbours beyond 2**53.
        return (0, value if isinstance(value, float) or abs(value) < 2**63 else float(value))
    # As bytes texts sort alike in memory and on disk: by code point.
    text = value if isinstance(value, str) else canonical_text(value)
    return (1 if isinstance(value, str) else 3, text.encode("utf-8", "surrogatepass"))


class _Encoder(json.JSONEncoder):
    def default(self, o: Any) -> Any:
        if isinstance(o, Failure):
            return {"\0failure": [o.kind, o.message, o.step, list(o.order), o.attempts, o.raw, o.traceback]}
        return super().default(o)


_ENCODER = _Encoder(ensure_ascii=True, separators=(",", ":"))


def _encoded(item: Any) -> str:
    return _ENCODER.encode(item)


def _decoded(text: str) -> Any:
    return json.loads(text, object_hook=_failure)


def _failure(found: dict[str, Any]) -> Any:
    parts = found.get("\0failure")
    if parts is None or len(found) != 1:
        return found
    kind, message, step, order, attempts, raw, traceback = parts
    return Failure(kind, message, step=step, order=tuple(order), attempts=attempts, raw=raw, traceback=traceback)
