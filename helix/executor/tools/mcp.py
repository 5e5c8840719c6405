"""Tools of MCP servers: one conversation with each server for all of its tools, by the `mcp` client.

A declaration is held against what the server lists before the first call. A server that dies is started again for the
next call. Calls that it died in are made once more, one after another, where they only read; others may have acted.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helix.errors import OptionError, ToolError, name_help
from helix.executor.tools.access import Secrets, ToolAccess
from helix.executor.tools.addresses import RefusedAddress
from helix.executor.tools.mcp_config import FILE, McpServer, find_servers
from helix.executor.tools.results import MAX_BYTES, error_words, result_text
from helix.executor.tools.threads import Threads, holding
from helix.logical import Tool
from helix.schema import is_required
from helix.tools.effects import HARMLESS, effects_of_hints
from helix.tools.targets import mcp_target
from helix.tools.types import columns_of_schema, type_of_schema
from helix.types import JSON, TEXT, Record, fits, required

if TYPE_CHECKING:
    import mcp_types
    from mcp import Client

    from helix.executor.tools.mcp_stdio import StdioServer

TIME_LIMIT = 30.0
# How often in a row a server that dies is started, with no call that succeeds in between.
MOST_STARTS = 5
# Pages of a server's list of tools.
MOST_PAGES = 100
_EXCERPT = 500


class McpServers:
    """The MCP servers of a run, each started when its first tool is opened."""

    def __init__(self, folder: Path | None, access: ToolAccess, threads: Threads) -> None:
        # The second package of the two came with the protocol's second SDK.
        if find_spec("mcp") is None or find_spec("mcp_types") is None:
            raise OptionError("tools of MCP servers need the package mcp: pip install 'helix-workflows[mcp]'")
        self._access = access
        self._threads = threads
        self._configured = find_servers(access.servers, folder)
        self._where = str(access.servers or FILE)
        self._running: dict[str, _Server] = {}
        odd = next((name for name in access.trusted if name not in self._configured), None)
        if odd is not None:
            known = name_help(odd, self._configured, "servers")
            raise OptionError(f"trust_servers: {self._where} names no MCP server `{odd}`; {known}")

    async def open(self, tool: Tool) -> McpTool:
        """A tool of a server, held against what the server lists. Raises OptionError."""
        name, own = mcp_target(tool.target)
        what = f"mcp tool `{tool.name}`"
        server = self._server(name, tool.max_bytes or MAX_BYTES)
        listed = await server.tools()
        if own not in listed:
            raise OptionError(f"{what}: server `{name}` has no tool `{own}`; {name_help(own, listed, 'tools')}")
        effects = effects_of_hints(annotations_of(listed[own]), allowed=self.is_trusted(tool))
        harmless = (effects if tool.hinted else tool.effects) in HARMLESS
        return McpTool(tool, server, listed[own], again=harmless)

    def texts(self) -> list[str]:
        """What the servers are given, with `${NAME}` for values of the environment."""
        return [
            text
            for server in self._configured.values()
            for text in (*(value for _, value in (*server.env, *server.headers)), server.url or "")
        ]

    async def listed(self, name: str) -> Mapping[str, mcp_types.Tool]:
        """The tools that a server lists, by its own names for them. Raises OptionError."""
        return await self._server(name, MAX_BYTES).tools()

    def is_trusted(self, tool: Tool) -> bool:
        """Whether the hints of a tool's server count."""
        return mcp_target(tool.target)[0] in self._access.trusted

    def annotations(self, tool: Tool) -> dict[str, Any] | None:
        """What the server of an open tool says of its effects; None where it says nothing."""
        name, own = mcp_target(tool.target)
        running = self._running.get(name)
        listed = {} if running is None else running.known
        return annotations_of(listed[own]) if own in listed else None

    def _server(self, name: str, most: int) -> _Server:
        if name not in self._configured:
            known = name_help(name, self._configured, "servers")
            raise OptionError(f"{self._where} names no MCP server `{name}`; {known}")
        if name not in self._running:
            self._running[name] = _Server(self._configured[name], self._access, self._threads, most)
        return self._running[name]

    async def close(self) -> None:
        """Ends the conversations, and the servers that were started."""
        running, self._running = self._running, {}
        await asyncio.gather(*(server.close() for server in running.values()))


