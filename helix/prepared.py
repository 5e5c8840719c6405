"""A run with everything checked that can be checked without an engine, and how it goes from there to its result."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any

from helix.callables import load_callables, used_modules
from helix.errors import InputError, OptionError
from helix.logical import Generate, every_node
from helix.results import RunReport, RunResult

if TYPE_CHECKING:
    from helix.dsl import Workflow
    from helix.executor.engines.base import Capabilities, Engine
    from helix.executor.equipment import Equipment, StandIn
    from helix.executor.observe import Observer
    from helix.executor.records import Recorder
    from helix.executor.run import Run
    from helix.executor.settings import RunSettings
    from helix.executor.store.settings import StoreSettings
    from helix.executor.tables import RowSource, ScanReport
    from helix.grammar.bind import Bound
    from helix.keeping import Keeping
    from helix.logical import LogicalPlan
    from helix.optimizer.lengths import Lengths
    from helix.optimizer.rule import TableStats
    from helix.physical import PhysicalPlan
    from helix.report.measures import RunMeasures
    from helix.traces.recorder import TraceRecorder

# Rules by which equal calls become one: what `--no-merge` asks to leave.
_MERGING = ("merge_equal_steps", "hoist_invariants")


def check(workflow: Workflow, *, set: Mapping[str, Any] | None = None) -> Bound:
    """Binds a workflow: finds every mistake without a call. `set` gives constants other values.

    Gives the bound plan with its warnings. Raises SourceErrors.
    """
    from helix.grammar.bind import bind

    overrides = {name: value if isinstance(value, str) else _as_text(value) for name, value in (set or {}).items()}
    return bind(workflow.syntax, folder=workflow.folder, overrides=overrides, modules=used_modules(workflow))


class Prepared:
    """A run with everything checked that can be checked without an engine: workflow, options, input and functions."""

    def __init__(
        self,
        workflow: Workflow,
        rows: Any,
        *,
        output: str | os.PathLike[str] | None,
        engine: str | Engine | None,
        model: str | None,
        api_key: str | None,
        set: Mapping[str, Any] | None,
        settings: RunSettings,
        input_format: str | None,
        output_format: str | None,
        quiet: bool,
        rules: Iterable[str] | None = None,
        without: Iterable[str] = (),
        store: StoreSettings | None = None,
        report: bool = False,
        trace: str | os.PathLike[str] | None = None,
        observers: Iterable[Observer] = (),
    ) -> None:
        from helix.executor.tables import open_rows
        from helix.executor.tables.targets import refuse_target
        from helix.optimizer.driver import choose_rules, optimize

        if workflow.is_function:
            # Whoever wrote it may read any file in Python, so that its tools may as well.
            settings = replace(settings, allow_files=(*settings.allow_files, os.sep))
        self.settings = settings
        self.bound = check(workflow, set=set)
        if not settings.merge:
            without = (*without, *_MERGING)
        if output == "-":
            # Who reads a stream wants rows as they are done.
            without = (*without, "order_rows")
        self._rules = choose_rules(rules, without)
        began = monotonic()
        self.plan = self._first_plan = optimize(self.bound.plan, rules=self._rules).plan
        self._plan_seconds = monotonic() - began
        self._reported = report
        self._observers = tuple(observers)
        self._trace = trace
        self._workflow = workflow
        self._engine = engine
        self._model = model
        self._api_key = api_key
        self._output = None if output is None else os.fspath(output)
        self._output_format = output_format
        self._quiet = quiet
        self.made = self._engines_named()
        refuse_target(self._output, output_format, rows)
        if trace is not None:
            from helix.traces.targets import refuse_trace

            named = os.fspath(rows) if isinstance(rows, str | os.PathLike) else None
            refuse_trace(trace, self._output, named)
        self._callables = load_callables(workflow, self.bound)
        columns = self.bound.plan.scan.columns
        if rows is None and not columns:
            rows = [{}]
        elif rows is None:
            names = ", ".join(column.name for column in columns)
            raise OptionError(
                f"the workflow `{workflow.name}` has inputs ({names}), but no rows were given (`--input`)"
            )
        self.source: RowSource = open_rows(
            rows, columns, format=input_format, on_bad_row=settings.on_bad_row, limit=settings.limit
        )
        self.scanned: ScanReport | None = None
        self._stats: TableStats | None = None
        self.active: Run | None = None
        self.partial: str = ""
        self.keeping: Keeping | None = None
        # What is called in place of tools; None: the tools themselves.
        self.stand_in: StandIn | None = None
        # A pipe has a name for a moment only.
        self._path = os.fspath(rows) if isinstance(rows, str | os.PathLike) and os.path.isfile(rows) else None
        if store is not None:
            from helix.keeping import Keeping

            self.keeping = Keeping(store)

    def scan(self) -> ScanReport:
        """Reads the input once: malformed records are found before any call. Raises InputError."""
        if self.scanned is None:
            self.scanned = self.source.scan(None if self.keeping is None else self.keeping.row_seen)
        return self.scanned

    @property
    def known_before(self) -> list[str]:
        """What a person should know, before the first call, of what is known from earlier runs."""
        return [] if self.keeping is None else self.keeping.known.said

    @property
    def resumable(self) -> bool:
        """Whether the same run goes on from here."""
        return self.keeping is not None and self.keeping.known.resumable

    def close(self) -> None:
        """Closes what is open; `run` does so itself."""
        self.source.close()
        if self.keeping is not None:
            self.keeping.close()

    def _look_at_table(self) -> None:
        """Lets the rules that want a look at the table have one: what its columns hold, and how often."""
        from helix.optimizer.driver import optimize
        from helix.optimizer.rule import RuleContext
        from helix.optimizer.stats import table_stats
        from helix.optimizer.tokens import ESTIMATE

        calls = any(isinstance(node, Generate) for node in every_node(self.plan.sink))
        if (
            self._stats is not None
            or self.plan is not self._first_plan
            or not self._rules
            or not calls
            or self.scan().rows < 2
        ):
            return
        rows = (row.values for row in self.source if row.error is None)
        self._stats = table_stats(rows, ESTIMATE, [column.name for column in self.bound.plan.scan.columns])
        self.plan = optimize(self.bound.plan, RuleContext(stats=self._stats), self._rules).plan

    def physical(self, capabilities: Capabilities | None = None, *, budget: float = 1.0) -> PhysicalPlan:
        """How the plan is to be run on an engine that can do this: phases, groups of rows, their ranks, warm-ups.

        Reads the table once more, as far as it tells sizes and groups. `budget` are the seconds that a search for a
        better order may take.
        """
        from helix.executor.policies.choose import choose_policy
        from helix.optimizer.lowering import LowerContext, lower

        self._look_at_table()
        planner = choose_policy(self.settings.policy).planner or "helix"
        look = self.scan().rows > 1 and planner != "outline"
        rows = (row.values for row in self.source if row.error is None) if look else None
        name = self._engine if self._engine is None or isinstance(self._engine, str) else self._engine.name
        context = LowerContext(
            stats=self._stats,
            rows=rows,
            budget=budget,
            callables=self._callables,
            lengths=self.lengths(name),
            planner=planner,
        )
        physical = lower(self.plan, context.on(capabilities, self.plan, name))
        # Rows that cannot be used have a number in the table, and none in the plan.
        return replace(physical, calls=()) if self.scan().failed else physical

    def lengths(self, engine: str | None) -> Lengths:
        """How long replies are thought to be, as far as earlier runs on an engine tell."""
        from helix.optimizer.lengths import Lengths

        return Lengths() if self.keeping is None else self.keeping.lengths(self.bound.plan, engine, self._model)

    async def run(
        self,
        *,
        progress: Callable[[RunReport], None] | None = None,
        started: Callable[[], None] | None = None,
    ) -> RunResult:
        """Runs to the end and commits the output. `started` is called once the engine is ready."""
        from helix.executor.run import Run
        from helix.executor.tables import MemorySink, open_sink

        active: Run | None = None
        sink: Any = None
        watched = False
        recorder, measures = self._recorder(), None
        trace: TraceRecorder | None = None
        try:
            self.scan()
            trace = self._trace_recorder()
            began = monotonic()
            self._look_at_table()
            self._plan_seconds += monotonic() - began
            columns = tuple((name, value.type) for name, value in self.plan.sink.columns)
            if self._output is None:
                sink = MemorySink(columns)
            else:
                sink = open_sink(self._output, columns, format=self._output_format)
            self.active = active = Run(
                self.plan,
                self.source,
                sink,
                self.settings,
                open_engine=self._open_engine,
                callables=self._callables,
                folder=self._workflow.folder,
                model=self._model,
                known=None if self.keeping is None else self.keeping.known,
                opened=self._engines_opened,
                schedule=self.physical,
                progress=progress,
                recorder=recorder,
                trace=trace,
                stand_in=self.stand_in,
            )
            await active.start()
            watched = self._tell_begun(active)
            if started is not None:
                started()
            report = await active.finish()
            self._finish(sink, report)
            if recorder is not None and self._reported and not report.nothing_done:
                measures = await self._measures(active, recorder)
        except asyncio.CancelledError:
            # Stopped at once: what is finished is kept all the same.
            if sink is not None and sink.written:
                self._keep_partial(sink)
            elif sink is not None:
                sink.abort()
            raise
        except BaseException:
            if sink is not None:
                sink.abort()
            raise
        finally:
            if active is not None:
                if watched:
                    self._tell_ended(active)
                await active.close()
            self.close()
            if trace is not None:
                self._finish_trace(trace, active)
        kept = sink if isinstance(sink, MemorySink) else None
        return RunResult(report, kept=kept, path=self._output, measures=measures)

    def _trace_recorder(self) -> TraceRecorder | None:
        from helix.traces.recorder import TraceRecorder

        return None if self._trace is None else TraceRecorder(self._trace)

    @staticmethod
    def _finish_trace(trace: TraceRecorder, active: Run | None) -> None:
        """Puts the trace in its place, also of a run that was stopped; one that did nothing leaves what was there."""
        report = None if active is None else active.report
        if report is None or report.nothing_done or not (trace.written or report.outcome == "complete"):
            trace.discard()
            return
        try:
            trace.close()
        except InputError as error:
            report.notes.append(error.message)

    def _recorder(self) -> Recorder | None:
        if self._observers:
            from helix.executor.observe import ObservingRecorder

            return ObservingRecorder(self._observers, keeps=self._reported)
        from helix.executor.records import Recorder

        return Recorder() if self._reported else None

    def _tell_begun(self, active: Run) -> bool:
        """Tells those who look on that the run begins."""
        if self._observers:
            from helix.executor.observe import RunFacts

            engines = tuple(engine.name for engine, _ in active.engines)
            facts = RunFacts(
                workflow=self._workflow.name,
                rows=self.scan().rows,
                engines=engines,
                policy=active.report.policy,
            )
            for observer in self._observers:
                observer.began(facts, asyncio.get_running_loop().time())
        return True

    def _tell_ended(self, active: Run) -> None:
        """Tells those who look on that the run has ended."""
        for observer in self._observers:
            observer.ended(active.report, asyncio.get_running_loop().time())

    async def _measures(self, active: Run, recorder: Recorder) -> RunMeasures:
        """What the run took; its engines are still open."""
        from helix.reporting import Ran, measures_of

        name = self._engine if self._engine is None or isinstance(self._engine, str) else self._engine.name
        ran = Ran(
            workflow=self._workflow.name,
            plain=self.bound.plan,
            plan=self.plan,
            report=active.report,
            address=name,
            engines=active.engines,
            stats=self._stats,
            plan_seconds=self._plan_seconds,
            slots=active.slots,
        )
        return await measures_of(ran, recorder)

    def _engines_opened(self, equipment: Equipment) -> LogicalPlan:
        """The plan to run, now that the engines can tell what is known of their replies."""
        from helix.optimizer.driver import optimize
        from helix.optimizer.rule import KnownResults, RuleContext

        def improved(known: KnownResults) -> LogicalPlan:
            return optimize(self.bound.plan, RuleContext(stats=self._stats, known=known), self._rules).plan

        if self.keeping is not None:
            name = self._engine if self._engine is None or isinstance(self._engine, str) else self._engine.name
            self.plan = self.keeping.opened(
                equipment, self.bound.plan, source=self.source, path=self._path, engine=name, model=self._model,
                improved=improved,
            )  # fmt: skip
        return self.plan

    def _finish(self, sink: Any, report: RunReport) -> None:
        """Shows the output under its name; an interrupted run leaves what is done beside it."""
        if report.nothing_done:
            sink.abort()
        elif report.interrupted and self._output not in (None, "-"):
            self._keep_partial(sink)
            report.notes.append(self.partial)
        else:
            sink.commit()
        if report.outcome in ("interrupted", "stopped") and self.resumable:
            report.notes.append("the same command goes on from here")

    def _keep_partial(self, sink: Any) -> None:
        if self._output in (None, "-"):
            sink.commit()
            return
        assert self._output is not None
        if not sink.written:
            sink.abort()
            self.partial = "no row was finished"
            return
        from helix.executor.tables.targets import partial_path

        path = partial_path(self._output)
        sink.keep_partial(path)
        self.partial = f"the {sink.written} finished rows are in {path}"

    def _engines_named(self) -> dict[str | None, Engine]:
        """The engines of the plan by their addresses, not yet opened. Raises OptionError for what is no address."""
        calls = [node for node in every_node(self.plan.sink) if isinstance(node, Generate)]
        return {address: self._make_engine(address) for address in dict.fromkeys(call.model.engine for call in calls)}

    def _open_engine(self, address: str | None) -> Engine:
        return self.made.pop(address, None) or self._make_engine(address)

    def _make_engine(self, address: str | None) -> Engine:
        from helix.executor.engines import open_engine

        if self._engine is not None and not isinstance(self._engine, str):
            return self._engine
        return open_engine(
            self._engine or address,
            model=self._model or self._named(address),
            api_key=self._api_key,
            quiet=self._quiet,
            tenant=self.settings.tenant,
        )

    def _named(self, address: str | None) -> str | None:
        """The one model that the workflow names for an address: steps that name none may use it too."""
        calls = [node for node in every_node(self.bound.plan.sink) if isinstance(node, Generate)]
        names = {call.model.name for call in calls if call.model.engine == address and call.model.name is not None}
        return names.pop() if len(names) == 1 else None


def _as_text(value: Any) -> str:
    from helix.canonical import canonical_text

    return canonical_text(value)
