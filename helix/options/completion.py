"""The command `helix completion`: what has a shell complete commands, options and values."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from helix.options.help import ExampleCommand

_HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
# The variable by which a shell asks for completions.
VARIABLE = "_HELIX_COMPLETE"


@click.command(cls=ExampleCommand, context_settings=_HELP)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script by which SHELL completes commands, options, files, rules, policies and columns of `helix`.

    \b
    helix completion bash > ~/.local/share/bash-completion/completions/helix
    helix completion zsh > ~/.zfunc/_helix
    helix completion fish > ~/.config/fish/completions/helix.fish
    """
    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(ctx.find_root().command, {}, "helix", VARIABLE).source())
