"""From the records of a run to its measures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from helix.optimizer.bounds import Bounds
from helix.optimizer.engine_time import H100, EngineTime
from helix.records import CallKind, CallRecord
from helix.report.detail import Detail
from helix.report.measures import AgentFigures, LengthFigures, Prefixes, RunMeasures, StepFigures, Without
from helix.report.shares import shares_of
from helix.report.tallies import percentile, phases_of, ranks_of, tokens_of
from helix.results import RunReport, StepReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """The mean length of a step's replies as it was thought before the run, and where that is from."""

    length: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What the measures rest on besides the records. `kinds` are all steps of the plan that call, in its order.

    `typical` are the prompt and reply tokens of a call of a step by the estimate, for steps of which none was made.
    `full` is the time in which the KV cache was nearly full, `by_rules` how many times more calls the plain plan makes
    by the estimate.
    """

    workflow: str
    engine: str
    kinds: Mapping[str, CallKind]
    plan_seconds: float = 0.0
    predicted: Mapping[str, Predicted] = field(default_factory=dict)
    typical: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    time: EngineTime = H100
    prefixes: Prefixes | None = None
    bounds: Bounds | None = None
    full: tuple[float, float] | None = None
    by_rules: float = 1.0
    notes: tuple[str, ...] = ()
    detail: Detail | None = None


def measure(report: RunReport, records: Iterable[CallRecord], facts: RunFacts) -> RunMeasures:
    """The measures of a run that has ended."""
    known = list(records)
    llm = [record for record in known if record.kind == "llm"]
    tools = [record for record in known if record.kind == "tool"]
    sent, ran = [record for record in llm if record.sent], [record for record in tools if record.sent]
    steps: dict[str, list[CallRecord]] = {name: [] for name in facts.kinds}
    for record in known:
        steps.setdefault(record.step, []).append(record)
    tokens = tokens_of(sent)
    return RunMeasures(
        workflow=facts.workflow,
        engine=facts.engine,
        policy=report.policy,
        outcome=report.outcome,
        stopped=report.stopped,
        rows=report.rows,
        output_rows=report.output_rows,
        failed_rows=report.failed_rows,
        makespan=report.seconds,
        plan_seconds=facts.plan_seconds,
        llm_calls=len(sent),
        tool_calls=len(ran),
        failed_calls=sum(record.outcome == "failed" for record in known),
        retries=report.total("retries"),
        reasks=report.total("reasks"),
        merged=_count(known, "merged"),
        fetched=_count(known, "fetched"),
        warmups=report.warmups,
        warmup_tokens=report.warmup_tokens,
        tokens=tokens,
        steps=tuple(_step(name, own, facts, report.steps.get(name)) for name, own in steps.items()),
        phases=phases_of(sent, facts.full),
        ranks=ranks_of(sent),
        shares=shares_of(sent, ran, report.seconds, facts.time),
        prefixes=facts.prefixes,
        bounds=facts.bounds,
        without=_without(llm, len(tools), facts),
        notes=(*facts.notes, *report.notes),
        speculation=report.speculation,
        detail=facts.detail,
    )


def _count(records: Iterable[CallRecord], outcome: Literal["merged", "fetched"]) -> int:
    return sum(record.outcome == outcome for record in records)


def _step(name: str, every: list[CallRecord], facts: RunFacts, report: StepReport | None) -> StepFigures:
    kind = facts.kinds.get(name) or every[0].kind
    # The calls of tools that an agent made are told apart from those of its model.
    records = [record for record in every if record.kind == kind]
    sent = [record for record in records if record.sent]
    queues = [record.queue_seconds for record in sent if record.queue_seconds is not None]
    predicted = facts.predicted.get(name)
    # Of calls that took several attempts only the sum of all replies is known.
    written = [
        float(record.completion_tokens)
        for record in sent
        if record.outcome == "made" and record.attempts == 1 and record.completion_tokens is not None
    ]
    length = None
    if predicted is not None:
        length = LengthFigures(
            predicted=predicted.length,
            source=predicted.source,
            actual=sum(written) / len(written) if written else None,
            p90=percentile(written, 0.9) if written else None,
        )
    return StepFigures(
        step=name,
        kind=kind,
        calls=len(sent),
        failed=sum(record.outcome == "failed" for record in sent),
        merged=_count(records, "merged"),
        fetched=_count(records, "fetched"),
        tokens=tokens_of(sent),
        seconds=sum(record.ended - record.started for record in sent),
        held=sum(record.started - record.submitted for record in sent),
        queued=sum(queues) if queues else None,
        length=length,
        agent=_agent(every, report) if report is not None and report.turns else None,
    )


def _agent(records: list[CallRecord], report: StepReport) -> AgentFigures:
    return AgentFigures(
        turns=report.turns,
        tool_calls=report.tool_calls,
        tool_errors=report.tool_errors,
        at_limit=report.at_limit,
        tool_seconds=sum(record.ended - record.started for record in records if record.kind == "tool" and record.sent),
    )


def _without(llm: list[CallRecord], tool_calls: int, facts: RunFacts) -> Without:
    """What the same calls would take if none was merged or fetched."""
    told: dict[str, list[int]] = {}
    for record in llm:
        if record.sent and record.prompt_tokens is not None:
            sums = told.setdefault(record.step, [0, 0, 0])
            sums[0] += 1
            sums[1] += record.prompt_tokens
            sums[2] += record.completion_tokens or 0
    prompt = generated = 0.0
    counted = True
    for record in llm:
        if record.prompt_tokens is not None:
            prompt += record.prompt_tokens
            generated += record.completion_tokens or 0
        elif not record.sent:
            # The equal call was made before this run: taken to be like the others of its step.
            counted = False
            calls, prompts, replies = told.get(record.step) or (1, *facts.typical.get(record.step, (0.0, 0.0)))
            prompt += prompts / calls
            generated += replies / calls
    return Without(
        calls=len(llm),
        tool_calls=tool_calls,
        prompt_tokens=round(prompt),
        generated_tokens=round(generated),
        basis="counted" if counted else "estimated",
        by_rules=facts.by_rules,
    )
