"""Lanes of tools: whose places a tool's calls take, and how many of them are made at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from helix.errors import OptionError, name_help
from helix.logical import Tool

# The lane of tools that name none, and the beginning of the names of all others.
TOOL_LANE = "tools"
TOOLS_AT_ONCE = 8


def lane_of(tool: Tool) -> str:
    """The lane of a tool as the dispatcher calls it; a tool with a `concurrency` and no lane has one of its own."""
    name = tool.lane or (tool.name if tool.concurrency is not None else "")
    return f"{TOOL_LANE} {name}" if name else TOOL_LANE


def lane_sizes(tools: Iterable[Tool], given: Mapping[str, int]) -> dict[str, int]:
    """How many calls each lane of these tools makes at once.

    That is what the person who starts a run says by the lane's name (`tools` for the one of tools that name none), else
    the least `concurrency` of its tools, else 8. Raises OptionError for a name that no tool has as its lane.
    """
    sizes: dict[str, int] = {}
    for tool in tools:
        lane = lane_of(tool)
        known = sizes.get(lane, 0)
        if tool.concurrency is not None:
            sizes[lane] = min(known or tool.concurrency, tool.concurrency)
        else:
            sizes.setdefault(lane, 0)
    names = {lane.removeprefix(TOOL_LANE).strip() or TOOL_LANE: lane for lane in sizes}
    for name, size in given.items():
        if name not in names:
            raise OptionError(f"lanes: no tool has the lane `{name}`; {name_help(name, names, 'lanes')}")
        sizes[names[name]] = size
    return {lane: size or TOOLS_AT_ONCE for lane, size in sizes.items()}
