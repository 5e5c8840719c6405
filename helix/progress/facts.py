"""The measures of a run in words, the most important ones first, so that what has no room can be left out."""

from __future__ import annotations

from math import floor, log10

from helix.progress.measures import Measures, State
from helix.progress.words import clean, clock, count, short
from helix.results import StepReport

_WAITS: dict[State, str] = {
    "known": "going on with an earlier run: ",
    "tools": "waiting ",
    "memory": "waiting: ",
    "paused": "waiting: ",
    "outage": "",
    "stopping": "stopping: ",
}


def row_facts(measures: Measures) -> list[str]:
    """How far the rows are."""
    of = "" if measures.rows is None else f" of {measures.rows:,}"
    facts = [f"{measures.done:,}{of}"]
    if measures.failed:
        facts.append(f"{measures.failed:,} failed")
    if measures.known:
        facts.append(f"{measures.known:,} known before")
    return facts


def phase_facts(measures: Measures) -> list[str]:
    """How far the phase at work is, in a plan of several."""
    if measures.phases == 1 or measures.phase == 1:
        return []
    of = "" if measures.phase_rows is None else f" of {measures.phase_rows:,}"
    return [f"{measures.phase} of {measures.phases}", f"{measures.phase_done:,}{of} done"]


def time_facts(measures: Measures) -> list[str]:
    """How long it has taken, will take, and what it costs."""
    facts = [clock(measures.seconds)]
    if measures.left:
        within = " of this phase" if measures.phases > 1 else ""
        facts.append(f"about {clock(measures.left)} left{within}")
    if measures.cost is not None:
        facts.append(money(measures.cost, measures.currency))
    return facts


def call_facts(measures: Measures) -> list[str]:
    """What calls there were and are."""
    facts = [f"{measures.calls:,} made"]
    for number, what in (
        (measures.in_flight, "in flight"),
        (measures.merged, "merged"),
        (measures.fetched, "fetched"),
        (measures.queued, "in line"),
        (measures.retries, "made again"),
    ):
        if number:
            facts.append(f"{number:,} {what}")
    return facts


def token_facts(measures: Measures) -> list[str]:
    """How fast tokens come, and how many were cached."""
    facts = []
    if measures.completion_rate is not None and measures.prompt_rate is not None:
        facts += [f"{short(measures.completion_rate)}/s generated", f"{short(measures.prompt_rate)}/s of prompts"]
    if measures.hit_rate is not None:
        facts.append(f"hit rate {measures.hit_rate:.0%}")
    return facts


def step_facts(step: StepReport) -> list[str]:
    """What one step has done."""
    facts = [f"{step.done:,} done"]
    for number, what in (
        (step.failed, "failed"),
        (step.merged, "merged"),
        (step.fetched, "fetched"),
        (step.retries, "made again"),
        (step.tool_calls, "calls of tools"),
    ):
        if number:
            facts.append(f"{number:,} {what}")
    if step.completion_tokens:
        facts.append(f"{count(step.completion_tokens, 'token')} generated")
    return facts


def waiting(measures: Measures) -> str | None:
    """What the run waits for; None where it runs."""
    if measures.why is None:
        return None
    return " ".join(clean(_WAITS[measures.state] + measures.why).split())


def money(amount: float, currency: str | None) -> str:
    """An amount of money; small ones keep two digits that say something."""
    places = 2 if amount >= 0.1 or amount <= 0 else 1 - floor(log10(amount))
    shown = f"{amount:,.{places}f}"
    return f"{shown} {currency}" if currency else shown
