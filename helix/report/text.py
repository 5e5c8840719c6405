"""Measures as a few lines for the end of a run."""

from __future__ import annotations

from collections.abc import Iterator

from helix.report.measures import AgentFigures, Phase, RunMeasures
from helix.report.speculation import speculation_lines

# A step that is told by name, if it is among the first.
STEPS_SHOWN = 6


def measures_text(measures: RunMeasures) -> str:
    """The lines, joined; what nothing tells is left out or said to be untold."""
    guesses = [] if measures.speculation is None else speculation_lines(measures.speculation)
    return "\n".join([*_lines(measures), *guesses])


def _lines(measures: RunMeasures) -> Iterator[str]:
    tokens = measures.tokens
    if not measures.llm_calls:
        yield from _without(measures)
        return
    yield f"makespan {seconds(measures.makespan)}, planning {seconds(measures.plan_seconds)}"
    if tokens.untold:
        yield f"prefilled tokens: not told by {tokens.untold:,} of {measures.llm_calls:,} replies"
    else:
        warm = f", {measures.warmup_tokens:,} of them by {measures.warmups:,} warm-ups" if measures.warmups else ""
        rate = share(tokens.hit_rate)
        yield f"prefilled {measures.prefilled:,} of {tokens.prompt:,} prompt tokens{warm}; hit rate {rate}"
    by_step = [step for step in measures.steps if step.kind == "llm" and step.tokens.hit_rate is not None]
    if len(by_step) > 1:
        shown = ", ".join(f"{step.step} {share(step.tokens.hit_rate)}" for step in by_step[:STEPS_SHOWN])
        yield f"hit rate by step: {shown}{', ...' if len(by_step) > STEPS_SHOWN else ''}"
    for step in measures.steps:
        if step.agent is not None:
            yield f"agent {step.step}: {_agent(step.agent)}"
    phases = [phase for phase in measures.phases if phase.tokens.hit_rate is not None]
    if phases:
        yield f"hit rate by phase: {', '.join(map(_phase, phases))}"
    prefixes = measures.prefixes
    some = ""
    if prefixes is not None and prefixes.calls != prefixes.all_calls:
        some = f", of the first {prefixes.calls:,} calls"
    if prefixes is not None and prefixes.amplification is not None:
        how = "" if prefixes.exact else ", estimated from bytes"
        how += "" if prefixes.amplification >= 1 else "; the cache held the rest from before"
        yield f"distinct prefixes {prefixes.p_min:,.0f} tokens; prefilled {prefixes.amplification:.2f} times{some}{how}"
    yield from _bound(measures, some)
    if len(measures.ranks) > 1:
        shown = ", ".join(
            f"{rank.rank}: {rank.calls:,} calls, {share(rank.tokens.hit_rate)}" for rank in measures.ranks
        )
        yield f"ranks by calls and hit rate: {shown}"
    yield from _without(measures)


def _bound(measures: RunMeasures, some: str) -> Iterator[str]:
    bounds, over = measures.bounds, measures.over_bound
    if bounds is None or over is None:
        return
    if over < 1:
        yield f"lower bound not told: the run was faster than {bounds.engine_name} can be"
        return
    kind = "estimated lower bound" if bounds.estimated else "lower bound"
    told = f"{bounds.binder} binds; times of {bounds.engine_name}"
    yield f"{kind} {seconds(bounds.lower_bound)} ({told}), makespan {over:.2f} times{some}"


def _agent(agent: AgentFigures) -> str:
    told = f"{agent.turns:,} turns, {agent.tool_calls:,} calls of tools"
    told += f", {agent.tool_errors:,} of them without a result" if agent.tool_errors else ""
    return told + (f"; {agent.at_limit:,} at a limit" if agent.at_limit else "")


def _phase(phase: Phase) -> str:
    return f"{phase.name} {share(phase.tokens.hit_rate)}"


def _without(measures: RunMeasures) -> Iterator[str]:
    without = measures.without
    calls = f"{without.calls:,} calls"
    if without.tool_calls:
        calls += f" and {without.tool_calls:,} of tools"
    said = f"without Helix: {calls}, {without.prompt_tokens:,} prompt tokens, {without.generated_tokens:,} generated"
    said += f" ({without.basis})"
    if without.by_rules > 1.005:
        said += f", times {without.by_rules:.2f} for what the rules took out (estimated)"
    yield said


def share(value: float | None) -> str:
    """A share in percent, or that it is not told."""
    return "not told" if value is None else f"{value:.0%}"


def seconds(value: float) -> str:
    """A time, with as many digits as it deserves."""
    return f"{value:,.0f} s" if value >= 100 else f"{value:.1f} s" if value >= 1 else f"{value:.2g} s"
