"""What a shell offers for the values of options and arguments, by the names that these have in all commands.

It must be quick and never fail: what cannot be found out offers nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import click
from click.shell_completion import CompletionItem

Complete = Callable[[click.Context, str], Iterable[str]]


class Completed(click.types.StringParamType):
    """A text with values that a shell may offer; `files` offers those of the shell, which knows best how to quote."""

    def __init__(self, complete: Complete | None = None, *, many: bool = False) -> None:
        self._complete = complete
        self._many = many

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The values that begin so; of a list the last one is completed."""
        if self._complete is None:
            return [CompletionItem(incomplete, type="file")]
        before, comma, last = incomplete.rpartition(",") if self._many else ("", "", incomplete)
        given = set(before.split(","))
        with suppress(Exception):
            found = [each for each in self._complete(ctx, last) if each.startswith(last) and each not in given]
            return [CompletionItem(f"{before}{comma}{each}") for each in found]
        return []


def complete_values(command: click.Command) -> None:
    """Lets the shell complete the texts that a command and those below it take."""
    for each in _commands(command):
        for parameter in each.params:
            known = _BENCH.get(parameter.name or "") if each.name == "bench" else None
            known = known or _KNOWN.get(parameter.name or "")
            if known is not None and type(parameter.type) is click.types.StringParamType:
                parameter.type = known


def _commands(command: click.Command) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        for each in command.commands.values():
            yield from _commands(each)


# --- values ---------------------------------------------------------------------------------------------------------


def _rules(ctx: click.Context, incomplete: str) -> Iterable[str]:
    from helix.optimizer.rules import RULES

    names = [rule.__name__ for rule in RULES]
    return ["none", *names] if ctx.params.get("rules") is None else names


def _policies(ctx: click.Context, incomplete: str) -> Iterable[str]:
    from helix.executor.policies.choose import FORMS

    return [form.partition("[")[0].partition(":")[0] for form in FORMS]


def _engines(ctx: click.Context, incomplete: str) -> Iterable[str]:
    return "embedded", "scripted", "sglang://", "http://", "https://", "sim:"


def _gpus(ctx: click.Context, incomplete: str) -> Iterable[str]:
    from helix.simulation.gpus import GPUS

    return GPUS


def _formats(ctx: click.Context, incomplete: str) -> Iterable[str]:
    from helix.executor.tables.formats import INPUT_FORMATS

    return INPUT_FORMATS


def _written(ctx: click.Context, incomplete: str) -> Iterable[str]:
    from helix.executor.tables.formats import OUTPUT_FORMATS

    return OUTPUT_FORMATS


def _modes(ctx: click.Context, incomplete: str) -> Iterable[str]:
    return "off", "shadow", "on"


def _file(ctx: click.Context) -> str | None:
    """The file that the command is about, as far as the line goes; None for standard input, which is the shell's."""
    # A line that ends in an option without its value is not parsed to its end: what stands alone is left over.
    given = [ctx.params.get("file"), *(ctx.params.get("files") or ()), *ctx.args]
    return next((each for each in given if each is not None and os.path.isfile(each)), None)


def _columns(ctx: click.Context, incomplete: str) -> Iterable[str]:
    from helix.executor.tables.preview import read_preview

    file = _file(ctx)
    return () if file is None else read_preview(file, rows=1, format=ctx.params.get("input_format")).columns


def _constants(ctx: click.Context, incomplete: str) -> Iterable[str]:
    from helix.options.files import load_workflow
    from helix.syntax import Let

    file = _file(ctx)
    if file is None or not file.endswith(".helix"):
        # To load a Python file is to run it.
        return ()
    return [f"{each.name}=" for each in load_workflow(file).syntax.statements if isinstance(each, Let)]


def _bench(name: str) -> Complete:
    def values(ctx: click.Context, incomplete: str) -> Iterable[str]:
        from helix.bench.cells import ORDERS, REGIMES
        from helix.bench.methods import METHODS
        from helix.bench.tables import TABLES
        from helix.bench.workloads import FAMILIES, WORKLOADS

        known: dict[str, Iterable[str]] = {
            "workloads": (*WORKLOADS, *FAMILIES), "regimes": REGIMES, "orders": ORDERS, "methods": METHODS,
            "table": TABLES,
        }  # fmt: skip
        return known[name]

    return values


_FILES = Completed()
_MANY_GPUS = Completed(_gpus, many=True)
_KNOWN: dict[str, click.types.StringParamType] = {
    **dict.fromkeys(
        ("file", "files", "source", "target", "report", "compare", "trace", "patterns", "workflow", "log_file"), _FILES
    ),
    **dict.fromkeys(("mcp_config", "secrets", "allow_files", "otel", "cost", "python", "named"), _FILES),
    **dict.fromkeys(("rules", "without"), Completed(_rules, many=True)),
    "policy": Completed(_policies),
    "engine": Completed(_engines),
    "input_format": Completed(_formats),
    "output_format": Completed(_written),
    "speculate": Completed(_modes),
    "columns": Completed(_columns, many=True),
    "constants": Completed(_constants),
    "gpu": Completed(_gpus),
    "what_if_gpus": _MANY_GPUS,
}
_BENCH: dict[str, Any] = {
    name: Completed(_bench(name), many=name not in ("workloads", "table"))
    for name in ("workloads", "regimes", "orders", "methods", "table")
}
