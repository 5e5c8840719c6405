"""What can be done with a workflow: load, check, explain, run. The one place that joins grammar and executor."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from helix.errors import EngineError, OptionError
from helix.loading import load as load
from helix.loading import load_python as load_python
from helix.loading import loads as loads
from helix.prepared import Prepared as Prepared
from helix.prepared import check as check
from helix.results import RunReport, RunResult
from helix.waiting import waited

if TYPE_CHECKING:
    from helix.dsl import Workflow
    from helix.executor.engines.base import Engine
    from helix.executor.observe import Observer
    from helix.executor.settings import RunSettings
    from helix.executor.store.settings import StoreSettings
    from helix.explain.explanation import Explanation
    from helix.forecast.measures import Forecast


def to_text(workflow: Workflow) -> str:
    """The workflow as text, in the one layout of `helix fmt`."""
    from helix.grammar.format import format_workflow

    return format_workflow(workflow.syntax)


def explain(
    workflow: Workflow,
    rows: Any = None,
    *,
    set: Mapping[str, Any] | None = None,
    rules: Iterable[str] | None = None,
    without: Iterable[str] = (),
    engine: str | Engine | None = None,
    model: str | None = None,
    api_key: str | None = None,
    prices: Sequence[float] | None = None,
    input_format: str | None = None,
    ranks: int | None = None,
    kv_tokens: int | None = None,
    plan_budget: float = 1.0,
    analyze: bool = False,
    settings: RunSettings | None = None,
    quiet: bool = True,
    store: str | os.PathLike[str] | None = None,
    width: int | None = None,
    progress: Callable[[RunReport], None] | None = None,
    patterns: str | os.PathLike[str] | object | None = None,
    **options: Any,
) -> Explanation:
    """What a workflow will do: its plan, what the rules make of it, its prompts as a tree, and what it costs.

    With `rows` the estimates are of that table, with `engine` tokens are counted by its tokenizer where it has one.
    `analyze` runs the optimized plan over the rows and puts what was measured beside the estimates. `rules` are the
    only ones to apply, `without` are left out. The schedule is for `ranks` workers whose caches hold `kv_tokens` each
    (those of the engine, where it tells); finding it may take `plan_budget` seconds. `patterns` are mined ones (a file,
    or a miner): what they would make ahead is shown. `prices` are for a million tokens:
    prompt, reply, cached prompt. `store` is a folder that tells how long replies were. `width` is how wide the text may
    be. The rest is as for `arun`.

    Raises SourceErrors, InputError, OptionError and EngineError.
    """
    from helix.explaining import Wanted, explain_workflow

    return explain_workflow(
        workflow,
        Wanted(
            rows=rows,
            set=set,
            rules=rules,
            without=without,
            engine=engine,
            model=model,
            api_key=api_key,
            prices=prices,
            input_format=input_format,
            ranks=ranks,
            kv_tokens=kv_tokens,
            plan_budget=plan_budget,
            analyze=analyze,
            settings=_settings(settings, options),
            quiet=quiet,
            store=store,
            width=width,
            progress=progress,
            patterns=patterns,
        ),
    )


def simulate(
    workflow: Workflow,
    rows: Any = None,
    *,
    gpu: str | None = None,
    ranks: int | None = None,
    pd: str | None = None,
    tp: int = 1,
    model: str | None = None,
    cost: str | None = None,
    server: Mapping[str, Any] | None = None,
    policy: str = "helix",
    output_tokens: int | Mapping[str, int] | None = None,
    price: float | Mapping[str, float] | None = None,
    currency: str = "USD",
    what_if_ranks: Sequence[int] = (1, 2, 4, 8),
    what_if_gpus: Sequence[str] | None = None,
    what_if_pd: Sequence[str] = (),
    plain: bool = True,
    rules: Iterable[str] | None = None,
    without: Iterable[str] = (),
    set: Mapping[str, Any] | None = None,
    input_format: str | None = None,
    limit: int | None = None,
    store: str | os.PathLike[str] | None = None,
    seed: int = 0,
    tell: Callable[[str], None] = lambda text: None,
) -> Forecast:
    """How long a workflow over a table will take on GPUs, what it will cost and what binds it. Nothing is called.

    `ranks` data-parallel workers of `tp` GPUs each (`gpu` by name, `h100` by default) serve `model`, by name or by the
    path of its config.json. `pd` has some of the ranks only prefill and the others only decode, `"1:3"` one and three.
    `cost` says where times are from (`linear`, `estimate`, `aiconfigurator`, or a file that `helix simulate
    --calibrate` wrote), `server` gives settings of the simulated server by the names of `SimSettings`.
    `output_tokens` are the mean lengths of replies, of all steps or by step; else a `store` of earlier runs tells them,
    else the workflow. `price` is that of an hour of a GPU, or of several GPUs by name. The optimized plan is also
    simulated on `what_if_ranks` of the GPU and of `what_if_gpus` (none: `[]`) and on the splits of `what_if_pd`, and
    unless `plain` is off the plan as it is written beside it. Equal arguments give equal event logs. `tell` hears how
    far a long simulation is.

    Raises SourceErrors, InputError and OptionError.
    """
    from helix.simulating.forecast import simulate_workflow
    from helix.simulating.wanted import Wanted

    return simulate_workflow(
        workflow,
        Wanted(
            rows=rows,
            gpu=gpu,
            ranks=ranks,
            pd=pd,
            tp=tp,
            model=model,
            cost=cost,
            server=server or {},
            policy=policy,
            output_tokens=output_tokens,
            price=price,
            currency=currency,
            what_if_ranks=what_if_ranks,
            what_if_gpus=what_if_gpus,
            what_if_pd=what_if_pd,
            plain=plain,
            rules=rules,
            without=without,
            set=set,
            input_format=input_format,
            limit=limit,
            store=store,
            seed=seed,
            tell=tell,
        ),
    )


def run(workflow: Workflow, rows: Any = None, **options: Any) -> RunResult:
    """Runs a workflow over a table and waits for it; the options are those of `arun`.

    Inside a running event loop (a notebook) the run gets a thread and a loop; a simulated engine runs in virtual time.
    """
    from helix.executor.engines import loop_factory

    return waited(arun(workflow, rows, **options), loop_factory(options.get("engine")))


async def arun(
    workflow: Workflow,
    rows: Any = None,
    *,
    output: str | os.PathLike[str] | None = None,
    engine: str | Engine | None = None,
    model: str | None = None,
    api_key: str | None = None,
    set: Mapping[str, Any] | None = None,
    settings: RunSettings | None = None,
    input_format: str | None = None,
    output_format: str | None = None,
    rules: Iterable[str] | None = None,
    without: Iterable[str] = (),
    quiet: bool = True,
    store: str | os.PathLike[str] | bool | None = None,
    resume: bool = False,
    fresh: bool = False,
    retry_failed: bool = False,
    report: bool = False,
    trace: str | os.PathLike[str] | None = None,
    observers: Iterable[Observer] = (),
    **options: Any,
) -> RunResult:
    """Runs a workflow over a table.

    `rows` is a path, `-` for standard input, an iterable of dicts, an Arrow table or a DataFrame; a workflow without
    inputs may leave it out and runs once. With `output`, a path, the result is written there, else kept in memory.
    `engine` is an address (the embedded engine by default) or an engine; `model` is the model for every llm step. They
    override what the workflow says. `set` gives constants other values. `rules` are the optimizer's by name (all exact
    ones by default, `[]` for none), less those in `without`; the result is the same whichever run. `settings` or its
    fields as `options` (`concurrency`, `call_timeout`, `max_failed`, ...) say how the run behaves.

    `store` names a folder in which results are looked up and kept (True: `.helix`), `resume` lets the same run go on
    where it ended, `fresh` makes every call again, `retry_failed` those that failed. Nothing is kept by default.
    `report` keeps a record of each call: the result's `run_report` then says what the run took. `trace` is a file for
    what the models of the run decided, which tools they called, and what came of it. `observers` are told of the run
    and its calls, such as `helix.telemetry.tracing.Tracing`.

    Raises SourceErrors, InputError, OptionError and EngineError before the first call, and EngineError where the engine
    refuses the first call so that no other can succeed; what happens to rows is in the rows and the report.
    """
    kept: StoreSettings | None = None
    if store is not None or resume or fresh or retry_failed:
        from helix.keeping import store_settings

        kept = store_settings(store, resume, fresh, retry_failed)
    prepared = Prepared(
        workflow,
        rows,
        output=output,
        engine=engine,
        model=model,
        api_key=api_key,
        set=set,
        settings=_settings(settings, options),
        input_format=input_format,
        output_format=output_format,
        rules=rules,
        without=without,
        quiet=quiet,
        store=kept,
        report=report,
        trace=trace,
        observers=observers,
    )
    result = await prepared.run()
    if result.report.nothing_done:
        raise EngineError(result.report.stopped or "the engine refused every call", fatal=True)
    return result


def _settings(settings: RunSettings | None, options: Mapping[str, Any]) -> RunSettings:
    from dataclasses import fields, replace

    from helix.errors import name_help
    from helix.executor.settings import RunSettings

    known = [field.name for field in fields(RunSettings)]
    for name in options:
        if name not in known:
            raise OptionError(f"unknown option `{name}`; {name_help(name, known, 'options')}")
    return replace(settings or RunSettings(), **options)
