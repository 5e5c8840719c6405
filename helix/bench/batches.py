"""The rows of a batch, and what they come to on an engine that answers at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

from helix.bench.cells import Batch, Reference
from helix.bench.engines import Asked, InstantEngine
from helix.bench.replies import Replies
from helix.bench.texts import Texts, dice
from helix.bench.workloads import WORKLOADS
from helix.bench.workloads.shape import Row, Told
from helix.canonical import canonical_text
from helix.dsl import Workflow
from helix.executor.settings import RunSettings
from helix.executor.store.settings import StoreSettings
from helix.loading import loads
from helix.logical import LogicalPlan
from helix.optimizer.bounds import Work, held_together, lines_of
from helix.optimizer.chains import Chains
from helix.optimizer.engine_time import H100, EngineTime
from helix.optimizer.tree.resolve import resolve_plan
from helix.optimizer.tree.trie import TokenTrie
from helix.prepared import Prepared
from helix.simulation.cost import LinearCost

# The share of rows that repeat others in the redundant regime, where the workflow has no redundancy of its own.
REPEATS = 0.5


def _untold(row: int, step: str, seconds: float) -> None:
    """Nobody wants to know."""


def workflow_of(batch: Batch, told: Told = _untold) -> Workflow:
    """The workflow that a batch is run through."""
    workload = WORKLOADS[batch.workload]
    text = workload.redundant if batch.redundant and workload.redundant else workload.helix
    made = loads(text)
    if workload.tools is None:
        return made
    return Workflow(syntax=made.syntax, callables=workload.tools(batch.seed, told), name=made.name)


@lru_cache(maxsize=4)
def rows_of(batch: Batch, order: str, day: int = 1, folder: Path | None = None) -> list[Row]:
    """The rows of a batch, grouped by what they share or shuffled. `day` 0 is the day before."""
    workload = WORKLOADS[batch.workload]
    make = workload.redundant_rows or workload.rows if batch.redundant else workload.rows
    if folder is not None:
        from helix.bench.data import real_texts

        texts = Texts(batch.seed, real_texts(folder, batch.seed))
    else:
        texts = Texts(batch.seed)
    rows = [row for group in range(batch.groups) for row in make(texts, group, day if workload.days else 0)]
    chance = dice(batch.seed, "shuffled", batch.workload)
    if batch.redundant and workload.redundant is None:
        own = max(1, round(len(rows) * (1 - REPEATS)))
        kept = sorted(chance.sample(range(len(rows)), own))
        repeats = [chance.choice(kept) for _ in range(len(rows) - own)]
        rows = [rows[at] for at in sorted(kept + repeats)]
    if order == "shuffled":
        chance.shuffle(rows)
    return rows


_Kind = TypeVar("_Kind", bound=Prepared)


def prepared(
    kind: type[_Kind],
    workflow: Workflow,
    rows: Sequence[Row],
    engine: Any,
    settings: RunSettings,
    *,
    plain: bool = False,
    store: StoreSettings | None = None,
) -> _Kind:
    """A run of a kind, ready to be made. `plain`: without any rule."""
    return kind(
        workflow,
        list(rows),
        output=None,
        engine=engine,
        model=None,
        api_key=None,
        set=None,
        settings=settings,
        input_format=None,
        output_format=None,
        quiet=True,
        rules=[] if plain else None,
        store=store,
    )


def results_digest(rows: Sequence[Row], results: Sequence[dict[str, Any]]) -> str:
    """A digest of what rows came to, whatever their order: each by its inputs."""
    made = sorted(
        blake2b(canonical_text([rows[result["_row"]], {**result, "_row": 0}]).encode(), digest_size=16).digest()
        for result in results
    )
    return blake2b(b"".join(made), digest_size=8).hexdigest()


def reference_of(batch: Batch, folder: Path | None = None) -> Reference:
    """Runs a batch on an engine that answers at once."""
    workload = WORKLOADS[batch.workload]
    rows = rows_of(batch, "grouped", 1, folder)
    engine = InstantEngine(Replies(batch.seed, workload.means, workload.cap, workload.says))
    tools: list[tuple[int, str, float]] = []
    workflow = workflow_of(batch, lambda row, step, seconds: tools.append((row, step, seconds * 1000)))
    work = prepared(Prepared, workflow, rows, engine, RunSettings(concurrency=256, lanes=workload.lanes))
    with asyncio.Runner(loop_factory=InstantEngine.loop_factory) as runner:
        result = runner.run(work.run())
    if result.report.failed_rows:
        raise RuntimeError(f"{batch.workload}: {result.report.errors[:1]}")
    return _summed(work.bound.plan, list(engine.asked.values()), tools, results_digest(rows, result.rows), len(rows))


def _summed(
    plan: LogicalPlan, calls: Sequence[Asked], tools: Sequence[tuple[int, str, float]], results: str, rows: int
) -> Reference:
    """The sums that bounds are made of, each distinct call once."""
    trie = TokenTrie()
    handles = [trie.insert(call.prompt, call.output) for call in calls]
    outputs = [float(len(call.output)) for call in calls]
    steps = [EngineTime.steps(output) for output in outputs]
    chains = Chains(resolve_plan(plan))
    decoded = [(call.row, call.step, each) for call, each in zip(calls, steps, strict=True)]
    work = Work(
        p_min=trie.distinct_tokens,
        pairs=trie.distinct_pairs,
        shared_area=held_together(trie, handles, decoded, chains),
        chain=chains.longest(decoded),
        lines=lines_of(chains, decoded, [len(call.prompt) for call in calls]),
    )
    times = list(tools)
    for call, handle, output in zip(calls, handles, outputs, strict=True):
        prompt, private = len(call.prompt), trie.private_tokens(handle)
        work.call(prompt, private, output)
        alone = H100.prefill(private, prompt - private) + H100.decode(prompt, output)
        times.append((call.row, call.step, alone))
    return Reference(
        results=results,
        rows=rows,
        calls=len(calls),
        prompt_tokens=sum(len(call.prompt) for call in calls),
        outputs=work.steps,
        distinct=work.p_min,
        pairs=work.pairs,
        held=work.p_min + sum(outputs),
        contexts=work.contexts,
        private_area=work.private_area,
        shared_area=work.shared_area,
        longest=chains.longest(times),
        chain=work.chain,
        lines=tuple(work.lines),
        longest_call=max(len(call.prompt) + len(call.output) for call in calls),
        tool_seconds=sum(each[2] for each in tools) / 1000,
    )


def bound_of(
    reference: Reference, cost: LinearCost, *, ranks: int, kv_tokens: int, max_running: int
) -> tuple[float, str]:
    """The lower bound of a run in seconds, and what binds it, also where passes of prefill decode too."""
    engine = EngineTime(
        name=cost.name, a=min(cost.a, cost.d + cost.e), b=cost.b, c=cost.c, d=cost.d, e=cost.e, f=cost.f,
        batch=max_running, capacity=kv_tokens, workers=ranks, mixes=True,
    )  # fmt: skip
    work = Work(
        p_min=reference.distinct,
        pairs=reference.pairs,
        steps=reference.outputs,
        contexts=reference.contexts,
        private_area=reference.private_area,
        shared_area=reference.shared_area,
        longest=reference.longest,
        chain=reference.chain,
        lines=reference.lines,
    )
    bounds = work.bounds(engine, {}, estimated=False)
    binder: str = bounds.binder
    if binder == "engine" and (work.private_area + work.shared_area) / kv_tokens > work.steps / max_running:
        # The batches that the cache has room for are smaller than those that the engine runs.
        binder = "engine, cache"
    return bounds.lower_bound, binder
