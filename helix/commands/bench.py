"""The command `helix bench`: options, progress and tables."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import click

from helix.bench.cells import ORDERS, REGIMES, Cell, Outcome
from helix.bench.compare import compare
from helix.bench.layout import Block
from helix.bench.methods import method_of
from helix.bench.milp import Gaps, gaps
from helix.bench.plots import plot_of, write_plot
from helix.bench.results import Results
from helix.bench.runner import make_runs
from helix.bench.table5 import gap_plot
from helix.bench.tables import OPTIMA, TABLES, Wish, blocks_of, known_workloads, quick
from helix.bench.workloads import FAMILIES, WORKLOADS
from helix.errors import OptionError, name_help
from helix.progress import LINE_EVERY, say

WELL, FAILED = 0, 3


def bench_command(
    workloads: tuple[str, ...],
    *,
    regimes: str | None,
    orders: str | None,
    methods: str | None,
    seeds: int,
    groups: int | None,
    gpu: str,
    ranks: str | None,
    jobs: int,
    quickly: bool,
    table: str,
    output: Path | None,
    as_json: bool,
    markdown: bool,
    plots: Path | None,
    data: Path | None,
    again: bool,
    price: float | None,
    quiet: bool,
) -> int:
    """Runs what a table needs and prints it; exit code 3 where a run has failed rows or other results."""
    wish = Wish(
        workloads=_known(workloads, (*WORKLOADS, *FAMILIES), "workload") or None,
        regimes=_known(_names(regimes), REGIMES, "regime") or None,
        orders=_known(_names(orders), ORDERS, "order") or None,
        methods=tuple(method_of(name).name for name in _names(methods)) or None,
        seeds=seeds,
        groups=groups,
        gpu=_gpu(gpu),
        ranks=_numbers(ranks),
        data=data is not None,
        price=price,
    )
    found = TABLES.get(table)
    if found is None:
        raise OptionError(f"unknown table `{table}`; {name_help(table, TABLES, 'tables')}")
    if quickly:
        wish = quick(wish)
    cells = found.cells(wish)
    results = Results(output)
    if again:
        for cell in cells:
            results.runs.pop(cell, None)
    if found.name == OPTIMA:
        results.optima = list(gaps(seeds=range(wish.seeds), known=() if again else results.optima).solved)
    make_runs(cells, results, jobs=jobs, folder=data, progress=None if quiet else _Told())
    if as_json:
        click.echo(json.dumps(results.as_json(cells), indent=1))
    else:
        click.echo("\n".join(_shown(block, markdown) for block in blocks_of(found, results, cells, wish)), nl=False)
    if plots is not None:
        if found.name == OPTIMA:
            plot = gap_plot(Gaps(solved=tuple(results.optima)))
        else:
            plot = plot_of(found.title, compare(results, cells))
        file = write_plot(plots, found.name, plot)
        if not quiet:
            say(f"wrote {file}")
    runs = [results.runs[cell] for cell in cells]
    return FAILED if any(run.failed or not run.match for run in runs) else WELL


def _shown(block: Block, markdown: bool) -> str:
    return block.markdown() if markdown else block.text()


def _names(given: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (given or "").split(",") if name.strip())


def _known(given: tuple[str, ...], known: tuple[str, ...], what: str) -> tuple[str, ...]:
    for name in given:
        if name not in known:
            raise OptionError(f"unknown {what} `{name}`; {name_help(name, known, f'{what}s')}")
    return known_workloads(given) if what == "workload" else given


def _numbers(given: str | None) -> tuple[int, ...] | None:
    if given is None:
        return None
    found = _names(given)
    if not found or not all(each.isascii() and each.isdigit() and int(each) > 0 for each in found):
        raise OptionError(f"--ranks takes numbers of at least 1, such as 2,8, found `{given}`")
    return tuple(int(each) for each in found)


def _gpu(name: str) -> str:
    from helix.simulation.cost import published_cost

    published_cost(name)
    return name.lower()


class _Told:
    """Says now and then how far the runs are, on standard error."""

    def __init__(self) -> None:
        self._began = self._last = time.monotonic()

    def __call__(self, done: int, total: int, cell: Cell, outcome: Outcome) -> None:
        now = time.monotonic()
        if now - self._last < LINE_EVERY and done < total and not sys.stderr.isatty():
            return
        self._last = now
        where = f"{cell.workload} {cell.regime} {cell.order}, {cell.method}, seed {cell.seed}"
        say(f"{done} of {total} runs, {now - self._began:.0f} s: {where}: {outcome.run:.1f} s simulated")
