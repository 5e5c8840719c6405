"""Reads the first rows of a table file to look at: all its columns, whatever they hold.

Nothing is checked beyond what the format needs: a text format gives texts, the others JSON values.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from helix.errors import InputError, OptionError
from helix.executor.tables.bytes_in import ByteSource, FileBytes, SpooledBytes, open_text, unreadable
from helix.executor.tables.formats import input_format, missing_file, sniff
from helix.executor.tables.rows import BadRecord, Reader, Unfit
from helix.preview import Preview
from helix.schema import Column, InputSchema
from helix.types import JSON, TEXT, optional


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
            records.append({name: f"({v.why})" if isinstance(v, Unfit) else v for name, v in record.items()})
            names.update(dict.fromkeys(record))
        if not records and known not in ("jsonl", "json"):
            names = dict.fromkeys(_names(bytes_, known))
        return Preview(name=reader.name, columns=tuple(names), rows=tuple(records[:rows]), more=len(records) > rows)


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
