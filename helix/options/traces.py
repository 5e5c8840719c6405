"""The options of `helix traces`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from helix.options.help import ExampleGroup

_HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_form = click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True, help="How to show it."
)


@click.group(cls=ExampleGroup, context_settings=_HELP)
def traces() -> None:
    """Look at recorded traces, bring in those of others, and mine them for patterns of calls.

    \b
    helix run support.helix -i tickets.jsonl -o replies.jsonl --trace run.trace.jsonl
    helix traces show run.trace.jsonl
    helix traces mine run.trace.jsonl -o patterns.json
    """


@traces.command("show")
@click.argument("file")
@click.option("--session", metavar="NAME", help="Print the events of this session.")
@_form
def show(file: str, session: str | None, form: str) -> int:
    """Print what a trace FILE holds: sessions, decisions, and calls by tool.

    \b
    helix traces show run.trace.jsonl
    helix traces show run.trace.jsonl --session 17
    """
    from helix.commands.traces import show_command

    return show_command(file, form, session)


@traces.command("import")
@click.argument("source", type=click.Path(path_type=Path))
@click.option(
    "--from",
    "form",
    required=True,
    type=click.Choice(["openai", "bfcl", "api-bank"]),
    help="OpenAI messages (as tau-bench writes them), BFCL multi-turn keys, or a folder of API-Bank.",
)
@click.option("--output", "-o", "target", required=True, metavar="FILE.jsonl", help="The trace.")
@click.option("--answers", type=click.Path(path_type=Path), metavar="FILE", help="BFCL: the calls of each turn.")
@click.option("--results", type=click.Path(path_type=Path), metavar="FILE", help="BFCL: what the calls gave.")
def import_(source: Path, form: str, target: str, answers: Path | None, results: Path | None) -> int:
    """Read the trajectories in SOURCE and write them as a trace.

    \b
    helix traces import airline.json --from openai -o airline.trace.jsonl
    helix traces import questions.json --from bfcl --answers keys.json -o bfcl.trace.jsonl
    """
    from helix.commands.traces import import_command

    return import_command(source, form, target, answers, results)


@traces.command("mine")
@click.argument("files", nargs=-1, required=True)
@click.option("--output", "-o", "target", metavar="FILE.json", help="Write the patterns here.")
@click.option("--tenant", metavar="NAME", help="Whose patterns they are; no other tenant can load them.")
@click.option("--workflow", metavar="FILE", help="Note which schemas its tools have: a change makes patterns stale.")
@click.option("--report", is_flag=True, help="Tell how good predictions are, by five folds of the traces.")
@click.option("--read-only", metavar="A,B*", help="Tools that only read (default: as the calls declare).")
@click.option("--ignore", "ignored", metavar="A,B*", help="Tools that neither count nor end what is kept.")
@click.option(
    "--thresholds", default="0,0.1,0.2,0.5", show_default=True, metavar="P,Q", help="Report: launch from these on."
)
@click.option(
    "--half-life",
    type=click.FloatRange(0),
    default=0,
    metavar="SESSIONS",
    help="What is this old weighs half (default: nothing ages).",
)
@click.option("--top", "most", type=click.IntRange(1), default=20, show_default=True, help="Patterns to show.")
@_form
def mine(files: tuple[str, ...], **options: Any) -> int:
    """Learn from trace FILES which calls follow which, and show the patterns.

    \b
    helix traces mine run.trace.jsonl
    helix traces mine airline.trace.jsonl --report --read-only 'get_*,search_*'
    helix traces mine monday.jsonl tuesday.jsonl -o patterns.json
    """
    from helix.commands.traces import mine_command

    return mine_command(files, **options)
