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
    """Seconds of several machines stand one behind the other; the ratio is the median of theirs."""
    others, helix = ([each[side] for each in place.machines] for side in (0, 1))
    names = dict.fromkeys(f"{name_of(runs[0])} {runs[0].flags}".strip() for runs in others)
    middle = middle_run([run for runs in others for run in runs])
    cells = [place.workload, f"{middle.calls:,}", ", ".join(f"`{name}`" for name in names)]
    for machines in (others, helix):
        made = [run for runs in machines for run in runs]
        middle = middle_run(made)
        cells += [" / ".join(map(seconds, machines)), str(len(made)), f"{middle.prefilled / max(1, middle.least):.2f}"]
    spread = f" ({min(place.ratios):.2f}-{max(place.ratios):.2f})" if len(place.ratios) > 1 else ""
    return f"| {' | '.join(cells)} | {place.ratio:.2f}{spread} |"
