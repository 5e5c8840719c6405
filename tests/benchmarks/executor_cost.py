"""What the executor itself costs: calls a second on one core against an engine that answers at once, and its memory.

    python tests/benchmarks/executor_cost.py [--kept] [ROWS]

Each workflow is run over ROWS rows (20,000 by default) from a generator into a JSON Lines file, on the scripted engine
with no delay. Seconds are of the whole run, input and output included. With `--kept` each call goes to a journal and to
a result store as well, as those of `helix run` do. The promise is 2,000 calls a second.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any

PROMISED = 2000

WORKFLOWS = {
    "one step": 'x = llm { user "{{ a }}" }\noutput x',
    "two steps": 'x = llm { user "{{ a }}" }\ny = llm { user "more {{ x }}" }\noutput x, y',
    "typed reply": 'x = llm -> { ok: bool, note: text } { user "{{ a }}" }\noutput x.ok as ok, x.note as note',
    "sampled": 'x = llm(temperature: 0.8, sample: 3) { user "{{ a }}" }\noutput x',
    "equal calls": 'x = llm { user "{{ n }}" }\noutput x',
    "branch": 'if n == 0 { x = llm { user "{{ a }}" } } else { x = llm { user "no {{ a }}" } }\noutput x',
    "loop over a list": 'x = for w in ["p", "q", "r"] { v = llm { user "{{ w }} {{ a }}" } yield v }\noutput x',
    "bounded loop": 'x = ""\nrepeat up to 3 { x = llm { user "{{ a }} {{ x }}" } }\noutput x',
    "spread": 'spread ["p", "q", "r"] as w\nx = llm { user "{{ w }} {{ a }}" }\noutput x',
    "sort and limit": 'x = llm { user "{{ a }}" }\nsort by x\nlimit 1000\ny = llm { user "{{ x }}" }\noutput y',
    "group": 'x = llm { user "{{ a }}" }\ngroup by n { y = llm { user "{{ len(rows) }}" } }\noutput n, y',
}


def rows(count: int) -> Iterator[dict[str, Any]]:
    """Rows of about 200 characters."""
    for number in range(count):
        yield {"a": f"{number} " + "x" * 200, "n": number % 7}


def measure(name: str, count: int, folder: str, kept: bool) -> None:
    """Runs one workflow and prints its figures as JSON."""
    import helix
    from helix.executor.engines.scripted import ScriptedEngine

    workflow = helix.loads(f"workflow t(a: text, n: int)\n{WORKFLOWS[name]}\n")
    engine = ScriptedEngine(keep_log=False)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = process_time()
    options: dict[str, Any] = {"store": Path(folder) / "store", "resume": True} if kept else {}
    output = Path(folder) / "out.jsonl"
    report = workflow.run(rows(count), engine=engine, output=output, concurrency=64, **options).report
    cpu = process_time() - began
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(json.dumps([engine.calls, report.merged, report.seconds, cpu, grown]))


def main() -> None:
    """Measures each workflow in a process of its own, so that its memory is its own."""
    given = [argument for argument in sys.argv[1:] if argument != "--kept"]
    kept = len(given) < len(sys.argv) - 1
    count = int(given[0]) if given else 20_000
    print(f"{count:,} rows, 64 at once{', all calls kept' if kept else ''}\n")
    print(f"{'workflow':<18}{'calls':>9}{'merged':>9}{'calls/s':>10}{'ms CPU/call':>13}{'MB grown':>10}")
    slow: list[str] = []
    for name in WORKFLOWS:
        with tempfile.TemporaryDirectory() as folder:
            arguments = [sys.executable, __file__, "--measure", name, str(count), folder, *(["--kept"] if kept else [])]
            done = subprocess.run(arguments, capture_output=True, text=True, check=True)
        calls, merged, seconds, cpu, grown = json.loads(done.stdout)
        rate = (calls + merged) / seconds
        each = 1000 * cpu / (calls + merged)
        print(f"{name:<18}{calls:>9,}{merged:>9,}{rate:>10,.0f}{each:>13.3f}{grown:>10.0f}", flush=True)
        if (calls + merged) / cpu < PROMISED:
            slow.append(name)
    if slow:
        sys.exit(f"below {PROMISED:,} calls a second of one core: {', '.join(slow)}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(sys.argv[2], int(sys.argv[3]), sys.argv[4], "--kept" in sys.argv)
    else:
        main()
