"""The tables of `helix bench` in docs/reference/benchmark-tables.md: makes their runs, and writes them into the page.

    python tests/benchmarks/policy_tables.py --runs runs.json --seeds 5
    python tests/benchmarks/policy_tables.py --runs runs.json --page docs/reference/benchmark-tables.md

The first makes the runs in one process, all of a seed before those of the next one, and keeps each in the file: what is
there is not made again, so it can be ended at any time. `--parts ample,agents` makes or shows only these, `--list` says
which there are and how many runs each takes. The second writes what the file has into the page, in between the lines
`<!-- PART -->` and `<!-- end -->`. Each run is simulated, on one core: about 8 minutes a seed for W1 to W5, agents and
ranks together, 12 for the two parts at the published sizes. These take real texts, from the folder that `--data` names.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from helix.bench.cells import Cell, Outcome
from helix.bench.compare import HELIX, Compared, compare
from helix.bench.layout import Block, figure, median, percent
from helix.bench.results import Results
from helix.bench.runner import make_runs
from helix.bench.tables import TABLES, Found, Wish, blocks_of
from helix.bench.workloads import FAMILIES

OTHERS = ("lspf", "lpm", "kvflow", "thunder-agent", "helium:paper")
# At the published sizes: Helix also on a server that does not mix passes, the others on one that does.
MIXED = (HELIX, "helix-apart", *(f"{name}+mixed" for name in OTHERS))
MIXED_TRADING = (HELIX, "helix-apart", "lpm+mixed", "helium:paper", "helium:paper+mixed")
BASIC = FAMILIES["basic"]
MOST = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A table of the page: runs of a table of `helix bench` under some wishes. `most` are the seeds that it takes."""

    table: str
    wish: Wish
    most: int = MOST

    def cells(self, seeds: int) -> list[Cell]:
        """Its runs with the first seeds."""
        return TABLES[self.table].cells(replace(self.wish, seeds=min(seeds, self.most)))


def _stand(workloads: tuple[str, ...], regime: str, orders: tuple[str, ...], groups: int) -> Part:
    wish = Wish(workloads=workloads, regimes=(regime,), orders=orders, methods=(HELIX, *OTHERS), groups=groups)
    return Part(table="stand", wish=wish)


BOTH, SHUFFLED = ("grouped", "shuffled"), ("shuffled",)
PUBLISHED = Wish(workloads=BASIC, regimes=("ample", "pressure"), orders=SHUFFLED, methods=MIXED, data=True)
PARTS = {
    "published": Part(table="stand", wish=PUBLISHED),
    "published trading": Part(
        table="stand", wish=replace(PUBLISHED, workloads=("trading-8",), methods=MIXED_TRADING, groups=64)
    ),
    "ample": _stand(BASIC, "ample", BOTH, 64),
    "pressure": _stand(BASIC, "pressure", BOTH, 64),
    "redundant": _stand(BASIC, "redundant", SHUFFLED, 64),
    "agents": Part(table="agents", wish=Wish()),
    "ranks": Part(table="ranks", wish=Wish(workloads=("w1-tatqa", "w3-tatqa", "w5"), groups=64)),
    "trading ample": _stand(("trading-8",), "ample", SHUFFLED, 64),
    "trading pressure": _stand(("trading-8",), "pressure", SHUFFLED, 64),
    "trading redundant": _stand(("trading-8",), "redundant", SHUFFLED, 64),
    "table4": Part(table="table4", wish=Wish(), most=2),
    "table3": Part(table="table3", wish=Wish(), most=2),
    "table2": Part(table="table2", wish=Wish(), most=1),
    "figures": Part(table="figures", wish=Wish(orders=SHUFFLED), most=1),
}


def make(results: Results, parts: Iterable[str], seeds: int, folder: Path | None) -> None:
    """Makes the runs that are not there, all of a seed before those of the next one."""
    began = time.monotonic()

    def told(done: int, total: int, cell: Cell, outcome: Outcome) -> None:
        where = f"{cell.workload} {cell.regime} {cell.order} W{cell.ranks}, {cell.method}, seed {cell.seed}"
        match = "" if outcome.match and not outcome.failed else ", OTHER RESULTS"
        print(f"{time.monotonic() - began:6.0f} s {name}: {done} of {total}: {where}: {outcome.total:.1f} s{match}")
        sys.stdout.flush()

    for whole in (True, False):
        # Those that take few seeds come last: they are the longest.
        some = [name for name in parts if (PARTS[name].most == MOST) is whole]
        for count in range(1, seeds + 1):
            for name in some:
                make_runs(
                    PARTS[name].cells(count), results, folder=folder if PARTS[name].wish.data else None, progress=told
                )


