"""Plans on the page: beside each other with what changed marked, or the one where nothing did."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from html import escape

from helix.explain.report import ExplainReport
from helix.show import plan_text

# The widths in characters that two columns and one have on a page of 1240 pixels.
_HALF, _WHOLE = 72, 150
_ANSI = re.compile("\x1b\\[([0-9]+)m(.*?)\x1b\\[0m", re.DOTALL)
_CLASSES = {"36": "operator", "1": "name", "32": "text", "2": "quiet"}


def plan_columns(report: ExplainReport) -> str:
    """The plain plan and the optimized one, line by line."""
    if not report.changed:
        lines = _lines(plan_text(report.plan, width=_WHOLE, color=True))
        return f'<div class="plans one">{_column("", [("", line) for line in lines])}</div>'
    texts = [plan_text(plan, width=_HALF, color=True) for plan in (report.plain, report.plan)]
    before, after = (_lines(text) for text in texts)
    left: list[tuple[str, str]] = []
    right: list[tuple[str, str]] = []
    for tag, first, last, start, end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        same = tag == "equal"
        left += [("" if same else "gone", line) for line in before[first:last]]
        right += [("" if same else "new", line) for line in after[start:end]]
        short = len(left) - len(right)
        (right if short > 0 else left).extend([("pad", "")] * abs(short))
    columns = _column("As it is written", left) + _column("After the rules", right)
    return f'<div class="plans">{columns}</div>'


def _column(title: str, lines: list[tuple[str, str]]) -> str:
    shown = "".join(f'<span class="{kind}">{line}</span>' if kind else f"<span>{line}</span>" for kind, line in lines)
    head = f"<h3>{title}</h3>" if title else ""
    return f'<div>{head}<pre class="plan" tabindex="0" aria-label="{title or "The plan"}">{shown}</pre></div>'


def _lines(text: str) -> list[str]:
    """The lines of a coloured plan as HTML."""
    return [_html(line) for line in text.splitlines()]


def _html(line: str) -> str:
    made, end = "", 0
    for found in _ANSI.finditer(line):
        made += escape(line[end : found.start()])
        made += f'<span class="{_CLASSES[found[1]]}">{escape(found[2])}</span>'
        end = found.end()
    return made + escape(line[end:])
