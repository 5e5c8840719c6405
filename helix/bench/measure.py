"""Makes one run of the benchmark in simulated time."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from helix.bench.batches import bound_of, prepared, results_digest, rows_of, workflow_of
from helix.bench.cells import Cell, Outcome, Reference
from helix.bench.engines import Made, MeasuredEngine
from helix.bench.methods import Method, method_of
from helix.bench.replies import Replies
from helix.bench.workloads import WORKLOADS
from helix.executor.engines.sim import SimSettings
from helix.executor.engines.sim.loop import VirtualLoop
from helix.executor.settings import RunSettings
from helix.executor.store.settings import StoreSettings
from helix.loading import loads
from helix.physical import PhysicalPlan
from helix.prepared import Prepared
from helix.results import RunReport, RunResult
from helix.simulation.capacity import gpu_memory, kv_tokens, model_shape
from helix.simulation.cost import LinearCost, published_cost

MODEL = "llama-3.1-8b"
MAX_RUNNING = 256
# Under pressure what all prompts and replies take is so many times what the caches hold together.
PRESSURE = 4
# A cache holds at least so many of the longest calls.
LEAST_CALLS = 4
# Policies that draw.
SEEDED = ("random", "ready-random")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Day:
    """A run over one day's rows."""

    report: RunReport
    rows: list[dict[str, Any]]
    planned: float
    began: float
    seconds: float


