"""Runs to figures: medians, ratios and the table."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from compare.measure import Run, hash_of

MEASURED, TUNING = "measured", "tuning"


class Results:
    """The runs so far, in a file that grows by each of them, so that an interrupted comparison goes on where it was."""

    def __init__(self, file: Path | None) -> None:
        """Reads the runs of the file, where there are any. Raises OSError and ValueError."""
        self._file = file
        self.runs: list[Run] = []
        if file is not None and file.exists():
            self.runs = [Run(**run) for run in json.loads(file.read_text("utf-8"))["runs"]]

    def find(self, run: Run) -> Run | None:
        """The run like this one that was made already."""
        return next((each for each in self.runs if each.key == run.key), None)

    def add(self, run: Run, machine: dict[str, Any]) -> None:
        """Keeps a run."""
        self.runs.append(run)
        self._write(machine)

    def keep(self, runs: Iterable[Run], machine: str = "") -> None:
        """Adds the figures of measured runs of other files, without the texts: as further repeats, each once.
        `machine` names the one that they were made on.
        """
        for run in runs:
            hashed = run.texts_hash or hash_of(run.texts)
            figures = replace(run, texts={}, texts_hash=hashed, repeat=0, machine=machine or run.machine)
            same = [each for each in self.runs if each.way == figures.way]
            if run.phase == MEASURED and all(replace(each, repeat=0) != figures for each in same):
                self.runs.append(replace(figures, repeat=len(same)))
        self._write({})

    def _write(self, machine: dict[str, Any]) -> None:
        if self._file is not None:
            beside = self._file.with_suffix(".tmp")
            told = {"machine": machine} if machine else {}
            text = json.dumps({**told, "runs": [each.to_json() for each in self.runs]}, indent=1)
            beside.write_text(text, encoding="utf-8")
            beside.replace(self._file)


def best_at_once(runs: Iterable[Run]) -> int | None:
    """The number of calls at once of the quickest run."""
    return min(runs, key=lambda run: run.seconds).at_once


def mismatches(run: Run, reference: Run) -> float:
    """The share of steps whose text is not that of another run. Where only hashes are known, all or none."""
    if not (run.texts and reference.texts):
        return float(run.texts_hash != reference.texts_hash)
    names = run.texts.keys() | reference.texts.keys()
    return sum(run.texts.get(name) != reference.texts.get(name) for name in names) / max(1, len(names))


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The best of the others and Helix in one place: of each machine the repeats of both."""

    workload: str
    machines: Sequence[tuple[Sequence[Run], Sequence[Run]]]

    @property
    def ratios(self) -> list[float]:
        """By machine, the median time of the others over that of Helix. Runs on two machines are not compared."""
        return [_median(others) / _median(helix) for others, helix in self.machines]

    @property
    def ratio(self) -> float:
        """Their median."""
        return statistics.median(self.ratios)


def standings(runs: Iterable[Run], regime: str, policy: str) -> list[Standing]:
    """By workload, where there are runs of both on one machine and one scheduling policy without a failure. Helix runs
    on `lpm`.
    """
    ways: dict[tuple[str, str, bool], dict[tuple[Any, ...], list[Run]]] = {}
    for run in runs:
        own = run.method == "helix"
        if (run.regime, run.phase) == (regime, MEASURED) and not run.failures and (own or run.policy == policy):
            ways.setdefault((run.workload, run.machine, own), {}).setdefault(run.way, []).append(run)
    best = {place: min(found.values(), key=_median) for place, found in ways.items()}
    made: dict[str, list[tuple[Sequence[Run], Sequence[Run]]]] = {}
    for workload, machine, own in sorted(best):
        if own and (workload, machine, False) in best:
            made.setdefault(workload, []).append((best[workload, machine, False], best[workload, machine, True]))
    return [Standing(workload=workload, machines=machines) for workload, machines in made.items()]


def geometric_mean(found: Iterable[Standing]) -> float:
    """Of the ratios."""
    return statistics.geometric_mean([each.ratio for each in found])


def seconds(runs: Sequence[Run]) -> str:
    """The median, and the range where there is one."""
    times = [run.seconds for run in runs]
    spread = f" ({min(times):.1f}-{max(times):.1f})" if len(times) > 1 else ""
    return f"{_median(runs):.1f}{spread}"


def middle_run(runs: Iterable[Run]) -> Run:
    """The run with the median time, of an even number the later one."""
    made = sorted(runs, key=lambda run: run.seconds)
    return made[len(made) // 2]


def name_of(run: Run) -> str:
    """The method, with its number of calls at once."""
    return run.method if run.at_once is None else f"{run.method} {run.at_once}"


def table(runs: Sequence[Run]) -> str:
    """All measured runs as a table, a line for each method and way of scheduling, and the ratios below."""
    lines = []
    for regime in dict.fromkeys(run.regime for run in runs):
        lines.append(f"{regime}")
        lines.append(
            f"{'':4} {'policy':7} {'method':15} {'calls':>6} {'prompt':>8} {'prefilled':>9} {'hits':>5} {'/P_min':>6}"
            f" {'seconds: median (range)':>25} {'CPU s':>6} {'differ':>6} {'failed':>6}"
        )
        for workload in dict.fromkeys(run.workload for run in runs if run.regime == regime):
            here = [run for run in runs if (run.regime, run.workload, run.phase) == (regime, workload, MEASURED)]
            if here:
                lines += _lines(workload, here)
        for policy in dict.fromkeys(run.policy for run in runs):
            found = standings(runs, regime, policy)
            if found:
                each = ", ".join(f"{place.workload} {place.ratio:.2f}" for place in found)
                lines.append(
                    f"  best of the others on {policy} / Helix: {each}; geometric mean {geometric_mean(found):.2f}"
                )
        lines.append("")
    return "\n".join(lines)


def _lines(workload: str, runs: Sequence[Run]) -> list[str]:
    reference = next((run for run in runs if run.method != "helix"), runs[0])
    lines = []
    for way in dict.fromkeys(run.way for run in runs):
        same = [run for run in runs if run.way == way]
        middle = middle_run(same)
        hits = middle.cached_tokens / max(1, middle.prompt_tokens)
        differ = statistics.median(mismatches(run, reference) for run in same)
        failed = sum(len(run.failures) + run.stray_prompts + run.miscounted for run in same)
        lines.append(
            f"{workload:4} {middle.policy:7} {name_of(middle):15} {middle.calls:6,} {middle.prompt_tokens:8,}"
            f" {middle.prefilled:9,} {hits:5.0%} {middle.prefilled / max(1, middle.least):6.2f} {seconds(same):>25}"
            f" {middle.engine_seconds:6.1f} {differ:6.1%} {failed:6}{'  ' + middle.flags if middle.flags else ''}"
        )
    return lines


def _median(runs: Iterable[Run]) -> float:
    return statistics.median(run.seconds for run in runs)
