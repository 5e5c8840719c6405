"""Looks at results by place: which methods ran there, the best of those that are tuned, and each beside Helix."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from helix.bench.cells import Cell, Outcome
from helix.bench.methods import family
from helix.bench.results import Results

HELIX = "helix"
PUBLISHED = "query-wise@1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The runs of a method in one place, by seed. `name` has the best number, where several were tried."""

    place: tuple[Any, ...]
    method: str
    name: str
    runs: dict[int, Outcome]

    @property
    def total(self) -> float:
        """The median over the seeds of what a user waits for."""
        return statistics.median(run.total for run in self.runs.values())

    def over(self, other: Compared) -> list[float]:
        """This method's totals over another's, seed by seed."""
        shared = [seed for seed in self.runs if seed in other.runs]
        return [self.runs[seed].total / other.runs[seed].total for seed in shared if other.runs[seed].total]


def compare(results: Results, cells: Iterable[Cell]) -> dict[tuple[Any, ...], dict[str, Compared]]:
    """The methods of each place in the order in which they were asked for; tuned ones by their best number."""
    runs: dict[tuple[Any, ...], dict[str, dict[str, dict[int, Outcome]]]] = {}
    for cell in cells:
        outcome = results.runs.get(cell)
        if outcome is not None:
            named = runs.setdefault(cell.place, {}).setdefault(family(cell.method), {})
            named.setdefault(cell.method, {})[cell.seed] = outcome
    found: dict[tuple[Any, ...], dict[str, Compared]] = {}
    for place, methods in runs.items():
        found[place] = {}
        for method, tried in methods.items():
            made = [Compared(place=place, method=method, name=name, runs=by_seed) for name, by_seed in tried.items()]
            found[place][method] = min(made, key=lambda each: each.total)
            # As it was published, with one row at once, beside its best number.
            found[place] |= {each.name: each for each in made if each.name == PUBLISHED}
    return found
