"""The options that say who looks on at a run: logs and traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

_OPTIONS = (
    click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        help="Log what happens, a JSON object a line, to standard error or --log-file.",
    ),
    click.option("--log-file", metavar="FILE", help="Where the log goes (level info unless --log-level says another)."),
    click.option(
        "--otel",
        metavar="URL|FILE",
        envvar="HELIX_OTEL",
        help="Send OpenTelemetry spans to a collector (http://HOST:4318/v1/traces) or into a file.",
    ),
    click.option("--otel-prompts", is_flag=True, help="Put prompts, replies and results of tools into the spans."),
)

WATCHED = ("log_level", "log_file", "otel", "otel_prompts")


def watch_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds them to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
