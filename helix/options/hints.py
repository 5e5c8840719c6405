"""What to write instead of a command line that does not parse."""

from __future__ import annotations

import re

import click


def usage_hint(error: click.ClickException) -> str | None:
    """The help line for a mistake that people make; None where click's own message says enough."""
    if not isinstance(error, click.UsageError) or error.ctx is None:
        return None
    extra = re.search(r"unexpected extra argument \((\S+)\)", error.message)
    if extra is not None and any(parameter.name == "source" for parameter in error.ctx.command.params):
        return f"rows are named by an option: --input {extra[1]}"
    return None
