"""What a look at the table says: distinct values, lengths, and which columns decide which.

One pass, memory that does not grow with the rows. What is exact and what is not:

- `rows`, the null share and the mean length of lists are exact.
- Distinct values are counted up to COUNTED of a column, as 64-bit hashes; beyond that they are estimated from the
  smallest KEPT hashes (a bottom-k sketch, about 1.6 % off), and the column says `exact=False`.
- Tokens are those of a sample of rows, evenly spaced, SAMPLED at least where the table has them; the mean is scaled
  by the characters of all rows.
- That one column decides another is claimed only where it was seen on every row, and the first has at most DECIDING
  distinct values. It is looked for among the first COLUMNS columns.

Values are told apart as a prompt shows them; null is a value of its own.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from typing import Any

from helix.errors import HelixError
from helix.functions import to_text
from helix.optimizer.rule import ColumnStats, TableStats
from helix.optimizer.tokens import Tokenizer

COUNTED = 65_536
KEPT = 4_096
SAMPLED = 1_024
DECIDING = 4_096
COLUMNS = 12
_BATCH = 4_096
_HASHES = 1 << 64

Row = Mapping[str, Any]


def table_stats(rows: Iterable[Row], tokenizer: Tokenizer, columns: Sequence[str] | None = None) -> TableStats:
    """Statistics of a table given row by row. `columns` are those to look at; None takes those of the first row."""
    source = iter(rows)
    looks: dict[str, _Column] = {}
    decisions: _Decisions | None = None
    count = 0
    while batch := list(islice(source, _BATCH)):
        if decisions is None:
            names = list(batch[0]) if columns is None else list(columns)
            looks = {name: _Column(tokenizer) for name in names}
            decisions = _Decisions(names[:COLUMNS])
        hashed = {name: look.take([row.get(name) for row in batch], count) for name, look in looks.items()}
        decisions.take(hashed)
        count += len(batch)
    found = () if decisions is None else decisions.found()
    return TableStats(rows=count, columns={name: look.stats(count) for name, look in looks.items()}, determines=found)


class _Column:
    """One column on its way through the rows."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.distinct = _Distinct()
        self._chars = 0
        self._nulls = 0
        self._lists = 0
        self._items = 0
        # Every `stride`-th row: tokens and characters. Halved when it is full, so the rows stay evenly spaced.
        self._stride = 1
        self._sample: list[tuple[int, int]] = []

    def take(self, values: list[Any], first: int) -> list[int]:
        """Takes a batch whose first row has this number; gives a hash for each value."""
        nulls = values.count(None)
        texts: list[str | None] = values
        if not all(value.__class__ is str for value in values):
            for value in values:
                if value.__class__ is list:
                    self._lists += 1
                    self._items += len(value)
            texts = [value if value.__class__ is str or value is None else _text(value) for value in values]
        self._nulls += nulls
        self._chars += sum(len(text) for text in texts if text)
        hashes = {text: _hash(text) for text in set(texts)}
        self.distinct.take(hashes.values())
        start = -first % self._stride
        for text in islice(texts, start, None, self._stride):
            self._sample.append((self._tokenizer.count(text) if text else 0, len(text or "")))
        while len(self._sample) > 2 * SAMPLED:
            del self._sample[1::2]
            self._stride *= 2
        return [hashes[text] for text in texts]

    def stats(self, rows: int) -> ColumnStats:
        tokens = sorted(count for count, _ in self._sample)
        total, chars = sum(tokens), sum(size for _, size in self._sample)
        mean = total / chars * self._chars / rows if chars else 0.0
        ninth = float(tokens[max(0, -(-len(tokens) * 9 // 10) - 1)]) if tokens else 0.0
        distinct, exact = self.distinct.count()
        return ColumnStats(
            distinct=min(distinct, rows),
            tokens=mean,
            exact=exact,
            p90=ninth,
            nulls=self._nulls / rows if rows else 0.0,
            items=self._items / self._lists if self._lists else None,
        )


class _Distinct:
    """Counts distinct hashes: all of them while they are few, later from the smallest ones alone."""

    def __init__(self) -> None:
        self._seen: set[int] | None = set()
        self._heap: list[int] = []
        self._kept: set[int] = set()

    def take(self, hashes: Iterable[int]) -> None:
        if self._seen is not None:
            self._seen.update(hashes)
            if len(self._seen) <= COUNTED:
                return
            hashes, self._seen = self._seen, None
        heap, kept = self._heap, self._kept
        for number in hashes:
            if len(heap) < KEPT:
                if number not in kept:
                    kept.add(number)
                    heapq.heappush(heap, -number)
            elif number < -heap[0] and number not in kept:
                kept.add(number)
                kept.discard(-heapq.heapreplace(heap, -number))

    def count(self) -> tuple[int, bool]:
        if self._seen is not None:
            return len(self._seen), True
        return round((KEPT - 1) * _HASHES / -self._heap[0]), False


class _Decisions:
    """Which columns decide which: all pairs at first, fewer with every batch."""

    def __init__(self, names: Sequence[str]) -> None:
        self._open: dict[tuple[str, str], dict[int, int]] = {
            (one, other): {} for one in names for other in names if one != other
        }

    def take(self, hashed: Mapping[str, list[int]]) -> None:
        for pair, known in list(self._open.items()):
            one, other = hashed[pair[0]], hashed[pair[1]]
            fresh = dict(zip(one, other, strict=True))
            if [fresh[number] for number in one] != other or any(
                known.get(number, value) != value for number, value in fresh.items()
            ):
                del self._open[pair]
                continue
            known.update(fresh)
            if len(known) > DECIDING:
                del self._open[pair]

    def found(self) -> tuple[tuple[str, str], ...]:
        """The pairs that held on every row."""
        return tuple(self._open)


def _text(value: Any) -> str:
    try:
        return to_text(value)
    except (HelixError, TypeError, ValueError):
        # A value that no prompt can show is told apart as Python shows it.
        return repr(value)


def _hash(text: str | None) -> int:
    """A hash that is the same in every process. Null has one of its own."""
    data = b"\xff" if text is None else text.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")
