"""The plots of a run: what was called when, the hit rate, and how full the KV cache was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from heapq import heappop, heappush

from helix.page import text
from helix.plots import Axis, Lane, Line, Mark, Plot, Span, gantt, lines
from helix.plots.scale import number
from helix.report.detail import CallSpan, Detail
from helix.report.measures import RunMeasures
from helix.report.text import seconds

# Steps with a colour of their own, and the name of all others.
COLOURED = 7
OTHERS = "other steps"
# Calls of one lane that are drawn beside one another.
MOST_SLOTS = 200


def over_time(measures: RunMeasures, detail: Detail) -> str:
    """All that there is something to draw for, with what is to be said of it."""
    parts = [calls_plot(detail).figure()]
    if detail.stride > 1:
        drawn = (
            f"Of every {detail.stride:,} of {detail.calls:,} calls one is drawn; the data of the plot is of all calls."
        )
        parts.append(f'<p class="quiet">{text(drawn)}</p>')
    if detail.rates:
        parts.append(hit_rates(measures, detail).figure())
    elif measures.llm_calls:
        parts.append('<p class="quiet">The hit rate is not drawn: the engine does not tell what it had cached.</p>')
    if detail.locked:
        parts.append(cache(detail).figure())
    elif measures.llm_calls:
        said = "How full the KV cache was is not drawn: nothing told its size, or calls were released as they came."
        parts.append(f'<p class="quiet">{said}</p>')
    return "".join(parts)


def _time(detail: Detail) -> Axis:
    return Axis(label="time", kind="seconds", least=0.0, most=detail.ends or 1.0)


def calls_plot(detail: Detail) -> Plot:
    """Each worker's calls by step: calls that overlap lie beside one another. Its table is of all calls."""
    kinds = _kinds(detail)
    known = set(kinds)
    lanes = []
    for name in detail.busy:
        own = [span for span in detail.spans if span.lane == name]
        slots, many = _slots(own)
        spans = tuple(
            Span(begin=span.begin, end=span.end, kind=span.step if span.step in known else OTHERS, slot=slot)
            for span, slot in zip(own, slots, strict=True)
        )
        lanes.append(Lane(name=name, spans=spans, slots=many))
    plot = gantt("Calls by step", lanes, x=_time(detail), kinds=kinds)
    rows = []
    for name, busy in detail.busy.items():
        sums = dict.fromkeys(kinds, 0.0)
        for step, spent in busy.items():
            sums[step if step in known else OTHERS] += spent
        rows.append((name, *(number(spent) for spent in sums.values())))
    told = [f"{row[0]}: {', '.join(f'{k} {v} s' for k, v in zip(kinds, row[1:], strict=True))}" for row in rows[:8]]
    says = f"Seconds of calls added up. {'; '.join(told)}{'; ...' if len(rows) > 8 else ''}; to {seconds(detail.ends)}."
    return replace(plot, says=says, heads=("worker", *(f"{kind} (s)" for kind in kinds)), rows=tuple(rows))


def _kinds(detail: Detail) -> list[str]:
    """The steps with most time, in the order in which they come; the rest are taken together."""
    spent: dict[str, float] = {}
    for busy in detail.busy.values():
        for step, took in busy.items():
            spent[step] = spent.get(step, 0.0) + took
    order = list(dict.fromkeys(span.step for span in detail.spans)) + list(spent)
    most = set(sorted(spent, key=lambda step: (-spent[step], step))[:COLOURED])
    kinds = [step for step in dict.fromkeys(order) if step in most]
    return kinds if len(spent) <= COLOURED else [*kinds, OTHERS]


def _slots(spans: Sequence[CallSpan]) -> tuple[list[int], int]:
    """A place for each of some spans, which are in the order of their beginnings: the lowest that is free then."""
    ends: list[tuple[float, int]] = []
    free: list[int] = []
    places: list[int] = []
    many = 0
    for span in spans:
        while ends and ends[0][0] <= span.begin:
            heappush(free, heappop(ends)[1])
        if free:
            place = heappop(free)
        else:
            place, many = many, many + 1
        heappush(ends, (span.end, place))
        places.append(place % MOST_SLOTS)
    return places, max(1, min(many, MOST_SLOTS))


def hit_rates(measures: RunMeasures, detail: Detail) -> Plot:
    """The hit rate over time, and where the phases begin."""
    marks = [
        Mark(at=detail.llm_began + phase.begins, name=phase.name)
        for phase in measures.phases
        if phase.begins < phase.ends
    ]
    return lines(
        "Hit rate",
        [Line(name="hit rate", points=detail.rates, dots=len(detail.rates) < 12)],
        x=_time(detail),
        y=Axis(label="hit rate", kind="share", least=0.0, most=1.0, ticks=(0.0, 0.25, 0.5, 0.75, 1.0)),
        marks=marks,
    )


def cache(detail: Detail) -> Plot:
    """The part of the KV cache that calls held, their replies as expected."""
    points = tuple((time, value) for time, value in detail.locked if time <= detail.ends)
    return lines(
        "KV cache in use by calls",
        [Line(name="in use", points=points, step=True)],
        x=_time(detail),
        y=Axis(label="share of the cache", kind="share", least=0.0),
    )
