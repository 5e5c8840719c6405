"""What a notebook shows of a workflow, of a result and of what a run took: elements with their style, without scripts.

Texts of tables, prompts and models are escaped, and control characters in them are shown as `?`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helix.page import listed, style, table, text
from helix.preview import error_text

if TYPE_CHECKING:
    from helix.results import RunReport, RunResult

# Rows of a result, characters of a value, and lines of a workflow or of a list that are shown.
MOST_ROWS = 20
MOST_CHARACTERS = 400
MOST_LINES = 200


def bundle(plain: str, html: str, include: Any = None, exclude: Any = None) -> dict[str, str]:
    """What `_repr_mimebundle_` gives: both forms, less those that are not wanted."""
    made = {"text/plain": plain, "text/html": html}
    return {
        kind: shown
        for kind, shown in made.items()
        if (include is None or kind in include) and (exclude is None or kind not in exclude)
    }


def workflow_html(head: str, shown: str) -> str:
    """A workflow: `head` is its name with its inputs, `shown` its text."""
    lines = shown.rstrip("\n").split("\n")
    plan = "".join(f"<span>{text(line)}</span>" for line in lines[:MOST_LINES])
    more = f"{len(lines) - MOST_LINES:,} more lines" if len(lines) > MOST_LINES else ""
    return _cell(
        f"<h1>{text(head)}</h1>"
        f'<div class="plans one"><pre class="plan" tabindex="0" aria-label="The workflow">{plan}</pre></div>'
        + _quiet(more)
    )


def mistakes_html(head: str, message: str) -> str:
    """A workflow that cannot be shown, and why."""
    return _cell(f'<h1>{text(head)}</h1><pre class="warning">{text(message)}</pre>')


def result_html(result: RunResult) -> str:
    """The first rows of a result, and how many there are; of a result in a file where it is."""
    said = counted(result.report)
    if result.path is not None:
        return _cell(f"<p>{text(said)}</p>{_quiet(f'The rows are in {result.path}.')}")
    rows = result.rows
    if not rows:
        return _cell(f"<p>{text(said)}</p>")
    left = len(rows) - MOST_ROWS
    more = f"{left:,} more in .rows, .table and .to_pandas()" if left > 0 else ""
    return _cell(f"<p>{text(said)}</p>{_rows(rows[:MOST_ROWS])}{_quiet(more)}")


def report_html(report: RunReport) -> str:
    """What a run took: its outcome, its steps, the first errors and what a person should know."""
    outcome = {
        "complete": "All rows are well.",
        "failed_rows": f"{_number(report.failed_rows, 'row')} failed.",
        "stopped": f"Stopped early: {report.stopped}.",
        "interrupted": "Interrupted: the rest of the rows was not run.",
    }[report.outcome]
    mark = "" if report.outcome == "complete" else ' class="warning" role="note"'
    heads = ("step", "calls", "merged", "fetched", "failed", "prompt tokens", "cached", "generated")
    steps = [
        (
            name,
            *(f"{value:,}" for value in (step.calls, step.merged, step.fetched, step.failed)),
            *(f"{value:,}" for value in (step.prompt_tokens, step.cached_tokens, step.completion_tokens)),
        )
        for name, step in list(report.steps.items())[:MOST_LINES]
    ]
    errors = [f"row {row}{f', step {step}' if step else ''}: {kind}: {said}" for row, step, kind, said in report.errors]
    notes = [*errors, *dict.fromkeys(report.notes)]
    left = len(notes) - MOST_LINES
    return _cell(
        f"<p>{text(counted(report))}</p><p{mark}>{text(outcome)}</p>"
        + (table(heads, steps) if steps else "")
        + listed(notes[:MOST_LINES], "notes")
        + _quiet(f"{left:,} more" if left > 0 else "")
    )


# --- parts --------------------------------------------------------------------------------------------------------


def _cell(content: str) -> str:
    return f'<div class="hx cell"><style>{style()}{_style()}</style>{content}</div>'


@cache
def _style() -> str:
    return Path(__file__).with_name("notebook.css").read_text(encoding="utf-8")


def _quiet(said: str) -> str:
    return f'<p class="quiet">{text(said)}</p>' if said else ""


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def counted(report: RunReport) -> str:
    """Rows and calls of a run in a line."""
    parts = [_number(report.output_rows, "row")]
    parts += [f"{report.failed_rows:,} failed"] if report.failed_rows else []
    parts.append(_number(report.calls, "call"))
    parts += [f"{report.merged:,} merged with equal ones"] if report.merged else []
    parts += [f"{report.fetched:,} known from before"] if report.fetched else []
    return ", ".join(parts)


def _rows(rows: Sequence[Mapping[str, Any]]) -> str:
    failed = any(row["_error"] is not None for row in rows)
    names = [name for name in rows[0] if name != "_error" or failed]
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in names)
    body = "".join(
        f'<tr><th scope="row">{row["_row"]}</th>{"".join(_value(row[name], name) for name in names[1:])}</tr>'
        for row in rows
    )
    shown = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide rows" tabindex="0">{shown}</div>'


def _value(value: Any, name: str) -> str:
    if name == "_error":
        return "<td></td>" if value is None else f'<td class="bad">{text(_cut(error_text(value)))}</td>'
    if value is None:
        return '<td class="null">null</td>'
    said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return f"<td>{text(_cut(said))}</td>"


def _cut(said: str) -> str:
    return said if len(said) <= MOST_CHARACTERS else f"{said[:MOST_CHARACTERS]}..."
