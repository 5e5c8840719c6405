"""The command `helix tools`, and the options that say what tools may reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from helix.options.help import ExampleCommand

_HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def access_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of commands that call tools, or look at them."""
    for option in reversed(
        (
            click.option(
                "--allow-host", multiple=True, metavar="HOST", help="Let tools over HTTP ask these hosts only."
            ),
            click.option(
                "--allow-private",
                multiple=True,
                metavar="HOST",
                help="Let tools ask this host though it lies at a private address.",
            ),
            click.option(
                "--allow-file",
                "allow_files",
                multiple=True,
                metavar="PATH",
                help="Let SQL tools read this database, or those of this folder, outside of the workflow's.",
            ),
            click.option(
                "--mcp-config",
                metavar="FILE",
                help="Where MCP servers are named (default: mcp.json beside the workflow).",
            ),
            click.option(
                "--trust-server", multiple=True, metavar="NAME", help="Believe what this MCP server says of its tools."
            ),
            click.option(
                "--secrets",
                metavar="FILE",
                help='Take ${NAME} in tools from this TOML file (NAME = "value"), else from the environment.',
            ),
        )
    ):
        command = option(command)
    return command


@click.command(cls=ExampleCommand, context_settings=_HELP)
@click.argument("file", required=False)
@click.option("--server", metavar="NAME", help="Print what this MCP server offers, as declarations.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with parameters and result as JSON Schema.")
@click.option("--no-servers", is_flag=True, help="Start and ask no MCP server.")
@click.option("--set", "constants", multiple=True, metavar="NAME=VALUE", help="Give a constant another value.")
@access_options
def tools(file: str | None, **options: Any) -> int:
    """List the tools of a workflow: what they do to the world, who says so, and what bounds them.

    \b
    helix tools support.helix
    helix tools support.helix --trust-server docs --json
    helix tools --server docs --mcp-config mcp.json
    """
    from helix.commands.tools import tools_command

    return tools_command(file, **options)
