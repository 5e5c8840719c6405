"""The figures of kept runs as tables of a page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from compare.measure import Run
from compare.results import Standing, geometric_mean, middle_run, name_of, seconds, standings


def write(page: Path, runs: Sequence[Run]) -> None:
    """Puts the tables in between the lines `<!-- regime policy -->` and `<!-- end -->` of a page. Raises OSError, and
    ValueError where it has none.
    """
    text = page.read_text("utf-8")
    pattern = re.compile(r"(<!-- (ample|pressure|redundant) (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
    text, count = pattern.subn(lambda found: f"{found[1]}\n{markdown(runs, found[2], found[3])}\n{found[4]}", text)
    if not count:
        raise ValueError(f"{page} has no line like `<!-- pressure lpm -->` with `<!-- end -->` behind it")
    page.write_text(text, "utf-8")


def markdown(runs: Sequence[Run], regime: str, policy: str) -> str:
    """One regime on one scheduling policy: the best of the others beside Helix, by workload."""
    found = standings(runs, regime, policy)
    if not found:
        return "Not measured yet.\n"
    lines = [
        "| | calls | best of the others | s | runs | /P_min | Helix s | runs | /P_min | others over Helix |",
        "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|",
        *map(_line, found),
        f"| geometric mean | | | | | | | | | {geometric_mean(found):.2f} |",
    ]
    return "\n".join(lines) + "\n"


def _line(place: Standing) -> str:
    best = place.others[0]
    name = f"{name_of(best)} {best.flags}".strip()
    cells = [place.workload, f"{middle_run(place.others).calls:,}", f"`{name}`"]
    for runs in (place.others, place.helix):
        middle = middle_run(runs)
        cells += [seconds(runs), str(len(runs)), f"{middle.prefilled / max(1, middle.least):.2f}"]
    return f"| {' | '.join(cells)} | {place.ratio:.2f} |"
