"""Runs to figures: medians, ratios and the table."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from compare.measure import Run

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
        if self._file is not None:
            beside = self._file.with_suffix(".tmp")
            text = json.dumps({"machine": machine, "runs": [each.to_json() for each in self.runs]}, indent=1)
            beside.write_text(text, encoding="utf-8")
            beside.replace(self._file)


def best_at_once(runs: Iterable[Run]) -> int | None:
    """The number of calls at once of the quickest run."""
    return min(runs, key=lambda run: run.seconds).at_once


def mismatches(run: Run, reference: Run) -> float:
    """The share of steps whose text is not that of another run."""
    names = run.texts.keys() | reference.texts.keys()
    return sum(run.texts.get(name) != reference.texts.get(name) for name in names) / max(1, len(names))


def table(runs: Sequence[Run]) -> str:
    """All measured runs as a table, a line for each method and way of scheduling, and the ratios below."""
    lines = []
    for regime in dict.fromkeys(run.regime for run in runs):
        lines.append(f"{regime}")
        lines.append(
            f"{'':4} {'policy':7} {'method':15} {'calls':>6} {'prompt':>8} {'prefilled':>9} {'hits':>5} {'/P_min':>6}"
            f" {'seconds: median (range)':>25} {'CPU s':>6} {'differ':>6} {'failed':>6}"
        )
        ratios: dict[str, dict[str, float]] = {}
        for workload in dict.fromkeys(run.workload for run in runs if run.regime == regime):
            here = [run for run in runs if (run.regime, run.workload, run.phase) == (regime, workload, MEASURED)]
            if here:
                lines += _lines(workload, here)
                _add_ratios(ratios, workload, here)
        for policy, found in ratios.items():
            each = ", ".join(f"{workload} {ratio:.2f}" for workload, ratio in found.items())
            lines.append(
                f"  best of the others on {policy} / Helix: {each}; geometric mean {_mean(found.values()):.2f}"
            )
        lines.append("")
    return "\n".join(lines)


def _lines(workload: str, runs: Sequence[Run]) -> list[str]:
    reference = next((run for run in runs if run.method != "helix"), runs[0])
    lines = []
    for policy, method, at_once in dict.fromkeys((run.policy, run.method, run.at_once) for run in runs):
        same = [run for run in runs if (run.policy, run.method, run.at_once) == (policy, method, at_once)]
        middle = sorted(same, key=lambda run: run.seconds)[len(same) // 2]
        seconds = [run.seconds for run in same]
        spread = f"{statistics.median(seconds):.1f} ({min(seconds):.1f}-{max(seconds):.1f})"
        hits = middle.cached_tokens / max(1, middle.prompt_tokens)
        name = method if at_once is None else f"{method} {at_once}"
        differ = statistics.median(mismatches(run, reference) for run in same)
        failed = sum(len(run.failures) + run.stray_prompts + run.miscounted for run in same)
        lines.append(
            f"{workload:4} {policy:7} {name:15} {middle.calls:6,} {middle.prompt_tokens:8,} {middle.prefilled:9,}"
            f" {hits:5.0%} {middle.prefilled / max(1, middle.least):6.2f} {spread:>25} {middle.engine_seconds:6.1f}"
            f" {differ:6.1%} {failed:6}"
        )
    return lines


def _add_ratios(ratios: dict[str, dict[str, float]], workload: str, runs: Sequence[Run]) -> None:
    helix = [run.seconds for run in runs if run.method == "helix" and not run.failures]
    if not helix:
        return
    for policy in dict.fromkeys(run.policy for run in runs):
        others: dict[tuple[str, int | None], list[float]] = {}
        for run in runs:
            if run.policy == policy and run.method != "helix" and not run.failures:
                others.setdefault((run.method, run.at_once), []).append(run.seconds)
        if others:
            best = min(statistics.median(seconds) for seconds in others.values())
            ratios.setdefault(policy, {})[workload] = best / statistics.median(helix)


def _mean(values: Iterable[float]) -> float:
    return statistics.geometric_mean(list(values))
