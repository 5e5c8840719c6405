"""The command `helix`. Results go to standard output or a file, everything said to a person to standard error.

Exit codes: 0 all rows well; 1 an internal error; 2 the workflow, the input or the options are wrong and nothing was
done; 3 some rows failed or a limit was reached; 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from helix import __version__
from helix.errors import HelixError, OptionError
from helix.options.bench import bench
from helix.options.complete import complete_values
from helix.options.completion import completion
from helix.options.files import constants_of as _constants
from helix.options.files import load_workflow as _load
from helix.options.help import ExampleGroup
from helix.options.hints import usage_hint
from helix.options.simulate import simulate
from helix.options.tools import access_options, tools
from helix.options.traces import traces
from helix.options.watch import WATCHED, watch_options
from helix.progress import MODES, clean

WRONG, FAILED, INTERRUPTED = 2, 3, 130
_HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_set = click.option(
    "--set", "constants", multiple=True, metavar="NAME=VALUE", help="Give a constant of the workflow another value."
)


_store = click.option(
    "--store",
    metavar="FOLDER",
    envvar="HELIX_STORE",
    type=click.Path(path_type=Path),
    help="Where results are kept (default: .helix in the current folder).",
)


def main() -> None:
    """The entry point: runs a command and turns what goes wrong into one message and an exit code."""
    sys.exit(_guarded())


def _guarded() -> int:
    try:
        result = cli.main(prog_name="helix", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        if (hint := usage_hint(error)) is not None:
            click.echo(f"  help: {hint}", err=True)
        return WRONG
    except HelixError as error:
        click.echo(clean(error.render()), err=True)
        return WRONG
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader is gone: nothing can be said to it, and Python must not try again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        if os.environ.get("HELIX_DEBUG"):
            raise
        click.echo(clean(f"internal error: {type(error).__name__}: {error}"), err=True)
        click.echo("  help: this is a fault of Helix; HELIX_DEBUG=1 shows where", err=True)
        return 1


@click.group(cls=ExampleGroup, context_settings=_HELP)
@click.version_option(__version__, prog_name="helix")
def cli() -> None:
    """Runs batches of multi-step LLM workflows as optimized query plans.

    \b
    helix init triage
    helix explain triage/feedback.helix -i triage/feedback.jsonl
    helix run triage/feedback.helix -i triage/feedback.jsonl -o replies.csv
    """


@cli.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path())
def init(folder: Path) -> None:
    """Write a starter workflow and its rows into FOLDER (default: here).

    \b
    helix init triage
    helix run triage/feedback.helix --input triage/feedback.jsonl
    """
    starter = Path(__file__).with_name("starter")
    files = sorted(each for each in starter.iterdir() if each.is_file())
    taken = [each.name for each in files if (folder / each.name).exists()]
    if taken:
        raise OptionError(f"{folder} already holds {', '.join(taken)}; nothing was written")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for each in files:
            (folder / each.name).write_bytes(each.read_bytes())
    except OSError as error:
        raise OptionError(f"{folder} cannot be written: {error.strerror}") from None
    workflow, rows = (folder / name for name in ("feedback.helix", "feedback.jsonl"))
    click.echo(f"wrote {workflow} and {rows}; run it on the embedded model with\n")
    click.echo(f"  helix run {workflow} --input {rows}")


@cli.command()
@click.argument("files", nargs=-1, required=True)
@_set
@click.option("--json", "as_json", is_flag=True, help="Print mistakes and warnings as JSON, for editors.")
@click.option("--as", "named", metavar="FILE", help="What standard input (`-`) is called, and lies beside.")
def check(files: tuple[str, ...], constants: tuple[str, ...], as_json: bool, named: str | None) -> int:
    """Find mistakes in workflow FILES without running anything; `-` is standard input.

    \b
    helix check support.helix
    helix check *.helix --set tone=warm
    helix check - --as support.helix --json < unsaved.helix
    """
    from helix.commands.check import check_command

    return check_command(files, _constants(constants), _load, as_json=as_json, named=named)


@cli.command()
@click.argument("files", nargs=-1, required=True)
@click.option("--check", "only_check", is_flag=True, help="Change nothing; exit 3 where a file would change.")
@click.option("--stdout", "to_stdout", is_flag=True, help="Print the text instead of writing the file.")
def fmt(files: tuple[str, ...], only_check: bool, to_stdout: bool) -> int:
    """Rewrite workflow FILES in the one layout. With --stdout print instead, also a workflow in a Python file.

    \b
    helix fmt support.helix
    helix fmt --check *.helix
    helix fmt support.py --stdout
    """
    from helix import api
    from helix.commands.files import write_whole

    changed = 0
    for file in files:
        text = api.to_text(_load(file))
        if to_stdout:
            click.echo(text, nl=False)
            continue
        if not file.endswith(".helix"):
            raise OptionError(f"{file} is not a workflow file; --stdout prints it as one")
        path = Path(file)
        if path.read_bytes() == text.encode("utf-8"):
            continue
        changed += 1
        if only_check:
            click.echo(f"{file}: would change", err=True)
        else:
            write_whole(str(path), text)
            click.echo(f"{file}: changed", err=True)
    return FAILED if only_check and changed else 0


@cli.command()
@click.argument("file")
@click.option(
    "--input", "-i", "source", metavar="PATH", help="Estimate for these rows: JSONL, CSV, Parquet, Arrow; `-` is stdin."
)
@click.option("--input-format", metavar="FORMAT", help="jsonl, json, csv, tsv, parquet or arrow, whatever the suffix.")
@click.option("--limit", type=int, metavar="N", help="Only the first N rows of the input.")
@click.option("--engine", "-e", metavar="ADDRESS", help="Count tokens with this engine's tokenizer, where it has one.")
@click.option("--model", "-m", metavar="NAME", help="The model of every llm step, whatever the workflow says.")
@click.option("--analyze", is_flag=True, help="Run the optimized plan and show what was measured beside the estimates.")
@click.option(
    "--concurrency", "-c", type=int, metavar="N", help="Calls in flight at once (default: as the engine runs, else 16)."
)
@click.option("--rules", metavar="A,B", help="Apply only these rules; `none` is no rule at all.")
@click.option("--without", metavar="A,B", help="Leave these rules out.")
@click.option("--prices", metavar="P,R[,C]", help="Prices of a million tokens: prompt, reply, cached prompt.")
@click.option(
    "--ranks", type=click.IntRange(1), metavar="N", help="Schedule for N workers (default: the engine's, or 1)."
)
@click.option(
    "--kv-tokens",
    type=click.IntRange(1),
    metavar="N",
    help="Schedule for KV caches of N tokens a worker (default: the engine's).",
)
@click.option(
    "--plan-budget",
    type=click.FloatRange(0),
    metavar="SECONDS",
    default=1.0,
    show_default=True,
    help="Time for a better order than the first one found; at most a hundredth of the run's.",
)
@_set
@click.option(
    "--stage",
    type=click.Choice(["all", "logical", "optimized", "tree", "physical", "cost"]),
    default="all",
    show_default=True,
    help="What to show.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "mermaid", "dot", "html"]),
    help="How to show it: html is a page of its own, mermaid and dot are graphs (default: by --output, else text).",
)
@click.option("--output", "-o", "target", metavar="PATH", help="Write it here instead of to standard output.")
@click.option("--patterns", metavar="FILE.json", help="Show which calls of agents these patterns would make ahead.")
@click.option("--verbose", "-v", is_flag=True, help="Add each rule's law, and the rules that changed nothing.")
@click.option("--width", type=click.IntRange(40), help="Columns to fit into (default: those of the terminal).")
@_store
@access_options
@click.option("--quiet", "-q", is_flag=True, help="Show no progress of --analyze.")
def explain(file: str, constants: tuple[str, ...], store: Path | None, **options: Any) -> int:
    """Show what a workflow will do: its plan, what the optimizer makes of it, and what it costs.

    \b
    helix explain support.helix
    helix explain support.helix -i tickets.csv --prices 0.15,0.60 -o support.html
    helix explain support.helix -i tickets.csv --limit 20 -e embedded --analyze
    """
    from helix.commands.explain import explain_command
    from helix.executor.store.settings import FOLDER

    return explain_command(_load(file), constants=_constants(constants), store=store or FOLDER, **options)


@cli.command()
@click.argument("file")
@click.option(
    "--input", "-i", "source", metavar="PATH", help="The rows: JSONL, CSV, Parquet, Arrow; `-` is standard input."
)
@click.option(
    "--output",
    "-o",
    "target",
    metavar="PATH",
    default="-",
    help="The result, by its suffix (default: JSONL on standard output).",
)
@click.option("--input-format", metavar="FORMAT", help="jsonl, json, csv, tsv, parquet or arrow, whatever the suffix.")
@click.option("--output-format", metavar="FORMAT", help="jsonl, csv, tsv, parquet or arrow, whatever the suffix.")
@click.option(
    "--engine",
    "-e",
    metavar="ADDRESS",
    envvar="HELIX_ENGINE",
    help="embedded (default), embedded:FILE.gguf, http://HOST:PORT/v1, sglang://HOST:PORT, scripted[:FILE.toml].",
)
@click.option(
    "--model",
    "-m",
    metavar="NAME",
    envvar="HELIX_MODEL",
    help="The model of every llm step, whatever the workflow says.",
)
@click.option(
    "--concurrency", "-c", type=int, metavar="N", help="Calls in flight at once (default: as the engine runs, else 16)."
)
@click.option(
    "--policy",
    metavar="NAME",
    default="helix",
    show_default=True,
    help="How calls are released: helix[:no-PART,...], plan, or to compare with: fcfs, lpm, cap:ROWS, "
    "query-wise[:ROWS], operator-wise[:FORM], random[:SEED], ready-random[:SEED], lspf, kvflow, parrot, "
    "thunder-agent[:SECONDS], concur[:SECONDS], helium[:FORM].",
)
@_set
@click.option("--limit", type=int, metavar="N", help="Only the first N rows of the input.")
@click.option(
    "--on-bad-row",
    type=click.Choice(["stop", "keep"]),
    default="stop",
    show_default=True,
    help="A malformed record: stop before any call, or keep it as a failed row.",
)
@click.option("--attempts", type=int, default=3, show_default=True, help="How often a call is attempted.")
@click.option("--call-timeout", metavar="TIME", help="Time for one attempt of a call: 30s, 5m, or seconds.")
@click.option("--run-timeout", metavar="TIME", help="Time for the whole run; what is not done then stays undone.")
@click.option(
    "--wait-limit",
    metavar="TIME",
    default="10m",
    show_default=True,
    help="Time to wait for an engine that is overloaded or does not answer any more.",
)
@click.option("--max-failed", metavar="N|P%", help="Stop once more rows than this have failed.")
@click.option("--max-calls", type=int, metavar="N", help="Stop after so many calls.")
@click.option("--max-tokens", type=int, metavar="N", help="Stop after so many tokens, prompts and replies together.")
@click.option("--no-merge", is_flag=True, help="Make equal calls again instead of once.")
@click.option("--tenant", metavar="NAME", help="Whose run it is: runs of others share no cached prefix with it.")
@click.option("--rules", metavar="A,B", help="Apply only these rules to the plan; `none` is no rule at all.")
@click.option("--without", metavar="A,B", help="Leave these rules out.")
@_store
@click.option("--no-store", is_flag=True, help="Keep nothing and know nothing of earlier runs.")
@click.option("--store-size", metavar="SIZE", help="The most that results may take: 500MB, 4GB (default 2GB).")
@click.option("--fresh", is_flag=True, help="Make every call again, whatever is known from earlier runs.")
@click.option("--retry-failed", is_flag=True, help="Make those calls again that failed when this was run before.")
@click.option("--report", metavar="FILE", help="Write what the run took: as a page (.html), or as JSON (.json).")
@click.option("--compare", metavar="FILE", help="Set an earlier report, .html or .json, beside it on the page.")
@click.option("--prices", metavar="P,R[,C]", help="Prices of a million tokens: prompt, reply, cached prompt.")
@click.option("--trace", metavar="FILE.jsonl", help="Write what models decided and tools gave, event by event.")
@click.option("--lane", multiple=True, metavar="NAME=N", help="Make N calls of this lane of tools at once.")
@click.option(
    "--speculate",
    metavar="MODE",
    default="off",
    show_default=True,
    help="Make reads ready that will probably be asked for: off, shadow (count what that would save), on.",
)
@click.option("--patterns", metavar="FILE.json", help="Mined patterns that say what agents will ask for.")
@access_options
@watch_options
@click.option(
    "--progress",
    type=click.Choice(MODES),
    default="auto",
    show_default=True,
    help="How far it is: live on a terminal, else lines (auto); with each step (steps); JSON lines; nothing (off).",
)
@click.option("--quiet", "-q", is_flag=True, help="Say nothing but errors.")
def run(file: str, source: str | None, target: str, constants: tuple[str, ...], quiet: bool, **options: Any) -> int:
    """Run a workflow over a table.

    \b
    helix run support.helix --input tickets.csv --output replies.parquet
    helix run support.helix -i tickets.jsonl -e http://127.0.0.1:8000/v1 -m llama-3.1-8b -c 64
    """
    from helix.commands.run import run_command
    from helix.telemetry.watching import watching

    watched = {name: options.pop(name) for name in WATCHED}
    with watching(**watched) as observers:
        return run_command(
            _load(file), source, target, constants=_constants(constants), quiet=quiet, observers=observers, **options
        )


@cli.command()
@click.argument("file", required=False)
@click.argument("extra", nargs=-1, type=click.UNPROCESSED, metavar="[-- SGLANG FLAGS]")
@click.option("--input", "-i", "source", metavar="PATH", help="Fit the settings to these rows.")
@click.option("--model", "-m", metavar="NAME_OR_PATH", help="The model to serve (default: the one the workflow names).")
@click.option("--ranks", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="Workers, a GPU each.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where the server listens.")
@click.option("--port", type=click.IntRange(1, 65535), default=30000, show_default=True, help="Its port.")
@click.option("--gpu", "gpus", metavar="A,B", help="Use only these GPUs, by their numbers.")
@click.option("--device", metavar="NAME", help="cuda, xpu, ... (default: SGLang looks for one).")
@click.option("--kv-tokens", type=click.IntRange(1), metavar="N", help="Tokens that a rank's KV cache holds.")
@click.option(
    "--kv-dtype",
    type=click.Choice(["auto", "fp8_e5m2", "fp8_e4m3"]),
    help="A KV cache of fewer bits holds more tokens.",
)
@click.option("--python", metavar="PATH", help="The Python that has SGLang (default: this one).")
@click.option("--cpu", "on_cpu", is_flag=True, help="Try it out without a GPU: installs SGLang with a tiny model.")
@_set
@click.option("--dry-run", is_flag=True, help="Only print the command.")
@click.option("--quiet", "-q", is_flag=True, help="Say nothing but that the server is ready, and errors.")
def serve(
    file: str | None, extra: tuple[str, ...], source: str | None, constants: tuple[str, ...], **options: Any
) -> int:
    """Start an SGLang server with the settings that a workflow wants, and print its command.

    \b
    helix serve support.helix --model meta-llama/Llama-3.1-8B-Instruct
    helix serve support.helix -m ./model --ranks 2 --dry-run -- --tp-size 2
    helix serve --cpu
    """
    from helix.commands.serve import serve_command

    if file is not None and file.startswith("-"):
        extra, file = (file, *extra), None
    workflow = None if file is None else _load(file)
    return serve_command(workflow, file, source, constants=_constants(constants), extra=extra, **options)


@cli.command()
@click.argument("file")
@click.option("--rows", "-n", type=click.IntRange(0), default=20, show_default=True, help="How many rows to show.")
@click.option("--columns", metavar="A,B", help="Only these columns, in this order.")
@click.option("--input-format", metavar="FORMAT", help="jsonl, json, csv, tsv, parquet or arrow, whatever the suffix.")
@click.option("--width", type=click.IntRange(40), help="Columns to fit into (default: those of the terminal).")
@click.option("--cell", type=click.IntRange(1), default=200, show_default=True, help="Characters of a value to show.")
def show(file: str, rows: int, columns: str | None, input_format: str | None, width: int | None, cell: int) -> None:
    """Print the first rows of a table FILE: a result, or any input; `-` is standard input.

    \b
    helix show replies.parquet
    helix run support.helix -i tickets.jsonl | helix show -
    """
    from helix.executor.tables.preview import read_preview
    from helix.preview import print_preview

    found = read_preview(file, rows=rows, format=input_format)
    print_preview(found if columns is None else found.only(columns), width=width, cell=cell)


cli.add_command(bench)
cli.add_command(completion)
cli.add_command(tools)


cli.add_command(simulate)
cli.add_command(traces)


@cli.group(cls=ExampleGroup)
def cache() -> None:
    """Look at the results that runs have kept, or remove them.

    \b
    helix cache show
    helix cache clear --older-than 30d
    """


@cache.command("show")
@_store
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True, help="How to show it."
)
def cache_show(store: Path | None, form: str) -> int:
    """Print what a store holds: results by model and step, and the runs that can be resumed.

    \b
    helix cache show
    helix cache show --store shared --format json
    """
    from helix.commands.cache import show_command
    from helix.executor.store.settings import FOLDER

    return show_command(store or FOLDER, form)


@cache.command("clear")
@_store
@click.option("--older-than", metavar="TIME", help="Only what was not used for so long: 12h, 30d.")
@click.option("--keep-runs", is_flag=True, help="Remove results alone; runs can still be resumed.")
@click.option("--yes", "-y", "sure", is_flag=True, help="Do not ask.")
def cache_clear(store: Path | None, older_than: str | None, keep_runs: bool, sure: bool) -> int:
    """Remove results, and what is kept of runs.

    \b
    helix cache clear
    helix cache clear --older-than 30d --yes
    """
    from helix.commands.cache import clear_command
    from helix.executor.store.settings import FOLDER

    return clear_command(store or FOLDER, older_than, keep_runs, sure)


complete_values(cli)
