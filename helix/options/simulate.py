"""The options of `helix simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from helix.options.help import ExampleCommand

_HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.command(cls=ExampleCommand, context_settings=_HELP)
@click.argument("file", required=False)
@click.option(
    "--input", "-i", "source", metavar="PATH", help="The rows: JSONL, CSV, Parquet, Arrow; `-` is standard input."
)
@click.option("--input-format", metavar="FORMAT", help="jsonl, json, csv, tsv, parquet or arrow, whatever the suffix.")
@click.option("--limit", type=click.IntRange(0), metavar="N", help="Only the first N rows of the input.")
@click.option(
    "--gpu", metavar="NAME", help="The GPU: h100 (default), a100, h200, b200, l40s, ...; h100x4 is four ranks."
)
@click.option("--ranks", type=click.IntRange(1), metavar="N", help="Data-parallel workers (default: 1).")
@click.option("--pd", metavar="P:D", help="Prefill and decoding apart: P ranks that prefill, D that decode, as in 1:3.")
@click.option("--tp", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="GPUs of each rank.")
@click.option(
    "--model",
    "-m",
    metavar="NAME|PATH",
    help="The model, by name or by its config.json (default: the one that the workflow names).",
)
@click.option(
    "--cost",
    metavar="MODEL",
    help="Where times are from: linear (a published fit; the default where there is one), estimate (data sheets; the "
    "default elsewhere), aiconfigurator, or a FILE.json that --calibrate wrote (table:FILE.json: its points).",
)
@click.option("--kv-tokens", type=click.IntRange(1), metavar="N", help="Tokens that a rank's KV cache holds.")
@click.option(
    "--server",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of the simulated server: policy, page, chunk, max_running, eviction, mixed_chunk, host, ...",
)
@click.option("--policy", metavar="NAME", default="helix", show_default=True, help="How calls are released, as in run.")
@click.option(
    "--output-tokens",
    multiple=True,
    metavar="N|STEP=N",
    help="Mean length of replies, of all steps or of one (default: earlier runs, else half of max_tokens, else 256).",
)
@click.option("--price", metavar="P|GPU=P,...", help="What an hour of a GPU costs: 2.5, or h100=2.5,a100=1.3.")
@click.option("--currency", metavar="NAME", default="USD", show_default=True, help="What prices are in.")
@click.option(
    "--what-if-ranks", metavar="N,N", default="1,2,4,8", show_default=True, help="Ranks of the what-if table."
)
@click.option(
    "--what-if-gpus", metavar="A,B", help="Other GPUs of the what-if table (default: those with published fits)."
)
@click.option("--what-if-pd", metavar="P:D,P:D", help="Splits of prefill and decoding in the what-if table.")
@click.option("--no-what-if", is_flag=True, help="Only the GPUs that were asked for.")
@click.option("--no-plain", is_flag=True, help="Only the optimized plan.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Draws other replies.")
@click.option("--rules", metavar="A,B", help="Apply only these rules; `none` is no rule at all.")
@click.option("--without", metavar="A,B", help="Leave these rules out.")
@click.option("--set", "constants", multiple=True, metavar="NAME=VALUE", help="Give a constant another value.")
@click.option(
    "--store",
    metavar="FOLDER",
    envvar="HELIX_STORE",
    type=click.Path(path_type=Path),
    help="Where earlier runs were kept: how long replies are (default: .helix, if there is one).",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "html"]),
    help="How to show it; html is a page with plots (default: by the suffix of --output, else text).",
)
@click.option("--output", "-o", "target", metavar="PATH", help="Write it here instead of to standard output.")
@click.option("--width", type=click.IntRange(40), help="Columns to fit into (default: those of the terminal).")
@click.option(
    "--calibrate",
    metavar="ADDRESS",
    help="Instead: measure the passes of the server at sglang://HOST:PORT, which should be idle, or ask "
    "`aiconfigurator` for those of --model on --gpu, and write the cost model to --output.",
)
@click.option("--quiet", "-q", is_flag=True, help="Show no progress.")
def simulate(file: str | None, **options: Any) -> int:
    """Simulate the workflow FILE over a table on GPUs: how long it takes, what it costs, and what binds it.

    Nothing is called. A scheduler and a prefix cache like SGLang's run in virtual time; replies are made up.

    \b
    helix simulate support.helix -i tickets.csv --gpu h100 --ranks 2 --model llama-3.1-8b
    helix simulate support.helix -i tickets.csv -m qwen3-8b --price 2.5 --output plan.html
    helix simulate --calibrate sglang://127.0.0.1:30000 --output cost.json
    """
    from helix.commands.simulate import simulate_command

    return simulate_command(file, **options)
