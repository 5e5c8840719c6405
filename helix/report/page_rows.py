"""Rows with their prompts and replies, which open on demand. Whatever a model wrote is text here, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable

from helix.page import text
from helix.records import SentPrompt
from helix.report.detail import Detail, RowShown
from helix.report.measures import RunMeasures
from helix.report.words import number, seconds

# Characters of one text, of an error's message, and of all texts of the page as it holds them.
MOST_TEXT = 4_000
MOST_MESSAGE = 1_000
MOST_ALL = 2_000_000
# The first and the last messages of one prompt that are shown: an agent's grows with each turn.
FIRST, LAST = 2, 8


class Room:
    """The room that is left for texts: a page of many long prompts stays one that a browser opens."""

    def __init__(self, characters: int = MOST_ALL) -> None:
        self.left = characters

    def fits(self, shown: str) -> bool:
        """Takes the room of a text, if there is as much."""
        if len(shown) > self.left:
            return False
        self.left -= len(shown)
        return True


def failed_rows(measures: RunMeasures, detail: Detail, room: Room) -> str:
    """The first rows that failed, each with its error and its last prompts."""
    if not measures.failed_rows:
        return ""
    shown = [
        _row(
            row,
            f"{row.kind}{f' at step {row.step}' if row.step else ''}: {cut(row.message, 200)}",
            _message(row) + _exchanges(row, detail, room),
        )
        for row in detail.failed
    ]
    more = measures.failed_rows - len(detail.failed)
    said = f"The first {len(detail.failed):,} of {number(measures.failed_rows, 'row')} that failed." if more > 0 else ""
    return _listed(shown, said)


def slow_rows(detail: Detail, room: Room) -> str:
    """The rows whose calls took longest, each with its first prompts."""
    shown = [
        _row(
            row,
            f"{seconds(row.seconds)} in {number(row.calls, 'call')}, {seconds(row.span)} from begin to end",
            _exchanges(row, detail, room),
        )
        for row in detail.slow
    ]
    if not shown:
        return ""
    more = detail.rows_called - len(detail.slow)
    said = f"The {len(shown):,} of {number(detail.rows_called, 'row')} with calls whose calls took longest, added up."
    return _listed(shown, said if more > 0 else "By the seconds of their calls, added up.")


def cut(value: str, most: int) -> str:
    """The beginning of a text that is too long, and that there is more."""
    return value if len(value) <= most else f"{value[:most]} ..."


def _listed(rows: Iterable[str], said: str) -> str:
    about = f'<p class="quiet">{text(said)}</p>' if said else ""
    return f'{about}<div class="rules">{"".join(rows)}</div>'


def _row(row: RowShown, said: str, body: str) -> str:
    return (
        f'<details><summary><code>row {row.row:,}</code><span class="did">{text(cut(said, 400))}</span></summary>'
        f'<div class="exchanges">{body}</div></details>'
    )


def _message(row: RowShown) -> str:
    return f'<p class="bad">{text(cut(f"{row.kind}: {row.message}", MOST_MESSAGE))}</p>'


def _exchanges(row: RowShown, detail: Detail, room: Room) -> str:
    parts: list[str] = []
    for number_, prompt in enumerate(row.exchanges):
        shown = _exchange(prompt)
        if not room.fits(shown):
            left = number(len(row.exchanges) - number_ + row.more, "prompt")
            return "".join([*parts, f'<p class="quiet">{left} of this row left out: the page has no more room.</p>'])
        parts.append(shown)
    if row.more:
        parts.append(f'<p class="quiet">{number(row.more, "more prompt")} of this row left out.</p>')
    if not row.exchanges:
        parts.append(f'<p class="quiet">{text(_why_none(row, detail))}</p>')
    return "".join(parts)


def _why_none(row: RowShown, detail: Detail) -> str:
    if not row.calls:
        return "No call was sent for this row."
    kept = f"the first {detail.kept:,} of {number(detail.replies, 'prompt')} that were answered"
    return f"No prompt of this row was kept: texts are kept of {kept}, and of the first calls that failed."


def _exchange(prompt: SentPrompt) -> str:
    told = [
        f"{value:,} {name}"
        for value, name in (
            (prompt.prompt_tokens, "prompt tokens"),
            (prompt.cached_tokens, "cached"),
            (prompt.completion_tokens, "generated"),
        )
        if value is not None
    ]
    model = f", {prompt.model}" if prompt.model else ""
    head = f'<h3>{text(cut(prompt.step, 200))}<span class="quiet">{text(cut(model, 200))}</span></h3>'
    messages = [_text(role, content) for role, content in prompt.messages]
    if len(messages) > FIRST + LAST:
        left = number(len(messages) - FIRST - LAST, "message")
        messages[FIRST:-LAST] = [f'<p class="quiet">{left} left out here.</p>']
    reply = _text("reply", prompt.reply) if prompt.reply else '<p class="quiet">no reply, or an empty one</p>'
    said = f'<p class="quiet">{text(", ".join(told))}</p>' if told else ""
    return f'<article class="exchange">{head}{"".join(messages)}{reply}{said}</article>'


def _text(role: str, content: str) -> str:
    left = len(content) - MOST_TEXT
    note = f'<p class="quiet">{left:,} more characters are cut off.</p>' if left > 0 else ""
    shown = text(content[:MOST_TEXT])
    return f'<p class="role">{text(role)}</p><pre tabindex="0">{shown}</pre>{note}'
