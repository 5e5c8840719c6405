"""One plan, simulated once."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from helix.dsl import Workflow
from helix.executor.engines import loop_factory
from helix.executor.engines.base import Capabilities
from helix.executor.engines.sim.history import History, PhaseSums
from helix.executor.equipment import Equipment
from helix.executor.settings import RunSettings
from helix.executor.tools.made_up import MadeUpTool
from helix.forecast.measures import Phase, PhaseName, PlanName, RankFigures, StepFigures, Timeline, Trial
from helix.logical import Generate, Invoke, LogicalPlan, every_node
from helix.optimizer.bounds import Bounds
from helix.optimizer.lengths import Length, Lengths, Profile
from helix.optimizer.tokens import ESTIMATE
from helix.optimizer.tree.resolve import resolve_plan
from helix.physical import PhysicalPlan
from helix.places import static_name
from helix.prepared import Prepared
from helix.progress import LINE_EVERY
from helix.results import RunReport, StepReport
from helix.simulating.bounds import BoundsOf, KeepingEngine, ToolTimes
from helix.simulating.wanted import Place, Wanted, with_lengths
from helix.types import TEXT, Optional
from helix.waiting import waited

SECOND = 1_000_000_000
_PHASES: tuple[PhaseName, ...] = ("warm-up", "middle", "drain")
# How a plan is run as it is written: no rule, nothing merged, every call sent as soon as it can be.
PLAIN_POLICY = "lpm"


class Simulated(Prepared):
    """A run on a simulated engine, planned with the lengths of earlier runs on whatever engine."""

    def __init__(
        self, workflow: Workflow, wanted: Wanted, engine: KeepingEngine, plan: PlanName, profile: Profile | None
    ) -> None:
        began = time.perf_counter()
        plain = plan == "plain"
        super().__init__(
            workflow, wanted.rows, output=None, engine=engine, model=None, api_key=None, set=wanted.set,
            settings=RunSettings(policy=PLAIN_POLICY if plain else wanted.policy, merge=not plain, limit=wanted.limit),
            input_format=wanted.input_format, output_format=None, quiet=True, rules=[] if plain else wanted.rules,
            without=() if plain else wanted.without,
        )  # fmt: skip
        self._profile = profile
        self.stand_in = MadeUpTool
        self.tools = ToolTimes()
        self.planned = time.perf_counter() - began

    def lengths(self, engine: str | None) -> Lengths:
        return Lengths(profile=self._profile)

    def _engines_opened(self, equipment: Equipment) -> LogicalPlan:
        equipment.tool_calls.watchers.append(self.tools)
        return super()._engines_opened(equipment)

    def looked_at(self) -> LogicalPlan:
        """The plan, once the table was looked at."""
        self._look_at_table()
        return self.plan

    def physical(self, capabilities: Capabilities | None = None, *, budget: float = 1.0) -> PhysicalPlan:
        began = time.perf_counter()
        made = super().physical(capabilities, budget=budget)
        self.planned += time.perf_counter() - began
        return made


class TrialRun:
    """A trial, and what bounds of it on other engines are made of."""

    def __init__(
        self,
        workflow: Workflow,
        wanted: Wanted,
        place: Place,
        plan: PlanName,
        *,
        profile: Profile | None = None,
        keep: bool = True,
        lengths: Mapping[str, Length] | None = None,
    ) -> None:
        """Runs it. `keep` keeps the calls, for bounds; `lengths` are those of another trial, to be the same here.
        Raises what a run raises before its first call.
        """
        history = History(place.settings.ranks)
        engine = KeepingEngine(place.settings, place.cost, model=place.model, watcher=history)
        engine.keep = keep
        prepared = Simulated(workflow, wanted, engine, plan, profile)
        found = {**step_lengths(prepared, wanted, profile), **(lengths or {})}
        base = wanted.output_tokens if isinstance(wanted.output_tokens, int) else None
        engine.settings = with_lengths(place.settings, {name: each.mean for name, each in found.items()}, base)
        says = f"{plan} plan on {place.deployment.name}"
        result = waited(prepared.run(progress=_Told(says, wanted, prepared).update), loop_factory(engine))
        report = result.report
        history.finish(round(report.seconds * SECOND))
        self.place = place
        self.lengths = found
        self.engine = engine
        self.bounds_of = _bounds_of(prepared, engine) if keep else None
        self.trial = _trial(plan, place, prepared, report, engine, history, found, self._bounds(place))

    def _bounds(self, place: Place) -> Bounds | None:
        return None if self.bounds_of is None else self.bounds_of.on(place.time)


def _bounds_of(prepared: Simulated, engine: KeepingEngine) -> BoundsOf:
    made, run = prepared.tools.made, prepared.active
    slots = {} if run is None else {lane: run.slots(lane) for lane in sorted({tool.lane for tool in made})}
    return BoundsOf(prepared.plan, engine, made, slots)


def step_lengths(prepared: Simulated, wanted: Wanted, profile: Profile | None) -> dict[str, Length]:
    """The mean length of each llm step's replies that the simulation is to have, and where it is from. Steps that
    return a type have none.
    """
    lengths = Lengths(profile=profile)
    # What is known is kept under the plan that ran, whose row order a table decides: both plans are asked.
    plans = (prepared.looked_at(), prepared.bound.plan)
    given: Mapping[str, int] = wanted.output_tokens if isinstance(wanted.output_tokens, Mapping) else {}
    same = wanted.output_tokens if isinstance(wanted.output_tokens, int) else None
    found: dict[str, Length] = {}
    for site in (site for plan in plans for site in resolve_plan(plan).calls):
        node = site.node
        if not isinstance(node, Generate):
            continue
        name = static_name(node.step)
        kind = node.returns.inner if isinstance(node.returns, Optional) else node.returns
        tokens = given.get(name, same)
        if kind != TEXT or (name in found and found[name].source not in ("declared", "assumed")):
            continue
        if tokens is not None:
            found[name] = Length(mean=float(tokens), p90=float(tokens), source="given")
        else:
            found[name] = lengths.of(site, ESTIMATE)
    return found


class _Told:
    """Says now and then how far a simulation is."""

    def __init__(self, says: str, wanted: Wanted, prepared: Prepared) -> None:
        self._says = says
        self._tell = wanted.tell
        self._prepared = prepared
        self._last = time.monotonic()

    def update(self, report: RunReport) -> None:
        """Hears of the run."""
        now = time.monotonic()
        if now - self._last >= LINE_EVERY:
            self._last = now
            rows = self._prepared.scan().rows
            self._tell(f"{self._says}: {report.done_rows:,} of {rows:,} rows, {report.seconds:,.0f} s simulated")


# --- figures ------------------------------------------------------------------------------------------------------


def _trial(
    plan: PlanName,
    place: Place,
    prepared: Simulated,
    report: RunReport,
    engine: KeepingEngine,
    history: History,
    found: Mapping[str, Length],
    bounds: Bounds | None,
) -> Trial:
    llm, tools = _kinds(prepared, report)
    steps = {name: report.steps[name] for name in llm}
    figures = engine.figures
    size = place.settings.kv_tokens * place.settings.ranks
    notes = [note for note in report.notes if "ended at max_tokens" not in note]
    if engine.untold:
        notes.append(f"the lower bound counts no shared beginning of the last {engine.untold:,} calls")
    first = None
    if report.errors:
        row, step, kind, message = report.errors[0]
        first = f"row {row}, {step or 'input'}: {kind}: {message}"
    return Trial(
        plan=plan,
        policy=report.policy,
        deployment=place.deployment,
        makespan=report.seconds,
        plan_seconds=prepared.planned,
        rows=report.rows,
        failed_rows=report.failed_rows,
        calls=sum(step.calls for step in steps.values()),
        merged=sum(step.merged for step in steps.values()),
        tools=sum(report.steps[name].calls for name in tools),
        warmups=report.warmups,
        prompt=sum(step.prompt_tokens for step in steps.values()),
        cached=sum(step.cached_tokens for step in steps.values()),
        prefilled=figures.prefilled,
        generated=sum(step.completion_tokens for step in steps.values()),
        passes=figures.prefill_passes + figures.decode_passes,
        outside=figures.outside,
        retractions=figures.retractions,
        evicted=engine.evicted_tokens,
        peak_locked=history.peak / size,
        events=engine.log.count,
        digest=engine.log.digest,
        steps=tuple(_step(name, step, found.get(name)) for name, step in steps.items()),
        phases=_phases(history),
        ranks=tuple(
            RankFigures(
                rank=rank, prefill=sum(history.prefill[rank]) / SECOND, decode=sum(history.decode[rank]) / SECOND
            )
            for rank in range(history.ranks)
        ),
        timeline=_timeline(history),
        bounds=bounds,
        first_error=first,
        notes=tuple(notes),
    )


def _kinds(prepared: Prepared, report: RunReport) -> tuple[list[str], list[str]]:
    """The steps that ask a model and those that call a tool, of the plan that ran."""
    tools = dict.fromkeys(static_name(node.step) for node in every_node(prepared.plan.sink) if isinstance(node, Invoke))
    return [name for name in report.steps if name not in tools], [name for name in report.steps if name in tools]


def _step(name: str, step: StepReport, length: Length | None) -> StepFigures:
    source = "type" if length is None else length.source
    return StepFigures(
        step=name,
        calls=step.calls,
        merged=step.merged,
        prompt=step.prompt_tokens,
        cached=step.cached_tokens,
        generated=step.completion_tokens,
        length=None if length is None else length.mean,
        source=source,
    )


def _phases(history: History) -> tuple[Phase, ...]:
    by: Any = "time" if history.full is None else "kv"
    parts: tuple[tuple[int, int, PhaseSums], ...] = history.phases()
    return tuple(
        Phase(
            name=name, by=by, begins=begins / SECOND, ends=ends / SECOND, calls=sums.calls, prompt=sums.prompt,
            cached=sums.cached,
        )
        for name, (begins, ends, sums) in zip(_PHASES, parts, strict=True)
    )  # fmt: skip


def _timeline(history: History) -> Timeline:
    span, end = history.span, history.end
    lasts = [max(1, min(span, end - at * span)) for at in range(history.spans)]

    def shares(series: Any) -> tuple[float, ...]:
        return tuple(value / last for value, last in zip(series, lasts, strict=True))

    def summed(of_ranks: list[Any]) -> tuple[float, ...]:
        return tuple(sum(values) / last for values, last in zip(zip(*of_ranks, strict=True), lasts, strict=True))

    return Timeline(
        span=span / SECOND,
        prefill=tuple(shares(rank) for rank in history.prefill),
        decode=tuple(shares(rank) for rank in history.decode),
        locked=summed(history.locked),
        evictable=summed(history.evictable),
        prompt=tuple(history.prompt),
        hit_rate=tuple(
            cached / prompt if prompt else None for prompt, cached in zip(history.prompt, history.cached, strict=True)
        ),
    )
