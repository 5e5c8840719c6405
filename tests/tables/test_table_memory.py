"""Tables are read and written in pieces: a million rows take no more memory than a hundred thousand."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys, time
from helix.executor.tables import open_rows, open_sink
from helix.schema import Column
from helix.types import FLOAT, INT, TEXT

format, rows, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
columns = (("id", INT), ("text", TEXT), ("score", FLOAT))
made = ({"_row": i, "id": i, "text": f"What is the status of card {i}? " * 3, "score": i / 7} for i in range(rows))
source = f"{folder}/in.{format}" if format != "generator" else made
suffix = format if format != "generator" else "jsonl"
if format != "generator":
    with open_sink(source, columns) as sink:
        for row in made:
            sink.write(row)
started = time.perf_counter()
with open_rows(source, tuple(Column(*column) for column in columns)) as table:
    assert table.scan().rows == rows
    scanned = time.perf_counter() - started
    with open_sink(f"{folder}/out.{suffix}", columns) as sink:
        for row in table:
            sink.write({"_row": row.index, **row.values})
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(peak / (1024 if sys.platform != "darwin" else 1024 * 1024), scanned)
"""


def measured(format: str, rows: int, folder: str) -> tuple[float, float]:
    """The peak memory in MiB, and the seconds that the scan took."""
    command = [sys.executable, "-c", SCRIPT, format, str(rows), folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.stderr == ""
    peak, seconds = done.stdout.split()
    return float(peak), float(seconds)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format", "most"),
    [("jsonl", 1_000_000), ("csv", 400_000), ("generator", 400_000), ("parquet", 1_000_000), ("arrow", 1_000_000)],
)
def test_many_rows_stream_through(tmp_path, format, most) -> None:
    few = most // 10
    small, _ = measured(format, few, str(tmp_path))
    large, seconds = measured(format, most, str(tmp_path))
    print(f"{format}: {small:.0f} MiB at {few:,} rows, {large:.0f} MiB at {most:,}; scan {seconds:.1f} s")
    # A million rows are more than 100 MiB; what Arrow keeps in its pools varies by some.
    assert large - small < (16 if format in ("jsonl", "csv", "generator") else 64)
    if format in ("jsonl", "csv"):
        assert seconds < 60
