"""`helix.api.explain`: what rules make of a plan and what it costs, over a real table, with an engine if one is given.

It joins what `helix/api.py` joins, and is kept apart from it for its size alone.
"""

from __future__ import annotations

import os
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helix.api import Prepared, check
from helix.errors import EngineError, OptionError
from helix.executor.engines import loop_factory
from helix.executor.engines.base import Capabilities, Message, Request, shown
from helix.executor.engines.shared import SharedEngine, SharedEngines
from helix.explain.explanation import Explanation
from helix.explain.report import (
    AgentPatterns,
    Basis,
    Deployment,
    ExplainReport,
    Measured,
    PatternShown,
    StepMeasured,
    TableFacts,
    explain_plan,
)
from helix.functions import to_text
from helix.keeping import EarlierRuns, StoredReplies, earlier_runs
from helix.logical import Agent, Generate, Invoke, LogicalPlan, every_node
from helix.optimizer.bounds import MeasuredCall, measured_bounds
from helix.optimizer.cost import CostSettings, Prices
from helix.optimizer.driver import choose_rules
from helix.optimizer.engine_time import H100, EngineTime, engine_time
from helix.optimizer.lengths import Lengths
from helix.optimizer.stats import table_stats
from helix.optimizer.tokens import ESTIMATE, Tokenizer, estimated_tokens, from_ids, from_message_counts
from helix.places import static_name
from helix.results import RunReport

if TYPE_CHECKING:
    from helix.dsl import Workflow
    from helix.executor.engines.base import Engine
    from helix.executor.settings import RunSettings
    from helix.executor.tables import RowSource
    from helix.grammar.bind import Bound

