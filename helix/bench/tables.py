"""What `helix bench --table NAME` runs, and how it shows what came out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from helix.bench import published
from helix.bench.cells import Cell, Outcome
from helix.bench.compare import HELIX, Compared, compare
from helix.bench.layout import Block, figure, median, percent, spread
from helix.bench.methods import METHODS, ROUTERS, compared, variants
from helix.bench.milp import Gaps
from helix.bench.results import Results
from helix.bench.table5 import gap_blocks
from helix.bench.workloads import FAMILIES, WORKLOADS
from helix.progress import count

# The aims: how many times faster than a method, where the lower bound allows it.
AIMS = {"kvflow": 1.5, "lspf": 1.3, "thunder-agent": 1.15, "helium:paper": 1.1}
# What a first look is at.
QUICK = ("w1-tatqa", "w2-tatqa", "w3-tatqa", "w4", "w5", "trading-4")
# The table that is not of runs.
OPTIMA = "table5"
# Helix may be so much slower than any other method.
WORSE = 1.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is asked for on the command line; None leaves it to the table."""

    workloads: tuple[str, ...] | None = None
    regimes: tuple[str, ...] | None = None
    orders: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    seeds: int = 5
    groups: int | None = None
    gpu: str = "h100"
    ranks: tuple[int, ...] | None = None
    data: bool = False
    price: float | None = None