def annotations_of(listed: mcp_types.Tool) -> dict[str, Any] | None:
    """The hints of a listed tool, by their names in the protocol."""
    if listed.annotations is None:
        return None
    dumped: dict[str, Any] = listed.annotations.model_dump(by_alias=True, exclude_none=True)
    return dumped


class _Gone(ToolError):
    """A server that died in a call."""


class _Server:
    """One server. The conversation lives in a task of its own, since what opens it must close it."""

    def __init__(self, server: McpServer, access: ToolAccess, threads: Threads, most: int) -> None:
        self.name = server.name
        self.known: dict[str, mcp_types.Tool] = {}
        self._server = server
        self._access = access
        self._threads = threads
        # What a result takes inside of a message: texts in it are quoted.
        self._most = 2 * most + 65536
        texts = (*(value for _, value in server.env), *(value for _, value in server.headers), server.url or "")
        self._secrets = Secrets(f"MCP server `{server.name}`", texts, access.environment)
        self._lock = asyncio.Lock()
        self._alone = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._client: Client | None = None
        self._stop = asyncio.Event()
        self._process: StdioServer | None = None
        self._last_why = ""
        self._starts = 0

    async def tools(self) -> dict[str, mcp_types.Tool]:
        """What the server lists. Raises OptionError where it cannot be spoken to."""
        try:
            if not self.known:
                await self._connected()
        except ToolError as error:
            raise OptionError(str(error)) from None
        return self.known

    async def call(self, name: str, arguments: dict[str, Any], *, again: bool) -> mcp_types.CallToolResult:
        """Makes a call, once more where the server died in it and it may be made `again`. Raises ToolError."""
        try:
            return await self._call(name, arguments)
        except _Gone:
            if not again:
                raise
        # One at a time: which of the calls it was that the server died of is not known.
        async with self._alone:
            return await self._call(name, arguments)

    async def _call(self, name: str, arguments: dict[str, Any]) -> mcp_types.CallToolResult:
        from mcp import MCPError
        from pydantic import ValidationError

        client = await self._connected()
        try:
            result = await client.call_tool(name, arguments)
            self._starts = 0
            return result
        except MCPError as error:
            if self._client is not client or self._gone(error):
                raise _Gone(f"the server `{self.name}` is gone{await self._drop(client)}") from None
            raise ToolError(f"the server `{self.name}` says: {self.words(error)}") from None
        except ValidationError:
            raise ToolError(f"the server `{self.name}` sent what is no result of a tool") from None
        except RefusedAddress as error:
            raise ToolError(f"the server `{self.name}`: {error}") from None
        except Exception as error:
            raise ToolError(f"the server `{self.name}`: {self.words(error)}") from None

    def words(self, error: BaseException) -> str:
        """What went wrong, on one line, without secrets."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        words = str(error) if isinstance(error, RefusedAddress | ToolError) else error_words(error)
        text = " ".join(self._secrets.out_of(words).split())
        return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}..."

    def clean(self, text: str) -> str:
        """The text without secrets."""
        return self._secrets.out_of(text)

    def clean_result(self, text: str) -> str:
        """A result without secrets."""
        return self._secrets.out_of_result(text)

    def _gone(self, error: Any) -> bool:
        from mcp_types import CONNECTION_CLOSED

        return getattr(error, "code", None) == CONNECTION_CLOSED

    def _why(self) -> str:
        process = self._process
        why = "" if process is None else process.why
        told = "" if process is None else self._secrets.out_of(process.told)
        return (f": {why}" if why else "") + (f" ({told[:200]})" if told else "")

    async def _connected(self) -> Client:
        async with self._lock:
            if self._client is None:
                self._client = await self._start()
            return self._client

    async def _start(self) -> Client:
        """Starts the conversation. Raises ToolError."""
        if self._starts >= MOST_STARTS:
            raise ToolError(f"the server `{self.name}` went away {self._starts} times and is not started again")
        self._starts += 1
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[Client] = loop.create_future()
        self._stop = asyncio.Event()
        self._task = loop.create_task(self._converse(ready, self._stop))
        try:
            async with asyncio.timeout(TIME_LIMIT):
                return await asyncio.shield(ready)
        except TimeoutError:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            message = f"the server `{self.name}` does not answer within {TIME_LIMIT:g} s{self._why()}"
            raise ToolError(message) from None
        except asyncio.CancelledError:
            self._task.cancel()
            raise

    async def _converse(self, ready: asyncio.Future[Client], stop: asyncio.Event) -> None:
        """Holds the conversation until it is to end."""
        from mcp import Client

        try:
            async with AsyncExitStack() as stack:
                client = await stack.enter_async_context(Client(self._transport(), cache=None))
                self.known = await self._list(client)
                if not ready.done():
                    ready.set_result(client)
                await stop.wait()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if not ready.done():
                reason = self._why() or f": {self.words(error)}"
                ready.set_exception(ToolError(f"the server `{self.name}` cannot be spoken to{reason}"))
        finally:
            if not ready.done():
                ready.cancel()

    async def _list(self, client: Client) -> dict[str, mcp_types.Tool]:
        found: dict[str, mcp_types.Tool] = {}
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            page = await client.list_tools(cursor=cursor)
            for each in page.tools:
                found.setdefault(each.name, each)
            cursor = page.next_cursor
            if cursor is None:
                break
        return found

    @asynccontextmanager
    async def _streams(self) -> Any:
        server = self._server
        if server.command is not None:
            from helix.executor.tools.mcp_stdio import StdioServer

            env = {name: self._secrets.into(value) for name, value in server.env}
            self._process = StdioServer(server.command, server.args, env, server.cwd, self._most)
            async with self._process.connect() as streams:
                yield streams
            return
        from mcp.client.streamable_http import streamable_http_client

        from helix.executor.tools.mcp_http import http_client

        headers = {name: self._secrets.into(value) for name, value in server.headers}
        url = self._secrets.into(server.url or "", quoted=True)
        async with (
            http_client(self._access, self._threads, headers, self._most) as client,
            streamable_http_client(url, http_client=client, max_sse_event_size=self._most) as streams,
        ):
            yield streams

    def _transport(self) -> Any:
        return self._streams()

    async def _drop(self, client: Client) -> str:
        """Ends a conversation that is broken, so that the next call starts another; gives why it broke."""
        if self._client is client:
            self._client = None
            self._last_why = self._why()
            await self._end()
        return self._last_why

    async def _end(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            self._stop.set()
            await asyncio.wait((task,), timeout=10.0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        """Ends the conversation."""
        self._client = None
        await self._end()


class McpTool:
    """One tool of a server. Making it raises OptionError where the declaration does not fit what the server lists."""

    def __init__(self, tool: Tool, server: _Server, listed: mcp_types.Tool, *, again: bool) -> None:
        self._tool = tool
        self._server = server
        self._listed = listed.name
        self._again = again
        what = f"mcp tool `{tool.name}`"
        offered = {column.name: (name, column) for name, column in columns_of_schema(listed.input_schema)}
        names: dict[str, str] = {}
        for param in tool.params:
            # By the server's own name, else by what that is called here.
            name, column = next(
                (each for each in offered.values() if each[0] == param.name), offered.get(param.name, ("", param))
            )
            if not name:
                known = name_help(param.name, offered, "parameters")
                raise OptionError(f"{what}: `{listed.name}` takes no `{param.name}`; {known}")
            if not fits(required(param.type), required(column.type)):
                raise OptionError(
                    f"{what}: `{param.name}` is declared {param.type}, `{listed.name}` takes {column.type}"
                )
            names[param.name] = name
        missing = [name for name, column in offered.values() if is_required(column) and name not in names.values()]
        if missing:
            raise OptionError(f"{what}: `{listed.name}` needs {', '.join(missing)}, which the declaration leaves out")
        self._names = names
        self._required = {name for name, column in offered.values() if is_required(column)}

    async def __call__(self, args: list[Any]) -> str:
        """Makes the call. Raises ToolError; its kind is `timeout` where the server took too long."""
        tool = self._tool
        given = dict(zip(self._names.values(), args, strict=True))
        # What may be left out is left out where it is null.
        arguments = {name: value for name, value in given.items() if value is not None or name in self._required}
        seconds = tool.timeout or TIME_LIMIT
        try:
            async with asyncio.timeout(seconds) as timer, holding():
                result = await self._server.call(self._listed, arguments, again=self._again)
        except TimeoutError:
            late = ToolError(f"{tool.name}: no result within {seconds:g} s")
            if timer.expired():
                late.kind = "timeout"
            raise late from None
        except ToolError as error:
            raise ToolError(f"{tool.name}: {error}") from None
        return self._server.clean_result(result_text(self._value(result), tool.returns, tool.name, tool.max_bytes))

    def close(self) -> None:
        """Nothing is held: the conversation is the run's."""

    def _value(self, result: mcp_types.CallToolResult) -> Any:
        """The value of a result: its structured content, else its text. Raises ToolError for what has neither."""
        name, returns = self._tool.name, required(self._tool.returns)
        texts: list[str] = []
        for block in result.content:
            text = getattr(block, "text", None)
            if not isinstance(text, str):
                if result.structured_content is None and not result.is_error:
                    raise ToolError(f"{name} gave {block.type} content, which is no text")
                continue
            texts.append(text)
        said = "\n".join(texts)
        if result.is_error:
            shown = " ".join(self._server.clean(said).split())[:_EXCERPT]
            raise ToolError(f"{name} failed" + (f": {shown}" if shown else ""))
        if returns == TEXT:
            return said
        structured: Any = result.structured_content
        if structured is not None:
            # A server that may give records alone wraps what is none.
            wraps = isinstance(structured, dict) and structured.keys() == {"result"}
            is_wrapped = wraps and not (isinstance(returns, Record) and returns.field("result") is not None)
            return structured["result"] if is_wrapped and returns != JSON else structured
        try:
            return json.loads(said, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            if returns != JSON:
                raise ToolError(f"{name} gave a text that is not JSON: {said[:80]!r}") from None
            return said


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def declaration(server: str, listed: mcp_types.Tool, effects: str | None) -> str:
    """The declaration of a listed tool as the language writes it, ready to be put into a workflow."""
    from helix.canonical import to_json_text
    from helix.schema import has_default
    from helix.tools.types import word
    from helix.types import quote

    params = []
    for _, column in columns_of_schema(listed.input_schema):
        default = f" = {to_json_text(column.default)}" if has_default(column) else ""
        params.append(f"{column.name}: {column.type}{default}")
    returns = JSON if listed.output_schema is None else type_of_schema(listed.output_schema)
    if isinstance(returns, Record) and [name for name, _ in returns.fields] == ["result"]:
        # What is no record is wrapped in one, and unwrapped again where it is called.
        returns = returns.fields[0][1]
    traits = [] if effects is None or effects == "unknown" else [f"effects {effects}"]
    if listed.description:
        traits.append(f"description {quote(' '.join(listed.description.split())[:200])}")
    head = f"tool {word(listed.name)}({', '.join(params)}) -> {returns} from mcp {quote(f'{server}:{listed.name}')}"
    return head + (f" {', '.join(traits)}" if traits else "")
