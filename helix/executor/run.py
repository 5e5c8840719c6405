"""A run: a plan, an engine and a table in, a table and a report out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from helix.errors import InputError
from helix.executor.attempts import EngineCaller, ToolCaller
from helix.executor.boundaries import Boundary, boundary_after
from helix.executor.calls import Dispatcher
from helix.executor.compile import Compiler
from helix.executor.engines.base import Capabilities, Engine
from helix.executor.frame import Dataflow
from helix.executor.limits import Limits, Pause
from helix.executor.operators import Operator
from helix.executor.places import Place, static_name
from helix.executor.prompts import Prompt
from helix.executor.segments import Entry, Leaving, Stage
from helix.executor.settings import RunSettings
from helix.executor.steps import GenerateStep, InvokeStep, Shortener
from helix.executor.tables import Row, RowSink, RowSource
from helix.executor.tools import RunTool, Threads, open_tool
from helix.executor.tools.python import pure_function
from helix.executor.values import Failure
from helix.logical import Generate, Invoke, LogicalPlan, Node, Project, Render, Scan, Tool, every_node
from helix.results import RunReport, StepReport

TOOL_LANE = 8
PROGRESS_EVERY = 0.5
KEPT_ERRORS = 20

OpenEngine = Callable[[str | None], Engine]


class Run:
    """One run. `start` prepares it (engines and tools are opened, nothing is called), `finish` runs it to its end.

    `open_engine` gives the engine at an address of the workflow (None: the run's own). `callables` are the functions of
    python tools and of expressions by name. `progress` is called now and then with the report so far.
    """

    def __init__(
        self,
        plan: LogicalPlan,
        source: RowSource,
        sink: RowSink,
        settings: RunSettings,
        *,
        open_engine: OpenEngine,
        callables: Mapping[str, Callable[..., Any]] | None = None,
        folder: Path | None = None,
        model: str | None = None,
        progress: Callable[[RunReport], None] | None = None,
    ) -> None:
        self._plan = plan
        self.source = source
        self._sink = sink
        self._settings = settings
        self._open_engine = open_engine
        self._callables = dict(callables or {})
        self._folder = folder
        self._model = model
        self._progress = progress
        self._flow = Dataflow()
        self._engines: dict[str | None, tuple[Engine, Capabilities, Pause]] = {}
        self._tools: dict[str, RunTool] = {}
        self._threads = Threads()
        self._dispatcher = Dispatcher({"": settings.concurrency, "tools": TOOL_LANE}, merge=settings.merge)
        self._limits = Limits(settings, self._stop)
        self._stages: list[Stage] = []
        self._boundaries: list[Boundary] = []
        self._window = 2 * settings.concurrency + 16
        self._rows = _Rows(self)
        self._columns: list[tuple[str, int, str | None]] = []
        self._pumping = False
        self._over: asyncio.Future[None] | None = None
        self._cut = Failure("not_started", "not started", step="")
        self.report = RunReport()

    # --- before the first call ---

    async def start(self) -> None:
        """Opens engines and tools and lays the plan out. Raises OptionError or EngineError for what is missing."""
        nodes = {node.id: node for node in every_node(self._plan.sink)}
        for node in nodes.values():
            if isinstance(node, Generate | Invoke):
                self.report.steps.setdefault(static_name(node.step), StepReport())
        for node in nodes.values():
            if isinstance(node, Generate) and node.model.engine not in self._engines:
                await self._open(node.model.engine)
            elif isinstance(node, Invoke) and node.tool.name not in self._tools:
                self._tools[node.tool.name] = open_tool(node.tool, self._callables, self._folder, self._threads)
        functions = {name: pure_function(name, function) for name, function in self._callables.items()}
        compiler = Compiler(self._flow, functions, self._call_operator)
        segments = compiler.compile(self._plan)
        self._boundaries = [boundary_after(segment) for segment in segments[:-1]]
        sources: list[Any] = [self._rows, *self._boundaries]
        takers = [*(boundary.add for boundary in self._boundaries), self._write]
        self._stages = [
            Stage(segment, self._flow, source, self._window, taker, self._moved)
            for segment, source, taker in zip(segments, sources, takers, strict=True)
        ]
        self._columns = self._sink_columns()

    async def _open(self, address: str | None) -> None:
        engine = self._open_engine(address)
        # Kept before it is opened, so that a failed opening is closed again.
        self._engines[address] = (engine, Capabilities(), Pause())
        capabilities = await engine.open(concurrency=self._settings.concurrency)
        self._engines[address] = (engine, capabilities, self._engines[address][2])

    def _sink_columns(self) -> list[tuple[str, int, str | None]]:
        """The columns of the result: name, slot, and the input column that one is, if it is."""
        exports = self._stages[-1].segment.exports
        found: list[tuple[str, int, str | None]] = []
        for name, value in self._plan.sink.columns:
            is_input = isinstance(value, Project) and isinstance(value.source, Scan)
            found.append((name, exports[name], value.field if is_input and isinstance(value, Project) else None))
        return found

    def _call_operator(
        self, node: Node, index: int, place: Place, slots: Mapping[str, int], operators: list[Operator]
    ) -> Operator:
        settings = self._settings
        if isinstance(node, Invoke):
            report = self.report.steps[static_name(node.step)]
            tool: Tool = node.tool
            return InvokeStep(
                index,
                place,
                node,
                args=tuple(slots[arg.id] for arg in node.args),
                flow=self._flow,
                dispatcher=self._dispatcher,
                lane=f"tools {tool.lane}" if tool.lane else "tools",
                caller=ToolCaller(self._tools[tool.name], self._limits, report, tool.timeout),
                report=report,
            )
        assert isinstance(node, Generate)
        engine, capabilities, pause = self._engines[node.model.engine]
        report = self.report.steps[static_name(node.step)]
        shorten = None
        if node.on_overflow is not None:
            cut = slots[node.on_overflow.value.id]
            contents = [value for part in node.prompt for value in part.content]
            shown = [value for value in contents if isinstance(value, Render) and node.on_overflow.value in value.args]
            renders = {slots[value.id]: operators[slots[value.id]] for value in shown}
            shorten = Shortener(cut, node.on_overflow.keep, renders)
        return GenerateStep(
            index,
            place,
            node,
            flow=self._flow,
            dispatcher=self._dispatcher,
            engine=engine,
            capabilities=capabilities,
            lane="" if node.model.engine is None else f"engine {node.model.engine}",
            prompt=Prompt(node, slots, self._model),
            caller=EngineCaller(
                engine,
                pause,
                self._limits,
                report,
                attempts=node.attempts or settings.attempts,
                timeout=node.timeout or settings.call_timeout,
                reask=node.reask,
                returns=node.returns,
                coerce=node.coerce,
            ),
            report=report,
            shorten=shorten,
        )

    # --- the run itself ---

    async def finish(self) -> RunReport:
        """Runs to the end: all rows, a limit, or an interrupt. The sink is left to be committed by the caller."""
        loop = asyncio.get_running_loop()
        self._over = loop.create_future()
        self._dispatcher.on_error = self._failed
        self._limits.start()
        began = loop.time()
        timer = None
        if self._settings.run_timeout is not None:
            reason = f"the run's time limit of {self._settings.run_timeout:g} s was reached"
            timer = loop.call_later(self._settings.run_timeout, self._stop, reason)
        self._moved()
        try:
            while not self._over.done():
                await asyncio.wait((self._over,), timeout=PROGRESS_EVERY)
                self.report.seconds = loop.time() - began
                self._tell()
            self._over.result()
        finally:
            if timer is not None:
                timer.cancel()
            await self._dispatcher.cancel()
        return self.report

    def _moved(self) -> None:
        """Hears that there may be room for rows: they are admitted at the loop's next turn, so that it stays alive."""
        if not self._pumping and self._over is not None and not self._over.done():
            self._pumping = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """Admits rows, from the last segment to the first, and ends the run after its last row."""
        self._pumping = False
        if self._over is None or self._over.done():
            return
        try:
            for boundary, stage in zip(self._boundaries, self._stages, strict=False):
                if boundary.full:
                    stage.close()
                if stage.over and not boundary.over and not self.report.interrupted:
                    boundary.finish()
            for number in reversed(range(len(self._stages))):
                backlog = self._boundaries[number].backlog if number < len(self._boundaries) else 0
                if backlog < self._window:
                    self._stages[number].admit()
            if self._sink.broken:
                self.interrupt()
            interrupted = self.report.interrupted and self._dispatcher.in_flight == 0
            if interrupted or all(stage.over for stage in self._stages):
                self._over.set_result(None)
        except Exception as error:
            self._over.set_exception(error)

    def _failed(self) -> None:
        error = self._dispatcher.error
        if error is not None and self._over is not None and not self._over.done():
            self._over.set_exception(error)

    async def close(self) -> None:
        """Closes engines and tools; safe to call at any time."""
        for boundary in self._boundaries:
            boundary.close()
        for tool in self._tools.values():
            tool.close()
        self._threads.close()
        engines, self._engines = self._engines, {}
        for engine, _, _ in engines.values():
            # What an engine found out on the way, such as a schema that it refused.
            self.report.notes += [note for note in getattr(engine, "notes", ()) if note not in self.report.notes]
            await engine.close()

    @property
    def running(self) -> bool:
        """Whether rows are on their way."""
        return self._over is not None and not self._over.done()

    @property
    def in_flight(self) -> int:
        """How many calls are being made right now."""
        return self._dispatcher.in_flight

    def interrupt(self) -> None:
        """Makes no further call and lets those in flight finish."""
        self.report.interrupted = True
        self._stop("interrupted")

    def _tell(self) -> None:
        self.report.done_rows = self._stages[0].released
        if self._progress is not None:
            self._progress(self.report)

    def _stop(self, reason: str, *, fatal: bool = False, kind: str = "not_started") -> None:
        """Ends the run early: rows that have not begun and calls that were not made fail with `kind`."""
        if self.report.stopped is None:
            self.report.stopped = reason
            self.report.fatal = fatal
            self._cut = Failure(kind, f"not started: {reason}", step="")
            self._limits.halt(reason, kind)
            self._dispatcher.close(lambda call: Failure(kind, self._cut.message, step=call.step, order=call.order))
        self._moved()

    # --- rows in and out ---

    def entry(self, row: Row) -> Entry:
        """The row on its way into the first segment; one that has failed or comes after a stop fails at once."""
        self.report.rows += 1
        if row.error is not None:
            failure = Failure(row.error.kind, row.error.message, step="", order=())
            return Entry(row.index, failure, row.values, {}, row.values)
        if self.report.stopped is not None:
            return Entry(row.index, self._cut, row.values, {}, row.values)
        return Entry(row.index, True, row.values, {})

    def _write(self, leaving: Leaving) -> None:
        """Writes a row that has passed the last segment."""
        values = leaving.values
        failures = list(leaving.failures)
        out: dict[str, Any] = {"_row": leaving.row}
        for name, slot, column in self._columns:
            value = values[slot]
            if value.__class__ is Failure:
                failures.append(value)
                given = leaving.given
                out[name] = given.get(column) if given is not None and column is not None else None
            else:
                out[name] = value
        if self.report.interrupted and any(failure.cut_short for failure in failures):
            # An interrupted run writes the rows that are done, not those that were cut short.
            return
        if failures:
            out["_error"] = self._error(min(failures, key=lambda failure: failure.order), leaving)
        try:
            self._sink.write(out)
        except InputError as error:
            # A value that the format cannot hold, such as an int beyond 64 bits, is the row's error.
            column = str(error.column)
            out[column] = None
            failure = Failure("schema", error.message, step=column)
            out["_error"] = out.get("_error") or self._error(failure, leaving)
            self._sink.write(out)
        self.report.output_rows += 1

    def _error(self, failure: Failure, leaving: Leaving) -> dict[str, Any]:
        skipped: list[str] = []
        for program, frame in leaving.frames:
            for name, slot in program.steps:
                value = frame.values[slot]
                if value.__class__ is Failure and not _is_own(value.step, name):
                    skipped.append(name)
        report = self.report
        report.failed_rows += 1
        if len(report.errors) < KEPT_ERRORS:
            report.errors.append((leaving.row, failure.step, failure.kind, failure.message))
        allowed = self._settings.allowed_failures(self.source.count() or 0)
        if allowed is not None and report.failed_rows > allowed and report.stopped is None:
            self._stop(f"{report.failed_rows} rows failed, more than the {allowed:g} allowed")
        return {
            "step": failure.step or None,
            "kind": failure.kind,
            "message": failure.message,
            "attempts": failure.attempts,
            "skipped": skipped,
            "raw": failure.raw,
        }


class _Rows:
    """The input table as the source of the first segment."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._rows: Iterator[Row] | None = None
        self.over = False

    def take(self) -> Entry | None:
        if self.over or self._run.report.interrupted:
            self.over = True
            return None
        if self._rows is None:
            self._rows = iter(self._run.source)
        row = next(self._rows, None)
        if row is None:
            self.over = True
            return None
        return self._run.entry(row)


def _is_own(failed: str, step: str) -> bool:
    """Whether a failure with this step's name began in the step itself, or in an item of it."""
    return failed == step or failed.startswith((f"{step}[", f"{step}."))
