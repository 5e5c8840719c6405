"""The options of `helix bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from helix.options.help import ExampleCommand

_HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.command(cls=ExampleCommand, context_settings=_HELP)
@click.argument("workloads", nargs=-1)
@click.option("--quick", "quickly", is_flag=True, help="A first look: small batches, one seed, few methods; minutes.")
@click.option(
    "--table",
    default="runs",
    show_default=True,
    metavar="NAME",
    help="runs, stand, table2, table3, table4, table5, figures, agents, ranks: what is run, and shown beside what.",
)
@click.option("--regime", "regimes", metavar="A,B", help="ample, pressure, redundant, ranks (default: the table's).")
@click.option("--order", "orders", metavar="A,B", help="Rows grouped or shuffled (default: the regime's).")
@click.option(
    "--policy",
    "methods",
    metavar="A,B",
    help="Only these methods: policies, with @N for N calls at once, +mixed on a server that mixes passes.",
)
@click.option("--seeds", type=click.IntRange(1), default=5, show_default=True, metavar="N", help="Runs of each kind.")
@click.option("--groups", type=click.IntRange(1), metavar="N", help="Groups of rows (default: as published).")
@click.option("--gpu", default="h100", show_default=True, metavar="NAME", help="h100, h200 or a100.")
@click.option("--ranks", metavar="N,M", help="Workers (default: the table's, mostly 2).")
@click.option("--price", type=click.FloatRange(0), metavar="P", help="The price of a GPU for an hour.")
@click.option(
    "--data", metavar="FOLDER", type=click.Path(path_type=Path), help="Real texts from here, where the folder has them."
)
@click.option("--jobs", "-j", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="Processes.")
@click.option(
    "--output",
    "-o",
    metavar="FILE.json",
    type=click.Path(path_type=Path),
    help="Keep results here; a run that is there is not made again.",
)
@click.option("--again", is_flag=True, help="Make these runs again, also those that are in FILE.")
@click.option(
    "--plots", metavar="FOLDER", type=click.Path(path_type=Path), help="Write a plot of the table here (SVG)."
)
@click.option("--json", "as_json", is_flag=True, help="Print results as JSON.")
@click.option("--markdown", is_flag=True, help="Print tables as Markdown.")
@click.option("--quiet", "-q", is_flag=True, help="Show no progress.")
def bench(**options: Any) -> int:
    """Compare policies on the simulated engine, on published WORKLOADS, beside published figures.

    WORKLOADS are w1-mmlu, w1-tatqa, w2-mmlu, w2-tatqa, w3-tatqa, w4, w5, trading-8 and others, or families: basic,
    trading, sized, agents.

    \b
    helix bench --quick
    helix bench --table table4 --output runs.json --jobs 4
    helix bench w5 --regime pressure --policy helix,lspf,query-wise@32 --seeds 3
    """
    from helix.commands.bench import bench_command

    return bench_command(**options)
