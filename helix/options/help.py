"""Help that ends with examples: the last lines of a command's docstring, below a `\\b`."""

from __future__ import annotations

import inspect
from typing import Any

import click

_MARK = "\n\n\b\n"


class ExampleCommand(click.Command):
    """A command whose docstring ends with lines to copy; its help ends with them. `examples` are these lines."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        text, _, examples = inspect.cleandoc(kwargs.get("help") or "").rpartition(_MARK)
        if text:
            kwargs["help"] = text
        self.examples: tuple[str, ...] = tuple(examples.splitlines()) if text else ()
        super().__init__(*args, **kwargs)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the examples at the end, never wrapped: they are to be copied."""
        super().format_epilog(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


class ExampleGroup(ExampleCommand, click.Group):
    """A group whose commands are such, and that is one itself."""

    command_class = ExampleCommand
