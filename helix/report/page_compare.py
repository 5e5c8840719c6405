"""A run beside an earlier one: both figures and the change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from typing import Any

from helix.page import table, text
from helix.report.text import share
from helix.report.words import money, seconds

# Steps that are compared; a figure above this is no figure of a run.
MOST_STEPS = 50
_MOST = 1e15
_Show = Callable[[float], str]


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _times(value: float) -> str:
    return f"{value:.2f}"


_FIGURES: tuple[tuple[str, tuple[str, ...], _Show], ...] = (
    ("makespan", ("seconds", "makespan"), seconds),
    ("rows", ("rows", "output"), _whole),
    ("rows failed", ("rows", "failed"), _whole),
    ("llm calls", ("calls", "llm"), _whole),
    ("calls of tools", ("calls", "tools"), _whole),
    ("calls merged", ("calls", "merged"), _whole),
    ("calls fetched", ("calls", "fetched"), _whole),
    ("retries", ("calls", "retries"), _whole),
    ("prompt tokens", ("tokens", "prompt"), _whole),
    ("prefilled tokens", ("tokens", "prefilled"), _whole),
    ("generated tokens", ("tokens", "generated"), _whole),
    ("hit rate", ("tokens", "hit_rate"), share),
    ("prefilled over distinct", ("prefixes", "amplification"), _times),
    ("lower bound", ("bounds", "lower_bound"), seconds),
    ("makespan over the bound", ("bounds", "makespan_over_bound"), _times),
)


def comparison(now: Mapping[str, Any], earlier: Mapping[str, Any]) -> str:
    """Tables of the whole run and of its steps. `earlier` may be of another workflow, and lack what it likes."""
    shown = table(
        ("", "this run", "earlier", "change"), _figures(now, earlier), "The change is this run less the earlier."
    )
    warnings = [
        f"The earlier run is of another {what}: {_name(earlier, key)}, this one of {_name(now, key)}."
        for what, key in (("workflow", "workflow"), ("engine", "engine"), ("policy", "policy"))
        if _name(earlier, key) != _name(now, key)
    ]
    said = "".join(f'<p class="warning" role="note">{text(each)}</p>' for each in warnings)
    steps = list(_steps(now, earlier))
    if steps:
        heads = ("step", "calls", "earlier", "hit rate", "earlier", "in calls", "earlier", "change")
        shown += table(heads, steps, "By step; seconds are those of its calls, added up.")
    return said + shown


def _figures(now: Mapping[str, Any], earlier: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for name, path, show in _FIGURES:
        one, other = figure(now, *path), figure(earlier, *path)
        if one is not None or other is not None:
            yield name, _said(one, show), _said(other, show), change(one, other, show)
    one, other = figure(now, "cost", "money"), figure(earlier, "cost", "money")
    currency = _name(now.get("cost"), "currency")
    if one is not None and other is not None and currency == _name(earlier.get("cost"), "currency"):

        def shown(value: float) -> str:
            return money(value, currency)

        yield "cost", shown(one), shown(other), change(one, other, shown)


def _steps(now: Mapping[str, Any], earlier: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    before = {_name(step, "step"): step for step in _list(earlier, "steps")}
    for step in _list(now, "steps")[:MOST_STEPS]:
        other = before.get(_name(step, "step"))
        if other is None:
            continue
        cells: list[str] = []
        for key, show in (("calls", _whole), ("hit_rate", share), ("seconds", seconds)):
            cells += [_said(figure(step, key), show), _said(figure(other, key), show)]
        yield _name(step, "step"), *cells, change(figure(step, "seconds"), figure(other, "seconds"), seconds)


def change(now: float | None, earlier: float | None, show: _Show) -> str:
    """How far a figure went from the earlier one, and by what part of it; shares in points."""
    if now is None or earlier is None:
        return "-"
    by = now - earlier
    if show is share:
        return f"{by * 100:+.1f} points" if abs(by) >= 0.0005 else "same"
    if not by:
        return "same"
    told = f"{'+' if by > 0 else '-'}{show(abs(by))}"
    return f"{told} ({by / earlier:+.1%})" if earlier else told


def _said(value: float | None, show: _Show) -> str:
    return "-" if value is None else show(value)


def figure(report: Any, *path: str) -> float | None:
    """A number in a report; None where there is none, or none that can be of a run."""
    for key in path:
        report = report.get(key) if isinstance(report, Mapping) else None
    if isinstance(report, bool) or not isinstance(report, int | float):
        return None
    return float(report) if abs(report) < _MOST and isfinite(report) else None


def _name(report: Any, key: str) -> str:
    found = report.get(key) if isinstance(report, Mapping) else None
    return found[:200] if isinstance(found, str) else "-"


def _list(report: Mapping[str, Any], key: str) -> list[Any]:
    found = report.get(key)
    return found if isinstance(found, list) else []
