"""Layers that add up to a whole, over time: what a cache holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from helix.plots.plot import HEIGHT, Plot, colour, frame, px, text
from helix.plots.scale import Axis, number


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A part of the whole, at each of the times. `rest` is what is left over: it is drawn faintly."""

    name: str
    values: tuple[float, ...]
    rest: bool = False


def occupancy(
    title: str, times: Sequence[float], layers: Sequence[Layer], *, x: Axis, y: Axis, height: int = HEIGHT
) -> Plot:
    """Stacked areas, the first layer at the bottom. Raises ValueError where a layer has not a value for each time."""
    for layer in layers:
        if len(layer.values) != len(times):
            raise ValueError(f"layer {layer.name} has {len(layer.values)} values for {len(times)} times")
    tops = [[0.0] * len(times)]
    for layer in layers:
        tops.append([below + value for below, value in zip(tops[-1], layer.values, strict=True)])
    colours = ["rest" if layer.rest else colour(at) for at, layer in enumerate(layers)]
    names = [layer.name for layer in layers]
    place = frame(x, y, list(times), tops[-1], names, height=height, colours=colours)
    body = [place.around]
    for at, layer in enumerate(layers):
        there = [f"{px(place.x.at(t))},{px(place.y.at(v))}" for t, v in zip(times, tops[at + 1], strict=True)]
        back = [f"{px(place.x.at(t))},{px(place.y.at(v))}" for t, v in zip(times, tops[at], strict=True)]
        if there:
            body.append(
                f'<polygon class="area {colours[at]}" points="{" ".join([*there, *reversed(back)])}">'
                f"<title>{text(layer.name)}</title></polygon>"
            )
    said = []
    for layer in layers:
        if layer.values:
            mean = sum(layer.values) / len(layer.values)
            said.append(f"{layer.name} {number(mean)} in the mean, {number(max(layer.values))} at most")
    unit = f" {place.x.unit_name}" if place.x.unit_name else ""
    rows = tuple(
        (f"{place.x.tick(t)}{unit}", *(place.y.tick(layer.values[at]) for layer in layers))
        for at, t in enumerate(times)
    )
    return Plot(
        title=title,
        says=f"{y.label} by {x.label}: {'; '.join(said) or 'nothing'}.",
        body="".join(body),
        width=place.width,
        height=place.height,
        heads=(x.label, *(layer.name for layer in layers)),
        rows=rows,
    )
