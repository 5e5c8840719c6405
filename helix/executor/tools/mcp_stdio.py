"""A program that speaks MCP over its standard streams: started, spoken to line by line, ended with all it started.

The SDK's own transport reads a line of any length; here one that is too long ends the server, as does endless rubbish.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import mcp_types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

# Seconds that a server has to end by itself once nobody speaks to it any more.
GRACE = 2.0
# Lines that are no messages, after which a server is taken for broken.
MOST_RUBBISH = 1000
# What is kept of what a server says on its standard error.
_TOLD = 2000

Incoming = MemoryObjectSendStream[SessionMessage | Exception]


class StdioServer:
    """A server's process. `why` says what ended the conversation, where that is known."""

    def __init__(
        self, command: str, args: tuple[str, ...], env: Mapping[str, str], cwd: Path | None, most: int
    ) -> None:
        self._command = [command, *args]
        self._env = {**get_default_environment(), **env}
        self._cwd = cwd
        self._most = most
        self._told = ""
        self.why = ""

    @property
    def told(self) -> str:
        """The last line that the server wrote to its standard error."""
        lines = self._told.strip().splitlines()
        return lines[-1].strip() if lines else ""

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[tuple[Any, Any]]:
        """Starts the program; gives the streams of a client. Raises OSError where it cannot be started."""
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._env,
            cwd=self._cwd,
            limit=self._most,
            start_new_session=True,
        )
        incoming, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        to_server, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        tasks = [
            asyncio.create_task(self._read(process, incoming)),
            asyncio.create_task(self._write(process, outgoing, incoming)),
            asyncio.create_task(self._listen(process)),
        ]
        try:
            yield from_server, to_server
        finally:
            for stream in (from_server, to_server):
                stream.close()
            await asyncio.shield(_end(process))
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for stream in (incoming, outgoing):
                stream.close()

    async def _read(self, process: asyncio.subprocess.Process, incoming: Incoming) -> None:
        assert process.stdout is not None
        rubbish = 0
        async with incoming:
            while True:
                try:
                    line = await process.stdout.readline()
                except ValueError:
                    self.why = f"it sent a message of more than {self._most:,} bytes"
                    break
                if not line:
                    await self._note_end(process)
                    return
                message = _parsed(line)
                rubbish += isinstance(message, Exception)
                if rubbish > MOST_RUBBISH:
                    self.why = "it sends lines that are no messages"
                    break
                try:
                    await incoming.send(message)
                except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                    return
        _kill(process)

    async def _write(
        self,
        process: asyncio.subprocess.Process,
        outgoing: MemoryObjectReceiveStream[SessionMessage],
        incoming: Incoming,
    ) -> None:
        assert process.stdin is not None
        try:
            async with outgoing:
                async for each in outgoing:
                    text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                    process.stdin.write(text.encode("utf-8", "replace") + b"\n")
                    await process.stdin.drain()
        except (OSError, anyio.ClosedResourceError, anyio.BrokenResourceError):
            await self._note_end(process)
            incoming.close()

    async def _note_end(self, process: asyncio.subprocess.Process) -> None:
        """Notes how a program ended that speaks no more."""
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                await process.wait()
        code = process.returncode
        self.why = self.why or ("it speaks no more" if code is None else f"it ended with exit code {code}")

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        """Keeps the end of what the server writes to its standard error."""
        assert process.stderr is not None
        while piece := await process.stderr.read(4096):
            self._told = (self._told + piece.decode("utf-8", "replace"))[-_TOLD:]


def _parsed(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except (ValueError, RecursionError):
        pass
    try:
        # Half a character (a lone surrogate) in a text makes no message unreadable.
        whole = json.dumps(json.loads(line.decode("utf-8", "replace")), ensure_ascii=False).encode("utf-8", "replace")
        return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(whole, by_name=False))
    except (ValueError, RecursionError) as error:
        return error


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ends a program: its input is closed, then, after a while, it is killed with all that it started."""
    if process.stdin is not None:
        with suppress(OSError, RuntimeError):
            process.stdin.close()
    with suppress(TimeoutError):
        async with asyncio.timeout(GRACE):
            await process.wait()
    _kill(process)
    with suppress(TimeoutError):
        async with asyncio.timeout(GRACE):
            await process.wait()
    # Whatever still holds the pipes open, nobody reads them any more.
    transport = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()


def _kill(process: asyncio.subprocess.Process) -> None:
    """Kills a program and its process group, which it leads."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
