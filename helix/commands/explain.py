"""The command `helix explain`: options, where the text goes, and how wide it is."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from typing import Any

import click

from helix import api
from helix.commands.files import check_target, form_of, write_whole
from helix.dsl import Workflow
from helix.errors import OptionError
from helix.explain.explanation import Explanation
from helix.explain.text import Stage
from helix.progress import Progress, say

WELL, FAILED = 0, 3
NARROWEST = 40
_SUFFIXES = {".txt": "text", ".json": "json", ".mmd": "mermaid", ".dot": "dot", ".html": "html", ".htm": "html"}


def explain_command(
    workflow: Workflow,
    *,
    source: str | None,
    constants: dict[str, str],
    form: str | None,
    stage: Stage,
    width: int | None,
    verbose: bool,
    rules: str | None,
    without: str | None,
    prices: str | None,
    engine: str | None,
    model: str | None,
    analyze: bool,
    quiet: bool,
    target: str | None = None,
    allow_host: tuple[str, ...] = (),
    trust_server: tuple[str, ...] = (),
    secrets: str | None = None,
    **options: Any,
) -> int:
    """Explains a workflow, on standard output or in a file, and gives the exit code.

    Raises HelixError for what is wrong.
    """
    form = form_of(target, form, _SUFFIXES)
    check_target(target)
    if stage != "all" and form == "html":
        raise OptionError("--stage is for the other formats: a page shows all stages")
    if stage == "cost" and form in ("mermaid", "dot"):
        raise OptionError(f"there is no graph of the cost; --format {form} shows logical, optimized, tree or physical")
    if analyze:
        engine = engine or os.environ.get("HELIX_ENGINE")
        model = model or os.environ.get("HELIX_MODEL")
    try:
        with Progress(None, quiet=quiet) as shown:
            made = api.explain(
                workflow,
                source,
                set=constants,
                rules=None if rules is None else [] if rules == "none" else _names(rules),
                without=_names(without or ""),
                prices=price_list(prices),
                engine=engine,
                model=model,
                analyze=analyze,
                quiet=quiet,
                progress=shown.update,
                allow_hosts=allow_host or None,
                trust_servers=trust_server,
                secrets=secrets,
                **options,
            )
    except OptionError as error:
        # Settings are called as the command line does.
        name, _, rest = str(error).partition(" ")
        raise OptionError(f"--{name.replace('_', '-')} {rest}" if name in options else str(error)) from None
    if target is None:
        _print(_shown(made, form, stage, width, verbose))
    else:
        write_whole(target, _shown(made, form, stage, width, verbose, to_file=True))
        if not quiet:
            say(f"{target}: written")
    measured = made.report.measured
    return FAILED if measured is not None and (measured.failed_rows or measured.stopped) else WELL


def _shown(
    made: Explanation, form: str, stage: Stage, width: int | None, verbose: bool, *, to_file: bool = False
) -> str:
    match form:
        case "json":
            return json.dumps(made.to_json(stage=stage), ensure_ascii=False, indent=2) + "\n"
        case "mermaid":
            return made.to_mermaid(stage=stage)
        case "dot":
            return made.to_dot(stage=stage)
        case "html":
            return made.to_html()
    terminal = sys.stdout.isatty() and not to_file
    if width is None and terminal:
        width = max(NARROWEST, shutil.get_terminal_size().columns)
    color = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return made.text(stage=stage, width=width, color=color, verbose=verbose)


def _print(text: str) -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal of another encoding shows `?` where it has no such character.
        sys.stdout.reconfigure(errors="replace")
    click.echo(text, nl=False)


def _names(given: str) -> list[str]:
    return [name.strip() for name in given.split(",") if name.strip()]


def price_list(given: str | None) -> list[float] | None:
    """`--prices` as numbers. Raises OptionError."""
    if given is None:
        return None
    try:
        return [float(price) for price in given.split(",")]
    except ValueError:
        raise OptionError(f"--prices takes two or three numbers such as 0.15,0.60, found `{given}`") from None
