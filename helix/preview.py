"""Shows the first rows of a table in the terminal, fitted to its width.

Texts are shown as they are but for control characters, which a model or a table may have put there; null is an empty
cell, lists and records are JSON, an error is its step, its kind and its message.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from helix.errors import OptionError, name_help
from helix.progress import clean

# The column of a result that is left out where it tells nothing.
_ERROR = "_error"
_NARROWEST = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The first rows of a table: what it is called, its columns in order, the rows, and whether there are more."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]
    more: bool

    def only(self, columns: str) -> Preview:
        """The same rows with some columns, given as `a,b`. Raises OptionError for one that is not there."""
        wanted = tuple(name.strip() for name in columns.split(",") if name.strip())
        for name in wanted:
            if name not in self.columns:
                raise OptionError(f"{self.name} has no column `{name}`; {name_help(name, self.columns, 'columns')}")
        return Preview(name=self.name, columns=wanted, rows=self.rows, more=self.more)


def print_preview(preview: Preview, *, width: int | None = None, cell: int = 200) -> None:
    """Prints the rows on standard output, fitted to the terminal, or to `width` columns.

    A cell has at most `cell` characters. `_error` is left out where no row has one.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal of another encoding shows `?` where it has no such character.
        sys.stdout.reconfigure(errors="replace")
    console = Console(width=max(_NARROWEST, width) if width else None, highlight=False, markup=False, emoji=False)
    if not preview.columns:
        console.print("no rows" if not preview.rows else "rows without columns")
        return
    columns = [name for name in preview.columns if name != _ERROR or _failed(preview)]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1), leading=0)
    for name in columns:
        numbers = all(_is_number(row.get(name)) for row in preview.rows)
        table.add_column(Text(clean(name)), justify="right" if numbers and preview.rows else "left", overflow="fold")
    for row in preview.rows:
        values = (_error(row.get(name)) if name == _ERROR else row.get(name) for name in columns)
        table.add_row(*(Text(_cell(value, cell)) for value in values))
    console.print(table)
    if preview.more:
        console.print(f"the first {len(preview.rows)} rows; --rows shows more")
    elif not preview.rows:
        console.print("no rows")


def error_text(error: Mapping[str, Any]) -> str:
    """A row's `_error` in a line: its step, where it has one, its kind and its message."""
    return ": ".join(str(error[name]) for name in ("step", "kind", "message") if error.get(name))


def _error(value: Any) -> Any:
    """An `_error` as a line; what is none stays as it is. CSV holds it as JSON."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return value
    return error_text(value) if isinstance(value, dict) and "kind" in value else value


def _failed(preview: Preview) -> bool:
    return any(row.get(_ERROR) not in (None, "") for row in preview.rows)


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: Any, most: int) -> str:
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
    # A line break stays; a tab would be drawn to the terminal's stops, not the table's.
    shown = clean(text.replace("\r\n", "\n").replace("\t", " ").strip("\n"))
    return shown if len(shown) <= most else shown[: most - 1] + "…"
