"""A run: a plan, an engine and a table in, a table and a report out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helix.executor.boundaries import Boundary, boundary_after, cut_failures
from helix.executor.compile import Compiler
from helix.executor.engines.base import Capabilities, Engine
from helix.executor.equipment import Equipment, OpenEngine, StandIn
from helix.executor.frame import Dataflow
from helix.executor.limits import Limits
from helix.executor.program import Segment
from helix.executor.records import Recorder
from helix.executor.row_order import GroupedRows
from helix.executor.segments import Entry, Leaving, Stage
from helix.executor.settings import RunSettings
from helix.executor.tables import Row, RowSink, RowSource
from helix.executor.tools.lanes import TOOL_LANE
from helix.executor.tools.python import pure_function
from helix.executor.tracing import Tracing
from helix.executor.values import Failure
from helix.executor.writer import Writer
from helix.logical import Fetch, LogicalPlan, Sink, Sort, every_node
from helix.physical import PhysicalPlan, RowGroup
from helix.places import static_name
from helix.results import Activity, Phase, RunReport

if TYPE_CHECKING:
    from helix.executor.store.known import KnownCalls
    from helix.traces.recorder import TraceRecorder

PROGRESS_EVERY = 0.5

Schedule = Callable[[Capabilities], PhysicalPlan]


class Run:
    """One run. `start` prepares it (engines and tools are opened, nothing is called), `finish` runs it to its end.

    `open_engine` gives the engine at an address of the workflow (None: the run's own). `callables` are the functions of
    python tools and of expressions by name. `progress` is called now and then with the report so far. `recorder` keeps
    a record of each call, where one is wanted. `known` holds the outcomes from before the run and keeps new ones.
    `opened` hears that the engines are open and gives the plan to run, which asks for no other engine or tool.
    `schedule` makes the physical plan of that; it is asked where the engine has a cache to plan for. `stand_in` makes
    what is called in place of tools.
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
        known: KnownCalls | None = None,
        opened: Callable[[Equipment], LogicalPlan] | None = None,
        schedule: Schedule | None = None,
        progress: Callable[[RunReport], None] | None = None,
        recorder: Recorder | None = None,
        trace: TraceRecorder | None = None,
        stand_in: StandIn | None = None,
    ) -> None:
        self.source = source
        self.report = RunReport()
        self.order: tuple[str, ...] = ()
        self._plan = plan
        self._sink = sink
        self._settings = settings
        self._callables = dict(callables or {})
        self._progress = progress
        self._flow = Dataflow()
        self._limits = Limits(settings, self._stop)
        self._equipment = Equipment(
            settings,
            self.report,
            self._limits,
            self._flow,
            open_engine=open_engine,
            callables=self._callables,
            folder=folder,
            model=model,
            known=known,
            stand_in=stand_in,
        )
        if known is not None:
            known.stop, known.stopped = self._stop, lambda: self._limits.halted
        self._known, self._opened = known, opened
        self._schedule = schedule
        self._dispatcher = self._equipment.dispatcher
        self._dispatcher.recorder = recorder
        self._trace = trace
        self._stages: list[Stage] = []
        self._boundaries: list[Boundary] = []
        self._complete: set[int] = set()
        self._writer: Writer | None = None
        self._rows = _Rows(self)
        self._window = 0
        self._failed = 0
        self._failed_inputs: set[int] = set()
        self._cut = Failure("not_started", "not started", step="")
        self._pumping = False
        self._finished = False
        self._over: asyncio.Future[None] | None = None

    # --- before the first call ---

    async def start(self) -> None:
        """Opens engines and tools and lays the plan out. Raises OptionError or EngineError for what is missing."""
        await self._equipment.open(self._plan)
        if self._opened is not None:
            self._plan = self._opened(self._equipment)
            for node in every_node(self._plan.sink):
                if isinstance(node, Fetch):
                    self.report.steps[static_name(node.step)].fetched += 1
        # Rows that a limit leaves undone are to be the last of the input, so that then its order stays.
        self.order = () if self._settings.may_end_early else self._plan.scan.order
        self._lay_out()
        if self._trace is not None:
            tracing = Tracing(self._trace, self._plan)
            self._equipment.tool_calls.watchers.append(tracing)
            self._dispatcher.heard = tracing.heard
        self._equipment.speculate()
        speculation = self._equipment.speculation
        watch = None if speculation is None else speculation.branches
        self._window = self._equipment.rows_at_once
        functions = {name: pure_function(name, function) for name, function in self._callables.items()}
        segments = Compiler(self._flow, functions, self._equipment.operator, watch).compile(self._plan)
        self._boundaries = [boundary_after(segment) for segment in segments[:-1]]
        restore = bool(self.order)
        self._writer = Writer(self._plan.sink, segments[-1].exports, self._sink, self.report, restore=restore)
        told = _surely_shown(segments, {value.id for _, value in self._plan.sink.columns})
        for number, segment in enumerate(segments):
            self._stages.append(
                Stage(
                    segment,
                    self._flow,
                    self._boundaries[number - 1] if number else self._rows,
                    first=number == 0,
                    told=told[number - 1] if number else (),
                    window=self._window,
                    hand_on=self._write if number == len(self._boundaries) else self._to(number, segment, told[number]),
                    moved=self._moved,
                    row_began=self._dispatcher.row_began,
                    row_ended=self._dispatcher.row_ended,
                    fetched=lambda: self._dispatcher.fetched,
                )
            )

    def _lay_out(self) -> None:
        """Has the plan scheduled where that is worth while, and follows it."""
        engine = self._equipment.scheduled_for()
        if self._schedule is None or engine is None:
            return
        began = asyncio.get_running_loop().time()
        physical = self._schedule(engine)
        self._equipment.follow(physical)
        if physical.ranks > 1:
            self._rows.groups = physical.groups
        self.report.plan_seconds = asyncio.get_running_loop().time() - began

    # --- the run itself ---

    async def finish(self) -> RunReport:
        """Runs to the end: all rows, a limit, or an interrupt. The sink is left to be committed by the caller.

        Where it is cancelled, the rows that are finished are written before it ends.
        """
        loop = asyncio.get_running_loop()
        self._over = loop.create_future()
        self._dispatcher.on_error = self._broke
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
            self._count_cut_rows()
            self._finish_writing()
            self._finished = self.report.outcome in ("complete", "failed_rows")
        except asyncio.CancelledError:
            self.report.interrupted = True
            self._stages[-1].flush()
            self._finish_writing()
            raise
        finally:
            if timer is not None:
                timer.cancel()
            # No row moves any more, whatever ends from here on.
            if not self._over.cancel() and not self._over.cancelled():
                self._over.exception()
            await self._dispatcher.cancel()
            await self._equipment.end_speculation()
        return self.report

    def _count_cut_rows(self) -> None:
        """Counts failed rows that a sort put last and a limit then cut: not in the result, but not forgotten."""
        cut = 0 if self.report.interrupted else cut_failures(self._boundaries)
        if cut:
            self.report.failed_rows += cut
            rows = "1 failed row was" if cut == 1 else f"{cut:,} failed rows were"
            self.report.notes.append(f"{rows} sorted last and cut by the limit")

    def _moved(self) -> None:
        """Hears that there may be room for rows: they are admitted at the loop's next turn, so that it stays alive."""
        if not self._pumping and self.running:
            self._pumping = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """Admits rows, from the last segment to the first, and ends the run after its last row."""
        self._pumping = False
        if self._over is None or self._over.done():
            return
        try:
            more = self._pass_on()
            if not self.report.nothing_done:
                for number in reversed(range(len(self._stages))):
                    backlog = self._boundaries[number].backlog if number < len(self._boundaries) else 0
                    if backlog < self._window:
                        more |= self._stages[number].admit()
            more |= self._pass_on()
            if self._sink.broken and not self.report.reader_gone:
                self.report.reader_gone = True
                self._stop("nobody reads the output any more")
            if self._ends():
                self._over.set_result(None)
            elif more:
                self._moved()
        except Exception as error:
            self._fail(error)

    def _pass_on(self) -> bool:
        """Closes what nobody wants rows of, and tells boundaries that they have all their rows; whether any has now."""
        for number in reversed(range(len(self._boundaries))):
            if self._boundaries[number].full:
                for stage in self._stages[: number + 1]:
                    stage.close()
                break
        told = False
        for number, boundary in enumerate(self._boundaries):
            # An interrupted run knows nothing of rows that it did not read: no group and no order is complete.
            if number not in self._complete and self._stages[number].over and not self.report.interrupted:
                self._complete.add(number)
                boundary.finish()
                told = True
        return told

    def _ends(self) -> bool:
        if self.report.reader_gone:
            return True
        if (self.report.interrupted or self.report.nothing_done) and self._dispatcher.in_flight == 0:
            return True
        return all(stage.over for stage in self._stages)

    def _broke(self) -> None:
        """Hears that a worker has ended with an error of our own."""
        if self._dispatcher.error is not None:
            self._fail(self._dispatcher.error)

    def _fail(self, error: BaseException) -> None:
        """Ends the run with an error."""
        if self._over is not None and not self._over.done():
            self._over.set_exception(error)

    async def close(self) -> None:
        """Closes engines and tools; safe to call at any time."""
        for boundary in self._boundaries:
            boundary.close()
        self._rows.close()
        if self._writer is not None:
            self._writer.close()
        await self._equipment.close()
        if self._known is not None:
            self._known.close(finished=self._finished)
            self.report.notes += [note for note in self._known.notes if note not in self.report.notes]

    @property
    def running(self) -> bool:
        """Whether rows are on their way."""
        return self._over is not None and not self._over.done()

    @property
    def in_flight(self) -> int:
        """How many calls are being made right now."""
        return self._dispatcher.in_flight

    @property
    def engines(self) -> tuple[tuple[Engine, Capabilities], ...]:
        """The engines of the run, while they are open, with what they can do."""
        return self._equipment.engines

    def slots(self, lane: str) -> int:
        """How many calls of a lane are made at once."""
        return self._dispatcher.slots(lane)

    def interrupt(self) -> None:
        """Makes no further call and lets those in flight finish."""
        self.report.interrupted = True
        self._stop("interrupted")
        self._moved()

    def _tell(self) -> None:
        self.report.done_rows = self._stages[0].through
        if self._progress is not None:
            self.report.activity = self._activity()
            self._progress(self.report)

    def _activity(self) -> Activity:
        # How many rows come to each stage, as far as that is known.
        rests = [boundary.rest for boundary in self._boundaries]
        later = [
            None if rest is None else stage.admitted + rest for stage, rest in zip(self._stages[1:], rests, strict=True)
        ]
        return Activity(
            in_flight=self._dispatcher.in_flight,
            queued=self._dispatcher.waiting,
            tools=self._dispatcher.busy(TOOL_LANE),
            paused=self._equipment.paused,
            no_room=self._dispatcher.no_room,
            failed=max(self._failed, self.report.failed_rows),
            phases=tuple(map(_phase, self._stages, [self.source.count(), *later])),
        )

    def _stop(self, reason: str, *, fatal: bool = False, kind: str = "not_started") -> None:
        """Ends the run early: rows that have not begun and calls that were not made fail with `kind`."""
        if self.report.stopped is None:
            self.report.stopped = reason
            self.report.fatal = fatal
            self._cut = Failure(kind, f"not started: {reason}", step="")
            self._limits.halt(reason, kind)
            try:
                self._dispatcher.close(lambda call: Failure(kind, self._cut.message, step=call.step, order=call.order))
            except Exception as error:
                # Calls that fail move rows, and those may not be writable. A timer or a signal may have called this.
                self._fail(error)
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

    def _to(self, number: int, segment: Segment, told: tuple[str, ...]) -> Callable[[Leaving], None]:
        """What takes the rows that leave a segment for the boundary after it."""
        boundary = self._boundaries[number]
        slots = (*segment.keys, *segment.columns, *(segment.exports[node] for node in told))

        def hand_on(leaving: Leaving) -> None:
            failed = leaving.failures or any(leaving.values[slot].__class__ is Failure for slot in slots)
            if failed and not leaving.known:
                self._count_failed(leaving.row)
            boundary.add(leaving)

        return hand_on

    def _write(self, leaving: Leaving) -> None:
        """Writes a row that has passed the last segment."""
        assert self._writer is not None
        if self._writer.write(leaving) and not leaving.known:
            self._count_failed(leaving.row)

    def _finish_writing(self) -> None:
        assert self._writer is not None
        self._writer.finish()

    def more_rows_later(self) -> None:
        """Hears from the source that it has no row now and will have some."""
        self._moved()

    def _count_failed(self, row: int) -> None:
        """Counts a row as soon as it has surely failed, and stops the run where there are too many.

        A share is one of the input's rows, however many rows each was spread to.
        """
        settings = self._settings
        self._failed += 1
        if settings.max_failed is None:
            return
        failed, allowed = self._failed, settings.max_failed
        if settings.max_failed_percent:
            rows = self.source.count()
            if rows is None:
                return
            self._failed_inputs.add(row)
            failed, allowed = len(self._failed_inputs), settings.max_failed * rows / 100
        if failed > allowed:
            share = f" ({settings.max_failed:g}%)" if settings.max_failed_percent else ""
            self._stop(f"{failed} {'row' if failed == 1 else 'rows'} failed, more than the {allowed:g}{share} allowed")


