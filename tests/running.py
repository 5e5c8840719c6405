"""Runs workflows in tests: in process on the scripted engine, and the command in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import helix
from helix.dsl import Workflow
from helix.executor.engines.scripted import ScriptedEngine
from helix.results import RunReport

# A run that hangs is a failed test, not a stuck one.
PATIENCE = 30.0
ROOT = Path(__file__).resolve().parent.parent


@dataclass(kw_only=True)
class Ran:
    """A finished run: its rows, its report, and the engine with its log."""

    rows: list[dict[str, Any]]
    report: RunReport
    engine: Any

    def column(self, name: str) -> list[Any]:
        """The values of one column."""
        return [row[name] for row in self.rows]

    @property
    def errors(self) -> list[tuple[str, str] | None]:
        """For each row the kind and the step of its error."""
        return [None if row["_error"] is None else (row["_error"]["kind"], row["_error"]["step"]) for row in self.rows]

    def calls(self, step: str) -> list[str]:
        """The last user message of each request of a step, in the order of arrival."""
        return [user_text(request) for request in self.engine.requests if request.step == step]


def user_text(request: Any) -> str:
    """The last user message of a request."""
    return str(next((m.content for m in reversed(request.messages) if m.role == "user"), ""))


def run(
    workflow: str | Workflow,
    rows: Any = None,
    *,
    rules: Sequence[Mapping[str, Any]] = (),
    reply: Any = None,
    engine: Any = None,
    folder: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    plain: bool = False,
    **options: Any,
) -> Ran:
    """Runs a workflow, or the text of one, to its end; nothing may be left running behind it.

    `rules` are those of the scripted engine; `plain` runs the plan as it is bound, without the optimizer's rules.
    """
    if plain:
        options["rules"] = []
    made = engine or ScriptedEngine(rules, reply=reply, **(settings or {}))
    subject = helix.loads(workflow, folder=folder) if isinstance(workflow, str) else workflow

    async def main() -> Any:
        result = await asyncio.wait_for(subject.arun(rows, engine=made, **options), PATIENCE)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"left running: {left}"
        return result

    result = asyncio.run(main())
    kept = result.rows if result.path is None else []
    return Ran(rows=kept, report=result.report, engine=made)


def command(
    *args: str | Path,
    cwd: str | Path | None = None,
    input: str | bytes | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = PATIENCE,
) -> subprocess.CompletedProcess[str]:
    """Runs `helix` in a process of its own and waits for it."""
    data = input.encode() if isinstance(input, str) else input
    done = subprocess.run(
        arguments(*args), cwd=cwd, input=data, env=environment(env), capture_output=True, timeout=timeout, check=False
    )
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8", "replace")
    )


def inside(*args: str | Path, cwd: str | Path, monkeypatch: Any, capfd: Any) -> subprocess.CompletedProcess[str]:
    """Runs `helix` in this process: as `command`, but quicker, where the process itself does not matter."""
    from helix.cli import _guarded

    monkeypatch.chdir(cwd)
    monkeypatch.setattr(sys, "argv", ["helix", *map(str, args)])
    capfd.readouterr()
    code = _guarded()
    out, err = capfd.readouterr()
    return subprocess.CompletedProcess(args, code, out, err)


def start(*args: str | Path, cwd: str | Path | None = None, **options: Any) -> subprocess.Popen[bytes]:
    """Starts `helix` in a process of its own, its output in pipes."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.Popen(arguments(*args), cwd=cwd, env=environment(None), **pipes)


def arguments(*args: str | Path) -> list[str]:
    """The command line of `helix` as it is run in tests."""
    return [sys.executable, "-m", "helix", *map(str, args)]


def environment(more: Mapping[str, str] | None) -> dict[str, str]:
    """The environment of a command: this one's, with the package on the path and no settings of Helix."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HELIX_")}
    return {**kept, "PYTHONPATH": str(ROOT), **(more or {})}


def lines(text: str) -> list[dict[str, Any]]:
    """The rows of JSON Lines."""
    return [json.loads(line) for line in text.splitlines()]


def jsonl(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as JSON Lines."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def toml(value: Any) -> str:
    """A JSON value as TOML: but for records they are written alike."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(name)} = {toml(item)}" for name, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    return json.dumps(value)


def said_calls(text: str) -> int:
    """The number of calls in the closing words of a command; how far it was along the way, a slow run says too."""
    closing = re.sub(r"^[\d,]+ of [\d,]+ rows.*$", "", text, flags=re.MULTILINE)
    (number,) = re.findall(r"([\d,]+) calls?(?:,| in )", closing)
    return int(number.replace(",", ""))


class Folder:
    """A folder with a workflow, its input and the replies of the scripted engine, to run the command in."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, content: str | bytes) -> Path:
        """Writes a file."""
        path = self.path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def workflow(self, text: str) -> Path:
        """Writes the workflow."""
        return self.write("w.helix", text)

    def rows(self, *rows: Mapping[str, Any]) -> Path:
        """Writes the input."""
        return self.write("rows.jsonl", jsonl(rows))

    def rules(self, *rules: Mapping[str, Any], **settings: Any) -> Path:
        """Writes the engine's rules."""
        text = "[engine]\n" + "".join(f"{key} = {toml(value)}\n" for key, value in settings.items())
        for rule in rules:
            text += "[[rule]]\n" + "".join(f"{key} = {toml(value)}\n" for key, value in rule.items())
        return self.write("replies.toml", text)

    def arguments(self, *more: str | Path, source: str | None = "rows.jsonl", engine: str | None = None) -> list[Any]:
        """The arguments of `run` over the files here."""
        known = "scripted:replies.toml" if (self.path / "replies.toml").exists() else "scripted"
        given = [] if source is None else ["-i", source]
        return ["run", "w.helix", *given, "-e", engine or known, *more]

    def run(
        self, *more: str | Path, source: str | None = "rows.jsonl", engine: str | None = None, **options: Any
    ) -> Any:
        """Runs the command here and waits for it."""
        return command(*self.arguments(*more, source=source, engine=engine), cwd=self.path, **options)

    def start(self, *more: str | Path, **options: Any) -> subprocess.Popen[bytes]:
        """Starts the command here."""
        return start(*self.arguments(*more), cwd=self.path, **options)

    def read(self, name: str = "out.jsonl") -> list[dict[str, Any]]:
        """The rows of a result."""
        return lines((self.path / name).read_text("utf-8"))

    @property
    def names(self) -> list[str]:
        """The files here, hidden ones too, but for what runs keep for later ones."""
        return sorted(each.name for each in self.path.iterdir() if each.name != ".helix")
