"""The help of every command ends with examples that parse, and the page of the command line says the same as it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click
import pytest
from running import ROOT

from helix.cli import cli
from helix.options.help import ExampleCommand

PAGE = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")


def every(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from every(inner, (*path, name))


ALL = dict(every(cli))
NAMES = [" ".join(("helix", *path)) for path in ALL]


def examples(command: click.Command) -> tuple[str, ...]:
    assert isinstance(command, ExampleCommand), command.name
    return command.examples


def calls(line: str) -> list[list[str]]:
    """The commands of a line, without what goes into them and where their output goes."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|<>")
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    skip = False
    for word in lexer:
        if word == "|":
            found.append([])
        elif word in ("<", ">"):
            skip = True
        elif skip:
            skip = False
        else:
            found[-1].append(word)
    return found


def parse(words: list[str]) -> tuple[str, ...]:
    """Parses a command as click would before it calls it; the names of the command. Raises UsageError."""
    assert words[0] == "helix"
    context = cli.make_context("helix", words[1:])
    path: tuple[str, ...] = ()
    command: click.Command = cli
    while isinstance(command, click.Group):
        # The first one stands apart, under a name that differs between versions of click.
        first = getattr(context, "_protected_args", None) or getattr(context, "protected_args", [])
        name, command, rest = command.resolve_command(context, [*first, *context.args])
        assert name is not None
        assert command is not None
        path = (*path, name)
        context = command.make_context(name, rest, parent=context)
    return path


@pytest.mark.parametrize("path", ALL, ids=NAMES)
def test_help_ends_with_examples_that_parse(path: tuple[str, ...]) -> None:
    command = ALL[path]
    lines = examples(command)
    assert 1 <= len(lines) <= 3
    parsed = [parse(words) for line in lines for words in calls(line)]
    own = [each for each in parsed if each[: len(path)] == path]
    assert own, "no example shows the command itself"
    context = click.Context(command, info_name=" ".join(("helix", *path)), max_content_width=100)
    assert command.get_help(context).endswith("\n\nExamples:\n" + "\n".join(f"  {line}" for line in lines))


def test_an_example_with_a_wrong_option_is_found() -> None:
    for line in ("helix run w.helix --inptu rows.csv", "helix run w.helix --on-bad-row drop", "helix completion tcsh"):
        with pytest.raises(click.UsageError):
            parse(calls(line)[0])
    assert calls("helix run w.helix -i 'a b' | helix show - > out")[0][-1] == "a b"
    assert [parse(words) for words in calls("helix cache show | helix show - > out")] == [("cache", "show"), ("show",)]


@pytest.mark.parametrize("path", ALL, ids=NAMES)
def test_help_says_what_a_command_is_for_and_what_its_options_do(path: tuple[str, ...]) -> None:
    command = ALL[path]
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert parameter.help, f"{path} {parameter.name}"
            assert re.search(r"[.)]$", parameter.help), f"{path} {parameter.name}: a sentence has an end"


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_the_page_names_all_choices_of_an_option(name: str) -> None:
    found = re.search(rf"^## helix {name}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    for path, command in every(cli.commands[name], (name,)):
        for parameter in command.params:
            if not isinstance(parameter.type, click.Choice):
                continue
            if isinstance(parameter, click.Argument):
                text = found[1]
            else:
                (text,) = (line for line in found[1].splitlines() if re.match(rf"\| .*`{parameter.opts[0]}\b", line))
            for choice in parameter.type.choices:
                assert re.search(rf"(?<![\w-]){re.escape(str(choice))}(?![\w-])", text), (
                    f"{path} {parameter.name} {choice}"
                )
