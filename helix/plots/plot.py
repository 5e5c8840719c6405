"""A plot: its drawing, what it says in words, and its data as a table; the frame that all kinds share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path

from helix.plots.scale import Axis, Scale
from helix.progress import clean

WIDTH, HEIGHT = 760, 280
LEFT, RIGHT, TOP, BOTTOM = 68, 16, 14, 44
# Colours are eight; what comes after begins again.
COLOURS = 8
# Rows of a table of data that are written out; plots of more points are read at every so many of them.
MOST_ROWS = 200
_LEGEND_LINE = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A drawing. `says` is what it shows in words, `heads` and `rows` its data as a table."""

    title: str
    says: str
    body: str
    width: int
    height: int
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def figure(self) -> str:
        """An HTML figure. The page that it stands in has `style()`."""
        return (
            f'<figure class="plot"><figcaption>{text(self.title)}</figcaption>'
            f'<div class="drawing" tabindex="0">{self._svg("")}</div>'
            f"<details><summary>Data of this plot</summary>{self._table()}</details></figure>"
        )

    def svg(self) -> str:
        """A file of its own, with its style."""
        return self._svg(f"<style>{style()}</style>") + "\n"

    def _svg(self, style: str) -> str:
        label = f"{self.title}. {self.says}"
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="plot-svg" role="img" aria-label="{text(label)}" '
            f'viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}">'
            f"{style}{self.body}</svg>"
        )

    def _table(self) -> str:
        step = -(-len(self.rows) // MOST_ROWS) or 1
        head = "".join(f'<th scope="col">{text(name)}</th>' for name in self.heads)
        body = "".join(
            f'<tr><th scope="row">{text(row[0])}</th>{"".join(f"<td>{text(cell)}</td>" for cell in row[1:])}</tr>'
            for row in self.rows[::step]
        )
        said = f'<p class="quiet">Every {step} points, one row.</p>' if step > 1 else ""
        return (
            f'{said}<div class="wide" tabindex="0"><table><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>"
        )


@cache
def style() -> str:
    """The style of all plots: colours of light and dark, fonts."""
    return Path(__file__).with_name("plots.css").read_text(encoding="utf-8")


def text(value: str) -> str:
    """Text as HTML or SVG holds it."""
    return escape(clean(value))


def px(value: float) -> str:
    """A coordinate, to a tenth of a pixel."""
    shown = f"{value:.1f}"
    return shown.removesuffix(".0")


def colour(number: int) -> str:
    """The class of the colour with a number."""
    return f"c{number % COLOURS}"


@dataclass(frozen=True, slots=True)
class Frame:
    """The place of a drawing: its scales, and what is drawn around it."""

    x: Scale
    y: Scale
    left: float
    right: float
    top: float
    bottom: float
    width: int
    height: int
    around: str


def frame(
    x: Axis,
    y: Axis,
    xs: list[float],
    ys: list[float],
    names: Sequence[str],
    *,
    height: int = HEIGHT,
    colours: Sequence[str] = (),
) -> Frame:
    """A frame with grid, ticks, labels, and a legend where there is more than one name. `colours` are the classes of
    the names, where these are not in order.
    """
    legend, lines = legend_of(names, colours) if len(names) > 1 else ("", 0)
    top = TOP + lines * _LEGEND_LINE
    height += lines * _LEGEND_LINE
    right, bottom = float(WIDTH - RIGHT), float(height - BOTTOM)
    across = Scale(x, xs, LEFT, right)
    up = Scale(y, ys, bottom, top)
    parts = [legend]
    for value in up.ticks:
        at = px(up.at(value))
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{px(right)}" y1="{at}" y2="{at}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{at}" dy="0.35em" text-anchor="end">{text(up.tick(value))}</text>')
    parts += x_axis(across, bottom, right)
    middle = px((top + bottom) / 2)
    parts.append(
        f'<text class="label" transform="translate(14 {middle}) rotate(-90)" text-anchor="middle">'
        f"{text(up.label)}</text>"
    )
    return Frame(across, up, LEFT, right, top, bottom, WIDTH, height, "".join(parts))


def x_axis(scale: Scale, bottom: float, right: float) -> list[str]:
    """The axis below a drawing."""
    parts = [f'<line class="axis" x1="{LEFT}" x2="{px(right)}" y1="{px(bottom)}" y2="{px(bottom)}"/>']
    for value in scale.ticks:
        at = px(scale.at(value))
        parts.append(f'<line class="axis" x1="{at}" x2="{at}" y1="{px(bottom)}" y2="{px(bottom + 5)}"/>')
        parts.append(f'<text x="{at}" y="{px(bottom + 18)}" text-anchor="middle">{text(scale.tick(value))}</text>')
    middle = px((LEFT + right) / 2)
    parts.append(
        f'<text class="label" x="{middle}" y="{px(bottom + 36)}" text-anchor="middle">{text(scale.label)}</text>'
    )
    return parts


def legend_of(names: Sequence[str], colours: Sequence[str] = ()) -> tuple[str, int]:
    """A legend above a drawing, in lines, and how many lines these are."""
    parts: list[str] = []
    at, line = float(LEFT), 0
    for number, name in enumerate(names):
        shown = name if len(name) <= 40 else name[:39] + "…"
        wide = 26 + 6.6 * len(shown)
        if at + wide > WIDTH - RIGHT and at > LEFT:
            at, line = float(LEFT), line + 1
        y = 4 + line * _LEGEND_LINE
        own = colours[number] if colours else colour(number)
        parts.append(f'<rect class="fill {own}" x="{px(at)}" y="{y}" width="12" height="12" rx="2"/>')
        parts.append(f'<text x="{px(at + 17)}" y="{y + 10}">{text(shown)}</text>')
        at += wide
    return "".join(parts), line + 1 if names else 0


def listed(names: Iterable[str]) -> str:
    """Names in a sentence."""
    found = list(names)
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} and {found[-1]}" if found else "nothing"
