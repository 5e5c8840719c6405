"""What each worker did when: a lane for each, spans of time coloured by kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from helix.plots.plot import BOTTOM, LEFT, RIGHT, TOP, WIDTH, Plot, colour, legend_of, px, text, x_axis
from helix.plots.scale import Axis, Scale

LANE, GAP, LEGEND = 26, 8, 20
# Of more lanes only the first are drawn.
MOST_LANES = 32
# The height of a part of a lane that is divided, and the most of a lane and of all of them.
SLOT, HIGHEST, ALL = 7, 200, 640


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """From `begin` to `end` a worker did `kind`; `share` of that time, where several kinds lie in one span. `slot` is
    the part of a divided lane that it lies in.
    """

    begin: float
    end: float
    kind: str
    share: float = 1.0
    slot: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """A worker and its spans. Spans of one time stack up, each as high as its share. A lane of several `slots` is
    divided into so many parts of equal height, for spans that overlap.
    """

    name: str
    spans: tuple[Span, ...]
    slots: int = 1


def gantt(title: str, lanes: Sequence[Lane], *, x: Axis, kinds: Sequence[str] = ()) -> Plot:
    """Lanes below one another over a common time. `kinds` gives the order of the colours (else: as they come)."""
    order = list(dict.fromkeys([*kinds, *(span.kind for lane in lanes for span in lane.spans)]))
    shown = lanes[:MOST_LANES]
    legend, lines = legend_of(order)
    top = TOP + lines * LEGEND
    heights = [_height(lane, len(shown)) for lane in shown]
    bottom = float(top + sum(heights) + len(shown) * GAP)
    right = float(WIDTH - RIGHT)
    scale = Scale(x, [edge for lane in lanes for span in lane.spans for edge in (span.begin, span.end)], LEFT, right)
    parts = [legend]
    y = float(top)
    for lane, high in zip(shown, heights, strict=True):
        parts.append(f'<rect class="lane" x="{LEFT}" y="{px(y)}" width="{px(right - LEFT)}" height="{px(high)}"/>')
        parts.append(
            f'<text x="{LEFT - 8}" y="{px(y + high / 2)}" dy="0.35em" text-anchor="end">{text(lane.name)}</text>'
        )
        parts += _drawn(lane, order, scale, y, high)
        y += high + GAP
    parts += x_axis(scale, bottom, right)
    busy = [{kind: _time(lane, kind) for kind in order} for lane in lanes]
    heads = (x.label, *(f"{kind} ({scale.unit_name})" if scale.unit_name else kind for kind in order))
    rows = tuple(
        (lane.name, *(scale.tick(found[kind]) for kind in order)) for lane, found in zip(lanes, busy, strict=True)
    )
    more = f" The first {MOST_LANES} of {len(lanes)} are drawn." if len(lanes) > MOST_LANES else ""
    return Plot(
        title=title,
        says=f"{_says(lanes, order, busy, scale)}{more}",
        body="".join(parts),
        width=WIDTH,
        height=round(bottom) + BOTTOM,
        heads=heads,
        rows=rows,
    )


def _height(lane: Lane, lanes: int) -> float:
    """The height of a lane: all slots can be seen where there is room for them."""
    return float(max(LANE, min(SLOT * lane.slots, HIGHEST, ALL // lanes))) if lane.slots > 1 else float(LANE)


def _drawn(lane: Lane, order: Sequence[str], scale: Scale, y: float, high: float) -> list[str]:
    """The spans of a lane as one path for each kind: a lane may have thousands."""
    number = {kind: at for at, kind in enumerate(order)}
    paths: dict[str, list[str]] = {}
    filled: dict[float, float] = {}
    for span in sorted(lane.spans, key=lambda each: (each.begin, number[each.kind])):
        left, right = scale.at(span.begin), scale.at(span.end)
        if lane.slots > 1:
            part = high / lane.slots
            floor, tall = y + part * (span.slot + 1), part - (1.0 if part >= SLOT / 2 else 0.0)
        else:
            base = filled.get(span.begin, 0.0)
            filled[span.begin] = base + span.share
            floor, tall = y + high * (1 - min(1.0, base)), high * min(1.0, span.share)
        paths.setdefault(span.kind, []).append(
            f"M{px(left)} {px(floor)}V{px(floor - tall)}H{px(max(right, left + 0.3))}V{px(floor)}Z"
        )
    return [
        f'<path class="fill {colour(number[kind])}" d="{"".join(paths[kind])}">'
        f"<title>{text(f'{lane.name}: {kind}')}</title></path>"
        for kind in order
        if kind in paths
    ]


def _time(lane: Lane, kind: str) -> float:
    return sum((span.end - span.begin) * span.share for span in lane.spans if span.kind == kind)


def _says(lanes: Sequence[Lane], order: Sequence[str], busy: Sequence[dict[str, float]], scale: Scale) -> str:
    if not lanes:
        return "No worker."
    unit = f" {scale.unit_name}" if scale.unit_name else ""
    told = [
        f"{lane.name}: {', '.join(f'{kind} {scale.tick(found[kind])}{unit}' for kind in order) or 'nothing'}"
        for lane, found in list(zip(lanes, busy, strict=True))[:8]
    ]
    return f"{'; '.join(told)}{'; ...' if len(lanes) > 8 else ''}; to {scale.tick(scale.high)}{unit}."
