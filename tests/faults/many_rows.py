"""Runs a table of many rows through two steps from the command line: peak memory, pace over time, progress, result.

    python tests/faults/many_rows.py --rows 1000000

The pace is in rows for each second of processor time, so that it does not hang on what else the machine does. It reads
/proc, so it needs Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fault_figures import Figure
from running import Folder

TEXT = """workflow many(a: text, n: int)

first = llm { user "First of {{ a }}" }
second = llm { user "Second of {{ first }} and {{ n }}" }
output n, second
"""
_ROWS_DONE = re.compile(r"([\d,]+) of ([\d,]+) rows")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(kw_only=True)
class Measured:
    """What a run took. `paces` are rows for each second of processor time, in the first to
    the last tenth of it, `memory` what it had at those times."""

    figure: Figure
    peak_mb: float
    seconds: float
    cpu_seconds: float
    paces: list[float]
    memory: list[float]
    progress: list[tuple[int, int]]
    said: str


def rows(count: int) -> Iterator[dict[str, Any]]:
    """The input."""
    for number in range(count):
        yield {"a": f"row {number} {'x' * 60}", "n": number % 1000}


def measure(count: int, path: Path, *more: str) -> Measured:
    """Runs so many rows in a folder."""
    folder = Folder(path)
    folder.workflow(TEXT)
    folder.rules({"step": "second", "match": r"(\d+)$", "reply": r"second of \1"})
    with (path / "rows.jsonl").open("w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows(count))
    began = time.monotonic()
    process = folder.start("-o", "out.jsonl", "-c", "64", *more, stdout=None)
    said: list[bytes] = []
    assert process.stderr is not None
    reader = threading.Thread(target=lambda: said.extend(process.stderr or ()))
    reader.start()
    samples = [(0.0, 0.0, 0)]
    while True:
        # Not by Popen, which does not tell of memory.
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        if ended:
            break
        samples.append((_cpu(process.pid), _memory(process.pid), _kept(path)))
        time.sleep(0.2)
    process.returncode = os.waitstatus_to_exitcode(status)
    reader.join()
    process.stderr.close()
    seconds = time.monotonic() - began
    text = b"".join(said).decode()
    if process.returncode != 0:
        raise RuntimeError(f"ended with {process.returncode}: {text}")
    figure = _looked_at(path / "out.jsonl", count, usage.ru_maxrss / 1024)
    return Measured(
        figure=figure,
        peak_mb=usage.ru_maxrss / 1024,
        seconds=seconds,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        paces=_paces(samples, count, _kept(path)),
        memory=_memories(samples, _kept(path)),
        progress=[
            (int(done.replace(",", "")), int(of.replace(",", "")))
            for done, of in _ROWS_DONE.findall(text)
            if "cannot be used" not in text
        ],
        said=text,
    )


def _looked_at(result: Path, count: int, peak_mb: float) -> Figure:
    """Compares a result with what it has to be, row by row."""
    seen = bytearray(count)
    duplicated = reordered = changed = 0
    last = -1
    with result.open() as file:
        for row in map(json.loads, file):
            number = row["_row"]
            duplicated += seen[number]
            seen[number] = 1
            reordered += number < last
            last = number
            changed += (row["n"], row["second"], row["_error"]) != (number % 1000, f"second of {number % 1000}", None)
    return Figure(
        family=f"{count:,} rows",
        tried=count,
        lost=count - sum(seen),
        duplicated=duplicated,
        reordered=reordered,
        changed=changed,
        peak_mb=peak_mb,
    )


def _cpu(pid: int) -> float:
    """The processor time of a process so far, in seconds."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _memory(pid: int) -> float:
    """The memory that a process has now, in MB."""
    try:
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0.0
    return int(found[1]) / 1024 if found else 0.0


def _kept(path: Path) -> int:
    """How much the run has written down of finished calls: it grows with each."""
    return sum(each.stat().st_size for each in path.glob(".helix/runs/*/journal"))


def _tenths(samples: list[tuple[float, float, int]], size: int) -> list[tuple[float, float, int]]:
    """The first sample of each tenth of the run, and the last one."""
    running = [sample for sample in samples if sample[2]]
    first = [next((each for each in running if each[2] >= size * tenth / 10), running[-1]) for tenth in range(10)]
    return [*first, running[-1]]


def _paces(samples: list[tuple[float, float, int]], count: int, size: int) -> list[float]:
    """Rows for each second of processor time in each tenth of the run."""
    return [
        count * (after[2] - before[2]) / size / max(1e-9, after[0] - before[0])
        for before, after in pairwise(_tenths(samples, size))
    ]


def _memories(samples: list[tuple[float, float, int]], size: int) -> list[float]:
    """The memory in MB at the begin of each tenth of the run, and at its end."""
    return [memory for _, memory, _ in _tenths(samples, size)]


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description="Run a large table through two steps.")
    parser.add_argument("--rows", type=int, default=100_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(given.rows, Path(folder))
    print(found.figure)
    print(f"peak {found.peak_mb:.0f} MB, {found.seconds:.0f} s, {found.cpu_seconds:.0f} s of processor time")
    print("rows a second of processor time, by tenths: " + " ".join(f"{pace:,.0f}" for pace in found.paces))
    print("MB of memory, by tenths: " + " ".join(f"{memory:.0f}" for memory in found.memory))
    print(f"{len(found.progress)} lines of progress, the last {found.progress[-1:]}")
    print(found.said[-400:])
    sys.exit(0 if found.figure.whole else 1)


if __name__ == "__main__":
    main()
