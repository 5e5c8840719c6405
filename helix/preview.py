"""The command `helix show`: the first rows of a table file as a table in the terminal, whatever its format.

Nothing is checked beyond what the format needs. Texts are shown as they are but for control characters, which a model
or a table may have put there; null is an empty cell, lists and records are JSON.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from helix.errors import InputError, OptionError, name_help
from helix.executor.tables.bytes_in import ByteSource, FileBytes, SpooledBytes, open_text, unreadable
from helix.executor.tables.formats import input_format, missing_file, sniff
from helix.executor.tables.rows import BadRecord, Reader, Unfit
from helix.progress import clean
from helix.schema import Column, InputSchema
from helix.types import JSON, TEXT, optional

# Columns that a result has beside those of its workflow, and that are left out where they tell nothing.
_ERROR = "_error"
_NARROWEST = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The first rows of a table: its columns in order, the rows, and whether there are more."""

    columns: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]
    more: bool


def show_command(
    source: str, *, rows: int, columns: str | None, input_format: str | None, width: int | None, cell: int
) -> None:
    """Prints the first rows of a file. Raises InputError where it cannot be read, OptionError for unknown columns."""
    found = read_preview(source, rows=rows, format=input_format)
    if columns is not None:
        wanted = [name.strip() for name in columns.split(",") if name.strip()]
        shown = "standard input" if source == "-" else source
        for name in wanted:
            if name not in found.columns:
                raise OptionError(f"{shown} has no column `{name}`; {name_help(name, found.columns, 'columns')}")
        found = Preview(columns=tuple(wanted), rows=found.rows, more=found.more)
    print_preview(found, width=width, cell=cell)


def read_preview(source: str, *, rows: int, format: str | None = None) -> Preview:
    """The first rows of a table file in any of the input formats; `-` is standard input.

    Raises InputError where the file cannot be read or one of those rows is malformed.
    """
    with _opened(source) as bytes_:
        named = Path(source) if isinstance(bytes_, FileBytes) else None
        known = input_format(named, format) or sniff(bytes_)
        reader = _reader(bytes_, known)
        reader.prepare()
        records: list[dict[str, Any]] = []
        names: dict[str, None] = {}
        for index, record in enumerate(islice(reader.records(), rows + 1)):
            if isinstance(record, BadRecord):
                raise record.error(reader.name, index)
            records.append(record)
            names.update(dict.fromkeys(record))
        if not records and known not in ("jsonl", "json"):
            names = dict.fromkeys(_names(bytes_, known))
        return Preview(columns=tuple(names), rows=tuple(records[:rows]), more=len(records) > rows)


@contextmanager
def _opened(source: str) -> Iterator[ByteSource]:
    bytes_: ByteSource
    if source == "-":
        if sys.stdin is None:
            raise OptionError("there is no standard input to read")
        bytes_ = SpooledBytes("standard input", sys.stdin.buffer, owned=False)
    else:
        path = Path(source)
        try:
            if path.is_dir():
                raise InputError("expected a file, found a folder", path=source)
            if not path.exists():
                raise missing_file(path)
            bytes_ = FileBytes(path) if path.is_file() else SpooledBytes(source, path.open("rb"), owned=True)
        except OSError as error:
            raise unreadable(source, error) from None
    try:
        yield bytes_
    finally:
        bytes_.close()


def _reader(source: ByteSource, format: str) -> Reader:
    """The reader of a format for all columns of the table."""
    if format == "jsonl":
        from helix.executor.tables.jsonl_in import JsonLines

        return JsonLines(source)
    if format == "json":
        from helix.executor.tables.json_in import JsonArray

        return JsonArray(source)
    if format in ("csv", "tsv"):
        from helix.executor.tables.csv_in import DelimitedText

        return DelimitedText(source, _schema(source, format), "," if format == "csv" else "\t")
    from helix.executor.tables.arrow_in import ipc_rows, parquet_rows

    return (parquet_rows if format == "parquet" else ipc_rows)(source, _schema(source, format))


def _schema(source: ByteSource, format: str) -> InputSchema:
    kind = optional(TEXT if format in ("csv", "tsv") else JSON)
    return tuple(Column(name, kind) for name in dict.fromkeys(_names(source, format)))


def _names(source: ByteSource, format: str) -> list[str]:
    """The columns that the head of a file names; none where it is no such file, which its reader says better."""
    if format in ("csv", "tsv"):
        delimiter = "," if format == "csv" else "\t"
        with open_text(source) as stream, suppress(csv.Error, UnicodeDecodeError):
            text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
            return next((row for row in csv.reader(text, delimiter=delimiter) if row), [])
        return []
    import pyarrow as pa
    import pyarrow.parquet as pq

    with source.open() as stream, suppress(pa.ArrowException, OSError):
        if format == "parquet":
            with pq.ParquetFile(stream, pre_buffer=False) as file:
                return list(file.schema_arrow.names)
        is_file = stream.read(6) == b"ARROW1"
        stream.seek(0)
        with (pa.ipc.open_file if is_file else pa.ipc.open_stream)(stream) as opened:
            return list(opened.schema.names)
    return []


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
        table.add_row(*(Text(_cell(row.get(name), cell)) for name in columns))
    console.print(table)
    if preview.more:
        console.print(f"the first {len(preview.rows)} rows; --rows shows more")
    elif not preview.rows:
        console.print("no rows")


def _failed(preview: Preview) -> bool:
    return any(row.get(_ERROR) not in (None, "") for row in preview.rows)


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: Any, most: int) -> str:
    if isinstance(value, Unfit):
        text = f"({value.why})"
    else:
        text = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
    # A line break stays; a tab would be drawn to the terminal's stops, not the table's.
    shown = clean(text.replace("\r\n", "\n").replace("\t", " ").strip("\n"))
    return shown if len(shown) <= most else shown[: most - 1] + "…"
