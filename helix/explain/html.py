"""The report as a page: HTML and its style in one file, without scripts and without anything from elsewhere.

`report_page` is a whole document, `report_fragment` the part of it that a notebook shows in a cell.
"""

from __future__ import annotations

from helix.explain.figures import Figure, cost_title, counted_rows, figures, notes, number, savings, seconds
from helix.explain.html_plan import plan_columns
from helix.explain.html_tree import tree_outline
from helix.explain.report import ExplainReport, Measured, RuleFired
from helix.explain.schedule import phases_of, rank_entries, schedule_notes, title, worth_telling
from helix.explain.text import measured_notes, measured_rows
from helix.optimizer.cost import Cost
from helix.page import document, listed, section, style, table, text
from helix.physical import PhysicalPlan
from helix.summary import plan_summary

_TILES = ("llm calls", "tool calls", "prompt tokens", "cached at best", "generated tokens", "seconds")


def report_page(report: ExplainReport) -> str:
    """The page, ending in a line break."""
    return document(f"{report.name}: plan and cost", report_fragment(report))


def report_fragment(report: ExplainReport) -> str:
    """The report as an element with its style."""
    parts = [
        f"<style>{style()}</style>",
        _header(report),
        "".join(f'<p class="warning" role="note">warning: {text(each)}</p>' for each in report.warnings),
        section("Rules", _rules(report)),
        section("Plan" if not report.changed else "Plan before and after", _plan(report)),
    ]
    if report.tree.ops:
        parts.append(section("Prompts", tree_outline(report)))
    if worth_telling(report.physical):
        parts.append(section("Schedule", _schedule(report.physical)))
    parts.append(section(cost_title(report), _costs(report)))
    if report.measured is not None:
        parts.append(section("Measured", _measured(report.measured)))
    return f'<div class="hx">{"".join(parts)}</div>'


# --- head ---------------------------------------------------------------------------------------------------------


def _header(report: ExplainReport) -> str:
    of = "one row" if report.table is None else counted_rows(report)
    tiles = "".join(_tile(figure) for figure in figures(report) if figure.name in _TILES and not figure.nothing)
    about = f"What will be asked of engines and tools, estimated for {of}."
    return (
        f'<header><h1>{text(report.name)}</h1><p class="quiet">{text(about)}</p>'
        f"{f'<ul class=tiles>{tiles}</ul>' if tiles else ''}</header>"
    )


def _tile(figure: Figure) -> str:
    before = f'<s aria-label="before the rules {figure.plain}">{figure.plain}</s>' if figure.saving else ""
    saving = f"<em>{figure.saving} less</em>" if figure.saving and not figure.saving.startswith("-") else ""
    return f"<li><span>{text(figure.name)}</span>{before}<b>{figure.optimized}</b>{saving}</li>"


# --- rules and plans ----------------------------------------------------------------------------------------------


def _rules(report: ExplainReport) -> str:
    parts: list[str] = []
    if report.fired:
        parts.append(f'<div class="rules">{"".join(_rule(rule) for rule in report.fired)}</div>')
    else:
        parts.append("<p>No rule applies: the plan is run as it is written.</p>")
    if report.idle:
        names = ", ".join(f"<code>{text(name)}</code>" for name in report.idle)
        parts.append(f'<p class="quiet">Changed nothing: {names}</p>')
    return "".join(parts)


def _rule(rule: RuleFired) -> str:
    did = "; ".join(change.text() for change in rule.changes)
    saves = "".join(
        f'<span class="chip{"" if saving.less else " more"}">{text(saving.text)}</span>'
        for saving in savings(rule.before, rule.after)
    )
    lossy = "May change answers. " if rule.lossy else ""
    facts = [
        ("did", "<ul>" + "".join(f"<li>{text(change.text(None))}</li>" for change in rule.changes) + "</ul>"),
        ("law", f"<code>{text(rule.law)}</code>"),
        ("sound", text(rule.sound)),
        ("pays", text(rule.pays)),
    ]
    shown = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in facts if text)
    return (
        f'<details><summary><code>{text(rule.name)}</code><span class="did">{lossy}{text(did)}</span>'
        f'<span class="saves">{saves}</span></summary><dl>{shown}</dl></details>'
    )


def _plan(report: ExplainReport) -> str:
    facts = [fact for fact in plan_summary(report.plan).splitlines() if fact]
    return plan_columns(report) + listed(facts, "facts")


# --- figures ------------------------------------------------------------------------------------------------------


def _costs(report: ExplainReport) -> str:
    found = figures(report)
    if all(figure.nothing for figure in found):
        return "<p>No calls.</p>"
    if report.changed:
        rows = [(figure.name, figure.plain, figure.optimized, figure.saving) for figure in found]
        shown = table(("", "plain", "optimized", "saved"), rows)
    else:
        shown = table(("", "estimate"), [(figure.name, figure.plain) for figure in found])
    return shown + listed(notes(report), "notes") + _by_step(report.costs.optimized) + _bounds(report)


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
    wanted = table(("setting", "value", "why"), [(each.flag, each.value, each.why) for each in plan.advice])
    return (
        table(heads, rows, f"In the order of release {title(plan)}.")
        + listed([*ahead, *placed], "facts")
        + listed(schedule_notes(plan), "notes")
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
    return f'<details class="more"><summary>By step</summary>{table(heads, rows)}</details>'


def _bounds(report: ExplainReport) -> str:
    bounds = report.costs.optimized.bounds
    if not bounds.lower_bound:
        return ""
    rows = [(name, f"{seconds(value)} s") for name, value in bounds.all]
    about = f"Estimated lower bounds of the time on {bounds.engine_name}; {bounds.binder} is the largest."
    return f'<details class="more"><summary>Bounds</summary>{table(("bound", "time"), rows, about)}</details>'


def _measured(measured: Measured) -> str:
    heads, *rows = measured_rows(measured)
    plan = "optimized" if measured.optimized else "plain"
    about = f"Run on {measured.engine}, the {plan} plan."
    return table(heads, rows, about) + listed(measured_notes(measured), "notes")
