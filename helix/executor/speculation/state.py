"""What speculation keeps from run to run, for each tenant: stages of tools, times of calls, how branches went.

A JSON file in the store's folder, replaced as a whole. One that cannot be read, or is of a newer version, is left as it
is, and nothing of it is used.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from helix.canonical import canonical_bytes
from helix.executor.speculation.stages import ToolStage, stage_of
from helix.executor.speculation.times import Times
from helix.services import Tool
from helix.tools.schema import parameters_schema

FORMAT = 1
# A larger file is none of ours.
_MOST_BYTES = 16 * 1024 * 1024
# What a call is taken to last before one was made, where its tool declares nothing.
ASSUMED = 0.5


def file_of(folder: Path, tenant: str | None) -> Path:
    """The file of a tenant."""
    if tenant is None:
        return folder / "speculation.json"
    return folder / f"speculation-{hashlib.sha256(tenant.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}.json"


def version_of(tool: Tool, source: str | None = None) -> str:
    """What a tool's stage holds for: another schema, target, statement, version or source begins anew."""
    parts = [tool.origin, tool.target, tool.query, tool.version, source, tool.effects, parameters_schema(tool)]
    return hashlib.sha256(canonical_bytes(parts)).hexdigest()[:32]


class SpeculationState:
    """The state of one tenant. `path` None: it lives as long as the run. `source` stands for the code of a tool."""

    def __init__(self, path: Path | None = None, source: Callable[[Tool], str | None] = lambda tool: None) -> None:
        self._path = path
        self._source = source
        self._found: Mapping[str, Any] = {}
        self.note: str | None = None
        self.stages: dict[str, ToolStage] = {}
        self.tools: dict[str, Times] = {}
        self.decisions: dict[str, Times] = {}
        # By the id of the branch: how often it was not taken and taken.
        self.branches: dict[str, list[float]] = {}
        self.waits: dict[str, Times] = {}
        if path is not None and path.exists():
            self._read(path)

    def _read(self, path: Path) -> None:
        try:
            if path.stat().st_size > _MOST_BYTES:
                raise ValueError("it is too large")
            found = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(found, dict) or found.get("format") != FORMAT:
                raise ValueError("it is of another format")
        except (OSError, ValueError, RecursionError) as error:
            self.note = f"{path.name} was left as it is: {error}; speculation begins anew and keeps nothing"
            self._path = None
            return
        self._found = found
        branches = found.get("branches")
        for name, counts in branches.items() if isinstance(branches, dict) else ():
            numbers = isinstance(counts, list) and len(counts) == 2 and all(type(n) in (int, float) for n in counts)
            if numbers and min(counts) >= 0 and max(counts) < 1e12:
                self.branches[name] = [float(n) for n in counts]

    def stage(self, tool: Tool) -> ToolStage:
        """The stage of a tool."""
        name = tool.name
        if name not in self.stages:
            self.stages[name] = stage_of(self._part("tools", name), version_of(tool, self._source(tool)))
        return self.stages[name]

    def tool_times(self, tool: Tool) -> Times:
        """How long calls of a tool take."""
        return self._times(self.tools, "times", tool.name, tool.cost if tool.cost is not None else ASSUMED)

    def decision_times(self, step: str) -> Times:
        """How long decisions of a step take."""
        return self._times(self.decisions, "decisions", step, None)

    def branch_times(self, branch: str) -> Times:
        """How long it takes until a branch is decided, once the inputs of what stands in it are there."""
        return self._times(self.waits, "waits", branch, None)

    def _times(self, held: dict[str, Times], part: str, name: str, prior: float | None) -> Times:
        if name not in held:
            held[name] = Times(prior)
            held[name].load(self._part(part, name))
        return held[name]

    def _part(self, part: str, name: str) -> Any:
        found = self._found.get(part)
        return found.get(name) if isinstance(found, Mapping) else None

    def branch(self, branch: str) -> list[float]:
        """How often a branch was not taken, and taken."""
        return self.branches.setdefault(branch, [0.0, 0.0])

    def save(self) -> None:
        """Writes the file, with what it held of other tools and steps."""
        if self._path is None:
            return
        text = json.dumps(
            {
                "format": FORMAT,
                "tools": self._merged("tools", {name: each.to_json() for name, each in self.stages.items()}),
                "times": self._merged("times", {name: each.to_json() for name, each in self.tools.items()}),
                "decisions": self._merged("decisions", {name: each.to_json() for name, each in self.decisions.items()}),
                "waits": self._merged("waits", {name: each.to_json() for name, each in self.waits.items()}),
                "branches": self._merged("branches", dict(self.branches)),
            },
            sort_keys=True,
        )
        beside = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_text(text, encoding="utf-8")
            os.replace(beside, self._path)
        except OSError as error:
            self.note = f"{self._path.name} could not be written: {error.strerror or error}"
            with suppress(OSError):
                beside.unlink()

    def _merged(self, part: str, new: dict[str, Any]) -> dict[str, Any]:
        found = self._found.get(part)
        return {**found, **new} if isinstance(found, Mapping) else new
