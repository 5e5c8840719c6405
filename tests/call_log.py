"""Counts the calls of commands in processes of their own, killed ones too, and kills them at a call or after a time."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from running import PATIENCE, ROOT, Folder, arguments, environment

# Python runs this at its start. Each request is written down before it is answered and after, in one write of its own,
# so that nothing is lost where the process is killed.
HOOK = """
import itertools, json, os, signal, threading

log = os.open(os.environ["CALL_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
kill_at = int(os.environ.get("KILL_AT", "0"))
kill_after = float(os.environ.get("KILL_AFTER", "0"))
kill_with = int(os.environ.get("KILL_WITH", str(int(signal.SIGKILL))))
# Tools act on threads, and writing lets others run: each event has a number of its own.
numbers = itertools.count(1)


def kill():
    os.kill(os.getpid(), kill_with)


def event(kind, what):
    number = next(numbers)
    os.write(log, (json.dumps([kind, *what]) + "\\n").encode())
    if number == 1 and kill_after:
        threading.Timer(kill_after, kill).start()
    if number == kill_at:
        kill()


import builtins

builtins.call_log_event = event
from helix.executor.engines.scripted import ScriptedEngine

answer = ScriptedEngine.generate


async def generate(self, request):
    messages = [[message.role, message.content] for message in request.messages]
    what = [request.step, request.row, request.sample, messages]
    event("call", what)
    try:
        return await answer(self, request)
    finally:
        event("end", what)


ScriptedEngine.generate = generate
"""
# A tool that acts: it is written down too.
ACTING = """
def act(a: str) -> str:
    call_log_event("act", [a])
    return "done " + a
"""

Key = tuple[Any, ...]


class CallLog:
    """The calls of all commands that were run with `env` in a folder."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._hooks = folder.path.parent / f"{folder.path.name}-hooks"
        self._hooks.mkdir(exist_ok=True)
        (self._hooks / "sitecustomize.py").write_text(HOOK)
        self._path = self._hooks / "calls.log"
        self._path.touch()

    @property
    def env(self) -> dict[str, str]:
        """What the environment of a command needs."""
        return {"PYTHONPATH": f"{self._hooks}{os.pathsep}{ROOT}", "CALL_LOG": str(self._path)}

    def run(self, *more: str | Path, kill: Mapping[str, str] | None = None, timeout: float = PATIENCE) -> Any:
        """Runs the command in the folder and waits for it; `kill` is KILL_AT (events) or KILL_AFTER (seconds), and
        KILL_WITH (a signal) where it is not SIGKILL.
        """
        return self._folder.run(*more, env={**self.env, **(kill or {})}, timeout=timeout)

    def start(
        self, *more: str | Path, kill: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[bytes]:
        """Starts the command in the folder."""
        return subprocess.Popen(
            arguments(*self._folder.arguments(*more)),
            cwd=self._folder.path,
            env=environment({**self.env, **(kill or {})}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **options,
        )

    def events(self, kind: str) -> list[Key]:
        """What was written down of a kind, in order: `call` (step, row, sample, messages), `end`, `act`."""
        found = []
        for line in self._path.read_text().splitlines():
            event = json.loads(line)
            if event[0] == kind:
                found.append(tuple(json.dumps(each) if isinstance(each, list) else each for each in event[1:]))
        return found

    @property
    def size(self) -> int:
        """How many calls were made so far."""
        return len(self.events("call"))

    def repeated(self, kind: str = "call") -> int:
        """How many calls were made although the same one had been made before."""
        return sum(number - 1 for number in Counter(self.events(kind)).values())

    def forget(self) -> None:
        """Begins anew."""
        self._path.write_bytes(b"")
