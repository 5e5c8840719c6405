"""What the steps of a plan ask, as their keys hold it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from helix.canonical import canonical_text
from helix.executor.engines.base import Capabilities, Engine
from helix.executor.prompts import Prompt
from helix.executor.settings import RunSettings
from helix.executor.store.keys import LLM, TOOL, Asking, model_identity, tool_parameters
from helix.executor.store.sources import Database, function_version
from helix.logical import Generate, Tool
from helix.places import static_name


def llm_asking(
    node: Generate, prompt: Prompt, engine: Engine, capabilities: Capabilities, settings: RunSettings
) -> Asking:
    """What an llm step asks. `cache off` keeps its replies from other runs."""
    return Asking(
        model_identity(engine.name, capabilities, prompt.model),
        prompt.parameters,
        kind=LLM,
        label=static_name(node.step),
        tenant=settings.tenant,
        stored=node.cache,
        merge=settings.merge,
    )


class ToolVersions:
    """The versions of a run's tools, each found out once."""

    def __init__(self, callables: Mapping[str, Callable[..., Any]], folder: Path | None) -> None:
        self._callables = callables
        self._folder = folder
        self._databases: dict[Path, Database] = {}

    def asking(self, tool: Tool, step: str, settings: RunSettings) -> Asking:
        """What the calls of a tool ask that a step makes.

        Its results are stored where equal calls of other runs are sure to give the same: a pure tool of known version,
        a query of a database of known content, and what is read as long as its `freshness` says.
        """
        acts = tool.effects not in ("pure", "read")
        holds = tool.holds
        version: str | None = None
        stored = tool.deterministic and (tool.freshness is None or holds is not None)
        seen: Database | None = None
        if acts:
            # What has been done is not done again because its program was changed since.
            version = f"{tool.target} {tool.name}"
        elif tool.is_sqlite:
            seen = self._database(tool)
            version = seen.version
            stored = stored and seen.content
        elif tool.origin == "python":
            version = self._function(tool)
            stored = stored and version is not None and (tool.effects == "pure" or holds is not None)
        else:
            # What a server knows changes without notice: its results hold as long as the tool says.
            version = canonical_text([tool.target, tool.headers, tool.version])
            stored = stored and (holds is not None or (tool.effects == "pure" and tool.version is not None))
        return Asking(
            {"tool": tool.origin},
            tool_parameters(tool, version),
            kind=TOOL,
            label=static_name(step),
            tenant=settings.tenant,
            stored=stored,
            merge=settings.merge,
            holds=holds,
            acts=acts,
            seen=seen,
        )

    def _function(self, tool: Tool) -> str | None:
        """A declared version, else that of the source."""
        if tool.version is not None:
            return f"declared {tool.version}"
        function = self._callables.get(tool.name)
        return None if function is None else function_version(function)

    def _database(self, tool: Tool) -> Database:
        path = Path(tool.target.removeprefix("sqlite:"))
        if not path.is_absolute() and self._folder is not None:
            path = self._folder / path
        if path not in self._databases:
            self._databases[path] = Database(path)
        return self._databases[path]
