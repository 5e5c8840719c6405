"""Random worlds with speculation and without, in virtual time: equal outputs, and nothing that acts run on a guess.

    python tests/benchmarks/speculation_random.py [--runs N] [--first SEED] [--json]

Each run is a world of its own (`tests/speculation_world.py`): tools of all effects over state, with delays, faults that
come once, faults that stay, time limits and cancelled sessions; statements that are traps; servers that lie about what
they do; models whose next call depends on all that they saw; patterns that are sure of anything. It is run twice, and
what each session saw and left behind is compared. Exit code 1 where anything differs, or a call of a write, a
destructive or an unknown tool was started that nobody had asked for.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).parents[1]))

from speculation_world import World, forbidden, made_up_tools

from helix.executor.engines.sim.loop import run_virtual
from helix.services import Tool

# How often the first candidate is what the model will ask for; worlds that are run in one loop.
_AT_A_TIME = 500
_RIGHT = (0.6, 0.6, 0.9, 0.0, 1.0)


async def compare(seed: int, counts: dict[str, int]) -> None:
    """Runs one world both ways and counts what was found."""
    tools = made_up_tools(seed)
    plain, guessed = _world(seed, tools), _world(seed, tools)
    await plain.arun("off")
    await guessed.arun("on", state=guessed.trusted("serve" if seed % 2 else None))
    counts["runs"] += 1
    counts["calls"] += len(plain.starts)
    bad = [start for start in guessed.starts if start.guessed and forbidden(start) is not None]
    counts["forbidden"] += len(bad)
    if bad:
        print(f"seed {seed}: started on a guess: {bad[0]}", file=sys.stderr)
    whole = [name for name in plain.outputs if name not in plain.cut]
    same = all(
        plain.outputs[name] == guessed.outputs[name] and plain.state.get(name) == guessed.state.get(name)
        for name in whole
    )
    if not same:
        counts["different"] += 1
        print(f"seed {seed}: speculation changed what was seen", file=sys.stderr)
    if guessed.speculator is not None:
        figures = guessed.speculator.figures
        for name in ("launched", "hits", "late_hits", "stale", "errors", "cancelled", "compared", "differences"):
            counts[name] = counts.get(name, 0) + getattr(figures, name)


def _world(seed: int, tools: tuple[Tool, ...]) -> World:
    sizes = {"sessions": 1 + seed % 3, "turns": 4 + seed % 3}
    return World(seed, right=_RIGHT[seed % len(_RIGHT)], cancels=seed % 7 == 3, tools=tools, **sizes)


async def compare_all(first: int, runs: int, counts: dict[str, int]) -> None:
    """Compares worlds one after the other."""
    for seed in range(first, first + runs):
        await compare(seed, counts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    counts = {"runs": 0, "calls": 0, "forbidden": 0, "different": 0}
    began = perf_counter()
    for first in range(given.first, given.first + given.runs, _AT_A_TIME):
        left = given.first + given.runs - first
        run_virtual(compare_all(first, min(_AT_A_TIME, left), counts))
    if given.json:
        print(json.dumps(counts))
    else:
        print(", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in counts.items()))
        print(f"{perf_counter() - began:.0f} s")
    return 1 if counts["forbidden"] or counts["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
