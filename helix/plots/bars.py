"""Groups of bars with ranges: methods by workload, makespans by engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from helix.plots.plot import HEIGHT, Plot, colour, frame, px, text
from helix.plots.scale import Axis

# The part of a group's width that is between it and the next.
_BETWEEN = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """The bars of one name, one for each group; None is none. `low` and `high` are ranges, bar by bar."""

    name: str
    values: tuple[float | None, ...]
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()


def bars(
    title: str,
    groups: Sequence[str],
    series: Sequence[Bar],
    *,
    y: Axis,
    x: str = "",
    reference: float | None = None,
    height: int = HEIGHT,
) -> Plot:
    """Bars side by side in groups; `x` says what groups are, `reference` draws a line across (1 for ratios).

    Raises ValueError where a name has not a value for each group.
    """
    for each in series:
        if any(len(found) not in (0, len(groups)) for found in (each.low, each.high)) or len(each.values) != len(
            groups
        ):
            raise ValueError(f"bars of {each.name}: a value for each of {len(groups)} groups is needed")
    ys = [value for each in series for value in (*each.values, *each.low, *each.high) if value is not None]
    names = [each.name for each in series]
    across = Axis(label=x, least=0.0, most=float(max(1, len(groups))), ticks=())
    place = frame(across, y, [], [*ys, *([] if reference is None else [reference])], names, height=height)
    body = [place.around]
    wide = (place.right - place.left) / max(1, len(groups))
    each_wide = wide * (1 - _BETWEEN) / max(1, len(series))
    bottom = place.y.at(0.0 if not y.log else place.y.low)
    for at, group in enumerate(groups):
        left = place.left + at * wide + wide * _BETWEEN / 2
        middle = px(place.left + (at + 0.5) * wide)
        body.append(f'<text x="{middle}" y="{px(place.bottom + 18)}" text-anchor="middle">{text(group)}</text>')
        for number, one in enumerate(series):
            value = one.values[at]
            if value is None:
                continue
            x0, top = left + number * each_wide, place.y.at(value)
            said = f"{group}, {one.name}: {_said(place.y.tick(value), place.y.unit_name)}"
            body.append(
                f'<rect class="fill {colour(number)}" x="{px(x0)}" y="{px(min(top, bottom))}" '
                f'width="{px(max(1.0, each_wide - 1))}" height="{px(abs(bottom - top))}">'
                f"<title>{text(said)}</title></rect>"
            )
            low = one.low[at] if one.low else None
            high = one.high[at] if one.high else None
            if low is not None and high is not None:
                center = px(x0 + (each_wide - 1) / 2)
                body.append(
                    f'<line class="whisker" x1="{center}" x2="{center}" y1="{px(place.y.at(low))}" '
                    f'y2="{px(place.y.at(high))}"/>'
                )
    if reference is not None:
        at_ = px(place.y.at(reference))
        body.append(f'<line class="mark" x1="{px(place.left)}" x2="{px(place.right)}" y1="{at_}" y2="{at_}"/>')
    unit = place.y.unit_name
    rows = tuple(
        (group, *("" if (v := one.values[at]) is None else _said(place.y.tick(v), unit) for one in series))
        for at, group in enumerate(groups)
    )
    told = [f"{row[0]}: {', '.join(f'{n} {v}' for n, v in zip(names, row[1:], strict=True) if v)}" for row in rows[:12]]
    return Plot(
        title=title,
        says=f"{y.label}: {'; '.join(told)}{'; ...' if len(rows) > 12 else ''}.",
        body="".join(body),
        width=place.width,
        height=place.height,
        heads=(x or "group", *names),
        rows=rows,
    )


def _said(value: str, unit: str) -> str:
    return f"{value} {unit}".strip()
