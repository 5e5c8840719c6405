"""The report as a page: HTML and its style in one file, without scripts and without anything from elsewhere.

`report_page` is a whole document, `report_fragment` the part of it that a notebook shows in a cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from pathlib import Path

from helix.explain.figures import Figure, cost_title, counted_rows, figures, notes, number, savings, seconds
from helix.explain.html_plan import plan_columns
from helix.explain.html_tree import tree_outline
from helix.explain.report import ExplainReport, Measured, RuleFired
from helix.explain.schedule import phases_of, rank_entries, schedule_notes, title, worth_telling
from helix.explain.text import measured_notes, measured_rows
from helix.optimizer.cost import Cost
from helix.physical import PhysicalPlan
from helix.progress import clean
from helix.summary import plan_summary

_TILES = ("llm calls", "tool calls", "prompt tokens", "cached at best", "generated tokens", "seconds")


def report_page(report: ExplainReport) -> str:
    """The page, ending in a line break."""
    head = (
        '<meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{_text(report.name)}: plan and cost</title>"
        "<style>body { margin: 0; background: #ffffff; }"
        " @media (prefers-color-scheme: dark) { body { background: #12161b; } }</style>"
    )
    body = f"<main>{report_fragment(report)}</main>"
    return f'<!doctype html>\n<html lang="en">\n<head>{head}</head>\n<body>{body}</body>\n</html>\n'


def report_fragment(report: ExplainReport) -> str:
    """The report as an element with its style."""
    parts = [
        f"<style>{_style()}</style>",
        _header(report),
        "".join(f'<p class="warning" role="note">warning: {_text(each)}</p>' for each in report.warnings),
        _section("Rules", _rules(report)),
        _section("Plan" if not report.changed else "Plan before and after", _plan(report)),
    ]
    if report.tree.ops:
        parts.append(_section("Prompts", tree_outline(report)))
    if worth_telling(report.physical):
        parts.append(_section("Schedule", _schedule(report.physical)))
    parts.append(_section(cost_title(report), _costs(report)))
    if report.measured is not None:
        parts.append(_section("Measured", _measured(report.measured)))
    return f'<div class="hx">{"".join(parts)}</div>'


@cache
def _style() -> str:
    return Path(__file__).with_name("page.css").read_text(encoding="utf-8")


def _text(text: str) -> str:
    return escape(clean(text))


def _section(title: str, content: str) -> str:
    return f"<section><h2>{_text(title)}</h2>{content}</section>"


def _listed(items: Iterable[str], kind: str) -> str:
    shown = "".join(f"<li>{_text(item)}</li>" for item in items)
    return f'<ul class="{kind}">{shown}</ul>' if shown else ""


# --- head ---------------------------------------------------------------------------------------------------------


def _header(report: ExplainReport) -> str:
    of = "one row" if report.table is None else counted_rows(report)
    tiles = "".join(_tile(figure) for figure in figures(report) if figure.name in _TILES and not figure.nothing)
    about = f"What will be asked of engines and tools, estimated for {of}."
    return (
        f'<header><h1>{_text(report.name)}</h1><p class="quiet">{_text(about)}</p>'
        f"{f'<ul class=tiles>{tiles}</ul>' if tiles else ''}</header>"
    )


def _tile(figure: Figure) -> str:
    before = f'<s aria-label="before the rules {figure.plain}">{figure.plain}</s>' if figure.saving else ""
    saving = f"<em>{figure.saving} less</em>" if figure.saving and not figure.saving.startswith("-") else ""
    return f"<li><span>{_text(figure.name)}</span>{before}<b>{figure.optimized}</b>{saving}</li>"


# --- rules and plans ----------------------------------------------------------------------------------------------


def _rules(report: ExplainReport) -> str:
    parts: list[str] = []
    if report.fired:
        parts.append(f'<div class="rules">{"".join(_rule(rule) for rule in report.fired)}</div>')
    else:
        parts.append("<p>No rule applies: the plan is run as it is written.</p>")
    if report.idle:
        names = ", ".join(f"<code>{_text(name)}</code>" for name in report.idle)
        parts.append(f'<p class="quiet">Changed nothing: {names}</p>')
    return "".join(parts)


def _rule(rule: RuleFired) -> str:
    did = "; ".join(change.text() for change in rule.changes)
    saves = "".join(
        f'<span class="chip{"" if saving.less else " more"}">{_text(saving.text)}</span>'
        for saving in savings(rule.before, rule.after)
    )
    lossy = "May change answers. " if rule.lossy else ""
    facts = [
        ("did", "<ul>" + "".join(f"<li>{_text(change.text(None))}</li>" for change in rule.changes) + "</ul>"),
        ("law", f"<code>{_text(rule.law)}</code>"),
        ("sound", _text(rule.sound)),
        ("pays", _text(rule.pays)),
    ]
    shown = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in facts if text)
    return (
        f'<details><summary><code>{_text(rule.name)}</code><span class="did">{lossy}{_text(did)}</span>'
        f'<span class="saves">{saves}</span></summary><dl>{shown}</dl></details>'
    )


def _plan(report: ExplainReport) -> str:
    facts = [fact for fact in plan_summary(report.plan).splitlines() if fact]
    return plan_columns(report) + _listed(facts, "facts")


# --- figures ------------------------------------------------------------------------------------------------------


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    head = "".join(f'<th scope="col">{_text(name)}</th>' for name in heads)
    saved = heads.index("saved") if "saved" in heads else -1
    body = "".join(
        f'<tr><th scope="row">{_text(row[0])}</th>'
        + "".join(
            f"<td{' class=saved' if place == saved else ''}>{_text(text)}</td>"
            for place, text in enumerate(row[1:], start=1)
        )
        + "</tr>"
        for row in rows
    )
    said = f'<p class="quiet">{_text(caption)}</p>' if caption else ""
    return (
        f'{said}<div class="wide" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _costs(report: ExplainReport) -> str:
    found = figures(report)
    if all(figure.nothing for figure in found):
        return "<p>No calls.</p>"
    if report.changed:
        rows = [(figure.name, figure.plain, figure.optimized, figure.saving) for figure in found]
        shown = _table(("", "plain", "optimized", "saved"), rows)
    else:
        shown = _table(("", "estimate"), [(figure.name, figure.plain) for figure in found])
    return shown + _listed(notes(report), "notes") + _by_step(report.costs.optimized) + _bounds(report)


def _schedule(plan: PhysicalPlan) -> str:
    """The steps in the order of release, what each rank takes, and the settings wanted of the engine."""
    heads = ("step", "phase", "calls", "prompt tokens", "its own", "tokens a reply", "seconds to the end")
    rows = [
        (
            step.step,
            str(number_ + 1),
            number(step.calls),
            number(step.prompt_tokens),
            number(step.private_tokens),
            number(step.output_tokens),
            seconds(step.rank_up),
        )
        for number_, steps in enumerate(phases_of(plan))
        for step in steps
    ]
    ranks = [entry for entry in rank_entries(plan) if entry.facts]
    placed = [f"{entry.text}: {', '.join(entry.facts)}" for entry in ranks]
    ahead = [f"computed ahead: {each.text} ({number(each.tokens)} tokens)" for each in plan.warm]
    wanted = _table(("setting", "value", "why"), [(each.flag, each.value, each.why) for each in plan.advice])
    return (
        _table(heads, rows, f"In the order of release {title(plan)}.")
        + _listed([*ahead, *placed], "facts")
        + _listed(schedule_notes(plan), "notes")
        + f'<details class="more"><summary>Wanted of an SGLang server</summary>{wanted}</details>'
    )


def _by_step(cost: Cost) -> str:
    if not cost.steps:
        return ""
    heads = ("step", "calls", "merged", "prompt tokens", "cached at best", "generated tokens", "tokens a reply", "from")
    rows = [
        (
            step.step,
            number(step.calls),
            number(step.merged),
            number(step.prompt_tokens),
            number(step.cached_tokens),
            number(step.output_tokens),
            number(step.output),
            step.output_source,
        )
        for step in cost.steps
    ]
    return f'<details class="more"><summary>By step</summary>{_table(heads, rows)}</details>'


def _bounds(report: ExplainReport) -> str:
    bounds = report.costs.optimized.bounds
    if not bounds.lower_bound:
        return ""
    rows = [(name, f"{seconds(value)} s") for name, value in bounds.all]
    about = f"Estimated lower bounds of the time on {bounds.engine_name}; {bounds.binder} is the largest."
    return f'<details class="more"><summary>Bounds</summary>{_table(("bound", "time"), rows, about)}</details>'


def _measured(measured: Measured) -> str:
    heads, *rows = measured_rows(measured)
    plan = "optimized" if measured.optimized else "plain"
    about = f"Run on {measured.engine}, the {plan} plan."
    return _table(heads, rows, about) + _listed(measured_notes(measured), "notes")