def blocks(name: str, results: Results, seeds: int) -> list[Block]:
    """What a part shows of the runs that there are."""
    part = PARTS[name]
    cells = [cell for cell in part.cells(seeds) if cell in results.runs]
    if not cells:
        return []
    if part.table in ("agents", "ranks"):
        return [_short(compare(results, cells), part.table)]
    made = blocks_of(TABLES[part.table], results, cells, part.wish)
    if part.table == "figures":
        # Latencies of rows are a page of their own.
        return made[:2]
    if part.table == "table3":
        # The flaws of the published tables stand under the one before.
        return [replace(block, notes=block.notes[:2]) for block in made]
    # The page says once what this table shows.
    return [replace(block, title="", notes=block.notes[1:]) for block in made] if part.table == "stand" else made


def _short(found: Found, table: str) -> Block:
    """A line for each method in each place, with a few columns."""
    rows = []
    for place, methods in found.items():
        where = f"{place[0]}, {place[5]} ranks" if table == "ranks" else place[0]
        rows += [(where, *_figures(each, methods.get(HELIX))) for each in methods.values()]
    heads = ("place", "LB s", "method", "total s", "over Helix", "/LB", "p50 s", "p99 s", "hit %", "prefilled/P_min")
    return Block(title=TABLES[table].title, header=heads, rows=tuple(rows), notes=(_seeds(found),))


def _figures(method: Compared, helix: Compared | None) -> tuple[str, ...]:
    runs = list(method.runs.values())
    return (
        median([run.bound for run in runs]),
        method.name,
        median([run.total for run in runs]),
        median(method.over(helix)) if helix else "-",
        median([run.over_bound for run in runs]),
        median([run.p50 for run in runs]),
        median([run.p99 for run in runs]),
        percent(sorted(run.hits for run in runs)[len(runs) // 2]),
        figure(sorted(run.amplification for run in runs)[len(runs) // 2]),
    )


def _seeds(found: Found) -> str:
    counts = sorted({len(each.runs) for methods in found.values() for each in methods.values()})
    return f"seeds: {' to '.join(str(each) for each in counts)}"


def write(page: Path, results: Results, parts: Iterable[str], seeds: int) -> None:
    """Puts the tables in between their lines."""
    text = page.read_text("utf-8")
    for name in parts:
        made = blocks(name, results, seeds)
        if not made:
            continue
        shown = "\n".join(block.markdown() for block in made)
        pattern = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
        if not pattern.search(text):
            sys.exit(f"{page} has no line `<!-- {name} -->`, with `<!-- end -->` behind it")
        text = pattern.sub(lambda found, shown=shown: f"{found[1]}\n{shown}\n{found[2]}", text)  # type: ignore[misc]
    page.write_text(text, "utf-8")


def main() -> None:
    """Makes runs, or writes the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=Path, help="the file that keeps them")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--parts", default=",".join(PARTS), help="only these, by name")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="where the real texts are")
    parser.add_argument("--page", type=Path, help="write what there is into this page")
    parser.add_argument("--list", action="store_true", help="say what there is to make")
    given = parser.parse_args()
    parts = [name.strip() for name in given.parts.split(",")]
    unknown = [name for name in parts if name not in PARTS]
    if unknown:
        sys.exit(f"unknown part `{unknown[0]}`; there are {', '.join(PARTS)}")
    if given.list:
        for name in parts:
            print(f"{name:20} {len(PARTS[name].cells(given.seeds)):5} runs")
        return
    if given.runs is None:
        sys.exit("which file keeps the runs? Give --runs FILE")
    results = Results(given.runs)
    if given.page is None:
        if given.data is None and any(PARTS[name].wish.data for name in parts):
            sys.exit("where are the real texts? Give --data FOLDER, or leave out parts with --parts")
        make(results, parts, given.seeds, given.data)
    else:
        write(given.page, results, parts, given.seeds)


if __name__ == "__main__":
    main()