def _surely_shown(segments: list[Segment], columns: set[str]) -> list[tuple[str, ...]]:
    """For each segment what crosses its end and is a column of every row: where that has failed, the row has.

    Only where all that follows keeps every row: after it a sort may stand, but no filter, spread, group or limit.
    """
    found: list[tuple[str, ...]] = [()] * len(segments)
    for number in reversed(range(len(segments) - 1)):
        after = segments[number + 1]
        keeps = isinstance(after.boundary, Sort | Sink) and len(after.levels) == 1 and after.levels[0].alive == 0
        if not keeps or not isinstance(segments[number].boundary, Sort):
            break
        found[number] = tuple(node for node in segments[number].exports if node in columns)
    return found


def _phase(stage: Stage, rows: int | None) -> Phase:
    all = stage.through if stage.over else rows
    return Phase(done=stage.through, known=stage.known, all=all, over=stage.over)


class _Rows:
    """The input table as the source of the first segment, grouped where the plan says so."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._rows: Iterator[Row] | None = None
        self._grouped: GroupedRows | None = None
        self.groups: tuple[RowGroup, ...] = ()
        self.over = False

    def take(self) -> Entry | None:
        if self.over or self._run.report.interrupted:
            self.over = True
            return None
        if self._rows is None:
            self._rows = iter(self._run.source)
            if self._run.order:
                self._rows = self._grouped = GroupedRows(self._rows, self._run.order, self.groups)
        if self._grouped is not None and not self._grouped.ready():
            self._run.more_rows_later()
            return None
        row = next(self._rows, None)
        if row is None:
            self.over = True
            return None
        entry = self._run.entry(row)
        if self._grouped is not None:
            entry.rank = self._grouped.rank
        return entry

    def close(self) -> None:
        """Drops rows that were read ahead."""
        if self._grouped is not None:
            self._grouped.close()
