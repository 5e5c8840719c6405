"""What each worker did when: a lane for each, spans of time coloured by kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from helix.plots.plot import BOTTOM, LEFT, RIGHT, TOP, WIDTH, Plot, colour, legend_of, px, text, x_axis
from helix.plots.scale import Axis, Scale

LANE, GAP, LEGEND = 26, 8, 20
# Of more lanes only the first are drawn.
MOST_LANES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """From `begin` to `end` a worker did `kind`; `share` of that time, where several kinds lie in one span."""

    begin: float
    end: float
    kind: str
    share: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """A worker and its spans. Spans of one time stack up, each as high as its share."""

    name: str
    spans: tuple[Span, ...]


def gantt(title: str, lanes: Sequence[Lane], *, x: Axis, kinds: Sequence[str] = ()) -> Plot:
    """Lanes below one another over a common time. `kinds` gives the order of the colours (else: as they come)."""
    order = list(dict.fromkeys([*kinds, *(span.kind for lane in lanes for span in lane.spans)]))
    shown = lanes[:MOST_LANES]
    legend, lines = legend_of(order)
    top = TOP + lines * LEGEND
    bottom = float(top + len(shown) * (LANE + GAP))
    right = float(WIDTH - RIGHT)
    scale = Scale(x, [edge for lane in lanes for span in lane.spans for edge in (span.begin, span.end)], LEFT, right)
    parts = [legend]
    for number, lane in enumerate(shown):
        y = float(top + number * (LANE + GAP))
        parts.append(f'<rect class="lane" x="{LEFT}" y="{px(y)}" width="{px(right - LEFT)}" height="{LANE}"/>')
        parts.append(
            f'<text x="{LEFT - 8}" y="{px(y + LANE / 2)}" dy="0.35em" text-anchor="end">{text(lane.name)}</text>'
        )
        parts += _drawn(lane, order, scale, y)
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


def _drawn(lane: Lane, order: Sequence[str], scale: Scale, y: float) -> list[str]:
    """The spans of a lane as one path for each kind: a lane may have thousands."""
    number = {kind: at for at, kind in enumerate(order)}
    paths: dict[str, list[str]] = {}
    filled: dict[float, float] = {}
    for span in sorted(lane.spans, key=lambda each: (each.begin, number[each.kind])):
        left, right = scale.at(span.begin), scale.at(span.end)
        base = filled.get(span.begin, 0.0)
        filled[span.begin] = base + span.share
        high = LANE * min(1.0, span.share)
        floor = y + LANE * (1 - min(1.0, base))
        paths.setdefault(span.kind, []).append(
            f"M{px(left)} {px(floor)}V{px(floor - high)}H{px(max(right, left + 0.3))}V{px(floor)}Z"
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
