"""Tables in and out: rows read from files and Python objects, results written so that they appear whole."""

from helix.executor.tables.result_columns import Columns
from helix.executor.tables.rows import OnBadRow, Row, RowError, ScanReport
from helix.executor.tables.sinks import FileSink, MemorySink, RowSink, open_sink, to_arrow, to_dicts
from helix.executor.tables.source import RowSource, open_rows, scan

__all__ = [
    "Columns",
    "FileSink",
    "MemorySink",
    "OnBadRow",
    "Row",
    "RowError",
    "RowSink",
    "RowSource",
    "ScanReport",
    "open_rows",
    "open_sink",
    "scan",
    "to_arrow",
    "to_dicts",
]
