"""A server on a thread of its own that answers as a test tells it: whole replies, half ones, resets, silence."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any


@dataclass(slots=True, kw_only=True)
class Call:
    """One request as it came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def route(self) -> str:
        """The path without its query."""
        return self.path.partition("?")[0]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(slots=True, kw_only=True)
class Answer:
    """What to send. `end` is `whole`, `half` of it, `reset`, `silence` (till the client goes) or `half+silence`.

    `raw` is sent as it stands instead, and the connection closed. With `drip` that many seconds pass before each byte.
    """

    body: bytes | str | dict[str, Any] | list[Any] = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    end: str = "whole"
    raw: bytes | None = None
    drip: float = 0.0


Respond = Callable[[Call], Answer | None]


def completion(text: str | None, **more: Any) -> Answer:
    """A chat completion with this text."""
    message = {"role": "assistant", "content": text}
    body = {
        "id": "c",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": more.pop("finish", "stop")}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9},
    }
    return Answer(body={**body, **more})


def models(*entries: str | dict[str, Any]) -> Answer:
    """The list of models."""
    return Answer(body={"object": "list", "data": [e if isinstance(e, dict) else {"id": e} for e in entries]})


class FakeServer:
    """Use as a context manager. What `respond` leaves (None) is a 404, but GET /v1/models has one model, `m`.

    `calls` are the requests in order of arrival, `peak` the most that were being answered at once, `connections` how
    many were opened, `left` how many clients went away before they had their answer. With `port` it listens there, as
    a server that was started again does.
    """

    def __init__(self, respond: Respond, *, port: int = 0) -> None:
        self._respond = respond
        self.calls: list[Call] = []
        self.in_flight = self.peak = self.connections = self.left = 0
        self.port = port
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._open: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def chats(self) -> list[Call]:
        """The chat completions among the calls."""
        return [call for call in self.calls if call.route == "/v1/chat/completions"]

    def __enter__(self) -> FakeServer:
        self._thread.start()
        assert self._started.wait(10)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Goes away as a killed server does: connections are closed, and nothing listens any more."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", self.port))
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        self._loop.run_forever()
        server.close()
        # In rounds: a connection that was just taken is not known yet.
        for _ in range(3):
            self._loop.run_until_complete(asyncio.sleep(0.01))
            open_ = set(self._open)
            for task in open_:
                task.cancel()
            # A task that never began closes nothing, and one that is done may have left something to be sent.
            for writer in self._writers:
                writer.transport.abort()
            self._loop.run_until_complete(asyncio.gather(*open_, return_exceptions=True))
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._serve(reader, writer))
        self._open.add(task)
        self._writers.append(writer)
        task.add_done_callback(self._open.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while (call := await _read(reader)) is not None:
                self.calls.append(call)
                answer = self._respond(call) or (models("m") if call.route == "/v1/models" else Answer(status=404))
                self.in_flight += 1
                self.peak = max(self.peak, self.in_flight)
                try:
                    stays = await self._answer(answer, reader, writer)
                finally:
                    self.in_flight -= 1
                if not stays:
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answer(self, answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Sends it; false where the connection is not to be used again."""
        if answer.delay and await self._leaves(reader, answer.delay):
            return False
        if answer.end == "reset":
            raw_socket: socket.socket = writer.get_extra_info("socket")
            raw_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            return False
        data = answer.raw if answer.raw is not None else _written(answer)
        if answer.end.startswith("half"):
            data = data[: len(data) - 20]
        if answer.drip:
            for number in range(len(data)):
                if await self._leaves(reader, answer.drip):
                    return False
                writer.write(data[number : number + 1])
        elif answer.end != "silence":
            writer.write(data)
            await writer.drain()
        if answer.end.endswith("silence"):
            await self._leaves(reader, 30)
            return False
        return answer.end == "whole" and answer.raw is None

    async def _leaves(self, reader: asyncio.StreamReader, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await reader.read(1)
        except TimeoutError:
            return False
        except ConnectionError:
            pass
        self.left += 1
        return True


def _written(answer: Answer) -> bytes:
    body = answer.body
    if isinstance(body, dict | list):
        body = json.dumps(body)
    raw = body.encode() if isinstance(body, str) else body
    headers = {"content-type": "application/json", **answer.headers, "content-length": str(len(raw))}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {answer.status} X\r\n{head}\r\n".encode() + raw


async def _read(reader: asyncio.StreamReader) -> Call | None:
    head = await reader.readuntil(b"\r\n\r\n") if not reader.at_eof() else b""
    if not head:
        return None
    first, *lines = head.decode().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Call(method=method, path=path, headers=headers, body=body)
