"""Contract 13: memory is bounded by what is in flight, not by the table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from running import ROOT, Folder, arguments, environment, said_calls

SCRIPT = """
import json, resource, sys
import helix
from helix.executor.engines.scripted import ScriptedEngine

text, count, chars, peaks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), []

def rows():
    for number in range(count):
        yield {"a": f"{number} " + "x" * chars, "n": number % 7}

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

class Watched(ScriptedEngine):
    async def generate(self, request):
        if self.calls in (count // 5, count - 1):
            peaks.append(peak())
        return await super().generate(request)

engine = Watched(keep_log=False)
result = helix.loads(text).run(rows(), engine=engine, output=sys.argv[4])
peaks.append(peak())
print(json.dumps([peaks, engine.calls, result.report.output_rows, result.report.failed_rows, result.report.seconds]))
"""
PLAIN = 'workflow t(a: text, n: int)\nx = llm { user "{{ a }}" }\noutput n, x'


def measured(text: str, count: int, chars: int, path: Path) -> tuple[list[float], int, int, int, float]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, text, str(count), str(chars), path / "out.jsonl"],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment(None),
        cwd=ROOT,
        check=True,
    )
    found: tuple[list[float], int, int, int, float] = tuple(json.loads(done.stdout))  # type: ignore[assignment]
    return found


def test_13_memory_is_flat_over_many_rows(tmp_path: Path) -> None:
    peaks, calls, rows, failed, _ = measured(PLAIN, 20_000, 200, tmp_path)
    assert (calls, rows, failed) == (20_000, 20_000, 0)
    assert peaks[-1] - peaks[0] < 25


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "rows"),
    [
        ("output n, x", 200_000),
        ("keep when n > 0\noutput n, x", 171_428),
        ("group by n { c = len(rows) }\noutput n, c", 7),
        ("sort by x\noutput n, x", 200_000),
    ],
)
def test_13_memory_is_flat_over_200000_rows(tmp_path: Path, body: str, rows: int) -> None:
    text = PLAIN.replace("output n, x", body)
    peaks, calls, written, failed, seconds = measured(text, 200_000, 200, tmp_path)
    # The optimizer puts the filter first, so that rows which it drops are not called.
    assert (calls, written, failed) == (rows if "keep" in body else 200_000, rows, 0)
    # A group is one value and has to be whole; all else goes through in pieces.
    assert peaks[-1] - peaks[0] < (400 if "group" in body else 60)
    assert seconds < 150


@pytest.mark.slow
def test_13_failures_take_no_memory_either(tmp_path: Path) -> None:
    text = PLAIN.replace("llm", "llm(reask: 0) -> int")
    script = SCRIPT.replace("ScriptedEngine):", "ScriptedEngine):\n    _seen = 0", 1)
    assert script != SCRIPT
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            script.replace("Watched(keep_log=False)", 'Watched([{"reply": "no number " * 50}], keep_log=False)'),
            text,
            "100000",
            "200",
            tmp_path / "out.jsonl",
        ],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment(None),
        cwd=ROOT,
        check=True,
    )
    peaks, calls, _, failed, _ = json.loads(done.stdout)
    assert (calls, failed) == (100_000, 100_000)
    assert peaks[-1] - peaks[0] < 60


@pytest.mark.slow
def test_13_from_the_command_line_memory_does_not_grow_with_the_table(folder: Folder) -> None:
    folder.workflow('workflow t(a: text)\nx = llm { user "say {{ a }}" }\noutput a, x')
    watched = (
        "import resource, subprocess, sys\n"
        "code = subprocess.run(sys.argv[1:]).returncode\n"
        "print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
    )
    peaks = []
    for rows in (5_000, 50_000):
        with (folder.path / "rows.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(f'{{"a": "row {number} {"x" * 400}"}}\n' for number in range(rows))
        done = subprocess.run(
            [sys.executable, "-c", watched, *arguments(*folder.arguments("-o", "out.jsonl", "--no-store"))],
            cwd=folder.path, env=environment(None), capture_output=True, text=True, timeout=300, check=True,
        )  # fmt: skip
        code, kilobytes = map(int, done.stdout.split()[-2:])
        assert code == 0, done.stderr
        assert said_calls(done.stderr.splitlines()[-1]) == rows
        peaks.append(kilobytes)
    # The 45,000 rows more are 19 MB of text, and several times that as values.
    assert peaks[1] - peaks[0] < 40_000
