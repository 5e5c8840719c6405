"""Runs the code blocks of a page, in their order and in one folder, and says where the page is wrong."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import json
import linecache
import os
import re
import shlex
import subprocess
import sys
import tomllib
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
from docs_markdown import Block, Page, alike, masked
from docs_servers import Servers

import helix as hx
from helix import api
from helix.cli import FAILED, cli
from helix.executor.engines.schema_value import schema_value
from helix.types import json_schema

TIME_LIMIT = 180  # seconds for the commands of one block, on a machine with much else to do
# Between the outputs of two commands: a character that no page holds.
SEPARATOR = "\x1e"


class Correction(NamedTuple):
    """What a block should show instead, and what to say about it."""

    block: Block
    text: str
    message: str


class Session:
    """The blocks of one page. `failures` says with file and line what is wrong, `corrections` which outputs are.

    With `embedded` the blocks of that flag are run on the embedded engine; without, only their options are read.
    """

    def __init__(self, page: Page, folder: Path, *, embedded: bool = False) -> None:
        self.failures: list[str] = []
        self.corrections: list[Correction] = []
        self._blocks = page.blocks
        self._home = folder / "page"
        self._home.mkdir()
        self._folder = self._home  # the current one: where `cd` of the commands so far has led
        self._embedded = embedded
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self._position = 0

    def run(self) -> None:
        """Runs all blocks; what they start by name are the programs of the tests."""
        before = os.environ.get("PATH", "")
        os.environ["PATH"] = os.pathsep.join((str(self._programs()), before))
        try:
            self._run_all()
        finally:
            os.environ["PATH"] = before

    def _run_all(self) -> None:
        while self._position < len(self._blocks):
            block = self._blocks[self._position]
            self._position += 1
            try:
                with contextlib.chdir(self._folder):
                    self._run(block)
            except Exception:
                self._fail(block, traceback.format_exc())

    def _run(self, block: Block) -> None:
        if block.title is not None:
            path = self._folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        match block.language:
            case "helix":
                self._helix(block)
            case "python":
                self._python(block)
            case "console":
                self._console(block)
            case "jsonl":
                for line in block.text.splitlines():
                    json.loads(line)
            case "json":
                json.loads(block.text)
            case "toml":
                tomllib.loads(block.text)
            case "output":
                self._fail(block, "an output without a block before it")

    def _fail(self, block: Block, message: str) -> None:
        self.failures.append(f"{block.place}: {message}")

    def _next(self, language: str) -> Block | None:
        """The block that follows, where it belongs to the present one."""
        following = self._blocks[self._position] if self._position < len(self._blocks) else None
        if following is None or following.language != language or following.title is not None:
            return None
        self._position += 1
        return following

    def _compare(self, block: Block, found: str) -> None:
        if not alike(masked(block.text), masked(found)):
            self.corrections.append(Correction(block, found, f"the output is not as shown; it is\n{found}"))

    # --- helix ---

    def _helix(self, block: Block) -> None:
        """A workflow: it is bound, and run over the rows that follow or made-up ones on the scripted engine."""
        rows, shown = self._next("jsonl"), self._next("output")
        try:
            workflow = api.loads(block.text, name=block.title or "example.helix", folder=self._folder)
            bound = workflow.check()
            found = self._table(block, workflow, bound.plan.scan.columns, rows)
        except hx.HelixError as error:
            if "wrong" not in block.flags:
                self._fail(block, error.render())
            elif shown is None:
                self._fail(block, "a wrong workflow needs an output block with its error")
            else:
                self._compare(shown, error.render())
            return
        if "wrong" in block.flags:
            self._fail(block, "no mistake was found")
        for warning in bound.warnings:
            self._fail(block, f"warning: {warning.message}")
        if shown is not None:
            self._compare(shown, found)
        elif failed := [line for line in found.splitlines() if json.loads(line)["_error"] is not None]:
            self._fail(block, f"a row failed: {failed[0]}")

    def _table(self, block: Block, workflow: hx.Workflow, columns: Any, rows: Block | None) -> str:
        """The result of a workflow as `helix run` prints it."""
        made = [
            {
                column.name: schema_value(json_schema(column.type), f"{number}{column.name}".encode())
                for column in columns
            }
            for number in range(2 if columns else 1)
        ]
        text = rows.text if rows is not None else "".join(f"{json.dumps(row)}\n" for row in made)
        source, target = self._folder / ".rows.jsonl", self._folder / ".result.jsonl"
        source.write_text(text, encoding="utf-8")
        replies = block.options.get("replies")
        engine = hx.ScriptedEngine() if replies is None else hx.ScriptedEngine.from_file(self._folder / replies)
        workflow.run(source if columns else None, output=target, engine=engine)
        return target.read_text(encoding="utf-8")

    # --- python ---

    def _python(self, block: Block) -> None:
        """A piece of Python, in one namespace with those before it on the page; `await` may stand in it."""
        shown = self._next("output")
        name = block.title or f"example_{block.line}.py"
        code = compile(block.text, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if "norun" in block.options:
            return
        # Workflow functions are read in their source, which is nowhere but here.
        linecache.cache[name] = (len(block.text), None, block.text.splitlines(keepends=True), name)
        printed = io.StringIO()
        error: hx.HelixError | None = None
        with self._imports(), contextlib.redirect_stdout(printed):
            try:
                if code.co_flags & inspect.CO_COROUTINE:
                    asyncio.run(eval(code, self._names))
                else:
                    exec(code, self._names)
            except hx.HelixError as caught:
                if "wrong" not in block.flags:
                    raise
                error = caught
        found = printed.getvalue() + ("" if error is None else error.render())
        if "wrong" in block.flags and error is None:
            self._fail(block, "no error was raised")
        if shown is not None:
            self._compare(shown, found)
        elif found:
            self._fail(block, f"it prints what is not shown:\n{found}")

    @contextlib.contextmanager
    def _imports(self) -> Iterator[None]:
        """Lets Python import the modules of the page's folder, and forgets them again."""
        folder = str(self._folder)
        before = set(sys.modules)
        sys.path.insert(0, folder)
        try:
            yield
        finally:
            sys.path.remove(folder)
            for module in set(sys.modules) - before:
                if (getattr(sys.modules[module], "__file__", None) or "").startswith(folder):
                    del sys.modules[module]

    # --- console ---

    def _console(self, block: Block) -> None:
        """Commands behind `$ ` with what each prints, on standard output and standard error together."""
        commands = list(_commands(block.text))
        if not commands:
            self._fail(block, "no command: they begin with `$ `")
        if "norun" in block.options or ("embedded" in block.flags and not self._embedded):
            for command, _ in commands:
                if (problem := wrong_options(command)) is not None:
                    self._fail(block, f"{command}: {problem}")
            return
        if "servers" in block.flags:
            self._on_servers(block, commands)
            return
        outputs = [text for text, _ in self._shell([command for command, _ in commands])]
        corrected, messages = "", []
        for (command, expected), found in zip(commands, outputs, strict=True):
            shape = _shape if "embedded" in block.flags else str
            if not alike(masked(shape(expected)), masked(shape(found))):
                messages.append(f"`{command}` prints otherwise than shown; it prints\n{found}")
                expected = found
            corrected += f"$ {command}\n{expected}"
        if messages:
            self.corrections.append(Correction(block, corrected, "\n".join(messages)))

    def _on_servers(self, block: Block, commands: list[tuple[str, str]]) -> None:
        """Commands that speak to servers: each must end well, and print what is shown where something is."""
        with Servers([command for command, _ in commands], self._folder) as servers:
            ran = self._shell([servers.led(command) for command, _ in commands])
        for (command, expected), (found, status) in zip(commands, ran, strict=True):
            shown = servers.shown(found)
            # Rows that the page's table has wrong on purpose are no fault; rows that failed in a step are.
            if status not in (0, FAILED) or (status == FAILED and re.search(r"^row \d+, step ", shown, re.MULTILINE)):
                self._fail(block, f"`{command}` ends with {status}; it prints\n{shown}")
            elif expected and not alike(masked(expected), masked(shown)):
                self._fail(block, f"`{command}` prints otherwise than shown; it prints\n{shown}")

    def _shell(self, commands: list[str]) -> list[tuple[str, int]]:
        """What each command prints and its exit code, in one bash in the page's folder."""
        script = "".join(
            f"{command}\n_status=$?; printf '\\x1e%s\\x1e' $_status; (exit $_status)\n" for command in commands
        )
        place = self._home / ".shell"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HELIX_")}
        environment["PATH"] = os.pathsep.join((str(self._programs()), environment.get("PATH", "")))
        ran = subprocess.run(
            ["bash", "-c", f"{script}pwd >{shlex.quote(str(place))}\n"],
            cwd=self._folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            timeout=TIME_LIMIT * (5 if self._embedded else 1),
            check=False,
        )
        self._folder = Path(place.read_text(encoding="utf-8").strip())
        parts = ran.stdout.split(SEPARATOR)
        return [(parts[at], int(parts[at + 1])) for at in range(0, 2 * len(commands), 2)]

    def _programs(self) -> Path:
        """A folder with `helix` and `python` as commands: those that run the tests."""
        folder = self._home.with_name("programs")
        if not folder.is_dir():
            folder.mkdir()
            python = shlex.quote(sys.executable)
            for name, command in (("helix", f"{python} -m helix"), ("python", python)):
                (folder / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
                (folder / name).chmod(0o755)
        return folder


def _commands(text: str) -> Iterator[tuple[str, str]]:
    """The commands of a console block with the output shown below each; a `\\` at the end of a line carries on."""
    command, output = "", ""
    carries_on = False
    for line in text.splitlines():
        if carries_on or line.startswith("$ "):
            if not carries_on:
                if command:
                    yield command, output
                command, output = "", ""
            part = line if carries_on else line[2:]
            command += f"\n{part}" if carries_on else part
            carries_on = line.endswith("\\")
        else:
            output += f"{line}\n"
    if command:
        yield command, output


def wrong_options(command: str) -> str | None:
    """What is wrong with the options of a `helix` command, without running it; None for other commands."""
    words = shlex.split(command.replace("\\\n", " "), comments=True)
    while words and "=" in words[0]:
        words.pop(0)
    if len(words) < 2 or words[0] != "helix":
        return None
    name, arguments = words[1], words[2:]
    if name.startswith("-"):
        known = {option for parameter in cli.get_params(click.Context(cli)) for option in parameter.opts}
        return None if name in known else f"there is no option `{name}`"
    for mark in ("|", ">", "<", "&&", ";"):
        arguments = arguments[: arguments.index(mark)] if mark in arguments else arguments
    if name not in cli.commands:
        return f"there is no command `{name}`"
    try:
        cli.commands[name].make_context(f"helix {name}", list(arguments))
    except click.ClickException as error:
        return error.format_message()
    return None


def _shape(text: str) -> str:
    """An output without what a model wrote and the numbers that follow from it: rows keep their columns and errors."""
    kept: list[str] = []
    for line in text.splitlines():
        if line.startswith('{"_row"'):
            row = json.loads(line)
            line = json.dumps({name: value if name in ("_row", "_error") else "" for name, value in row.items()})
        else:
            line = re.sub(r"\d[\d,.]*", "0", line)
        kept.append(line)
    return "\n".join(kept)
