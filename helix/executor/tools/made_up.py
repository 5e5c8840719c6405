"""Tools that are not there: each call takes the time that its tool declares, and gives a value of the tool's type."""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from typing import Any

from helix.canonical import canonical_text
from helix.executor.engines.schema_value import schema_value
from helix.executor.tools.results import result_text
from helix.logical import Tool
from helix.types import json_schema


class MadeUpTool:
    """Stands for a tool where nothing may be called: equal arguments give equal values."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool

    async def __call__(self, args: list[Any]) -> str:
        """Waits as long as the tool declares; its value is drawn from the arguments."""
        tool = self._tool
        if tool.cost:
            await asyncio.sleep(tool.cost)
        seed = blake2b(f"{tool.name} {canonical_text(args)}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
        return result_text(schema_value(json_schema(tool.returns), seed), tool.returns, tool.name, tool.max_bytes)

    def close(self) -> None:
        """Nothing is held."""