# Each text is a question to the engine: above so many rows only those of about so many are asked.
COUNTED_ROWS = 2_000
RATED_ROWS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is asked for; see `helix.api.explain`. `progress` hears of the run of `analyze`, `store` is a folder."""

    settings: RunSettings
    rows: Any = None
    set: Mapping[str, Any] | None = None
    rules: Iterable[str] | None = None
    without: Iterable[str] = ()
    engine: str | Engine | None = None
    model: str | None = None
    api_key: str | None = None
    prices: Sequence[float] | None = None
    input_format: str | None = None
    ranks: int | None = None
    kv_tokens: int | None = None
    plan_budget: float = 1.0
    analyze: bool = False
    quiet: bool = True
    store: str | os.PathLike[str] | None = None
    width: int | None = None
    progress: Callable[[RunReport], None] | None = None
    patterns: Any = None


def explain_workflow(workflow: Workflow, wanted: Wanted) -> Explanation:
    """The explanation. Raises SourceErrors, OptionError, InputError, and EngineError where an engine is needed."""
    bound = check(workflow, set=wanted.set)
    patterns = None if wanted.patterns is None else _patterns(wanted, bound.plan)
    earlier = None if wanted.store is None else earlier_runs(wanted.store, bound.plan, wanted.engine, wanted.model)
    try:
        made = _explained(workflow, wanted, bound, earlier)
        return made if patterns is None else Explanation(replace(made.report, patterns=patterns), width=wanted.width)
    finally:
        if earlier is not None:
            earlier.close()


def _explained(workflow: Workflow, wanted: Wanted, bound: Bound, earlier: EarlierRuns | None) -> Explanation:
    chosen = choose_rules(wanted.rules, wanted.without)
    warnings = tuple(each.message + (f" ({each.span})" if each.span is not None else "") for each in bound.warnings)
    basis = Basis(
        settings=CostSettings(
            prices=prices_of(wanted.prices), engine=_engine_time(wanted, bound.plan), lengths=Lengths(profile=earlier)
        ),
        deployment=_deployment(wanted),
    )

    def explained(basis: Basis) -> ExplainReport:
        return explain_plan(bound.plan, basis, rules=chosen, warnings=warnings)

    if wanted.rows is None and wanted.engine is None and not wanted.analyze:
        return Explanation(explained(basis), width=wanted.width)
    with SharedEngines(concurrency=wanted.settings.calls_at_once, loop_factory=_loop(wanted, bound)) as engines:
        prepared = _Analyzed(workflow, wanted, engines)
        try:
            if wanted.engine is not None or wanted.analyze:
                tokenizer, capabilities = _asked(prepared, engines)
                basis = replace(basis, tokenizer=tokenizer, deployment=_deployment(wanted, capabilities))
                basis = replace(basis, known=_known_replies(prepared, capabilities, earlier, wanted))
            if wanted.rows is not None or wanted.analyze:
                basis = _with_table(_with_rate(basis, prepared), prepared)
            report = explained(basis)
            if wanted.analyze:
                report = replace(report, measured=_measured(prepared, report, basis, engines, wanted))
        finally:
            prepared.source.close()
    return Explanation(report, width=wanted.width)


def _patterns(wanted: Wanted, plan: LogicalPlan) -> tuple[AgentPatterns, ...]:
    """What patterns would make ahead for the agents of a plan. Raises InputError for a file that holds none."""
    from helix.executor.speculation.preview import preview

    agents = {static_name(node.step): node.tools for node in every_node(plan.sink) if isinstance(node, Agent)}
    if not agents:
        raise OptionError("patterns are of the calls of agents; the workflow has none")
    folder = None if wanted.store is None else Path(wanted.store)
    found: list[AgentPatterns] = []
    for each in preview(wanted.patterns, agents.items(), folder=folder, tenant=wanted.settings.tenant):
        shown = tuple(
            PatternShown(
                text=pattern.text, tool=pattern.tool, chances=pattern.chances, p=pattern.p, p_low=pattern.p_low,
                hides=value.seconds, value=value.value,
            )
            for pattern, value in each.patterns
        )  # fmt: skip
        lead = "measured in earlier runs" if each.measured else "assumed"
        notes = [f"a decision takes {each.lead:.2g} s ({lead})"]
        for number, why in (
            (each.few, "with too few chances"),
            (each.cheap, "not worth their cost"),
            (each.barred, "of tools that are never called on a guess"),
        ):
            if number:
                notes.append(f"{number:,} patterns {why}")
        found.append(AgentPatterns(step=each.step, shown=shown, notes=tuple(notes)))
    return tuple(found)


def _loop(wanted: Wanted, bound: Bound) -> Callable[[], AbstractEventLoop] | None:
    """Makes the loop of the engines, where they bring one: what is simulated passes in virtual time."""
    if wanted.engine is not None:
        return loop_factory(wanted.engine)
    nodes = every_node(bound.plan.sink)
    return loop_factory(*(node.model.engine for node in nodes if isinstance(node, Generate | Agent)))


def prices_of(given: Sequence[float] | None) -> Prices | None:
    """Prices of a million tokens: prompt, reply and, where there are three, cached prompt. Raises OptionError."""
    if given is None:
        return None
    if len(given) not in (2, 3) or not all(0 <= price < float("inf") for price in given):
        shown = ",".join(f"{price:g}" for price in given)
        raise OptionError(f"prices are two or three numbers: prompt, reply, cached prompt; found {shown or 'none'}")
    return Prices(prompt=given[0], output=given[1], cached=given[2] if len(given) == 3 else None)


def _engine_time(wanted: Wanted, plan: LogicalPlan) -> EngineTime:
    """The model of an engine's time: that of the embedded one where the run would use it, else that of a server."""
    engine = wanted.engine
    if engine is None and (wanted.ranks is not None or wanted.kv_tokens is not None):
        return H100
    return engine_time(plan, engine if engine is None or isinstance(engine, str) else engine.name)


