"""Pages of their own: HTML and its style in one file, without scripts and without anything from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from pathlib import Path

from helix.progress import clean


def document(title: str, body: str) -> str:
    """A whole document, ending in a line break. `body` brings its style."""
    head = (
        '<meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{text(title)}</title>"
        "<style>body { margin: 0; background: #ffffff; }"
        " @media (prefers-color-scheme: dark) { body { background: #12161b; } }</style>"
    )
    return f'<!doctype html>\n<html lang="en">\n<head>{head}</head>\n<body><main>{body}</main></body>\n</html>\n'


@cache
def style() -> str:
    """The style of what stands in an element of the class `hx`."""
    return Path(__file__).with_name("page.css").read_text(encoding="utf-8")


def text(value: str) -> str:
    """Text as HTML holds it."""
    return escape(clean(value))


def section(title: str, content: str) -> str:
    """A part of a page under its title."""
    return f"<section><h2>{text(title)}</h2>{content}</section>"


def listed(items: Iterable[str], kind: str) -> str:
    """A list of a kind: `facts`, `notes`; nothing where it is empty."""
    shown = "".join(f"<li>{text(item)}</li>" for item in items)
    return f'<ul class="{kind}">{shown}</ul>' if shown else ""


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and what there is to say of them, below one another."""
    return f'<dl class="said">{"".join(f"<dt>{text(name)}</dt><dd>{text(fact)}</dd>" for name, fact in pairs)}</dl>'


# From this length on a cell holds words, which are read from the left and over several lines.
_WORDS = 50


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """A table whose first column names its rows: an empty name is that of the row above. A column `saved` is marked."""
    rows = list(rows)
    kinds = ["saved" if name == "saved" else "" for name in heads]
    for place in range(1, len(heads)):
        if any(len(row[place]) > _WORDS for row in rows if place < len(row)):
            kinds[place] = "words"
    marks = [f' class="{kind}"' if kind else "" for kind in kinds]
    head = "".join(
        f'<th scope="col"{mark}>{text(name)}</th>' if name else "<td></td>"
        for name, mark in zip(heads, marks, strict=True)
    )
    body, above = "", ""
    for row in rows:
        # What the eye takes from the row above is said to those who hear the page.
        name = text(row[0]) if row[0] or not above else f'<span class="heard">{text(above)}</span>'
        above = row[0] or above
        cells = "".join(f"<td{mark}>{text(cell)}</td>" for mark, cell in zip(marks[1:], row[1:], strict=False))
        body += f'<tr><th scope="row">{name}</th>{cells}</tr>'
    said = f'<p class="quiet">{text(caption)}</p>' if caption else ""
    return (
        f'{said}<div class="wide" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )
