"""Curves over one axis, with ranges and marks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from helix.plots.plot import HEIGHT, Frame, Plot, colour, frame, listed, px, text
from helix.plots.scale import Axis, Scale

_DASHES = ("", "6 4", "2 3", "8 3 2 3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A curve: points (x, y) in order of x; y None is a gap. `low` and `high` are a range around it, point by point.

    `dots` marks the points themselves, for curves of a few; a `step` holds each value until the next point.
    """

    name: str
    points: tuple[tuple[float, float | None], ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    dots: bool = False
    step: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A line from the bottom to the top at a place, with a name: the beginning of a phase."""

    at: float
    name: str


def lines(
    title: str, curves: Sequence[Line], *, x: Axis, y: Axis, marks: Sequence[Mark] = (), height: int = HEIGHT
) -> Plot:
    """Curves in one drawing; curves differ in colour and in the pattern of the line."""
    xs = [at for curve in curves for at, _ in curve.points] + [mark.at for mark in marks]
    ys = [value for curve in curves for _, value in curve.points if value is not None]
    ys += [value for curve in curves for value in (*curve.low, *curve.high)]
    place = frame(x, y, xs, ys, [curve.name for curve in curves], height=height)
    body = [place.around]
    for mark in marks:
        at = px(place.x.at(mark.at))
        body.append(f'<line class="mark" x1="{at}" x2="{at}" y1="{px(place.top)}" y2="{px(place.bottom)}"/>')
        body.append(f'<text class="label" x="{at}" dx="4" y="{px(place.top + 10)}">{text(mark.name)}</text>')
    for number, curve in enumerate(curves):
        body += _drawn(curve, number, place)
    heads, rows = _table(curves, place.x, place.y)
    return Plot(
        title=title,
        says=_says(curves, place.x, place.y),
        body="".join(body),
        width=place.width,
        height=place.height,
        heads=heads,
        rows=rows,
    )


def _drawn(curve: Line, number: int, place: Frame) -> list[str]:
    parts: list[str] = []
    at = place.x.at
    if curve.low and curve.high:
        there = [f"{px(at(x))},{px(place.y.at(v))}" for (x, _), v in zip(curve.points, curve.high, strict=True)]
        back = [f"{px(at(x))},{px(place.y.at(v))}" for (x, _), v in zip(curve.points, curve.low, strict=True)]
        parts.append(f'<polygon class="range {colour(number)}" points="{" ".join([*there, *reversed(back)])}"/>')
    dash = _DASHES[number % len(_DASHES)]
    pattern = f' stroke-dasharray="{dash}"' if dash else ""
    for part in _unbroken(curve.points):
        corners: list[str] = []
        before: float | None = None
        for x, value in part:
            if curve.step and before is not None:
                corners.append(f"{px(at(x))},{px(place.y.at(before))}")
            corners.append(f"{px(at(x))},{px(place.y.at(value))}")
            before = value
        if len(corners) > 1:
            parts.append(f'<polyline class="line {colour(number)}"{pattern} points="{" ".join(corners)}"/>')
        for x, value in part:
            if curve.dots or len(part) == 1:
                said = f"{curve.name}: {_said(place.y, value)} at {_said(place.x, x)}"
                parts.append(
                    f'<circle class="fill {colour(number)}" cx="{px(at(x))}" cy="{px(place.y.at(value))}" r="4">'
                    f"<title>{text(said)}</title></circle>"
                )
    return parts


def _unbroken(points: Sequence[tuple[float, float | None]]) -> list[list[tuple[float, float]]]:
    """The parts of a curve between its gaps."""
    parts: list[list[tuple[float, float]]] = [[]]
    for x, value in points:
        if value is None or not math.isfinite(value):
            parts.append([])
        else:
            parts[-1].append((x, value))
    return [part for part in parts if part]


def _said(scale: Scale, value: float) -> str:
    return f"{scale.tick(value)} {scale.unit_name}".strip()


def _says(curves: Sequence[Line], x: Scale, y: Scale) -> str:
    told = []
    for curve in curves:
        known = [(at, value) for at, value in curve.points if value is not None]
        if not known:
            told.append(f"{curve.name} has no points")
            continue
        first, last = known[0], known[-1]
        told.append(
            f"{curve.name} goes from {_said(y, first[1])} at {_said(x, first[0])} to {_said(y, last[1])} at "
            f"{_said(x, last[0])}, at most {_said(y, max(value for _, value in known))}"
        )
    names = f"{y.axis.label} by {x.axis.label}"
    return f"{names}: {'; '.join(told)}." if told else f"{names}: {listed([])}."


def _table(curves: Sequence[Line], x: Scale, y: Scale) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    places = sorted({at for curve in curves for at, _ in curve.points})
    values = [dict(curve.points) for curve in curves]
    rows = tuple(
        (_said(x, at), *("" if (v := found.get(at)) is None else _said(y, v) for found in values)) for at in places
    )
    return (x.axis.label, *(curve.name for curve in curves)), rows
