"""The regimes: which rows come in which order, and how much the server's cache holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random

from compare.workload import Row, Workload

REGIMES = ("ample", "pressure", "redundant")
AMPLE = 32768
SEED = 20260303


def kv_tokens(workload: Workload, regime: str) -> int:
    """The tokens that the server's cache holds."""
    return workload.tight if regime == "pressure" else AMPLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The rows of a regime, each with its number as `id`, and those of the day before, of which some come again."""

    rows: tuple[Row, ...]
    yesterday: tuple[Row, ...] = ()


def batch(workload: Workload, regime: str, folder: Path, size: tuple[int, int], share: float) -> Batch:
    """The rows of a workload in a regime; `size` are topics and questions of each.

    ample: rows grouped by topic. pressure: shuffled. redundant: shuffled, and a `share` of the rows are repeats, one
    half of them of rows in the same table and the other of rows of yesterday, when other topics came too.
    """
    rows = workload.rows(folder, *size)
    random = Random(SEED)
    if regime == "ample":
        return Batch(rows=_numbered(rows))
    if regime == "pressure":
        random.shuffle(rows)
        return Batch(rows=_numbered(rows))
    # Of n distinct rows and r repeats among them, y were there yesterday: r = y = share / 2 * (n + r).
    repeats = round(len(rows) * share / (2 - share))
    again = random.sample(rows, repeats)
    others = workload.rows(folder, 1, size[1], after=size[0])
    yesterday = [*random.sample(rows, repeats), *others]
    today = [*rows, *again]
    random.shuffle(today)
    return Batch(rows=_numbered(today), yesterday=_numbered(yesterday))


def _numbered(rows: list[Row]) -> tuple[Row, ...]:
    return tuple({"id": number, **row} for number, row in enumerate(rows))
