"""The plots of a forecast."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from helix.forecast.measures import Forecast, Timeline, Trial
from helix.plots import Axis, Lane, Layer, Line, Mark, Plot, Span, bars, gantt, lines, occupancy
from helix.plots.bars import Bar

# Below this share of a span a pass is not drawn.
_LEAST = 0.005
# Points of a curve of hit rates, about.
_POINTS = 60


def plots(forecast: Forecast) -> Iterator[Plot]:
    """All that there is something to draw for."""
    trial = forecast.optimized
    if trial.calls:
        yield workers(trial)
        yield hit_rates(forecast)
        yield cache(trial)
    if trial.makespan > 0 and sum(case.trial is not None for case in forecast.cases) > 1:
        yield makespans(forecast)
        yield gpu_hours(forecast)


def workers(trial: Trial) -> Plot:
    """What each rank did when: passes of prefill and of decoding; the rest is idle."""
    line = trial.timeline
    lanes = tuple(
        Lane(name=f"rank {rank.rank}", spans=tuple(_spans(line, rank.rank, trial.makespan))) for rank in trial.ranks
    )
    return gantt("What each rank does", lanes, x=_time(trial), kinds=("prefill", "decode"))


def _spans(line: Timeline, rank: int, end: float) -> Iterator[Span]:
    """Neighbouring spans of the same shares are one."""
    open_: list[tuple[float, float, float]] = []
    for at, (prefill, decode) in enumerate(zip(line.prefill[rank], line.decode[rank], strict=True)):
        shares = round(min(1.0, prefill), 2), round(min(1.0, decode), 2)
        if open_ and open_[-1][1:] == shares:
            continue
        open_.append((at * line.span, *shares))
    edges = [*(begin for begin, _, _ in open_), max(end, len(line.prefill[rank]) * line.span)]
    for at, (begin, prefill, decode) in enumerate(open_):
        until = min(edges[at + 1], end)
        for kind, share in (("prefill", prefill), ("decode", decode)):
            if share > _LEAST and until > begin:
                yield Span(begin=begin, end=until, kind=kind, share=share)


def hit_rates(forecast: Forecast) -> Plot:
    """The hit rate over time, and where the middle of the run begins and ends."""
    trial = forecast.optimized
    curves = [
        Line(name=f"{each.plan} plan", points=_rates(each.timeline))
        for each in (trial, forecast.plain)
        if each is not None and each.calls
    ]
    marks = [Mark(at=phase.begins, name=phase.name) for phase in trial.phases[1:] if phase.begins < trial.makespan]
    longest = max(each.makespan for each in (trial, forecast.plain) if each is not None)
    axis = Axis(label="time", kind="seconds", least=0.0, most=longest or 1.0)
    return lines(
        "Hit rate of the calls admitted",
        curves,
        x=axis,
        y=Axis(label="hit rate", kind="share", least=0.0, most=1.0, ticks=(0.0, 0.25, 0.5, 0.75, 1.0)),
        marks=marks,
    )


def _rates(line: Timeline) -> tuple[tuple[float, float | None], ...]:
    """The hit rate at the middle of spans that are taken together until they hold a part of all prompt tokens: the
    rates of single calls say little.
    """
    least = max(1.0, sum(line.prompt) / _POINTS)
    points: list[tuple[float, float | None]] = []
    first, prompt, cached = 0, 0, 0.0
    for at, (tokens, rate) in enumerate(zip(line.prompt, line.hit_rate, strict=True)):
        if not prompt:
            first = at
        prompt += tokens
        cached += tokens * (rate or 0.0)
        if prompt >= least:
            points.append(((first + at + 1) / 2 * line.span, cached / prompt))
            prompt, cached = 0, 0.0
    if prompt:
        points.append(((first + len(line.prompt)) / 2 * line.span, cached / prompt))
    return tuple(points)


def cache(trial: Trial) -> Plot:
    """What the KV caches of all ranks hold: locked by running requests, evictable, free."""
    line = trial.timeline
    whole = float(trial.deployment.kv_tokens * trial.deployment.ranks)
    free = tuple(max(0.0, whole - a - b) for a, b in zip(line.locked, line.evictable, strict=True))
    return occupancy(
        "KV cache of all ranks",
        [min((at + 0.5) * line.span, trial.makespan) for at in range(len(line.locked))],
        [
            Layer(name="locked", values=line.locked),
            Layer(name="evictable", values=line.evictable),
            Layer(name="free", values=free, rest=True),
        ],
        x=_time(trial),
        y=Axis(label="tokens", most=whole),
    )


def makespans(forecast: Forecast) -> Plot:
    """The makespan against the number of GPUs, a curve for each kind, and the bound of the one that was asked for."""
    curves = []
    for gpu, found in _by_gpu(forecast).items():
        curves.append(
            Line(name=gpu, dots=True, points=tuple((float(each.deployment.gpus), each.makespan) for each in found))
        )
    where = forecast.optimized.deployment
    own = [each for each in _by_gpu(forecast).get(where.gpu or "", []) if each.bounds is not None]
    if len(own) > 1:
        points = tuple(
            (float(each.deployment.gpus), each.bounds.lower_bound if each.bounds is not None else None) for each in own
        )
        curves.append(Line(name=f"lower bound, {where.gpu}", points=points))
    ticks = sorted({float(case.gpus) for case in forecast.cases})
    low, high = ticks[0], ticks[-1]
    return lines(
        "Makespan against GPUs",
        curves,
        x=Axis(label="GPUs", log=low < high, least=low, most=high, ticks=tuple(ticks)),
        y=Axis(label="makespan", kind="seconds", log=True),
    )


def gpu_hours(forecast: Forecast) -> Plot:
    """What the cases cost, in money where there are prices of all, else in GPU hours."""
    found = _by_gpu(forecast)
    groups = sorted({case.ranks for case in forecast.cases})
    priced = all(case.gpu in forecast.prices for case in forecast.cases if case.trial is not None)

    def value(trial: Trial) -> float:
        cost = forecast.money(trial)
        return cost if priced and cost is not None else trial.gpu_hours

    series = [
        Bar(
            name=gpu,
            values=tuple(
                next((value(trial) for trial in trials if trial.deployment.ranks == ranks), None) for ranks in groups
            ),
        )
        for gpu, trials in found.items()
    ]
    label = f"cost ({forecast.currency})" if priced else "GPU hours"
    return bars(
        "Cost of the whole batch" if priced else "GPU time of the whole batch",
        [f"{ranks}" for ranks in groups],
        series,
        x="ranks",
        y=Axis(label=label),
    )


def _by_gpu(forecast: Forecast) -> dict[str, list[Trial]]:
    """The trials by GPU; each split of prefill and decoding by itself."""
    found: dict[str, list[Trial]] = {}
    for case in forecast.cases:
        if case.trial is not None:
            name = f"{case.gpu} pd {case.split}" if case.decode_ranks else case.gpu
            found.setdefault(name, []).append(case.trial)
    return found


def _time(trial: Trial) -> Axis:
    return Axis(label="time", kind="seconds", least=0.0, most=trial.makespan or 1.0)


def texts(pictures: Sequence[Plot]) -> str:
    """The plots as figures of a page."""
    return "".join(each.figure() for each in pictures)
