"""Opens the tools of a run, and holds what they share: threads, an HTTP session, a conversation with each server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helix.executor.tools import RunTool, open_tool
from helix.executor.tools.access import ToolAccess
from helix.executor.tools.files import check_database
from helix.executor.tools.threads import Threads
from helix.logical import Effects, Tool
from helix.tools.effects import effects_of_hints
from helix.tools.targets import variables

if TYPE_CHECKING:
    from aiohttp import ClientSession

    from helix.executor.tools.mcp import McpServers


class ToolOpener:
    """Makes tools ready to be called; `close` gives back what they share.

    `callables` are functions by name, `folder` is where relative files lie: databases, and `mcp.json`.
    """

    def __init__(
        self,
        callables: Mapping[str, Callable[..., Any]],
        folder: Path | None,
        access: ToolAccess | None = None,
    ) -> None:
        self.threads = Threads()
        self._callables = callables
        self._folder = folder
        self._access = access or ToolAccess()
        self._session: ClientSession | None = None
        self._servers: McpServers | None = None
        self._opened: dict[Tool, RunTool] = {}

    async def open(self, tool: Tool) -> RunTool:
        """Makes a tool ready. Raises OptionError where it cannot be opened, and for what it may not reach."""
        made = self._opened[tool] = await self._made(tool)
        return made

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that are open, in the order in which they were opened."""
        return tuple(self._opened)

    def secrets(self) -> frozenset[str]:
        """The values that `${NAME}` stands for in the open tools and in what their MCP servers are given."""
        texts = [text for tool in self._opened for text in (tool.target, *tool.headers)]
        if self._servers is not None:
            texts += self._servers.texts()
        held = self._access.environment
        return frozenset(held.get(name, "").strip() for text in texts for name in variables(text))

    async def _made(self, tool: Tool) -> RunTool:
        if tool.origin == "http":
            from helix.executor.tools.http import HttpTool

            return HttpTool(tool, self._access, self._web())
        if tool.origin == "mcp":
            return await self.servers().open(tool)
        check_database(tool, self._folder, self._access)
        if tool.origin == "python" or tool.is_sqlite:
            return open_tool(tool, self._callables, self._folder, self.threads)
        from helix.executor.tools.sql_engines import DuckDatabase, OtherSqlTool, UrlDatabase

        is_file = tool.target.startswith("duckdb:") and not tool.target.startswith("duckdb://")
        database = DuckDatabase(tool, self._folder) if is_file else UrlDatabase(tool, self._access, self._folder)
        other = OtherSqlTool(tool, database, self.threads)
        await other.open()
        return other

    def effects(self, tool: Tool) -> Effects:
        """The effects of an open tool: those declared, else what the hints of a trusted MCP server say."""
        if not tool.hinted or self._servers is None:
            return tool.effects
        trusted = self._servers.is_trusted(tool)
        return effects_of_hints(self._servers.annotations(tool), allowed=trusted)

    def servers(self) -> McpServers:
        """The MCP servers, started when the first tool of one is opened."""
        from helix.executor.tools.mcp import McpServers

        if self._servers is None:
            self._servers = McpServers(self._folder, self._access, self.threads)
        return self._servers

    def _web(self) -> ClientSession:
        from helix.executor.tools.addresses import open_session

        if self._session is None:
            self._session = open_session(self._access, self.threads, auto_decompress=False)
        return self._session

    async def close(self) -> None:
        """Closes the tools and what they share; safe to call twice."""
        while self._opened:
            self._opened.popitem()[1].close()
        servers, self._servers = self._servers, None
        if servers is not None:
            await servers.close()
        session, self._session = self._session, None
        if session is not None:
            await session.close()
        self.threads.close()
