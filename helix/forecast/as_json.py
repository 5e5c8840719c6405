"""A forecast as JSON values. Keys never change their meaning within a version; new ones may come."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from helix.forecast.measures import Case, Forecast, Timeline, Trial
from helix.forecast.words import notes
from helix.optimizer.bounds import Bounds

FORMAT, VERSION = "helix-simulation", 1


def forecast_json(forecast: Forecast) -> dict[str, Any]:
    """All of it. Times are in seconds, shares and rates between 0 and 1, what is not known is null."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "workflow": forecast.workflow,
        "table": forecast.table,
        "currency": forecast.currency,
        "prices": dict(forecast.prices),
        "optimized": _trial(forecast, forecast.optimized, whole=True),
        "plain": None if forecast.plain is None else _trial(forecast, forecast.plain, whole=True),
        "what_if": [_case(forecast, case) for case in forecast.cases],
        "seconds_here": forecast.seconds,
        "notes": notes(forecast),
    }


def _trial(forecast: Forecast, trial: Trial, *, whole: bool) -> dict[str, Any]:
    where = trial.deployment
    made: dict[str, Any] = {
        "policy": trial.policy,
        "deployment": {**asdict(where), "gpus": where.gpus},
        "seconds": {"makespan": trial.makespan, "planning_here": trial.plan_seconds},
        "rows": {"input": trial.rows, "failed": trial.failed_rows},
        "calls": {"llm": trial.calls, "merged": trial.merged, "tools": trial.tools, "warmups": trial.warmups},
        "tokens": {
            "prompt": trial.prompt,
            "cached": trial.cached,
            "prefilled": trial.prefilled,
            "generated": trial.generated,
            "hit_rate": trial.hit_rate,
            "evicted": trial.evicted,
        },
        "passes": {"all": trial.passes, "outside_fit": trial.outside, "retractions": trial.retractions},
        "peak_locked": trial.peak_locked,
        "gpu_hours": trial.gpu_hours,
        "money": forecast.money(trial),
        "bounds": _bounds(trial, trial.bounds),
        "log": {"sha256": trial.digest, "events": trial.events},
    }
    if whole:
        made["phases"] = [{**asdict(phase), "hit_rate": phase.hit_rate} for phase in trial.phases]
        made["steps"] = [{**asdict(step), "hit_rate": step.hit_rate} for step in trial.steps]
        made["ranks"] = [asdict(rank) for rank in trial.ranks]
        made["timeline"] = _timeline(trial.timeline)
    return made


def _bounds(trial: Trial, bounds: Bounds | None) -> dict[str, Any] | None:
    if bounds is None:
        return None
    return {
        **{name.replace("-", "_"): value for name, value in bounds.all},
        "lower_bound": bounds.lower_bound,
        "binder": bounds.binder,
        "makespan_over_bound": trial.over_bound,
        "p_min": bounds.p_min,
        "estimated": bounds.estimated,
    }


def _timeline(timeline: Timeline) -> dict[str, Any]:
    def short(values: tuple[float | None, ...]) -> list[float | None]:
        return [None if value is None else round(value, 4) for value in values]

    return {
        "span": timeline.span,
        "prefill": [short(rank) for rank in timeline.prefill],
        "decode": [short(rank) for rank in timeline.decode],
        "locked": short(timeline.locked),
        "evictable": short(timeline.evictable),
        "prompt": list(timeline.prompt),
        "hit_rate": short(timeline.hit_rate),
    }


def _case(forecast: Forecast, case: Case) -> dict[str, Any]:
    made = {name: getattr(case, name) for name in ("gpu", "ranks", "decode_ranks", "gpus", "problem")}
    return made | {"simulated": None if case.trial is None else _trial(forecast, case.trial, whole=False)}
