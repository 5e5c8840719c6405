"""The report as JSON: a stable shape, described in `docs/reference/cli.md`.

Plans are plan files as `helix.plan_json` reads them. A key is there whatever the stage holds; what does not exist is
null. New keys may be added; a change of what is there raises `version`.
"""

from __future__ import annotations

from dataclasses import asdict, fields, is_dataclass
from typing import Any

from helix.explain.figures import savings
from helix.explain.report import ExplainReport, Measured, RuleFired, TableFacts
from helix.explain.text import Stage
from helix.physical import PhysicalPlan
from helix.plan_json import to_json

FORMAT = "helix-explain"
VERSION = 1
_NOTHING = 1e-12
_KEYS: dict[Stage, tuple[str, ...]] = {
    "logical": ("warnings", "logical"),
    "optimized": ("rules", "idle", "optimized"),
    "tree": ("tree",),
    "physical": ("physical", "patterns"),
    "cost": ("table", "cost", "measured"),
}


def report_json(report: ExplainReport, *, stage: Stage = "all") -> dict[str, Any]:
    """The report as JSON values, or one stage of it."""
    made: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "workflow": report.name,
        "warnings": list(report.warnings),
        "logical": to_json(report.plain),
        "rules": [_rule(rule) for rule in report.fired],
        "idle": list(report.idle),
        "optimized": to_json(report.plan),
        "tree": report.tree.as_json(),
        "physical": _physical(report.physical),
        # Where patterns were given.
        **({} if report.patterns is None else {"patterns": [asdict(agent) for agent in report.patterns]}),
        "table": None if report.table is None else _table(report.table),
        "cost": report.costs.as_json(),
        "measured": None if report.measured is None else _measured(report.measured),
    }
    kept = ("format", "version", "workflow", *_KEYS.get(stage, tuple(made)))
    return {key: _tidied(value) for key, value in made.items() if key in kept}


def _tidied(value: Any) -> Any:
    """The value with estimates to twelve digits: what is beyond is the noise of adding up."""
    if isinstance(value, float):
        return float(f"{value:.12g}") if abs(value) > _NOTHING else 0.0
    if isinstance(value, dict):
        return {key: _tidied(item) for key, item in value.items()}
    return [_tidied(item) for item in value] if isinstance(value, list | tuple) else value


def _rule(rule: RuleFired) -> dict[str, Any]:
    return {
        "name": rule.name,
        "law": rule.law,
        "sound": rule.sound,
        "pays": rule.pays,
        "lossy": rule.lossy,
        "times": rule.times,
        "changes": [
            {
                "kind": change.kind,
                "steps": list(change.steps),
                "detail": change.detail,
                "count": change.count,
                "text": change.text(None),
            }
            for change in rule.changes
        ],
        "before": asdict(rule.before),
        "after": asdict(rule.after),
        "saves": [saving.text for saving in savings(rule.before, rule.after)],
    }


def _physical(plan: PhysicalPlan) -> dict[str, Any]:
    """All but the logical plan, which is that of `optimized`."""
    shown = {each.name: getattr(plan, each.name) for each in fields(plan) if each.name != "plan"}
    made: dict[str, Any] = {}
    for name, value in shown.items():
        if is_dataclass(value) and not isinstance(value, type):
            value = asdict(value)
        elif isinstance(value, tuple):
            value = [asdict(each) if is_dataclass(each) else each for each in value]  # type: ignore[arg-type]
        made[name] = value
    return made


def _table(table: TableFacts) -> dict[str, Any]:
    stats = table.stats
    return {
        "name": table.name,
        "rows": table.rows,
        "failed": dict(table.failed),
        "columns": {name: asdict(column) for name, column in stats.columns.items()},
        "determines": [list(pair) for pair in stats.determines],
    }


def _measured(measured: Measured) -> dict[str, Any]:
    bounds = measured.bounds
    return {
        "optimized": measured.optimized,
        "engine": measured.engine,
        "rows": measured.rows,
        "failed_rows": measured.failed_rows,
        "seconds": measured.seconds,
        "steps": [{"step": each.step, "llm": each.llm, **asdict(each.report)} for each in measured.steps],
        "bounds": None
        if bounds is None
        else {**asdict(bounds), "lower_bound": bounds.lower_bound, "binder": bounds.binder},
        "stopped": measured.stopped,
        "notes": list(measured.notes),
    }