def cache_of(cell: Cell, reference: Reference) -> int:
    """The tokens of a rank's KV cache."""
    workload = WORKLOADS[cell.workload]
    own = workload.kv_tokens or kv_tokens(model_shape(MODEL), gpu_memory(cell.gpu))
    if cell.regime != "pressure":
        return own
    scarce = int(reference.held / (PRESSURE * cell.ranks))
    return max(min(scarce, own // PRESSURE), LEAST_CALLS * reference.longest_call)


def run_cell(cell: Cell, reference: Reference, folder: Path | None = None) -> Outcome:
    """Makes the run of a cell. The same cell gives the same outcome, but for the planner's time."""
    method, workload = method_of(cell.method), WORKLOADS[cell.workload]
    cost = published_cost(cell.gpu)
    kv = cache_of(cell, reference)
    settings = SimSettings(
        kv_tokens=kv,
        ranks=cell.ranks,
        max_running=MAX_RUNNING,
        policy=method.order,
        router=method.router,
        eviction=method.eviction,
        mixed_chunk=method.mixed,
        prefix_cache=method.prefix_cache,
        seed=cell.seed,
    )
    engine = MeasuredEngine(settings, cost, Replies(cell.seed, workload.means, workload.cap, workload.says))
    _load()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as store, asyncio.Runner(loop_factory=VirtualLoop) as runner:
        keeps = Path(store) if cell.regime == "redundant" and method.store and workload.days else None
        days = runner.run(_days(cell, method, engine, folder, keeps))
    return _outcome(cell, reference, engine, cost, kv, days, folder, time.monotonic() - began)


@cache
def _load() -> None:
    """Loads what planning takes: what is timed is the planner, not the import of its modules."""
    flow = loads('workflow w(a: text)\nb = llm { user "{{ a }}" }\noutput b\n')
    prepared(_Timed, flow, [{"a": "1"}, {"a": "2"}], None, RunSettings()).physical(None)


async def _days(
    cell: Cell, method: Method, engine: MeasuredEngine, folder: Path | None, store: Path | None
) -> list[tuple[_Day, int, dict[str, int]]]:
    """The runs of one or two days; for each the calls and the figures of the engine before it."""
    made = []
    for day in (0, 1) if WORKLOADS[cell.workload].days else (1,):
        before = len(engine.made), _figures(engine)
        made.append((await _day(cell, method, engine, day, folder, store), *before))
    await engine.finish()
    return made


async def _day(
    cell: Cell, method: Method, engine: MeasuredEngine, day: int, folder: Path | None, store: Path | None
) -> _Day:
    calls = None if method.calls is None else method.calls * cell.ranks
    policy = f"{method.policy}:{cell.seed}" if method.policy in SEEDED else method.policy
    lanes = WORKLOADS[cell.workload].lanes
    settings = RunSettings(policy=policy, concurrency=calls, merge=not method.plain, lanes=lanes)
    rows = rows_of(cell.batch, cell.order, day, folder)
    kept = None if store is None else StoreSettings(folder=store)
    spent = time.thread_time()
    work = prepared(_Timed, workflow_of(cell.batch), rows, engine, settings, plain=method.plain, store=kept)
    spent = time.thread_time() - spent
    loop = asyncio.get_running_loop()
    began = loop.time()
    result: RunResult = await work.run()
    return _Day(
        report=result.report,
        rows=result.rows,
        planned=spent + work.planned,
        began=began,
        seconds=loop.time() - began,
    )


class _Timed(Prepared):
    """A run whose planner is timed: a simulated clock stands still meanwhile."""

    planned = 0.0
    _planning = False

    def physical(self, *args: Any, **options: Any) -> PhysicalPlan:
        with self._timed():
            return super().physical(*args, **options)

    def _look_at_table(self) -> None:
        with self._timed():
            super()._look_at_table()

    @contextmanager
    def _timed(self) -> Iterator[None]:
        if self._planning:
            yield
            return
        self._planning, began = True, time.thread_time()
        try:
            yield
        finally:
            self._planning = False
            self.planned += time.thread_time() - began


def _figures(engine: MeasuredEngine) -> dict[str, int]:
    """What the engine's workers did so far."""
    figures = engine.figures
    return {name: getattr(figures, name) for name in figures.__slots__}


def _outcome(
    cell: Cell,
    reference: Reference,
    engine: MeasuredEngine,
    cost: LinearCost,
    kv: int,
    days: Sequence[tuple[_Day, int, dict[str, int]]],
    folder: Path | None,
    seconds: float,
) -> Outcome:
    day, first, before = days[-1]
    calls = engine.made[first:]
    did = {name: count - before[name] for name, count in _figures(engine).items()}
    bound, binder = bound_of(reference, cost, ranks=cell.ranks, kv_tokens=kv, max_running=MAX_RUNNING)
    rows = rows_of(cell.batch, cell.order, 1, folder)
    ends = _ends(calls, day.began, len(rows))
    return Outcome(
        rows=len(rows),
        calls=len(calls),
        kv_tokens=kv,
        plan=day.planned,
        profile=0.0,
        warm=sum(each.seconds for each, _, _ in days[:-1]),
        run=day.seconds,
        bound=bound,
        binder=binder,
        p50=_at(ends, 0.50),
        p95=_at(ends, 0.95),
        p99=_at(ends, 0.99),
        prompt_tokens=sum(call.prompt_tokens for call in calls),
        cached_tokens=sum(call.cached for call in calls),
        prefilled=did["prefilled"],
        recomputed=max(0, did["prefilled"] - (did["asked"] - did["cached"])),
        distinct=reference.distinct,
        generated=did["generated"],
        warmups=day.report.warmups,
        retractions=did["retractions"],
        outside=did["outside"],
        passes=did["prefill_passes"] + did["decode_passes"],
        busy=did["busy"] / 1e9,
        failed=day.report.failed_rows,
        match=results_digest(rows, day.rows) == reference.results,
        log=engine.log.digest[:16],
        seconds=seconds,
        notes=tuple(day.report.notes),
    )


def _ends(calls: Sequence[Made], began: float, rows: int) -> list[float]:
    """When each row made its last call, in order; nothing where a row made none, since it shares those of another."""
    last: dict[int, float] = {}
    for call in calls:
        last[call.row] = max(last.get(call.row, 0.0), call.ended - began)
    return sorted(last.values()) if len(last) == rows else []


def _at(ends: Sequence[float], share: float) -> float | None:
    """The time at which a share of the rows is done."""
    return ends[min(len(ends) - 1, int(share * len(ends)))] if ends else None
