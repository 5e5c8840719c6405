"""How fast the simulator is: simulated calls for each second of this process's CPU.

Run as `python tests/benchmarks/simulator_speed.py [CALLS] [--only engine|executor]`. Two figures: the engine alone with
calls made straight at it (a shared beginning of 500 tokens for every ten calls, 300 tokens of their own, 200 of reply,
256 in flight), and a whole run of a workflow with the executor and the helix policy, from a file into a file. Printed
for each: calls, seconds of CPU, calls a second, the seconds that were simulated, the peak memory of the process so far,
and the digest of the events.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import helix
from helix.executor.engines.base import Message, Request
from helix.executor.engines.sim import SimEngine, SimSettings, run_virtual
from helix.simulation.cost import published_cost

RSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes
IN_FLIGHT = 256
WORKFLOW = """
workflow speed(context: text, question: text)

model m {
  temperature: 0
}

draft = llm m {
  system "{{ context }}"
  user "{{ question }} Answer."
}

check = llm m {
  system "{{ context }}"
  user "{{ question }} Check this: {{ draft }}"
}

output check
"""


def engine() -> SimEngine:
    settings = SimSettings(kv_tokens=400_000, policy="lpm", max_running=128, reply_tokens=200)
    return SimEngine(settings, published_cost("h100"), keep_events=False)


async def straight(made: SimEngine, calls: int) -> float:
    """Calls at the engine itself, so many in flight."""
    await made.open(concurrency=IN_FLIGHT)
    numbers = iter(range(calls))

    async def client() -> None:
        for number in numbers:
            text = f"{number // 10:08}" * 250 + f"{number:08}" * 150
            await made.generate(Request(model=None, messages=(Message(role="user", content=text),)))

    await asyncio.gather(*(client() for _ in range(IN_FLIGHT)))
    return asyncio.get_running_loop().time()


def told(what: str, calls: int, began: float, simulated: float, made: SimEngine) -> None:
    cpu = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT / 1e6
    print(
        f"{what}: {calls:,} calls in {cpu:.2f} s of CPU, {calls / cpu:,.0f} a second; {simulated:,.1f} s simulated, "
        f"hit rate {made.figures.cached / made.figures.asked:.1%}, peak {peak:,.0f} MB, log {made.log.digest[:16]}",
        flush=True,
    )


def whole(calls: int, folder: Path) -> tuple[int, float, SimEngine]:
    """A run of a workflow of two steps; gives its calls, its simulated seconds and the engine."""
    source = folder / "rows.jsonl"
    with source.open("w", encoding="utf-8") as file:
        for at in range(calls // 2):
            row = {"context": f"{at // 10:08}" * 250, "question": f"{at:08}" * 100}
            file.write(json.dumps(row) + "\n")
    made = engine()
    result = helix.loads(WORKFLOW).run(source, engine=made, output=folder / "out.jsonl")
    return result.report.calls, result.report.seconds, made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("calls", nargs="?", type=int, default=10_000)
    parser.add_argument("--only", choices=["engine", "executor"])
    given = parser.parse_args()
    if given.only != "executor":
        made = engine()
        began = time.process_time()
        told("engine alone", given.calls, began, run_virtual(straight(made, given.calls)), made)
    if given.only != "engine":
        with TemporaryDirectory() as folder:
            began = time.process_time()
            calls, simulated, made = whole(given.calls, Path(folder))
        told("with the executor", calls, began, simulated, made)


if __name__ == "__main__":
    main()
