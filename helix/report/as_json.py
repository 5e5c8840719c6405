"""Measures as JSON values. Keys never change their meaning within a version; new ones may come."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from helix.report.measures import Prefixes, RunMeasures, StepFigures, TokenFigures

FORMAT, VERSION = "helix-report", 1


def measures_json(measures: RunMeasures) -> dict[str, Any]:
    """The whole report. Times are in seconds, shares and rates between 0 and 1, what nothing tells is null."""
    without = asdict(measures.without)
    return {
        "format": FORMAT,
        "version": VERSION,
        "workflow": measures.workflow,
        "engine": measures.engine,
        "policy": measures.policy,
        "outcome": measures.outcome,
        "stopped": measures.stopped,
        "rows": {"input": measures.rows, "output": measures.output_rows, "failed": measures.failed_rows},
        "seconds": {"makespan": measures.makespan, "planning": measures.plan_seconds},
        "calls": {
            "llm": measures.llm_calls,
            "tools": measures.tool_calls,
            "failed": measures.failed_calls,
            "retries": measures.retries,
            "reasks": measures.reasks,
            "merged": measures.merged,
            "fetched": measures.fetched,
            "warmups": measures.warmups,
        },
        "tokens": {
            **_tokens(measures.tokens),
            "prefilled": measures.prefilled,
            "prefilled_by_warmups": measures.warmup_tokens,
        },
        "prefixes": None if measures.prefixes is None else _prefixes(measures.prefixes),
        "bounds": _bounds(measures),
        "shares": asdict(measures.shares),
        "phases": [
            {
                "name": phase.name,
                "by": phase.by,
                "begins": phase.begins,
                "ends": phase.ends,
                "calls": phase.calls,
                **_tokens(phase.tokens),
            }
            for phase in measures.phases
        ],
        "steps": [_step(step) for step in measures.steps],
        "ranks": [
            {"rank": rank.rank, "calls": rank.calls, "busy": rank.busy, **_tokens(rank.tokens)}
            for rank in measures.ranks
        ],
        "without_helix": without,
        "speculation": None if measures.speculation is None else dict(measures.speculation),
        "cost": None
        if measures.cost is None
        else {"money": measures.cost.money, "without_helix": measures.cost.without, "currency": measures.cost.currency},
        "notes": list(measures.notes),
    }


def _tokens(tokens: TokenFigures) -> dict[str, Any]:
    return {
        "prompt": tokens.prompt,
        "cached": tokens.cached,
        "prefilled": tokens.prefilled,
        "generated": tokens.generated,
        "hit_rate": tokens.hit_rate,
        "untold": tokens.untold,
    }


def _prefixes(prefixes: Prefixes) -> dict[str, Any]:
    return {**asdict(prefixes), "amplification": prefixes.amplification}


def _bounds(measures: RunMeasures) -> dict[str, Any] | None:
    bounds = measures.bounds
    if bounds is None:
        return None
    return {
        **{name.replace("-", "_"): seconds for name, seconds in bounds.all},
        "lower_bound": bounds.lower_bound,
        "binder": bounds.binder,
        "makespan_over_bound": measures.over_bound,
        "model": bounds.engine_name,
        "estimated": bounds.estimated,
    }


def _step(step: StepFigures) -> dict[str, Any]:
    length = step.length
    return {
        "step": step.step,
        "kind": step.kind,
        "calls": step.calls,
        "failed": step.failed,
        "merged": step.merged,
        "fetched": step.fetched,
        "seconds": step.seconds,
        "held": step.held,
        "queued": step.queued,
        **_tokens(step.tokens),
        "length": None if length is None else {**asdict(length), "error": length.error},
        **({} if step.agent is None else {"agent": asdict(step.agent)}),
    }
