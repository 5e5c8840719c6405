"""What patterns would make ahead, for `helix explain`: which calls of which agents, and what that is worth."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from helix.executor.speculation.sessions import own_name
from helix.executor.speculation.settings import SpeculationSettings
from helix.executor.speculation.state import SpeculationState, file_of
from helix.executor.speculation.times import Times, expected_least
from helix.executor.speculation.value import Worth, worth
from helix.executor.speculation.wiring import patterns_of
from helix.mining import Miner
from helix.mining.listing import KnownPattern, known_patterns
from helix.services import Tool
from helix.tools.effects import HARMLESS

# How long a decision is taken to last, in seconds, where none was seen.
ASSUMED_LEAD = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Previewed:
    """What would be made ahead of the decisions of one agent: patterns with what each is worth, the best first.

    `few` had too few chances, `cheap` are not worth their cost, `barred` are of tools that are never guessed at.
    `lead` is the expected time of a decision in seconds, `measured` says whether such were seen.
    """

    step: str
    patterns: tuple[tuple[KnownPattern, Worth], ...]
    few: int
    cheap: int
    barred: int
    lead: float
    measured: bool


def preview(
    patterns: str | os.PathLike[str] | Miner,
    agents: Iterable[tuple[str, tuple[Tool, ...]]],
    *,
    folder: Path | None,
    tenant: str | None = None,
    settings: SpeculationSettings | None = None,
) -> list[Previewed]:
    """What patterns would make ahead for agents, each a step and its tools. `folder` is a store with times of earlier
    runs. Raises InputError for a file that holds no patterns.
    """
    held = settings or SpeculationSettings()
    state = SpeculationState(None if folder is None else file_of(folder, tenant))
    agents = tuple(agents)
    every = [tool for _, tools in agents for tool in tools]
    miner = cast(Miner, patterns_of(patterns, tenant, every))
    found: list[Previewed] = []
    for step, tools in agents:
        by_name = {own_name(tool.name): tool for tool in tools}
        leads = state.decision_times(step)
        measured = leads.known
        if not measured:
            leads = Times(ASSUMED_LEAD)
        good: list[tuple[KnownPattern, Worth]] = []
        few = cheap = barred = 0
        for pattern in known_patterns(miner, by_name):
            tool = by_name[pattern.tool]
            times = state.tool_times(tool)
            value = worth(
                held,
                p_low=pattern.p_low,
                hidden=expected_least(times, leads),
                tool_seconds=times.mean(),
                fee=tool.fee or 0.0,
            )
            if not tool.may_be_guessed or tool.effects not in HARMLESS or pattern.tool in miner.stale:
                barred += 1
            elif pattern.chances < held.chances:
                few += 1
            elif value.value <= 0:
                cheap += 1
            else:
                good.append((pattern, value))
        good.sort(key=lambda each: (-each[1].value, each[0].text))
        found.append(
            Previewed(
                step=step, patterns=tuple(good), few=few, cheap=cheap, barred=barred, lead=leads.mean(),
                measured=measured,
            )
        )  # fmt: skip
    return found
