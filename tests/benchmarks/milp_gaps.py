"""How far the orders of policies are from the exact optimum, over small cases: `python tests/benchmarks/milp_gaps.py`.

`--seeds 5` draws so many cases of each cell, `--cells "W1 MMLU,W4"` only these. Needs the extra `bench`.
"""

from __future__ import annotations

import argparse
from time import perf_counter

from helix.bench.milp import Gaps, solve
from helix.bench.small import CELLS, case


def main() -> None:
    """Prints a line for each case, and a table of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--cells", default=",".join(CELLS))
    given = parser.parse_args()
    solved = []
    for name in given.cells.split(","):
        for seed in range(given.seeds):
            began = perf_counter()
            found = solve(case(name, seed))
            solved.append(found)
            milp = "proven" if found.by_milp.proven else f"within {100 * found.by_milp.gap:.2f} % of its bound"
            told = f"{'proven' if found.optimum.proven else 'not proven'}, MILP {milp}"
            helix = 100 * max(found.gaps("helix"))
            print(
                f"{found.case:40} {found.optimum.makespan / 1e6:6.2f}M {told}; helix {helix:.2f} %"
                f" ({perf_counter() - began:.1f} s)",
                flush=True,
            )
    print(f"\n{'policy':16} {'token steps 1e6':>24} {'gap %':>24} {'published gap %':>24}")
    for row in Gaps(solved=tuple(solved)).rows():
        steps = "{:.1f} ({:.1f}-{:.1f})".format(*(each / 1e6 for each in row.steps))
        gap = "{:.2f} ({:.2f}-{:.2f})".format(*row.gap)
        told = "" if row.published_gap is None else "{:.1f} ({:.1f}-{:.1f})".format(*row.published_gap)
        print(f"{row.policy:16} {steps:>24} {gap:>24} {told:>24}")


if __name__ == "__main__":
    main()