def _deployment(wanted: Wanted, capabilities: Capabilities | None = None) -> Deployment:
    """What the plan is scheduled for: what was asked for, else what the engine says of itself. Raises OptionError."""
    for name, given, least in (
        ("ranks", wanted.ranks, 1), ("kv_tokens", wanted.kv_tokens, 1), ("plan_budget", wanted.plan_budget, 0)
    ):  # fmt: skip
        if given is not None and not given >= least:
            raise OptionError(f"{name} is {least} or more, found {given}")
    told = capabilities or Capabilities()
    return Deployment(
        ranks=told.ranks if wanted.ranks is None else wanted.ranks,
        kv_tokens=told.kv_tokens if wanted.kv_tokens is None else wanted.kv_tokens,
        max_running=told.max_running,
        budget=wanted.plan_budget,
    )


class _Analyzed(Prepared):
    """A run over engines that may be open already. Where no rows are wanted it has none and is not to be run."""

    def __init__(self, workflow: Workflow, wanted: Wanted, engines: SharedEngines) -> None:
        rows = [] if wanted.rows is None and not wanted.analyze else wanted.rows
        super().__init__(
            workflow, rows, output=None, engine=wanted.engine, model=wanted.model, api_key=wanted.api_key,
            set=wanted.set, settings=wanted.settings, input_format=wanted.input_format, output_format=None,
            quiet=wanted.quiet,
        )  # fmt: skip
        self._engines = engines
        self.opened: dict[str | None, SharedEngine] = {}

    @property
    def callables(self) -> Mapping[str, Callable[..., Any]]:
        """The declared functions by name."""
        return self._callables

    @property
    def model(self) -> str | None:
        """The model of every step, whatever the workflow says."""
        return self._model

    def _open_engine(self, address: str | None) -> SharedEngine:
        key = address if self._engine is None else None
        self.opened[key] = made = self._engines.get(key, lambda: super(_Analyzed, self)._open_engine(address))
        return made

    def engine(self) -> tuple[SharedEngine, str | None] | None:
        """The engine of the first llm step, and the model it asks; None where there is no such step."""
        nodes = [node for node in every_node(self.bound.plan.sink) if isinstance(node, Generate)]
        return (self._open_engine(nodes[0].model.engine), self._model or nodes[0].model.name) if nodes else None

    def use(self, plan: LogicalPlan) -> None:
        """Runs this plan: the one that was explained."""
        self.plan = plan


# --- the tokenizer ------------------------------------------------------------------------------------------------


def _asked(prepared: _Analyzed, engines: SharedEngines) -> tuple[Tokenizer, Capabilities | None]:
    """The tokenizer of the engine, where it counts tokens, else the estimate; and what the engine can do."""
    found = prepared.engine()
    if found is None:
        return ESTIMATE, None
    engine, model = found
    capabilities = engines.wait(engine.open(concurrency=1))
    return _tokenizer(engine, model, engines) if capabilities.counts_tokens else ESTIMATE, capabilities


def _known_replies(
    prepared: _Analyzed, capabilities: Capabilities | None, earlier: EarlierRuns | None, wanted: Wanted
) -> StoredReplies | None:
    """The replies of the engine of the first llm step that a store holds."""
    nodes = [node for node in every_node(prepared.bound.plan.sink) if isinstance(node, Generate)]
    found = prepared.engine()
    if found is None or capabilities is None or earlier is None:
        return None
    return earlier.replies(found[0], nodes[0].model.engine, capabilities, wanted.settings, wanted.model)


def _tokenizer(engine: SharedEngine, model: str | None, engines: SharedEngines) -> Tokenizer:
    """The tokenizer of an engine that counts tokens."""

    def count(messages: Sequence[tuple[str, str]]) -> int:
        asked = tuple(Message(role=role, content=text) for role, text in messages)
        return engines.wait(engine.count_tokens(Request(model=model, messages=asked)))

    def ids(text: str) -> list[int]:
        return engines.wait(engine.tokenize(text)) or []

    counted = from_message_counts(engine.name, count)
    try:
        known = engines.wait(engine.tokenize("a"))
    except EngineError:
        known = None
    return from_ids(engine.name, ids, turn=counted.turn) if known else counted


