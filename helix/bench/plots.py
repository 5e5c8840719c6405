"""A plot for each table: the time of each method over its lower bound, place by place, as an SVG file."""

from __future__ import annotations

import statistics
from pathlib import Path

from helix.bench.compare import Compared
from helix.bench.tables import Found, Place
from helix.errors import InputError
from helix.plots import Axis, Bar, Plot, bars


def plot_of(title: str, found: Found) -> Plot:
    """The methods of each place: medians over the seeds, and ranges from the least to the most."""
    names = list(dict.fromkeys(name for methods in found.values() for name in methods))
    return bars(
        title,
        [_place(place, found) for place in found],
        [_bar(name, found) for name in names],
        y=Axis(label="time over the lower bound"),
        x="workload, regime and order of the rows",
        reference=1.0,
    )


def write_plot(folder: Path, name: str, plot: Plot) -> Path:
    """Writes the plot of a table. Raises InputError where that cannot be."""
    file = folder / f"{name}.svg"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(plot.svg(), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}") from None
    return file


def _place(place: Place, found: Found) -> str:
    """The name of a place, of its parts those in which places differ."""
    differ = [at for at in range(len(place)) if len({other[at] for other in found}) > 1]
    return " ".join(str(place[at]) for at in ({0, *differ} if differ else {0}))


def _bar(name: str, found: Found) -> Bar:
    ratios = [_ratios(methods.get(name)) for methods in found.values()]
    return Bar(
        name=name,
        values=tuple(statistics.median(each) if each else None for each in ratios),
        low=tuple(min(each, default=None) for each in ratios),
        high=tuple(max(each, default=None) for each in ratios),
    )


def _ratios(method: Compared | None) -> list[float]:
    return [] if method is None else [run.over_bound for run in method.runs.values() if run.bound]