Place = tuple[Any, ...]
Found = dict[Place, dict[str, Compared]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table by name. `cells` are the runs it needs, `blocks` what it shows of them."""

    name: str
    title: str
    cells: Callable[[Wish], list[Cell]]
    blocks: Callable[[Found, Wish], list[Block]]


def cells_of(
    wish: Wish,
    *,
    workloads: Sequence[str],
    regimes: Sequence[str],
    methods: Sequence[str],
    orders: Sequence[str] | None = None,
    ranks: Sequence[int] = (2,),
    groups: int | None = None,
) -> list[Cell]:
    """All runs of some workloads, regimes and methods; what was wished for comes before what a table has."""
    made = []
    for regime in wish.regimes or regimes:
        for name in wish.workloads or workloads:
            workload = WORKLOADS[name]
            for order in wish.orders or orders or _orders(regime):
                for workers in (workload.ranks,) if workload.ranks else wish.ranks or ranks:
                    for seed in range(wish.seeds):
                        for method in wish.methods or methods:
                            made += [
                                Cell(
                                    workload=name,
                                    groups=wish.groups or groups or workload.groups,
                                    regime=regime,
                                    order=order,
                                    method=each,
                                    seed=seed,
                                    gpu=wish.gpu,
                                    ranks=workers,
                                    data=wish.data,
                                )
                                for each in variants(method)
                            ]
    return list(dict.fromkeys(made))


def _orders(regime: str) -> tuple[str, ...]:
    return ("shuffled",) if regime in ("pressure", "redundant") else ("grouped", "shuffled")


# --- all columns -------------------------------------------------------------------------------------------------


def _all_cells(wish: Wish) -> list[Cell]:
    return cells_of(
        wish,
        workloads=(*FAMILIES["basic"], "trading-8"),
        regimes=("ample", "pressure", "redundant"),
        methods=compared(),
    )


def full_blocks(found: Found, wish: Wish) -> list[Block]:
    """A block for each place with a line for each method and all columns."""
    header = [
        "method", "total s", "plan s", "profile s", "warm s", "run s", "xHelix", "xLB", "p50 s", "p95 s", "p99 s",
        "rows/h", "prompt k", "prefilled k", "hit %", "/P_min", "recomputed %", "GPU-h", "match", "log",
    ]  # fmt: skip
    if wish.price is not None:
        header.insert(18, "$")
    blocks = []
    for place, methods in found.items():
        rows = [_full_row(each, methods.get(HELIX), place, wish) for each in methods.values()]
        blocks.append(
            Block(title=title_of(place, methods), header=tuple(header), rows=tuple(rows), notes=_notes(methods))
        )
    return blocks


def title_of(place: Place, methods: dict[str, Compared]) -> str:
    """What a place is, with its lower bound."""
    workload, groups, regime, order, gpu, ranks, data = place
    runs = next(iter(methods.values())).runs
    run = next(iter(runs.values()))
    return (
        f"{workload} ({WORKLOADS[workload].title}), {groups} groups = {run.rows} rows, {regime}, {order}, "
        f"{ranks} x {gpu} (sim, linear:{gpu}), KV {run.kv_tokens:,} tokens a rank{', real texts' if data else ''}; "
        f"LB {median([each.bound for each in runs.values()])} s ({run.binder}); {count(len(runs), 'seed')}"
    )


def _full_row(method: Compared, helix: Compared | None, place: Place, wish: Wish) -> tuple[str, ...]:
    runs = list(method.runs.values())
    ranks = place[5]

    def of(read: Callable[[Outcome], float | None]) -> str:
        return median([read(run) for run in runs])

    cells = [
        method.name,
        of(lambda run: run.total),
        of(lambda run: run.plan),
        of(lambda run: run.profile),
        of(lambda run: run.warm),
        of(lambda run: run.run),
        median(method.over(helix)) if helix else "-",
        of(lambda run: run.over_bound),
        of(lambda run: run.p50),
        of(lambda run: run.p95),
        of(lambda run: run.p99),
        of(lambda run: 3600 * run.rows / run.total),
        of(lambda run: run.prompt_tokens / 1000),
        of(lambda run: run.prefilled / 1000),
        of(lambda run: 100 * run.hits),
        of(lambda run: run.amplification),
        of(lambda run: 100 * run.recomputed / max(1, run.prefilled)),
        of(lambda run: ranks * run.total / 3600),
        "yes" if all(run.match for run in runs) else "NO",
        runs[0].log[:8],
    ]
    if wish.price is not None:
        price = wish.price
        cells.insert(18, of(lambda run: price * ranks * run.total / 3600))
    return tuple(cells)


def _notes(methods: dict[str, Compared]) -> tuple[str, ...]:
    made = []
    failed = {each.name: sum(run.failed for run in each.runs.values()) for each in methods.values()}
    made += [f"{name}: {count} rows failed" for name, count in failed.items() if count]
    helix = methods.get(HELIX)
    if helix is None:
        return tuple(made)
    others = [each for each in methods.values() if each.method != HELIX and not each.method.startswith("helix-")]
    if others:
        best = min(others, key=lambda each: each.total)
        made.append(f"the best of the others is {best.name}: {median(best.over(helix))} of Helix's time")
    return tuple(made)


# --- where Helix stands --------------------------------------------------------------------------------------------


def _stand_cells(wish: Wish) -> list[Cell]:
    return _all_cells(wish)


def _stand_blocks(found: Found, wish: Wish) -> list[Block]:
    """A line for each place: the ratio to each method, beside the ratio that the bound allows."""
    methods = list(dict.fromkeys(name for each in found.values() for name in each if name != HELIX))
    rows, worse = [], []
    for place, each in found.items():
        helix = each.get(HELIX)
        if helix is None:
            continue
        cells = [
            f"{place[0]} {place[1]} {place[2]} {place[3]} W{place[5]}",
            figure(helix.total),
            median([run.over_bound for run in helix.runs.values()]),
        ]
        for name in methods:
            if name not in each:
                cells.append("-")
                continue
            other = each[name]
            allowed = [run.run / run.bound for run in other.runs.values() if run.bound]
            cells.append(f"{median(other.over(helix))} of {figure(_middle(allowed))}")
            if _middle(other.over(helix)) < 1 / WORSE:
                worse.append(f"slower than {other.name} on {cells[0]}: {median(other.over(helix))}")
        rows.append(tuple(cells))
    notes = [f"aims, where the bound allows them: {', '.join(f'{name} {aim}x' for name, aim in AIMS.items())}", *worse]
    block = Block(
        title="time over Helix's, of what the lower bound allows; medians (least-most)",
        header=("place", "Helix s", "xLB", *methods),
        rows=tuple(rows),
        notes=tuple(notes),
    )
    return [block]


def _middle(values: Iterable[float]) -> float:
    known = sorted(values)
    return known[len(known) // 2] if known else float("nan")


# --- beside published tables --------------------------------------------------------------------------------------


def _present(names: Iterable[str]) -> list[str]:
    """Those of some methods that there are, each once."""
    return [name for name in dict.fromkeys(names) if name.partition("@")[0] in METHODS]


def _table_2_cells(wish: Wish) -> list[Cell]:
    names = [
        HELIX,
        "query-wise",
        *(published.STANDS_FOR[name] for name in published.TABLE_2 if name in published.STANDS_FOR),
    ]
    return cells_of(wish, workloads=FAMILIES["basic"], regimes=("ample",), methods=_present([*names, "helium:paper"]))


def _table_2_blocks(found: Found, wish: Wish) -> list[Block]:
    header = ["method (published)", "here", "published, of Helium"]
    orders = list(dict.fromkeys(place[3] for place in found))
    header += [f"ours, of Helix, {order}" for order in orders]
    rows = []
    names = {**published.TABLE_2, "Helium": (1.0, 1.0, 1.0), "vLLM, tuned": ()}
    for name, figures in names.items():
        method = published.STANDS_FOR.get(name, "query-wise" if name == "vLLM, tuned" else "")
        cells = [name, method or "not simulated", " / ".join(map(figure, figures)) or "-"]
        for order in orders:
            ratios = [
                _middle(each[method].over(each[HELIX]))
                for place, each in found.items()
                if place[3] == order and method in each and HELIX in each
            ]
            cells.append(spread(ratios))
        rows.append(tuple(cells))
    return [
        Block(
            title="Table 2: time over that of the planner; mean / least / most over the workloads",
            header=tuple(header),
            rows=tuple(rows),
            notes=(*_workloads_note(found), *published.FLAWS),
        )
    ]


def _workloads_note(found: Found) -> tuple[str, ...]:
    names = list(dict.fromkeys(f"{place[0]} ({place[1]} groups)" for place in found))
    seeds = max((len(each.runs) for methods in found.values() for each in methods.values()), default=0)
    return (f"ours: simulated, {', '.join(names)}; {count(seeds, 'seed')}",)


def _table_3_cells(wish: Wish) -> list[Cell]:
    return cells_of(
        wish,
        workloads=("trading-8",),
        regimes=("redundant",),
        methods=(HELIX, "helix-no-kv", "helix-no-rules", "helix-no-store", "helix-unordered"),
        groups=16,
    )


_ABLATED = {
    "full": HELIX,
    "no KV": "helix-no-kv",
    "no pruning": "helix-no-rules",
    "no prompt cache": "helix-no-store",
    "no CAS": "helix-unordered",
}


def _table_3_blocks(found: Found, wish: Wish) -> list[Block]:
    rows = []
    for name, seconds in published.TABLE_3.items():
        each = next((methods[_ABLATED[name]] for methods in found.values() if _ABLATED[name] in methods), None)
        helix = next((methods[HELIX] for methods in found.values() if HELIX in methods), None)
        ours = ("-", "-") if each is None or helix is None else (figure(each.total), median(each.over(helix)))
        rows.append((name, _ABLATED[name], figure(seconds), figure(seconds / published.TABLE_3["full"]), *ours))
    return [
        Block(
            title="Table 3: Trading, what each part is worth",
            header=("without (published)", "here", "published s", "of full", "ours s", "of full"),
            rows=tuple(rows),
            notes=(
                *_workloads_note(found),
                "ours: the second of two days; of its calls those on unchanged accounts are known; `no KV` has no "
                "prefix cache, `no pruning` no rule and no merging, `no CAS` the order of the plan alone",
                *published.FLAWS[3:7],
            ),
        )
    ]


def _table_4_cells(wish: Wish) -> list[Cell]:
    names = [HELIX, *(published.STANDS_FOR[name] for name in published.TABLE_4), "query-wise"]
    return cells_of(wish, workloads=("trading-8",), regimes=("ample",), methods=_present(names), groups=16)


def _table_4_blocks(found: Found, wish: Wish) -> list[Block]:
    orders = list(dict.fromkeys(place[3] for place in found))
    header = ["method", "here", "published s", "hit %"]
    for order in orders:
        header += [f"ours s, {order}", "hit %", "xHelix"]
    rows = []
    for name, (seconds, hits) in {**published.TABLE_4, "QueryWise, tuned": (None, None), "Helix": (None, None)}.items():
        method = {"Helix": HELIX, "QueryWise, tuned": "query-wise"}.get(name) or published.STANDS_FOR[name]
        cells = [name, method, figure(seconds), figure(hits)]
        for order in orders:
            methods = next(each for place, each in found.items() if place[3] == order)
            if method not in methods:
                cells += ["-", "-", "-"]
                continue
            runs = methods[method].runs.values()
            cells += [
                median([run.total for run in runs]),
                percent(_middle(run.hits for run in runs)),
                median(methods[method].over(methods[HELIX])) if HELIX in methods else "-",
            ]
        rows.append(tuple(cells))
    return [
        Block(
            title="Table 4: orders of the same calls",
            header=tuple(header),
            rows=tuple(rows),
            notes=(*_workloads_note(found), "the published size is not known to us; ours is 16 rows", *published.FLAWS),
        )
    ]


def _figure_cells(wish: Wish) -> list[Cell]:
    names = [HELIX, *(published.STANDS_FOR[name] for name in published.FIGURES_TRADING if name in published.STANDS_FOR)]
    methods = _present([*names, "helium:paper", "lpm"])
    made = cells_of(wish, workloads=FAMILIES["trading"], regimes=("ample",), methods=methods, groups=16)
    if wish.workloads is None:
        sized = [name for name in FAMILIES["sized"] if not name.endswith("-1")]
        made += cells_of(wish, workloads=sized, regimes=("ample",), methods=_present([HELIX, "ready-random", "lpm"]))
    return made


def _figure_blocks(found: Found, wish: Wish) -> list[Block]:
    made = []
    for family, claims in (("trading", published.FIGURES_TRADING), ("sized", published.FIGURES_SIZED)):
        places = {place: each for place, each in found.items() if place[0] in FAMILIES[family]}
        rows = []
        for name, most in {**claims, "all at once": None}.items():
            method = published.STANDS_FOR.get(name, "lpm" if most is None else "")
            ratios = [_middle(e[method].over(e[HELIX])) for e in places.values() if method in e and HELIX in e]
            rows.append((name, method or "not simulated", figure(most), spread(ratios)))
        if places:
            title = "Trading, 4 to 16 strategies and 2 to 5 rounds" if family == "trading" else "P1 to P6"
            made.append(
                Block(
                    title=f"Figures: {title}; speed-up over",
                    header=("method", "here", "published, most", "ours, mean / least / most"),
                    rows=tuple(rows),
                    notes=_workloads_note(places),
                )
            )
    latencies: list[tuple[str, str, str]] = []
    for place, methods in found.items():
        latencies += [
            (
                f"{place[0]} {place[3]}, {each.name}",
                median([run.p50 for run in each.runs.values()]),
                median([run.p95 for run in each.runs.values()]),
            )
            for each in methods.values()
            if each.method in (HELIX, "ready-random")
        ]
    (before50, after50), (before95, after95) = published.FIGURES_REQUEST["p50"], published.FIGURES_REQUEST["p95"]
    made.append(
        Block(
            title="Figures: seconds until a row is done, from the submission of the batch",
            header=("place", "p50", "p95"),
            rows=(
                ("published, without Helium", figure(before50), figure(before95)),
                ("published, with Helium", figure(after50), figure(after95)),
                *latencies,
            ),
            notes=published.FLAWS,
        )
    )
    return made


def _agent_cells(wish: Wish) -> list[Cell]:
    methods = (HELIX, "row-cap", "lpm", "concur", "thunder-agent")
    names = tuple(name for name in FAMILIES["agents"] if name.startswith("agents-128"))
    return cells_of(wish, workloads=names, regimes=("ample",), orders=("grouped",), methods=methods)


def _rank_cells(wish: Wish) -> list[Cell]:
    return cells_of(
        wish,
        workloads=("w1-tatqa", "w2-tatqa", "w3-tatqa", "w5", "trading-8"),
        regimes=("ranks",),
        orders=("shuffled",),
        methods=(HELIX, *ROUTERS),
        ranks=(2, 8, 64),
    )


TABLES = {
    table.name: table
    for table in (
        Table(name="runs", title="all columns of all runs", cells=_all_cells, blocks=full_blocks),
        Table(
            name="stand", title="where Helix stands, in a line for each place", cells=_stand_cells, blocks=_stand_blocks
        ),
        Table(name="table2", title="time over the planner's", cells=_table_2_cells, blocks=_table_2_blocks),
        Table(name="table3", title="what each part is worth", cells=_table_3_cells, blocks=_table_3_blocks),
        Table(name="table4", title="orders of the same calls", cells=_table_4_cells, blocks=_table_4_blocks),
        Table(name=OPTIMA, title="gaps to the exact optimum", cells=lambda wish: [], blocks=lambda found, wish: []),
        Table(name="figures", title="Trading, P1 to P6, latencies", cells=_figure_cells, blocks=_figure_blocks),
        Table(name="agents", title="agents with tools", cells=_agent_cells, blocks=full_blocks),
        Table(name="ranks", title="2, 8 and 64 ranks", cells=_rank_cells, blocks=full_blocks),
    )
}


def quick(wish: Wish) -> Wish:
    """A first look: small batches, one seed, few methods."""
    methods = (HELIX, "operator-wise", "ready-random", "lspf", "lpm", "kvflow", "helium:paper")
    return replace(
        wish,
        workloads=wish.workloads or QUICK,
        seeds=1,
        groups=wish.groups or 8,
        orders=wish.orders or ("shuffled",),
        methods=wish.methods or methods,
        regimes=wish.regimes or ("ample", "pressure"),
    )


def blocks_of(table: Table, results: Results, cells: Sequence[Cell], wish: Wish) -> list[Block]:
    """What a table shows of results."""
    if table.name == OPTIMA:
        return gap_blocks(Gaps(solved=tuple(results.optima)))
    return table.blocks(compare(results, cells), wish)


def known_workloads(names: Iterable[str]) -> tuple[str, ...]:
    """Workloads by their names and those of families."""
    made: list[str] = []
    for name in names:
        made += FAMILIES.get(name, (name,))
    return tuple(dict.fromkeys(made))