# --- the table ----------------------------------------------------------------------------------------------------


class _Rows:
    """The usable rows of a table, each time from the beginning."""

    def __init__(self, source: RowSource) -> None:
        self._source = source

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return (row.values for row in self._source if row.error is None)


def _with_rate(basis: Basis, prepared: _Analyzed) -> Basis:
    """The basis for a large table: the engine is asked for the tokens of some rows, and the rest goes at their rate."""
    rows = prepared.scan().rows
    if rows <= COUNTED_ROWS or not basis.tokenizer.exact:
        return basis
    columns = [column.name for column in prepared.bound.plan.scan.columns]
    exact = estimated = 0.0
    stride = -(-rows // RATED_ROWS)
    for row in islice(_Rows(prepared.source), 0, None, stride):
        texts = [to_text(row[name]) for name in columns if row.get(name) is not None]
        exact += sum(basis.tokenizer.count(text) for text in texts)
        estimated += sum(map(estimated_tokens, texts))
    rate = exact / estimated if exact and estimated else 1.0
    rated = Tokenizer(
        name=ESTIMATE.name,
        exact=False,
        count_of=lambda text: max(1, round(rate * estimated_tokens(text))),
        turn=basis.tokenizer.turn,
    )
    note = f"{basis.tokenizer.name} counted the tokens of one row in {stride:,}"
    return replace(basis, tokenizer=rated, notes=(note,))


def _with_table(basis: Basis, prepared: _Analyzed) -> Basis:
    """The basis with what the table says."""
    scanned = prepared.scan()
    rows = _Rows(prepared.source)
    columns = [column.name for column in prepared.bound.plan.scan.columns]
    facts = TableFacts(
        name=prepared.source.name,
        rows=scanned.rows,
        stats=table_stats(rows, basis.tokenizer, columns),
        failed=tuple(scanned.errors.items()),
    )
    return replace(basis, table=facts, rows=rows, callables=prepared.callables)


# --- the run ------------------------------------------------------------------------------------------------------


def _measured(
    prepared: _Analyzed, report: ExplainReport, basis: Basis, engines: SharedEngines, wanted: Wanted
) -> Measured:
    """Runs the optimized plan. Raises EngineError where the engine refuses every call."""
    plan = report.plan
    prepared.use(plan)
    ran = engines.wait(prepared.run(progress=wanted.progress)).report
    if ran.nothing_done:
        raise EngineError(ran.stopped or "the engine refuses every call")
    llm = {static_name(node.step) for node in every_node(plan.sink) if isinstance(node, Generate)}
    tools = {static_name(node.step) for node in every_node(plan.sink) if isinstance(node, Agent | Invoke)}
    calls = [
        MeasuredCall(
            row=request.row,
            step=request.name,
            messages=tuple((message.role, message.shown) for message in request.messages),
            output=shown(reply.text, reply.calls),
            prompt_tokens=reply.prompt_tokens,
            output_tokens=reply.completion_tokens,
        )
        for engine in prepared.opened.values()
        for request, reply in engine.calls
    ]
    notes = list(ran.notes)
    if tools and calls:
        notes.append("tools are not in the bounds")
    bounds = measured_bounds(plan, calls, basis.tokenizer, engine=basis.settings.engine) if calls else None
    return Measured(
        cost=report.costs.optimized,
        optimized=report.changed,
        engine=", ".join(dict.fromkeys(engine.name for engine in prepared.opened.values())) or "no engine",
        rows=ran.rows,
        failed_rows=ran.failed_rows,
        seconds=ran.seconds,
        steps=tuple(
            StepMeasured(step=name, llm=name in llm, report=figures)
            for name, figures in ran.steps.items()
            if name in llm or name in tools
        ),
        bounds=bounds,
        stopped=ran.stopped,
        notes=tuple(notes),
    )
