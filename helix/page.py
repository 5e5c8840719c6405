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


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """A table whose first column names its rows; a column `saved` is marked."""
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in heads)
    saved = heads.index("saved") if "saved" in heads else -1
    body = "".join(
        f'<tr><th scope="row">{text(row[0])}</th>'
        + "".join(
            f"<td{' class=saved' if place == saved else ''}>{text(cell)}</td>"
            for place, cell in enumerate(row[1:], start=1)
        )
        + "</tr>"
        for row in rows
    )
    said = f'<p class="quiet">{text(caption)}</p>' if caption else ""
    return (
        f'{said}<div class="wide" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )
