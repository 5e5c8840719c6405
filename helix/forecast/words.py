"""How figures of a forecast are written, the same as text and on a page."""

from __future__ import annotations

from collections.abc import Iterator

from helix.forecast.measures import Deployment, Forecast, Phase, Trial

_UNITS = ((172_800.0, 86_400.0, "d"), (7200.0, 3600.0, "h"), (600.0, 60.0, "min"))


def seconds(value: float) -> str:
    """A time with three digits: 0.42 s, 12.3 s, 345 s, 12.5 min, 3.4 h."""
    for least, size, unit in _UNITS:
        if value >= least:
            return f"{value / size:.1f} {unit}"
    return f"{value:,.0f} s" if value >= 100 else f"{value:.1f} s" if value >= 10 else f"{value:.2g} s"


def percent(value: float | None) -> str:
    """A share; `-` where there is none."""
    return "-" if value is None else f"{value:.1%}"


def times(value: float | None) -> str:
    """A ratio; `-` where there is none."""
    return "-" if value is None else f"{value:.2f}"


def money(value: float | None, currency: str) -> str:
    """An amount; `-` where there is none."""
    if value is None:
        return "-"
    return f"{value:,.2f} {currency}" if value >= 1 else f"{value:.2g} {currency}"


def hours(value: float) -> str:
    """GPU hours."""
    return f"{value:,.1f} h" if value >= 10 else f"{value:.2g} h"


def facts(forecast: Forecast) -> Iterator[tuple[str, str]]:
    """What there is to say of the optimized plan, each with its name."""
    trial = forecast.optimized
    where = trial.deployment
    yield "makespan", makespan(trial)
    bounds = trial.bounds
    if bounds is not None and bounds.lower_bound:
        each = ", ".join(f"{name} {seconds(value)}" for name, value in bounds.all if value)
        yield "lower bound", f"{seconds(bounds.lower_bound)}, {bounds.binder} binds ({each})"
    spent = money(forecast.money(trial), forecast.currency)
    priced = "" if spent == "-" else f", {spent} at {forecast.prices[where.gpu or '']:g} for an hour of a GPU"
    yield "GPU time", f"{hours(trial.gpu_hours)} on {count(where.gpus, 'GPU')}{priced}"
    made = f"{trial.calls:,}" + (f", {trial.merged:,} more merged" if trial.merged else "")
    made += f", {count(trial.warmups, 'warm-up')}" if trial.warmups else ""
    made += f", {count(trial.tools, 'call')} of tools" if trial.tools else ""
    yield "calls", made
    yield "tokens", f"{trial.prompt:,} of prompts, {trial.prefilled:,} prefilled, {trial.generated:,} generated"
    yield "hit rate", f"{percent(trial.hit_rate)}: {', '.join(phase(each) for each in trial.phases)}"
    yield "ranks", ranks(trial)
    yield "KV cache", f"{where.kv_tokens:,} tokens a rank, locked to {percent(trial.peak_locked)} at most"
    held = [f"{trial.retractions:,} retracted"] if trial.retractions else []
    held += [f"{trial.evicted:,} tokens evicted"] if trial.evicted else []
    if held:
        yield "pressure", ", ".join(held)


def makespan(trial: Trial) -> str:
    """How long a trial takes, and how that compares with its bound."""
    over = "" if trial.over_bound is None else f", {trial.over_bound:.2f} times the lower bound"
    return seconds(trial.makespan) + over


def phase(each: Phase) -> str:
    """A phase: its hit rate and when it ends."""
    return f"{each.name} {percent(each.hit_rate)} to {seconds(each.ends)}"


def ranks(trial: Trial) -> str:
    """What the workers did, the first of them one by one."""
    shown = []
    for rank in trial.ranks[:4]:
        idle = 1 - (rank.prefill + rank.decode) / trial.makespan if trial.makespan else 0.0
        share = rank.prefill / trial.makespan if trial.makespan else 0.0
        shown.append(f"{rank.rank}: prefill {share:.0%}, idle {max(0.0, idle):.0%}")
    return "; ".join(shown) + ("; ..." if len(trial.ranks) > 4 else "")


def count(number: int, noun: str) -> str:
    """A number with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


STEP_HEADS = ("step", "calls", "prompt tokens", "hit rate", "generated", "a reply", "asked for", "from")


def step_rows(trial: Trial) -> Iterator[tuple[str, ...]]:
    """The steps as rows of a table."""
    for step in trial.steps:
        mean = f"{step.generated / step.calls:,.0f}" if step.calls else "-"
        asked = "-" if step.length is None else f"{step.length:,.0f}"
        yield (
            step.step, f"{step.calls:,}", f"{step.prompt:,}", percent(step.hit_rate), f"{step.generated:,}", mean,
            asked, step.source,
        )  # fmt: skip


PLAN_HEADS = ("plan", "makespan", "calls", "prefilled", "generated", "hit rate", "GPU time", "cost")


def plan_rows(forecast: Forecast) -> Iterator[tuple[str, ...]]:
    """The plain plan and the optimized one as rows of a table, and what the second saves."""
    pair = [trial for trial in (forecast.plain, forecast.optimized) if trial is not None]
    for trial in pair:
        yield (
            f"{trial.plan} ({trial.policy})", seconds(trial.makespan), f"{trial.calls:,}", f"{trial.prefilled:,}",
            f"{trial.generated:,}", percent(trial.hit_rate), hours(trial.gpu_hours),
            money(forecast.money(trial), forecast.currency),
        )  # fmt: skip
    if forecast.plain is not None:
        yield (
            "plain / optimized",
            *(
                _ratio(getattr(forecast.plain, name), getattr(forecast.optimized, name))
                for name in ("makespan", "calls", "prefilled", "generated")
            ),
            "",
            _ratio(forecast.plain.gpu_hours, forecast.optimized.gpu_hours),
            "",
        )


def _ratio(first: float, second: float) -> str:
    return f"{first / second:.2f}" if second else "-"


CASE_HEADS = ("GPU", "ranks", "GPUs", "makespan", "speed-up", "/ bound", "binds", "hit rate", "GPU time", "cost")


def case_rows(forecast: Forecast) -> Iterator[tuple[str, ...]]:
    """The what-if cases as rows of a table. Speed-ups are over the fewest ranks of the same GPU."""
    first: dict[str, float] = {}
    for case in forecast.cases:
        trial = case.trial
        if trial is None:
            yield (case.gpu, case.split, f"{case.gpus}", case.problem or "-", *[""] * (len(CASE_HEADS) - 4))
            continue
        base = first.setdefault(case.gpu, trial.makespan)
        yield (
            case.gpu, case.split, f"{case.gpus}", seconds(trial.makespan), _ratio(base, trial.makespan),
            times(trial.over_bound), "-" if trial.bounds is None else trial.bounds.binder, percent(trial.hit_rate),
            hours(trial.gpu_hours), money(forecast.money(trial), forecast.currency),
        )  # fmt: skip


def title(forecast: Forecast) -> str:
    """What was simulated, in a sentence."""
    trial = forecast.optimized
    return f"{forecast.workflow}: {count(trial.rows, 'row')} of {forecast.table} simulated on {trial.deployment.name}"


def settings(where: Deployment) -> str:
    """The engine that is simulated."""
    more = "".join(f", {name} {value}" for name, value in sorted(where.settings.items()) if name != "policy")
    return f"policy {where.policy}, up to {where.max_running:,} requests running{more}; times: {where.cost}"


def notes(forecast: Forecast) -> list[str]:
    """What a person should know."""
    trial = forecast.optimized
    made = list(forecast.notes)
    if trial.outside and trial.passes:
        made.append(
            f"{trial.outside / trial.passes:.0%} of {trial.passes:,} passes are of sizes that the cost model was not "
            "fitted to"
        )
    if trial.failed_rows:
        made.append(f"{count(trial.failed_rows, 'row')} failed; the first: {trial.first_error}")
    return list(dict.fromkeys([*made, *trial.notes]))
