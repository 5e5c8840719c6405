"""Makes the runs of many cells, on several processes where wanted, and keeps each as soon as it is there."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

from helix.bench.batches import reference_of
from helix.bench.cells import Batch, Cell, Outcome
from helix.bench.measure import run_cell
from helix.bench.results import Results

SAVE_EVERY = 20.0

# Hears of a run that is there: how many are, of how many, and which.
Progress = Callable[[int, int, Cell, Outcome], None]


def make_runs(
    cells: Sequence[Cell],
    results: Results,
    *,
    jobs: int = 1,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> None:
    """Makes the runs that are not among the results yet."""
    wanted = [cell for cell in dict.fromkeys(cells) if cell not in results.runs]
    batches = [batch for batch in dict.fromkeys(cell.batch for cell in wanted) if batch not in results.references]
    work = _Work(results, folder, progress, len(wanted))
    try:
        if jobs == 1:
            for batch in batches:
                results.references[batch] = reference_of(batch, folder)
            for cell in wanted:
                work.made(cell, run_cell(cell, results.references[cell.batch], folder))
        elif wanted:
            with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
                work.on(pool, wanted, batches)
    finally:
        results.save()


class _Work:
    """The runs that are being made."""

    def __init__(self, results: Results, folder: Path | None, progress: Progress | None, total: int) -> None:
        self._results = results
        self._folder = folder
        self._progress = progress
        self._total = total
        self._done = 0
        self._saved = time.monotonic()

    def made(self, cell: Cell, outcome: Outcome) -> None:
        """Keeps a run."""
        self._results.runs[cell] = outcome
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._total, cell, outcome)
        if time.monotonic() - self._saved >= SAVE_EVERY:
            self._results.save()
            self._saved = time.monotonic()

    def on(self, pool: ProcessPoolExecutor, cells: Sequence[Cell], batches: Sequence[Batch]) -> None:
        """Makes runs on a pool: each as soon as its reference is there."""
        references = self._results.references
        looked: dict[Future[Any], Batch] = {}
        running: dict[Future[Any], Cell] = {}

        def begin(some: Sequence[Cell]) -> None:
            for cell in some:
                running[pool.submit(run_cell, cell, references[cell.batch], self._folder)] = cell

        try:
            for batch in batches:
                looked[pool.submit(reference_of, batch, self._folder)] = batch
            begin([cell for cell in cells if cell.batch in references])
            while looked or running:
                done, _ = wait([*looked, *running], return_when=FIRST_COMPLETED)
                for future in done:
                    if future in looked:
                        batch = looked.pop(future)
                        references[batch] = future.result()
                        begin([cell for cell in cells if cell.batch == batch])
                    else:
                        self.made(running.pop(future), future.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
