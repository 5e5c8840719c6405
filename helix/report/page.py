"""The report of a run as a page: HTML, its style, its plots and its figures as data in one file, without scripts that
run and without anything from elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from helix.page import document, facts, listed, section, table, text
from helix.page import style as page_style
from helix.plots import style as plot_style
from helix.report.detail import Detail
from helix.report.measures import RunMeasures, StepFigures, TokenFigures
from helix.report.page_compare import comparison
from helix.report.page_data import data_block
from helix.report.page_plots import over_time
from helix.report.page_rows import Room, failed_rows, slow_rows
from helix.report.speculation import speculation_lines
from helix.report.text import share
from helix.report.words import money, number, seconds

# Steps and ranks that a table shows, lines of a plan, and notes.
MOST_ROWS = 200
MOST_LINES = 400
MOST_NOTES = 100


def run_page(measures: RunMeasures, earlier: Mapping[str, Any] | None = None) -> str:
    """The page, ending in a line break. `earlier` is the JSON of the report to compare with."""
    return document(f"{measures.workflow}: run report", run_fragment(measures, earlier, data=True))


def run_fragment(measures: RunMeasures, earlier: Mapping[str, Any] | None = None, *, data: bool = False) -> str:
    """The report as an element with its style; with `data` its figures stand in it, for a later run to compare with."""
    detail = measures.detail
    parts = [f"<style>{page_style()}{plot_style()}{_style()}</style>", _header(measures)]
    if earlier is not None:
        parts.append(section("Compared with an earlier run", comparison(measures.to_json(), earlier)))
    if detail is not None and detail.calls:
        parts.append(section("Over time", over_time(measures, detail)))
    if measures.steps:
        parts.append(section("Steps", _steps(measures.steps)))
    if measures.ranks:
        parts.append(section("Ranks", _ranks(measures)))
    parts.append(section("What it took", facts(_took(measures))))
    parts.append(section("Lower bound", _bounds(measures)))
    if detail is not None:
        parts.append(section("Plan", _plan(detail)))
        # The rows that failed come first where the page has no room for all texts.
        room = Room()
        failed = failed_rows(measures, detail, room)
        if failed:
            parts.append(section("Rows that failed", failed))
        slow = slow_rows(detail, room)
        if slow:
            parts.append(section("Slowest rows", slow))
    notes = list(dict.fromkeys(_notes(measures)))
    if len(notes) > MOST_NOTES:
        notes[MOST_NOTES:] = [f"... {len(notes) - MOST_NOTES:,} more"]
    if notes:
        parts.append(section("Notes", listed(notes, "notes")))
    if data:
        parts.append(data_block(measures.to_json()))
    return f'<div class="hx run">{"".join(parts)}</div>'


@cache
def _style() -> str:
    return Path(__file__).with_name("page.css").read_text(encoding="utf-8")


# --- head ---------------------------------------------------------------------------------------------------------


def _header(measures: RunMeasures) -> str:
    shown = "".join(f"<li><span>{text(name)}</span><b>{text(value)}</b></li>" for name, value in _tiles(measures))
    about = f"on {measures.engine}, calls released by the policy {measures.policy or '-'}"
    warnings = [
        f"stopped early: {measures.stopped}" if measures.stopped else "",
        "interrupted: the rest of the rows was not run" if measures.outcome == "interrupted" else "",
        f"{number(measures.failed_rows, 'row')} failed" if measures.failed_rows else "",
    ]
    said = "".join(f'<p class="warning" role="note">{text(each)}</p>' for each in warnings if each)
    return (
        f'<header><h1>{text(measures.workflow)}</h1><p class="quiet">The report of a run {text(about)}.</p>{said}'
        f'<ul class="tiles">{shown}</ul></header>'
    )


def _tiles(measures: RunMeasures) -> Iterator[tuple[str, str]]:
    yield "rows", f"{measures.output_rows:,}"
    yield "rows failed", f"{measures.failed_rows:,}"
    yield "calls made", f"{measures.llm_calls + measures.tool_calls:,}"
    yield "calls merged", f"{measures.merged:,}"
    yield "calls fetched", f"{measures.fetched:,}"
    yield "prompt tokens", number(measures.tokens.prompt)
    yield "generated tokens", number(measures.tokens.generated)
    yield "hit rate", share(measures.tokens.hit_rate)
    yield "makespan", seconds(measures.makespan)
    bounds = measures.bounds
    if bounds is not None and (measures.over_bound or 0) >= 1:
        yield f"lower bound ({bounds.binder})", seconds(bounds.lower_bound)
    if measures.cost is not None:
        yield "cost", money(measures.cost.money, measures.cost.currency)


# --- tables -------------------------------------------------------------------------------------------------------

_TOKEN_HEADS = ("prompt", "prefilled", "generated", "hit rate")


def _tokens(tokens: TokenFigures) -> tuple[str, ...]:
    fresh = "not told" if tokens.prefilled is None else f"{tokens.prefilled:,}"
    rate = share(tokens.hit_rate) if tokens.prompt or tokens.untold else "-"
    return f"{tokens.prompt:,}", fresh, f"{tokens.generated:,}", rate


def _steps(steps: Sequence[StepFigures]) -> str:
    heads = ("step", "kind", "calls", "failed", "merged", "fetched", *_TOKEN_HEADS, "in calls", "a call", "held")
    rows = [
        (
            step.step,
            step.kind,
            *(f"{value:,}" for value in (step.calls, step.failed, step.merged, step.fetched)),
            *(_tokens(step.tokens) if step.kind == "llm" else ("-",) * len(_TOKEN_HEADS)),
            seconds(step.seconds),
            seconds(step.seconds / step.calls) if step.calls else "-",
            seconds(step.held),
        )
        for step in steps[:MOST_ROWS]
    ]
    shown = table(heads, rows, "Seconds are those of the calls added up; held is the time before they were sent.")
    if len(steps) > MOST_ROWS:
        shown += f'<p class="quiet">{number(len(steps) - MOST_ROWS, "more step")} left out.</p>'
    agents = [
        (
            step.step,
            *(f"{v:,}" for v in (step.agent.turns, step.agent.tool_calls, step.agent.tool_errors, step.agent.at_limit)),
            seconds(step.agent.tool_seconds),
        )
        for step in steps[:MOST_ROWS]
        if step.agent is not None
    ]
    if agents:
        about = "What agents did. Errors are calls of tools without a result."
        shown += table(("agent", "turns", "calls of tools", "errors", "at a limit", "in tools"), agents, about)
    return shown


def _ranks(measures: RunMeasures) -> str:
    rows = [
        (
            f"rank {rank.rank}",
            f"{rank.calls:,}",
            *_tokens(rank.tokens),
            seconds(rank.busy),
            share(rank.busy / measures.makespan) if measures.makespan else "-",
        )
        for rank in measures.ranks[:MOST_ROWS]
    ]
    about = "Busy is the time in which a rank had at least one call, and its share of the makespan."
    return table(("rank", "calls", *_TOKEN_HEADS, "busy", "of the makespan"), rows, about)


def _took(measures: RunMeasures) -> Iterator[tuple[str, str]]:
    yield "makespan", f"{seconds(measures.makespan)}, after {seconds(measures.plan_seconds)} of planning"
    yield "calls", _calls(measures)
    tokens = measures.tokens
    if measures.llm_calls:
        fresh = "not told" if measures.prefilled is None else f"{measures.prefilled:,}"
        warm = f", {measures.warmup_tokens:,} of them by {number(measures.warmups, 'warm-up')}"
        yield "prefilled tokens", f"{fresh} of {tokens.prompt:,}{warm if measures.warmups else ''}"
    for phase in measures.phases:
        if phase.tokens.hit_rate is not None:
            when = f"from {seconds(phase.begins)} to {seconds(phase.ends)}"
            yield f"hit rate, {phase.name}", f"{share(phase.tokens.hit_rate)} of {number(phase.calls, 'call')} {when}"
    prefixes = measures.prefixes
    if prefixes is not None:
        said = f"{prefixes.p_min:,.0f} tokens"
        if prefixes.amplification is not None:
            said += f"; prefilled {prefixes.amplification:.2f} times"
        said += f", of the first {prefixes.calls:,} calls" if prefixes.calls != prefixes.all_calls else ""
        yield "distinct prefixes", said + ("" if prefixes.exact else ", estimated from bytes")
    shares = measures.shares
    if shares.prefill is not None:
        yield "prefill", f"{share(shares.prefill)} of the engine's work ({shares.prefill_basis})"
    if shares.held is not None:
        queued = "" if shares.queued is None else f", {share(shares.queued)} in the engine's queue"
        yield "waiting", f"{share(shares.held)} of the calls' time before they were sent{queued}"
    if measures.tool_calls:
        yield (
            "tools",
            f"ran in {share(shares.tools)} of the makespan, in {share(shares.exposed_tools)} without llm calls",
        )
    if measures.cost is not None:
        cost = measures.cost
        said = money(cost.money, cost.currency) + ("" if cost.cached_told else ", no prompt token taken as cached")
        yield "cost", f"{said}; without Helix {money(cost.without, cost.currency)}"
    without = measures.without
    more = f" and {without.tool_calls:,} of tools" if without.tool_calls else ""
    said = f"{without.calls:,} calls{more}, {without.prompt_tokens:,} prompt tokens"
    said += f", {without.generated_tokens:,} generated ({without.basis})"
    if without.by_rules > 1.005:
        said += f", times {without.by_rules:.2f} for what the rules took out (estimated)"
    yield "without Helix", said


def _calls(measures: RunMeasures) -> str:
    parts = [number(measures.llm_calls, "llm call"), number(measures.tool_calls, "call") + " of tools"]
    named = (
        (measures.failed_calls, "failed"),
        (measures.merged, "merged with an equal one"),
        (measures.fetched, "known from before"),
        (measures.retries, "retries"),
        (measures.reasks, "re-asks"),
    )
    return ", ".join(parts + [f"{value:,} {name}" for value, name in named if value])


def _bounds(measures: RunMeasures) -> str:
    bounds, over = measures.bounds, measures.over_bound
    if bounds is None or not over:
        return '<p class="quiet">Not told: it takes the prompts of one model, and an answer to them.</p>'
    rows = [(name, seconds(value), "binds" if name == bounds.binder else "") for name, value in bounds.all]
    kind = "estimated" if bounds.estimated else "exact"
    about = f"What no schedule can beat with an empty cache, by the times of {bounds.engine_name} ({kind})."
    if over >= 1:
        said = f"The makespan of {seconds(measures.makespan)} is {over:.2f} times the largest, {bounds.binder}."
    else:
        said = "The run was faster than this engine can be: the bounds say nothing of the one that was used."
    prefixes = measures.prefixes
    if prefixes is not None and prefixes.calls != prefixes.all_calls:
        said += f" The bounds are of the first {prefixes.calls:,} of {prefixes.all_calls:,} calls."
    return table(("bound", "at least", ""), rows, about) + f"<p>{text(said)}</p>"


# --- plan and notes -----------------------------------------------------------------------------------------------


def _plan(detail: Detail) -> str:
    lines = detail.plan.splitlines()
    more = (
        f'<p class="quiet">{len(lines) - MOST_LINES:,} more lines are left out.</p>' if len(lines) > MOST_LINES else ""
    )
    plan = "".join(f"<span>{text(line)}</span>" for line in lines[:MOST_LINES])
    shown = f'<div class="plans one"><pre class="plan" tabindex="0" aria-label="The plan">{plan}</pre></div>{more}'
    if len(detail.compared) > 1:
        heads, *rows = detail.compared
        about = "What was estimated of each step before the run, and what was measured. Tokens are of the calls made."
        shown += f'<h3 class="below">Estimated and measured</h3>{table(heads, rows[: 2 * MOST_ROWS], about)}'
        if len(rows) > 2 * MOST_ROWS:
            shown += f'<p class="quiet">{len(rows) - 2 * MOST_ROWS:,} more lines are left out.</p>'
    return shown


def _notes(measures: RunMeasures) -> Iterator[str]:
    yield from measures.notes
    if measures.speculation is not None:
        yield from speculation_lines(measures.speculation)
    if measures.tokens.untold:
        yield f"{measures.tokens.untold:,} replies do not tell how much of their prompt was cached"
    if measures.cost is not None:
        yield f"prices of a million tokens: {measures.cost.prices}"
