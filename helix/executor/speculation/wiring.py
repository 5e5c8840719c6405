"""The speculation of a run, from its settings: patterns, state, lanes and engines put together."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from helix.executor.engines.base import Capabilities, Engine
from helix.executor.limits import Limits
from helix.executor.settings import RunSettings
from helix.executor.speculation.branches import Branches
from helix.executor.speculation.log import LaunchLog
from helix.executor.speculation.predictor import Predictor
from helix.executor.speculation.sessions import own_name
from helix.executor.speculation.settings import SpeculationSettings, mode_of
from helix.executor.speculation.speculator import Speculator
from helix.executor.speculation.state import SpeculationState, file_of
from helix.executor.speculation.warmup import PrefixWarmer
from helix.executor.tool_calls import ToolCalls
from helix.executor.tools.lanes import lane_of
from helix.executor.tools.threads import charging
from helix.services import Tool
from helix.tools.effects import open_world_of_hints
from helix.tools.schema import parameters_schema

if TYPE_CHECKING:
    from helix.executor.tools.opener import ToolOpener

# A shorter value of the environment is found in too many texts to be a secret.
_SHORTEST_SECRET = 4


class Speculation:
    """What a run speculates with. `folder` is where it keeps what it learns (None: nowhere), `slots` gives the places
    of a lane, `timeout` the time limit of a tool's calls. `callables` are the functions of python tools: one whose
    source has changed has to show again that its guesses match.
    """

    def __init__(
        self,
        settings: RunSettings,
        tool_calls: ToolCalls,
        opener: ToolOpener,
        *,
        engines: Iterable[tuple[Engine, Capabilities]],
        limits: Limits,
        slots: Callable[[str], int],
        timeout: Callable[[Tool], float | None],
        folder: Path | None,
        callables: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        tools = opener.tools
        self._opener = opener
        self._tool_calls = tool_calls
        # Tools whose effects are left to their server, as a trusted one says them; and back.
        self._known: dict[Tool, Tool] = {}
        self._plain: dict[Tool, Tool] = {}
        own = settings.speculation or SpeculationSettings()
        functions = callables or {}
        state = SpeculationState(
            None if folder is None else file_of(folder, settings.tenant), lambda tool: _source(tool, functions)
        )
        # No guess may carry such a value into an open world.
        hidden = sorted(value for value in opener.secrets() if len(value) >= _SHORTEST_SECRET)
        mode = mode_of(settings.speculate)
        predictor = patterns_of(settings.patterns, settings.tenant, tools)
        self.speculator = Speculator(
            own,
            mode,
            state=state,
            lanes=lambda tool: (lane_of(tool), slots(lane_of(tool))),
            run=self._run,
            predictor=predictor,
            # Whoever has patterns of another kind may want to look at sessions in another way.
            history=getattr(predictor, "history", _history),
            tools=[self._as_known(tool) for tool in tools],
            known=self._as_known,
            timeout=timeout,
            hidden_from=lambda text: any(value in text for value in hidden),
            tenant=settings.tenant,
            log=None if folder is None else LaunchLog(file_of(folder, settings.tenant).with_suffix(".log.jsonl")),
            warm=self._warm,
            over=lambda: limits.halted,
        )
        self.branches = Branches(self.speculator)
        self._warmer = PrefixWarmer({each[0].name: each for each in engines}, self.speculator.figures, limits)
        tool_calls.around = self.speculator
        tool_calls.watchers.append(self.speculator)

    def _as_known(self, tool: Tool) -> Tool:
        if not tool.hinted:
            return tool
        found = self._known.get(tool)
        if found is None:
            open_world = tool.open_world or open_world_of_hints(self._opener.servers().annotations(tool))
            found = replace(tool, effects=self._opener.effects(tool), open_world=open_world)
            self._known[tool], self._plain[found] = found, tool
        return found

    async def _run(self, tool: Tool, args: list[Any]) -> str:
        plain = self._plain.get(tool, tool)
        with charging(plain.cost):
            return await self._tool_calls.opened(plain)(args)

    def _warm(self, session: str, engine: str, request: Any) -> None:
        # In the shadow nothing is sent anywhere.
        if self.speculator.mode == "on":
            self._warmer(session, engine, request)

    def figures(self) -> dict[str, Any]:
        """What came of the guesses, as JSON values."""
        found = self.speculator.figures.to_json(self.speculator.mode)
        stages = {own_name(name): each.stage for name, each in sorted(self.speculator.state.stages.items())}
        return {**found, "stages": stages}

    async def close(self) -> str | None:
        """Ends all guesses and keeps what was learned; gives what a person should know of that."""
        self.branches.close()
        await self._warmer.close()
        await self.speculator.close()
        return self.speculator.state.note


def patterns_of(
    patterns: str | os.PathLike[str] | object | None, tenant: str | None, tools: Iterable[Tool]
) -> Predictor | None:
    """The patterns of a file, or those that are given. Raises InputError for a file that holds none."""
    if patterns is None:
        return None
    if not isinstance(patterns, str | os.PathLike):
        return cast(Predictor, patterns)
    from helix.mining import Miner
    from helix.traces import schema_hash

    schemas = {own_name(tool.name): schema_hash(parameters_schema(tool)) for tool in tools}
    return Miner.load(patterns, tenant=tenant, schemas=schemas)


def _source(tool: Tool, functions: Mapping[str, Callable[..., Any]]) -> str | None:
    """What stands for the source of a python tool without a declared version; None for all others."""
    function = functions.get(tool.name)
    if tool.version is not None or tool.origin != "python" or function is None:
        return None
    from helix.executor.store.sources import function_version

    # What cannot be told is another one in each run: then a tool has to show anew what it is.
    return function_version(function) or secrets.token_hex(8)


def _history() -> Any:
    from helix.mining import History

    return History()
